"""What the host gives an engine beside the engine: labels, subordinate ids, a stay, room, private keys.

Each answer is a file or one system call away, so it is asked anew for each launch and never kept.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.containers import EngineFacts
from backend.probe import HostCheck, ProbeLine, ProbeState
from images.errors import LaunchReason

NEEDED_IDS: Final = 65_536  # what an image's ids are numbered within
MIB: Final = 1024 * 1024
# Below the first a launch would fail half-way; below the second the next image or build does.
LEAST_BYTES, LOW_BYTES = 256 * MIB, 4096 * MIB
LEAST_INODES, LOW_INODES = 1_000, 50_000
_MAX_FILE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What is looked at. ``facts``: None when no engine answers; ``uid_map``: empty when it was not seen.

    ``state``: the state root. ``keys``: where builder's and verifier's private keys would be.
    ``root``: what this host's own files lie below; another in tests alone.
    """

    facts: EngineFacts | None
    uid_map: tuple[tuple[int, int, int], ...]
    state: Path
    keys: tuple[Path, ...]
    root: Path = Path("/")

    @property
    def uid(self) -> int:
        """Whose rights the engine has, or would have."""
        return os.geteuid() if self.facts is None else engine_uid(self.facts)

    @property
    def rootful(self) -> bool:
        """An engine of root needs neither subordinate ids nor a stay."""
        return self.uid == 0 if self.facts is None else not self.facts.rootless


def look_at_host(host: Host) -> tuple[ProbeLine, ...]:
    """One line for each :class:`HostCheck`, in their order."""
    return (
        _selinux(host),
        _subordinate_ids(host),
        _linger(host),
        *_room(host),
        _keys(host),
    )


def _selinux(host: Host) -> ProbeLine:
    enforce = _read(host.root / "sys/fs/selinux/enforce").strip()
    if enforce not in ("0", "1"):
        return _line(HostCheck.SELINUX, ProbeState.HELD, "not on this host")
    mode = "enforcing" if enforce == "1" else "permissive"
    if host.facts is None:
        return _line(HostCheck.SELINUX, ProbeState.UNKNOWN, f"{mode}; no engine says whether it uses labels")
    labels = any(option.split(",")[0] == "name=selinux" for option in host.facts.security_options)
    if labels:
        return _line(HostCheck.SELINUX, ProbeState.HELD, f"{mode}, and the engine labels its containers")
    return _line(
        HostCheck.SELINUX,
        ProbeState.NOT_HELD,
        f"{mode}, and the engine does not label its containers",
        'set "selinux-enabled": true in Docker\'s daemon.json, or label = true in containers.conf',
        LaunchReason.SELINUX,
    )


def _subordinate_ids(host: Host) -> ProbeLine:
    if host.rootful:
        return _line(HostCheck.SUBORDINATE_IDS, ProbeState.HELD, "none needed: the engine is root's")
    seen = sum(count for _, _, count in host.uid_map)
    if seen >= NEEDED_IDS:
        return _line(HostCheck.SUBORDINATE_IDS, ProbeState.HELD, f"{seen} ids inside a container")
    name = _name(host.uid)
    found = {
        file: _granted(_read(host.root / "etc" / file), {name, str(host.uid)})
        for file in ("subuid", "subgid")
    }
    detail = f"{name} has {found['subuid']} in /etc/subuid and {found['subgid']} in /etc/subgid"
    if seen:
        detail += f", {seen} inside a container"
    elif min(found.values()) >= NEEDED_IDS:
        return _line(HostCheck.SUBORDINATE_IDS, ProbeState.HELD, detail)
    return _line(
        HostCheck.SUBORDINATE_IDS,
        ProbeState.NOT_HELD,
        f"{detail}; {NEEDED_IDS} are needed",
        f"as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}"
        " (a range that nobody else has), then restart the engine",
        LaunchReason.SUBORDINATE_IDS,
    )


def _granted(text: str, names: set[str]) -> int:
    """How many ids the lines ``name:first:count`` of these names grant."""
    fields = [line.strip().split(":") for line in text.splitlines()]
    return sum(int(one[2]) for one in fields if len(one) == 3 and one[0] in names and one[2].isdecimal())


def _linger(host: Host) -> ProbeLine:
    if host.rootful:
        return _line(HostCheck.LINGER, ProbeState.HELD, "not needed: root's engine has no login to end")
    # Where systemd is not PID 1, nothing ends a user's processes with his last login.
    if not (host.root / "run/systemd/system").is_dir():
        return _line(HostCheck.LINGER, ProbeState.HELD, "not needed: no systemd runs this host")
    name = _name(host.uid)
    if (host.root / "var/lib/systemd/linger" / name).exists():
        return _line(HostCheck.LINGER, ProbeState.HELD, f"on for {name}")
    return _line(
        HostCheck.LINGER,
        ProbeState.NOTED,
        f"off for {name}: the engine and its containers end with {name}'s last login",
        f"loginctl enable-linger {name}",
    )


def _room(host: Host) -> tuple[ProbeLine, ...]:
    places = [host.state]
    if host.facts is not None and host.facts.storage_root.startswith("/") and not host.facts.remote:
        places.append(Path(host.facts.storage_root))
    found: list[tuple[Path, os.statvfs_result]] = []
    for place in places:
        try:
            found.append((place, os.statvfs(place)))
        except OSError as refused:
            why = f"{place}: {refused.strerror}"
            return tuple(
                _line(name, ProbeState.UNKNOWN, why, f"df {place}", LaunchReason.HOST_ROOM)
                for name in (HostCheck.DISK, HostCheck.INODES)
            )
    room = [(place, one.f_bavail * one.f_frsize) for place, one in found]
    # Some file systems make inodes as they are needed, and say 0 of 0.
    nodes = [(place, one.f_favail if one.f_files else None) for place, one in found]
    return (
        _least(HostCheck.DISK, room, LEAST_BYTES, LOW_BYTES, "builder gc, or a larger disk"),
        _least(HostCheck.INODES, nodes, LEAST_INODES, LOW_INODES, "builder gc, or a file system with more"),
    )


def _least(
    name: HostCheck, found: Iterable[tuple[Path, int | None]], least: int, low: int, remedy: str
) -> ProbeLine:
    counted = [(left, place) for place, left in found if left is not None]
    if not counted:
        return _line(name, ProbeState.HELD, "not counted by this file system")
    left, _ = min(counted)
    of_bytes = name is HostCheck.DISK
    said = ", ".join(f"{n // MIB} MiB" if of_bytes else str(n) for n, _ in counted)
    detail = f"{said} free at {', '.join(str(place) for _, place in counted)}"
    if left < least:
        return _line(name, ProbeState.NOT_HELD, detail, remedy, LaunchReason.HOST_ROOM)
    return _line(name, ProbeState.NOTED if left < low else ProbeState.HELD, detail, remedy)


def _keys(host: Host) -> ProbeLine:
    exposed = readable_keys(host.keys, engine_uid=host.uid)
    if not exposed:
        return _line(
            HostCheck.KEYS, ProbeState.HELD, "the engine's user reads no builder's or verifier's key"
        )
    return _line(
        HostCheck.KEYS,
        ProbeState.ACCEPTABLE,
        f"the engine's user can read signing keys: {', '.join(map(str, exposed))}",
        "keep builder and verifier keys under another user, or accept keys-readable-by-engine by name",
        LaunchReason.KEYS_READABLE,
    )


def readable_keys(keys: Iterable[Path], *, engine_uid: int) -> tuple[Path, ...]:
    """Which of these private keys the engine's user can read; a file that is not there cannot be read.

    Whoever escapes from a container is at most the engine's user.
    """
    found = []
    for path in keys:
        try:
            status = path.stat()
        except OSError:
            continue
        owner = status.st_uid == engine_uid and status.st_mode & 0o400
        if engine_uid == 0 or owner or status.st_mode & 0o044:
            found.append(path)
    return tuple(found)


def engine_uid(facts: EngineFacts) -> int:
    """Whose rights the engine has on this host: root's, the owner's of its socket, or ours."""
    if not facts.rootless:
        return 0
    if facts.endpoint.startswith("unix://"):
        try:
            return Path(facts.endpoint.removeprefix("unix://")).stat().st_uid
        except OSError:
            return os.getuid()
    return os.getuid()


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def _line(
    name: HostCheck,
    state: ProbeState,
    detail: str,
    remedy: str = "",
    reason: LaunchReason = LaunchReason.ENGINE_MODE,
) -> ProbeLine:
    held = state is ProbeState.HELD
    return ProbeLine(name=name, state=state, detail=detail, remedy="" if held else remedy, reason=reason)
