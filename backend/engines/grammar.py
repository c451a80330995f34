"""Which container plans an engine dialect may translate, and the only way one of them becomes an argument."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final, NoReturn

from backend.containers import ContainerPlan, ExecPlan, Network, Purpose, VolumePlan
from images.credential_places import HARMLESS_NAMES, SECRET_NAMES, SECRET_WORDS
from images.errors import HostError
from images.redaction import redact
from images.relay import NETWORK_PLACE

SHM_BYTES: Final = (
    64 * 1024 * 1024
)  # /dev/shm, the one tmpfs that engines add by themselves, with a planned size
HARDENED: Final = frozenset({Purpose.LAUNCH, Purpose.DETECT, Purpose.PROBE, Purpose.FILL})

_READ_ONLY_TARGETS: Final = {
    Purpose.LAUNCH: frozenset({"/source", NETWORK_PLACE}),
    Purpose.PROBE: frozenset({"/source"}),
}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_LABEL: Final = re.compile(r"[a-z0-9][a-z0-9._/-]{0,127}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HOST: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ID: Final = re.compile(r"[0-9a-f]{64}")
_MAX_ID: Final = 65_533  # 65534 is nobody; a rootless engine maps no more than 65,536 ids
_MAX_ARGUMENT: Final = 128 * 1024 - 1  # what Linux takes in one argument


def flag(name: str, value: str) -> str:
    """One argument ``--name=value``: a value can never be read as a flag of its own."""
    return f"--{name}={value}"


def container_id(text: str) -> str:
    """A full container id as an engine prints it; anything else is refused before it reaches an argv."""
    if not _ID.fullmatch(text):
        raise HostError(f"not a container id: {text[:80]!r}")
    return text


def volume_name(text: str) -> str:
    """The name of a volume of ours; anything else is refused before it reaches an argv."""
    if not _NAME.fullmatch(text):
        raise HostError(f"not a volume name: {text[:80]!r}")
    return text


def check_volume(plan: VolumePlan) -> None:
    """Refuse a volume with a name or label that an engine could read otherwise, or without labels."""
    volume_name(plan.name)
    for name, value in plan.labels:
        plain = _LABEL.fullmatch(name) and value.isprintable() and len(value) <= 256
        if not plain or redact(value) != value:
            raise HostError(f"not a label of a volume: {name[:80]!r}")
    if not plan.labels or len(dict(plan.labels)) != len(plan.labels):
        raise HostError(f"volume {plan.name} has no labels, or one of them twice")


def check_plan(plan: ContainerPlan) -> None:
    """Refuse a plan that breaks its purpose's rules or holds text that an engine could read otherwise."""
    _check_texts(plan)
    _check_paths(plan)
    if plan.purpose in HARDENED:
        _check_hardened(plan)
    if plan.network is Network.ORDINARY and plan.purpose is not Purpose.RESOLVE:
        _refuse(plan, "only the resolver has a network")
    if plan.private_binds and plan.purpose is not Purpose.BUILD:
        _refuse(plan, "only the build container has a writable bind")
    bindable = _READ_ONLY_TARGETS.get(plan.purpose, frozenset())
    if not {bind.target for bind in plan.read_only_binds} <= bindable:
        _refuse(plan, "only /source and a launch's network are bound read-only")
    if plan.named_volumes and plan.purpose not in (Purpose.LAUNCH, Purpose.FILL):
        _refuse(plan, "only a launch, and what fills its volumes, has a volume of its own")
    if plan.user is None and plan.purpose in HARDENED:
        _refuse(plan, "no user is named")
    for number in (*(plan.user or ()), *plan.extra_groups):
        if not 0 <= number <= _MAX_ID:
            _refuse(plan, f"id {number} is out of range")


def check_exec(plan: ExecPlan) -> None:
    """Refuse a command that an engine could read otherwise."""
    if not plan.argv or not plan.argv[0]:
        raise HostError("an empty command cannot be run in a container")
    for text in (*plan.argv, *(value for _, value in plan.environment)):
        if "\0" in text or len(text.encode("utf-8", "surrogateescape")) > _MAX_ARGUMENT:
            raise HostError("an argument of the command is too long or holds a zero byte")
    for name, value in plan.environment:
        if not _VARIABLE.fullmatch(name):
            raise HostError(f"not a variable name: {name[:80]!r}")
        if _is_secret(name, value):
            raise HostError(f"variable {name[:80]} looks like a credential, and argv is no place for one")
    if not all(0 <= number <= _MAX_ID for number in plan.user):
        raise HostError(f"user {plan.user} is out of range")
    if not _is_plain_path(plan.working_dir):
        raise HostError(f"not an absolute path: {plan.working_dir[:200]!r}")


def argument_bytes(arguments: Iterable[str]) -> int:
    """Bytes that these arguments take on the kernel's argument list."""
    return sum(len(text.encode("utf-8", "surrogateescape")) + 1 for text in arguments)


def _check_hardened(plan: ContainerPlan) -> None:
    if plan.user is not None and plan.user[0] == 0:
        _refuse(plan, "PID 1 would be root")
    if not plan.read_only_root:
        _refuse(plan, "the root file system would be writable")
    if plan.network is not Network.NONE:
        _refuse(plan, "it would have a network")


def _check_texts(plan: ContainerPlan) -> None:
    if not _NAME.fullmatch(plan.name):
        _refuse(plan, f"not a container name: {plan.name[:120]!r}")
    if not _HOST.fullmatch(plan.hostname):
        _refuse(plan, f"not a host name: {plan.hostname[:80]!r}")
    _check_named(plan)
    texts = (*plan.entrypoint, *plan.arguments, *(value for _, value in plan.environment))
    if any("\0" in text or argument_bytes((text,)) > _MAX_ARGUMENT for text in texts):
        _refuse(plan, "an argument is too long or holds a zero byte")
    if plan.entrypoint and not plan.entrypoint[0].startswith("/"):
        _refuse(plan, "the entry point is not an absolute path")


def _check_named(plan: ContainerPlan) -> None:
    """Labels and variables: each named once, by a plain name, and no credential."""
    for name, value in plan.labels:
        plain = _LABEL.fullmatch(name) and value.isprintable() and len(value) <= 256
        if not plain or redact(value) != value:
            _refuse(plan, f"not a label: {name[:80]!r}")
    for name, value in plan.environment:
        if not _VARIABLE.fullmatch(name):
            _refuse(plan, f"not a variable name: {name[:80]!r}")
        if _is_secret(name, value):
            _refuse(plan, f"variable {name[:80]} looks like a credential, and argv is no place for one")
    if len(dict(plan.environment)) != len(plan.environment) or len(dict(plan.labels)) != len(plan.labels):
        _refuse(plan, "a variable or label is named twice")


def _check_paths(plan: ContainerPlan) -> None:
    sources = [str(item.source) for item in plan.read_only_binds]
    sources += [str(item.source) for item in plan.private_binds]
    targets = [item.path for item in plan.tmpfs]
    targets += [item.target for item in plan.read_only_binds]
    targets += [item.target for item in plan.private_binds]
    targets += plan.volumes
    targets += [item.target for item in plan.named_volumes]
    for path in (plan.working_dir, *targets, *sources):
        if not _is_plain_path(path):
            _refuse(plan, f"not a plain absolute path: {path[:200]!r}")
    if len(set(targets)) != len(targets):
        _refuse(plan, "two mounts have the same target")
    for volume in plan.named_volumes:
        volume_name(volume.name)
    for item in plan.tmpfs:
        if item.size <= 0 or not 0 <= item.mode <= 0o1777:
            _refuse(plan, f"tmpfs {item.path} has no size, or a mode out of range")
    if plan.limits is not None and not (
        plan.limits.memory >= 6 * 1024 * 1024 and plan.limits.pids > 0 and 0 < plan.limits.cpus <= 4096
    ):
        _refuse(plan, "a limit is out of range")


def _is_secret(name: str, value: str) -> bool:
    """By its name, or by the shape of its value. Every process of the host can read an argv."""
    upper = name.upper()
    by_word = SECRET_WORDS.search(upper) is not None and not HARMLESS_NAMES.fullmatch(upper)
    return bool(value) and (upper in SECRET_NAMES or by_word or redact(value) != value)


def _is_plain_path(path: str) -> bool:
    """Absolute, normal, printable, and without the separators of mount options."""
    normal = path == "/" or (
        path.startswith("/") and str(PurePosixPath(path)) == path and ".." not in path.split("/")
    )
    return normal and not path.startswith("//") and path.isprintable() and not set(path) & set(',:"=\\')


def _refuse(plan: ContainerPlan, why: str) -> NoReturn:
    raise HostError(f"container plan {plan.name[:100]!r} ({plan.purpose.value}) is not allowed: {why}")
