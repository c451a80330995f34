"""Generated files and directories, and the one deterministic tar that carries them into an image."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RootEntry:
    """One generated file (``content``), directory (neither) or symbolic link (``link``).

    ``path`` has no leading slash. The layer audit runs the generator again and compares every field.
    """

    path: str
    mode: int
    uid: int = 0
    gid: int = 0
    content: bytes | None = None
    link: str = ""

    @property
    def is_directory(self) -> bool:
        """Neither file nor link."""
        return self.content is None and not self.link


def pack_root(entries: Iterable[RootEntry], epoch: int) -> bytes:
    """A ustar archive: entries sorted by path, numeric owners without names, one time stamp."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for entry in sorted(entries, key=lambda entry: entry.path):
            member = tarfile.TarInfo(entry.path)
            member.mode, member.uid, member.gid, member.mtime = entry.mode, entry.uid, entry.gid, epoch
            if entry.is_directory:
                member.type = tarfile.DIRTYPE
            elif entry.link:
                member.type, member.linkname = tarfile.SYMTYPE, entry.link
            content = entry.content or b""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()
