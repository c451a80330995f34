"""Compare what an engine made with what was planned: exact sets, one table of allowances per engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from backend.containers import ContainerPlan, ExecPlan, InspectedContainer, Tmpfs
from backend.inside import EffectiveLimits, InsideFacts, MountFacts, ProcessFacts
from images.errors import LaunchReason, LaunchRefused

WRITABLE_NEVER: Final = ("/", "/etc", "/opt", "/source", "/usr/local/bin")
PAGE: Final = 4096

Item = TypeVar("Item")
Variables: TypeAlias = tuple[tuple[str, str], ...]
UidMap: TypeAlias = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that is not as planned; both sides as short text, never a secret."""

    what: str
    planned: str
    found: str
    reason: LaunchReason = LaunchReason.READ_BACK

    def __str__(self) -> str:
        return f"{self.what}: planned {self.planned[:160]}, found {self.found[:160]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """What one engine adds or writes differently by itself; whatever is not listed here is a difference."""

    environment: tuple[tuple[str, str], ...]  # name, pattern of the whole value
    labels: frozenset[str]
    security_options: frozenset[str]
    pid_modes: frozenset[str]
    ipc_modes: frozenset[str]
    userns_modes: frozenset[str]
    own_tmpfs: bool  # whether mode=, uid= and gid= of a tmpfs are carried out
    watch_groups: frozenset[int]  # groups that PID 1 is given unasked
    joins_entry: bool  # whether an entry point is reported as one text; the argv of PID 1 tells it exactly
    mounts: tuple[tuple[str, str], ...]  # pattern of the target, pattern of the file system type
    packed: tuple[tuple[str, str, int, str], ...]  # its own in a tar of all files: path, kind, mode, link
    packed_shift: int  # what it adds to each id in that tar


# What the OCI runtimes mount into every container: kernel file systems, masked paths, three small files.
_EVERY_CONTAINER: Final = (
    (r"/", r"overlay|fuse\.fuse-overlayfs|btrfs|zfs"),
    (r"/proc", r"proc"),
    (
        r"/proc/(acpi|asound|kcore|keys|latency_stats|timer_list|timer_stats|sched_debug|scsi|interrupts)",
        r"tmpfs|devtmpfs",
    ),
    (r"/proc/(bus|fs|irq|sys|sysrq-trigger)", r"proc"),
    (r"/dev", r"tmpfs"),
    (r"/dev/pts", r"devpts"),
    (r"/dev/mqueue", r"mqueue"),
    (r"/dev/shm", r"tmpfs"),  # noqa: S108  (inside the container)
    (r"/sys", r"sysfs"),
    (r"/dev/(null|zero|full|tty|random|urandom)", r"devtmpfs|tmpfs"),  # bound in by a rootless engine
    (r"/sys/(firmware|dev/block|devices/virtual/powercap)", r"tmpfs|sysfs"),
    (r"/sys/devices/system/cpu/cpu[0-9]+/thermal_throttle", r"tmpfs|sysfs"),
    (r"/sys/fs/cgroup", r"tmpfs|cgroup2"),
    (r"/sys/fs/cgroup/[a-z_,=]+", r"cgroup|cgroup2|tmpfs"),
    (r"/etc/(hosts|hostname|resolv\.conf)", r"[a-z0-9.-]+"),
)
# Of those, what must be read-only. The tmpfs that holds cgroup v1's mount points is root's alone (mode 0755),
# and there is no root inside.
_READ_ONLY: Final = r"/|/sys|/sys/(?!fs/cgroup$).+|/proc/(bus|fs|irq|sys|sysrq-trigger)"
# Empty files that Docker lays below what it will mount, in every container.
_PLACES_OF_MOUNTS: Final = (
    *(".dockerenv", "dev/console"),
    *("etc/hostname", "etc/hosts", "etc/resolv.conf"),
)
_ENGINES: Final = {
    "docker": Allowances(
        environment=(("HOSTNAME", r"agent"),),
        labels=frozenset(),
        security_options=frozenset(),
        pid_modes=frozenset({""}),
        ipc_modes=frozenset({"private"}),
        userns_modes=frozenset({""}),
        own_tmpfs=True,
        watch_groups=frozenset(),
        joins_entry=False,
        mounts=_EVERY_CONTAINER,
        packed=(
            *((f"{path}", "directory", 0o755, "") for path in ("dev", "dev/pts", "dev/shm", "proc", "sys")),
            *((path, "file", 0o755, "") for path in _PLACES_OF_MOUNTS),
            ("etc/mtab", "symbolic link", 0o777, "/proc/mounts"),
        ),
        packed_shift=0,
    ),
    "podman": Allowances(
        environment=(
            ("HOSTNAME", r"agent"),
            ("TERM", r"xterm"),
            ("container", r"podman"),
        ),
        labels=frozenset({"io.podman.annotations.autoremove"}),
        security_options=frozenset(),
        pid_modes=frozenset({"", "private"}),
        ipc_modes=frozenset({"private"}),
        userns_modes=frozenset({"", "private", "nomap"}),
        own_tmpfs=False,
        # Podman 4 adds group 0 to PID 1 of a container with a user namespace, not to an exec. The watch runs
        # init, timeout and cat on a read-only root without capabilities: the group opens nothing to it.
        watch_groups=frozenset({0}),
        joins_entry=True,
        mounts=(
            *_EVERY_CONTAINER,
            (r"/run/\.containerenv", r"[a-z0-9.-]+"),
        ),
        packed=(),
        packed_shift=1,  # the mapping without this user's own id ("nomap") begins one further on
    ),
}


def allowances_of(product: str) -> Allowances:
    """The table of an engine; an engine without one cannot be read back."""
    found = _ENGINES.get(product)
    if found is None:
        raise LaunchRefused(
            LaunchReason.ENGINE_IDENTITY,
            f"engine {product[:40]!r} is not one whose settings can be read back",
            hint="builder doctor",
        )
    return found


def compare_created(
    plan: ContainerPlan, found: InspectedContainer, allowed: Allowances
) -> tuple[Difference, ...]:
    """The engine's account of a created container against its plan."""
    image = plan.image.image.settings
    limits = plan.limits
    command = (*plan.entrypoint[1:], *plan.arguments)
    check = _Comparison()
    check.equal("image id", str(plan.image.id), found.image_id, LaunchReason.IMAGE_ID)
    check.equal("name", plan.name, found.name)
    check.equal("started before it was read back", False, found.running)
    check.equal("user", "" if plan.user is None else f"{plan.user[0]}:{plan.user[1]}", found.user)
    entry = plan.entrypoint[:1] or image.entrypoint
    if allowed.joins_entry and len(found.entrypoint) == 1:
        entry = (" ".join(entry),)
    check.equal("entry point", entry, found.entrypoint)
    check.equal("command", command, found.command)
    check.equal("working directory", plan.working_dir, found.working_dir)
    check.same_set(
        "labels",
        {**dict(image.labels), **dict(plan.labels)}.items(),
        found.labels,
        lambda item: item[0] in allowed.labels,
    )
    _compare_environment(check, "environment", merged_environment(plan), _split(found.environment), allowed)
    check.equal("network", plan.network.value, found.network_mode)
    check.equal("privileged", False, found.privileged)
    check.equal("read-only root", plan.read_only_root, found.read_only_root)
    check.same_set("capabilities added", (), found.capabilities_added)
    check.same_set("capabilities dropped", ("ALL",), (name.upper() for name in found.capabilities_dropped))
    check.same_set(
        "security options",
        ("no-new-privileges",),
        found.security_options,
        allowed.security_options.__contains__,
    )
    check.same_set(
        "mounts",
        _planned_mounts(plan),
        ((m.kind, m.source, m.target, m.writable) for m in found.mounts if m.kind != "tmpfs"),
    )
    check.same_set("tmpfs", (item.path for item in plan.tmpfs), (path for path, _ in found.tmpfs))
    check.same_set("published ports", (), found.published_ports)
    check.same_set("devices", (), found.devices)
    check.same_set("other settings", (), found.unplanned)
    check.same_set("groups", map(str, plan.extra_groups), found.extra_groups)
    check.one_of("pid namespace", allowed.pid_modes, found.pid_mode)
    check.one_of("ipc namespace", allowed.ipc_modes, found.ipc_mode)
    check.one_of("user namespace", allowed.userns_modes, found.userns_mode)
    check.equal("log driver", "none", found.log_driver)
    check.equal("memory limit", limits.memory if limits else 0, max(found.memory, 0))
    check.equal("pids limit", limits.pids if limits else 0, max(found.pids, 0) if limits else 0)
    check.equal("cpu limit", round(limits.cpus, 3) if limits else 0.0, round(found.cpus, 3))
    return check.differences()


def compare_inside(
    plan: ContainerPlan, command: ExecPlan, found: InsideFacts, allowed: Allowances
) -> tuple[Difference, ...]:
    """What the started container shows from inside, as the command's user, against its plan."""
    image = plan.image.image.settings
    check = _Comparison()
    check.equal("PID 1", (*(plan.entrypoint or image.entrypoint), *plan.arguments), found.init_argv)
    _compare_process(check, "PID 1", plan.user or (0, 0), found.init, allowed.watch_groups)
    _compare_process(check, "the agent", command.user, found.process, frozenset())
    expected = dict(merged_environment(plan)) | dict(command.environment)
    _compare_environment(check, "environment inside", tuple(expected.items()), found.environment, allowed)
    check.same_set("network interfaces", ("lo",), found.interfaces)
    _compare_mounts(check, plan, found, allowed)
    writable = dict(found.writable)
    for item in plan.tmpfs:
        its_own = bool(item.mode & 0o002) or item.uid == command.user[0]
        check.equal(f"{item.path} writable by the agent", its_own, writable.get(item.path))
    for volume in plan.named_volumes:
        check.equal(f"{volume.target} writable by the agent", volume.writable, writable.get(volume.target))
    for path in WRITABLE_NEVER:
        check.equal(f"{path} writable by the agent", False, writable.get(path))
    if plan.limits is not None:
        for name, planned, effective in limit_pairs(plan, found.limits):
            check.equal(name, planned, effective, LaunchReason.LIMITS_NOT_ENFORCED)
    return check.differences()


def limit_pairs(plan: ContainerPlan, found: EffectiveLimits) -> tuple[tuple[str, object, object], ...]:
    """Each limit asked for beside what the cgroup inside enforces; the kernel rounds memory to pages."""
    if plan.limits is None:
        return ()
    return (
        ("memory limit inside", plan.limits.memory // PAGE * PAGE, found.memory),
        ("pids limit inside", plan.limits.pids, found.pids),
        (
            "cpu limit inside",
            round(plan.limits.cpus, 3),
            None if found.cpus is None else round(found.cpus, 3),
        ),
    )


def refuse(differences: tuple[Difference, ...], where: str) -> None:
    """Raise LaunchRefused naming every difference; return when there is none."""
    if not differences:
        return
    listed = "; ".join(str(item) for item in differences[:6])
    more = f"; and {len(differences) - 6} more" if len(differences) > 6 else ""
    raise LaunchRefused(
        differences[0].reason,
        f"the container is not what was planned: {listed}{more}",
        where=where,
        hint="builder doctor",
    )


def merged_environment(plan: ContainerPlan) -> tuple[tuple[str, str], ...]:
    """The whole environment of a container: the image's own and the plan's."""
    merged = dict(_split(plan.image.image.settings.environment)) | dict(plan.environment)
    return tuple(sorted(merged.items()))


def _compare_environment(
    check: _Comparison, what: str, planned: Variables, found: Variables, allowed: Allowances
) -> None:
    """Names only in what is told: a value that got in from elsewhere may be a secret."""
    rules = dict(allowed.environment)
    check.same_set(
        what,
        planned,
        found,
        lambda item: item[0] in rules and re.fullmatch(rules[item[0]], item[1]) is not None,
        show=lambda item: item[0],
    )


def _compare_process(
    check: _Comparison, who: str, user: tuple[int, int], found: ProcessFacts, more_groups: frozenset[int]
) -> None:
    check.equal(f"uids of {who}", frozenset({user[0]}), found.uids)
    check.equal(f"gids of {who}", frozenset({user[1]}), found.gids)
    check.equal(f"groups of {who}", frozenset(), found.groups - {user[1]} - more_groups)
    check.equal(f"capabilities of {who}", frozenset(), found.capabilities)
    check.equal(f"no new privileges of {who}", True, found.no_new_privileges)
    check.equal(f"seccomp filter of {who}", 2, found.seccomp)


def _compare_mounts(
    check: _Comparison, plan: ContainerPlan, inside: InsideFacts, allowed: Allowances
) -> None:
    planned = {item.path: item for item in plan.tmpfs}
    binds = {target: writable for _, _, target, writable in _planned_mounts(plan)}
    names = {item.target: item.name for item in plan.named_volumes}
    targets = [mount.target for mount in inside.mounts]
    check.same_set(
        "planned mounts inside", [*planned, *binds], [t for t in targets if t in planned or t in binds]
    )
    for mount in inside.mounts:
        if mount.target in planned:
            _compare_tmpfs(check, planned[mount.target], mount)
            if allowed.own_tmpfs:
                _compare_owner(check, planned[mount.target], mount, inside.uid_map)
        elif mount.target in binds:
            check.equal(f"{mount.target} read-only", not binds[mount.target], "ro" in mount.options)
            name = names.get(mount.target)
            if name is not None:
                check.equal(f"{mount.target} is volume", name, _volume_of(mount))
        elif not any(
            re.fullmatch(target, mount.target) and re.fullmatch(kind, mount.kind)
            for target, kind in allowed.mounts
        ):
            check.equal("mounts inside", "no more", f"{mount.kind} at {mount.target}")
        elif re.fullmatch(_READ_ONLY, mount.target):
            check.equal(f"{mount.target} read-only", True, "ro" in mount.options)


def _compare_tmpfs(check: _Comparison, planned: Tmpfs, found: MountFacts) -> None:
    path = planned.path
    check.equal(f"{path} file system", "tmpfs", found.kind)
    check.equal(f"{path} size", f"size={planned.size // 1024}k", _option(found, "size"))
    check.equal(f"{path} nosuid, nodev", True, {"nosuid", "nodev"} <= found.options)
    check.equal(f"{path} executable", planned.executable, "noexec" not in found.options)


def _compare_owner(check: _Comparison, planned: Tmpfs, found: MountFacts, uid_map: UidMap) -> None:
    """The kernel does not show what equals its default, and shows an owner as the host knows it."""
    path = planned.path
    outside = next(
        (host + planned.uid - first for first, host, count in uid_map if 0 <= planned.uid - first < count), -1
    )
    check.equal(f"{path} mode", f"mode={planned.mode:o}", _option(found, "mode") or "mode=1777")
    check.equal(f"{path} owner", f"uid={outside}", _option(found, "uid") or "uid=0")


def _option(mount: MountFacts, name: str) -> str:
    return next((item for item in sorted(mount.super_options) if item.startswith(name + "=")), "")


def _volume_of(mount: MountFacts) -> str:
    """Both engines keep the volume NAME in a directory NAME/_data of their own disk."""
    found = re.fullmatch(r".*/([^/]+)/_data", mount.root)
    return found[1] if found else mount.root


def _planned_mounts(plan: ContainerPlan) -> tuple[tuple[str, str, str, bool], ...]:
    return (
        *(("bind", str(item.source), item.target, False) for item in plan.read_only_binds),
        *(("bind", str(item.source), item.target, True) for item in plan.private_binds),
        *(("volume", item.name, item.target, item.writable) for item in plan.named_volumes),
    )


def _split(environment: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, _, value in (entry.partition("=") for entry in environment))


class _Comparison:
    """Collects differences, so that a refusal names all of them."""

    def __init__(self) -> None:
        self._found: list[Difference] = []

    def differences(self) -> tuple[Difference, ...]:
        return tuple(self._found)

    def equal(
        self, what: str, planned: object, found: object, reason: LaunchReason = LaunchReason.READ_BACK
    ) -> None:
        if planned != found:
            self._found.append(Difference(what, _text(planned), _text(found), reason))

    def one_of(self, what: str, planned: frozenset[str], found: str) -> None:
        if found not in planned:
            self._found.append(Difference(what, _text(planned), _text(found)))

    def same_set(
        self,
        what: str,
        planned: Iterable[Item],
        found: Iterable[Item],
        allowed: Callable[[Item], bool] | None = None,
        show: Callable[[Item], object] = str,
    ) -> None:
        wanted, seen = list(planned), list(found)
        missing = [item for item in wanted if item not in seen]
        added = [item for item in seen if item not in wanted and not (allowed and allowed(item))]
        added += [item for n, item in enumerate(seen) if item in seen[:n]]
        if missing or added:
            self._found.append(
                Difference(
                    what,
                    f"also {_text([show(item) for item in missing])}" if missing else "no more",
                    f"also {_text([show(item) for item in added])}" if added else "no more",
                )
            )


def _text(value: object) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value))) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
