"""What this host and engine really do, asked from inside containers: the facts that admission decides by."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from backend.containers import (
    ContainerPlan,
    EngineFacts,
    ExecPlan,
    ImageIdKind,
    Limits,
    LoadedImage,
    Purpose,
    Tmpfs,
)
from backend.death_watch import (
    AGENT,
    Watched,
    watch_client_killed,
    watch_controller_killed,
    watch_deadline,
)
from backend.engines.client import complaint
from backend.engines.protocol import Engine
from backend.inside import MAX_ANSWER, InsideFacts, inside_argv, read_inside
from backend.runner import Child, Command, spawn
from backend.shared_files import ask_shared
from backend.tools import TOOL_LABEL, Labels, created
from images.digests import Digest
from images.errors import HostError, LaunchReason
from images.oci import OciImage

WATCH: Final = (997, 997)
# Odd numbers, so that no cgroup of somebody else has them by chance.
LIMITS: Final = Limits(cpus=0.73, memory=203 * 1024 * 1024, pids=173)
SECCOMP_FILTER: Final = 2
DRIVERS: Final = frozenset({"overlay", "overlay2", "fuse-overlayfs", "btrfs", "zfs", "overlayfs"})
GONE_SECONDS: Final = 5.0  # the bound of the death watch; the figure to reach is under one second
DEADLINE_SECONDS: Final = 4
DEADLINE_BOUND: Final = DEADLINE_SECONDS + 5.0 + GONE_SECONDS  # timeout's own KILL comes 5 s after its TERM

_OLDEST: Final = {"docker": (20, 10), "podman": (4, 3)}
_OLDEST_API: Final = {"docker": (1, 41), "podman": (4, 3)}
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class ProbeState(StrEnum):
    """HELD: proved. NOT_HELD: required mode refuses. ACCEPTABLE: refused unless policy accepts it by name.

    NOTED: told, and no launch is refused for it. Of the host alone: UNKNOWN: it could not be asked.
    """

    HELD = "held"
    NOT_HELD = "not-held"
    ACCEPTABLE = "acceptable"
    NOTED = "noted"
    UNKNOWN = "unknown"


class ProbeName(StrEnum):
    """What is probed, in the order of the report."""

    IDENTITY = "engine-identity"
    API = "engine-api"
    LOCAL = "engine-local"
    ROOTLESS = "engine-rootless"
    STORAGE = "storage-driver"
    IMAGE_ID = "image-id"
    USER_NAMESPACE = "user-namespace"
    CAPABILITIES = "no-capabilities"
    NO_NEW_PRIVILEGES = "no-new-privileges"
    SECCOMP = "seccomp"
    NETWORK_NONE = "network-none"
    MEMORY_LIMIT = "memory-limit"
    PIDS_LIMIT = "pids-limit"
    CPU_LIMIT = "cpu-limit"
    DEATH_WATCH = "death-watch"
    CLIENT_DEATH = "death-watch-client"
    DEADLINE = "deadline-inside"
    SHARED_FILES = "shared-files"


class HostCheck(StrEnum):
    """What is asked of the host beside the engine, each time anew, in the order of the report."""

    SELINUX = "selinux"
    SUBORDINATE_IDS = "subordinate-ids"
    LINGER = "linger"
    DISK = "disk"
    INODES = "inodes"
    KEYS = "readable-keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeLine:
    """One answer. ``reason``: what a launch is refused with, and a policy accepts, when it is not held."""

    name: ProbeName | HostCheck
    state: ProbeState
    detail: str
    remedy: str
    reason: LaunchReason


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProbe:
    """All answers of one engine on one boot, asked with one base image."""

    boot_id: str
    base: Digest
    facts: EngineFacts
    id_kind: ImageIdKind
    uid_map: tuple[tuple[int, int, int], ...]
    lines: tuple[ProbeLine, ...]

    def line(self, name: ProbeName) -> ProbeLine:
        """The answer to one question."""
        return next(line for line in self.lines if line.name is name)

    def held(self, name: ProbeName) -> bool:
        """Whether it was proved."""
        return self.line(name).state is ProbeState.HELD

    @property
    def limits_enforced(self) -> bool:
        """Whether all three limits were read back from inside as they were asked for."""
        return all(
            self.held(name) for name in (ProbeName.MEMORY_LIMIT, ProbeName.PIDS_LIMIT, ProbeName.CPU_LIMIT)
        )

    @property
    def not_held(self) -> tuple[ProbeLine, ...]:
        """What required mode refuses, acceptable or not."""
        return tuple(line for line in self.lines if line.state not in (ProbeState.HELD, ProbeState.NOTED))


def boot_id() -> str:
    """The kernel's name of this boot."""
    return _BOOT_ID.read_text().strip()


def probe_host(engine: Engine, base: OciImage, *, init: str, staging: Path, labels: Labels) -> HostProbe:
    """Ask everything, with containers of the base image that are gone afterwards. Takes about ten seconds.

    ``init``: absolute path of the init in the base image. ``staging``: a private directory for loading.
    HostError when the engine cannot even run such a container.
    """
    facts = engine.facts()
    loaded = engine.load(base, staging)
    inside = _look_inside(engine, loaded, init, labels)

    def watched(which: str, seconds: int) -> ContainerPlan:
        return probe_plan(
            loaded, init=init, token=secrets.token_hex(8), labels=labels, name=which, seconds=seconds
        )

    shared = judge_shared(facts, ask_shared(engine, watched("shared", 60), facts, staging))
    with created(engine, watched("watch", 60)) as container:
        killed = watch_controller_killed(engine, container, bound=GONE_SECONDS)
    with created(engine, watched("client", 60)) as container:
        client = watch_client_killed(engine, container, bound=GONE_SECONDS)
    with created(engine, watched("deadline", DEADLINE_SECONDS)) as container:
        deadline = watch_deadline(engine, container, bound=DEADLINE_BOUND)
    return HostProbe(
        boot_id=boot_id(),
        base=base.digest,
        facts=facts,
        id_kind=loaded.id_kind,
        uid_map=inside.uid_map,
        lines=(
            *judge_engine(facts, loaded.id_kind),
            *judge_inside(inside, facts),
            judge_watch(ProbeName.DEATH_WATCH, "controller killed", killed, GONE_SECONDS),
            judge_watch(ProbeName.CLIENT_DEATH, "engine client killed", client, GONE_SECONDS),
            judge_watch(ProbeName.DEADLINE, f"deadline of {DEADLINE_SECONDS} s", deadline, DEADLINE_BOUND),
            shared,
        ),
    )


def probe_plan(
    image: LoadedImage, *, init: str, token: str, labels: Labels, name: str, seconds: int
) -> ContainerPlan:
    """The one plan of a probe's container: the hardening of a launch, on the base image."""
    return ContainerPlan(
        purpose=Purpose.PROBE,
        image=image,
        name=f"agent-image-builder-probe-{name}-{token}",
        labels=(*labels, (TOOL_LABEL, token)),
        entrypoint=(init,),
        arguments=("--", "timeout", "-k5", str(seconds), "cat"),
        user=WATCH,
        hostname="probe",
        tmpfs=(Tmpfs(path="/tmp", size=16 * 1024 * 1024),),  # noqa: S108  (inside the container)
        limits=LIMITS,
        deadline=seconds,
    )


def _look_inside(engine: Engine, image: LoadedImage, init: str, labels: Labels) -> InsideFacts:
    nonce = secrets.token_hex(16)
    plan = probe_plan(image, init=init, token=secrets.token_hex(8), labels=labels, name="inside", seconds=60)
    with created(engine, plan) as container:
        argv, environment = engine.attach_argv(container)
        with spawn(Command(argv=argv, environment=environment, deadline=120.0)) as tether:
            _wait_running(engine, container, tether)
            look = ExecPlan(argv=inside_argv(nonce, "sh", ()), user=AGENT, working_dir="/")
            outcome = engine.exec(container, look, deadline=30.0)
    if not outcome.ok or len(outcome.stdout) > MAX_ANSWER:
        raise HostError(
            f"{engine.product} cannot look into a container (exit code {outcome.exit_code})",
            where=engine.product,
            hint="builder doctor",
        )
    return read_inside(outcome.stdout, nonce)


def _wait_running(engine: Engine, container: str, tether: Child) -> None:
    while (ended := tether.wait(0.02)) is None:
        found = engine.inspect(container)
        if found is not None and found.running:
            return
    raise HostError(
        f"{engine.product} does not start the probe's container: {complaint(ended.stderr)}",
        where=engine.product,
        hint="builder doctor",
    )


def judge_engine(facts: EngineFacts, id_kind: ImageIdKind | None) -> tuple[ProbeLine, ...]:
    """Lines that the engine's own structured answers decide. ``id_kind``: None before an image was loaded."""
    oldest = _OLDEST.get(facts.product)
    new_enough = oldest is not None and _version(facts.version) >= oldest
    needed = "Docker Engine 20.10 or Podman 4.3, or newer"
    return (
        _line(
            ProbeName.IDENTITY,
            new_enough,
            f"{facts.product} {facts.version}, {facts.runtime}",
            f"install {needed}",
            LaunchReason.ENGINE_IDENTITY,
        ),
        _line(
            ProbeName.API,
            _version(facts.api_version) >= _OLDEST_API.get(facts.product, (0, 0)),
            facts.api_version,
            f"install {needed}",
            LaunchReason.ENGINE_IDENTITY,
        ),
        _line(
            ProbeName.LOCAL,
            not facts.remote,
            f"{facts.endpoint} on {facts.host_name}, kernel {facts.kernel}",
            "use an engine that runs on this machine itself, not in a VM or elsewhere",
            LaunchReason.ENGINE_MODE,
        ),
        _line(
            ProbeName.ROOTLESS,
            facts.rootless,
            f"its daemon runs as {'an ordinary user' if facts.rootless else 'root'}",
            "run rootless Docker or rootless Podman as an ordinary user",
            LaunchReason.ENGINE_MODE,
        ),
        _line(
            ProbeName.STORAGE,
            facts.storage_driver in DRIVERS,
            facts.storage_driver,
            "use the overlay storage driver; vfs copies the whole image for each container",
            LaunchReason.STORAGE_DRIVER,
        ),
        *(
            ()
            if id_kind is None
            else (_line(ProbeName.IMAGE_ID, True, f"the {id_kind.value} digest", "", LaunchReason.IMAGE_ID),)
        ),
    )


def judge_inside(inside: InsideFacts, facts: EngineFacts) -> tuple[ProbeLine, ...]:
    """Lines that the kernel's answers inside a container decide."""
    identity = any(first == outside and count > 1 for first, outside, count in inside.uid_map)
    process, init = inside.process, inside.init
    capabilities = process.capabilities | init.capabilities
    privileges = process.no_new_privileges and init.no_new_privileges
    seccomp = process.seccomp == init.seccomp == SECCOMP_FILTER
    limits = inside.limits
    return (
        _line(
            ProbeName.USER_NAMESPACE,
            bool(inside.uid_map) and not identity,
            _mapping(inside.uid_map, identity=identity),
            "run the engine rootless, so that ids inside are subordinate ids outside",
            LaunchReason.ENGINE_MODE,
        ),
        _line(
            ProbeName.CAPABILITIES,
            not capabilities,
            ", ".join(sorted(capabilities)) or "none in any set",
            "builder doctor",
            LaunchReason.READ_BACK,
        ),
        _line(
            ProbeName.NO_NEW_PRIVILEGES,
            privileges,
            "set" if privileges else "not set",
            "builder doctor",
            LaunchReason.READ_BACK,
        ),
        _line(
            ProbeName.SECCOMP,
            seccomp,
            "filter" if seccomp else f"mode {process.seccomp}",
            "switch on the engine's default seccomp profile",
            LaunchReason.READ_BACK,
        ),
        _line(
            ProbeName.NETWORK_NONE,
            inside.interfaces == ("lo",),
            ", ".join(inside.interfaces),
            "builder doctor",
            LaunchReason.READ_BACK,
        ),
        _limit(ProbeName.MEMORY_LIMIT, LIMITS.memory, limits.memory, facts),
        _limit(ProbeName.PIDS_LIMIT, LIMITS.pids, limits.pids, facts),
        _limit(
            ProbeName.CPU_LIMIT, LIMITS.cpus, None if limits.cpus is None else round(limits.cpus, 3), facts
        ),
    )


def _mapping(uid_map: tuple[tuple[int, int, int], ...], *, identity: bool) -> str:
    if identity:
        return "root in a container is root of this machine"
    ids = ", ".join(f"{count} from {first} on are {outside} and on" for first, outside, count in uid_map)
    return f"ids in a container are others on this machine: {ids}" if ids else "nothing is known of it"


def judge_watch(name: ProbeName, event: str, watched: Watched, bound: float) -> ProbeLine:
    """Whether a container under attack ended within its bound, and no watching process was touched."""
    if watched.harm:
        detail = f"the agent reached the processes that watch it: {', '.join(watched.harm)}"
    elif watched.gone_after is None:
        detail = f"{event}: still running after {bound:g} s, with a hostile agent inside"
    else:
        detail = f"{event}: gone after {watched.gone_after:.2f} s, with a hostile agent inside"
    return _line(
        name,
        watched.gone_after is not None and not watched.harm,
        detail,
        "use another engine: this one cannot bound a container's life",
        LaunchReason.DEATH_WATCH,
    )


def judge_shared(facts: EngineFacts, why_not: str) -> ProbeLine:
    """Whether /source may be bound. Where it may not, it is copied in, so no launch is refused for it."""
    return ProbeLine(
        name=ProbeName.SHARED_FILES,
        state=ProbeState.NOTED if why_not else ProbeState.HELD,
        detail=why_not or f"a nonce of ours, bound read-only, was read back inside by {facts.product}",
        remedy="nothing is needed: /source is copied into a volume" if why_not else "",
        reason=LaunchReason.READ_BACK,
    )


def _limit(name: ProbeName, asked: float, found: float | None, facts: EngineFacts) -> ProbeLine:
    seen = f"{asked} asked, {'no limit' if found is None else found} read inside"
    if found == asked:
        return _line(name, True, seen, "", LaunchReason.LIMITS_NOT_ENFORCED)
    return ProbeLine(
        name=name,
        state=ProbeState.ACCEPTABLE,
        detail=f"{seen} (cgroup {facts.cgroup_version}, driver {facts.cgroup_driver})",
        remedy="use cgroup v2 with delegated controllers, or accept limits-not-enforced in policy.toml",
        reason=LaunchReason.LIMITS_NOT_ENFORCED,
    )


def _line(name: ProbeName, held: bool, detail: str, remedy: str, reason: LaunchReason) -> ProbeLine:
    state = ProbeState.HELD if held else ProbeState.NOT_HELD
    return ProbeLine(name=name, state=state, detail=detail, remedy="" if held else remedy, reason=reason)


def _version(text: str) -> tuple[int, int]:
    parts = text.split(".")
    if len(parts) < 2 or not parts[0].isdecimal() or not parts[1].isdecimal():
        return (0, 0)
    return int(parts[0]), int(parts[1])
