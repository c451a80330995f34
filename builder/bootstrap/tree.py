"""Turn the tar of a fresh Debian tree into entries, without anything that differs between two makings."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from builder.bootstrap.files import Content, Entry, Kind, Stretch, collect, read
from images.errors import BuildFailed

_SECONDS_PER_DAY: Final = 86400
_KINDS: Final = {
    tarfile.REGTYPE: Kind.FILE,
    tarfile.AREGTYPE: Kind.FILE,
    tarfile.DIRTYPE: Kind.DIRECTORY,
    tarfile.SYMTYPE: Kind.SYMLINK,
    tarfile.LNKTYPE: Kind.HARDLINK,
}
_DEVICES: Final = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)

# What names a mirror, this host or this moment, or has no business in an image. Engines make devices.
_DROPPED: Final = re.compile(
    r"""
      (dev|proc|sys|run|tmp|var/tmp)/.+
    | etc/apt/sources\.list(\.d/.+)?
    | etc/apt/apt\.conf\.d/99mmdebstrap | etc/dpkg/dpkg\.cfg\.d/99mmdebstrap
    | etc/(resolv\.conf|hostname|machine-id|mtab)
    | etc/(passwd|group|shadow|gshadow|subuid|subgid)-
    | etc/\.pwd\.lock
    | etc/ssh/ssh_host_.+
    | var/lib/dbus/machine-id
    | var/lib/apt/lists/.+
    | var/lib/dpkg/([a-z]+-old|lock|lock-frontend|triggers/Lock)
    | var/cache/apt/.+ | var/cache/ldconfig/.+ | var/cache/debconf/[a-z.]+-old
    """,
    re.VERBOSE,
)
_KEPT: Final = frozenset({"run/lock"})  # the base-files package's own directories
_LOGS: Final = "var/log/"  # its directories stay, programs expect them; the files go


def read_tree(tar: Path, epoch: int) -> dict[str, Entry]:
    """The entries of an uncompressed tar of a whole Debian tree; ``epoch`` dates the password file.

    Raises BuildFailed for an entry that no image of ours may hold.
    """
    try:
        with tarfile.open(tar, "r:") as archive:
            entries = collect(_entries(archive, tar))
    except tarfile.TarError as broken:
        raise BuildFailed(f"mmdebstrap wrote a tar that cannot be read: {broken}", where=str(tar)) from None
    shadow = entries.get("etc/shadow")
    if shadow is not None:
        entries["etc/shadow"] = replace(shadow, content=_dated(read(shadow.content), epoch))
    return entries


def _entries(archive: tarfile.TarFile, tar: Path) -> Iterator[Entry]:
    for member in archive:
        path = member.name.removeprefix("./").rstrip("/")
        if path in ("", ".") or _is_dropped(path, member):
            continue
        if member.type not in _KINDS or path.startswith("/") or ".." in path.split("/"):
            raise BuildFailed(f"an entry of an unexpected kind or path: {path[:200]!r}", where=str(tar))
        kind = _KINDS[member.type]
        content: Content = b""
        if kind is Kind.FILE:
            content = Stretch(tar, member.offset_data, member.size)
        target = member.linkname.removeprefix("./") if kind is Kind.HARDLINK else member.linkname
        yield Entry(
            path=path,
            kind=kind,
            mode=member.mode & 0o7777,
            uid=member.uid,
            gid=member.gid,
            content=content,
            target=target if kind in (Kind.HARDLINK, Kind.SYMLINK) else "",
        )


def _is_dropped(path: str, member: tarfile.TarInfo) -> bool:
    if member.type in _DEVICES and path.startswith("dev/"):
        return True
    if path.startswith(_LOGS):
        return not member.isdir()
    return path not in _KEPT and _DROPPED.fullmatch(path) is not None


def _dated(shadow: bytes, epoch: int) -> bytes:
    """/etc/shadow with the day of the last change set to that of ``epoch``."""
    day = str(epoch // _SECONDS_PER_DAY).encode()
    lines = []
    for line in shadow.splitlines(keepends=True):
        fields = line.split(b":")
        if len(fields) > 2 and fields[2].isdigit():
            fields[2] = day
        lines.append(b":".join(fields))
    return b"".join(lines)
