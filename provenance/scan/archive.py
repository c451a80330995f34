"""Open a saved image, an OCI layout directory, an OCI archive or `docker save`, as named blobs to scan."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from images.errors import UsageError, VerifyFailed
from provenance.scan.sniff import SNIFF_BYTES, is_tar
from provenance.scan.tarwalk import Member, MemberKind, TarWalker, Unreadable, link_target

MAX_FILES: Final = 100_000
_CHUNK: Final = 1 << 20


class Blobs(Protocol):
    """Files by name (no leading slash); reading raises VerifyFailed."""

    def names(self) -> tuple[str, ...]:
        """All of them, sorted."""

    def open(self, name: str) -> BinaryIO:
        """One, seekable."""

    def size(self, name: str) -> int:
        """Its bytes."""


def open_archive(path: Path) -> Blobs:
    """By what it is: a directory or a tar. Raises UsageError when it is neither, VerifyFailed when broken."""
    if path.is_dir():
        return DirectoryBlobs(path)
    try:
        file = path.open("rb")
    except OSError as broken:
        raise UsageError(f"cannot be read: {broken.strerror}", where=str(path)) from None
    with file:
        head = file.read(SNIFF_BYTES)
        if not is_tar(head):
            raise UsageError(
                "neither an OCI layout nor an uncompressed saved archive",
                where=str(path),
                hint="decompress it, or save it with: docker save --output FILE IMAGE",
            )
    return TarBlobs(path)


class DirectoryBlobs:
    """An OCI layout directory. Links and special files are refused: they may lead outside."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sizes = dict(_walk(root))

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._sizes))

    def size(self, name: str) -> int:
        return self._sizes[name]

    def open(self, name: str) -> BinaryIO:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            return os.fdopen(os.open(self._root / name, flags), "rb")
        except OSError as broken:
            raise VerifyFailed(f"cannot be read: {broken.strerror}", where=name) from None


class TarBlobs:
    """A saved archive: its members by offset; a link among them leads to another member."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._members: dict[str, Member] = {}
        self._links: dict[str, str] = {}
        walker = TarWalker(self._on_member, _ignore_content, _ignore_text)
        with path.open("rb") as file:
            try:
                while chunk := file.read(_CHUNK):
                    walker.feed(memoryview(chunk))
                walker.finish()
            except Unreadable as broken:
                raise VerifyFailed(str(broken), where=str(path)) from None

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    def size(self, name: str) -> int:
        return self._find(name).size

    def open(self, name: str) -> BinaryIO:
        member = self._find(name)
        raw = _Section(self._path, member.start, member.size)
        return cast(BinaryIO, io.BufferedReader(raw, buffer_size=_CHUNK))

    def _find(self, name: str) -> Member:
        """Old `docker save` links equal layers: ``../ID/layer.tar`` beside the link."""
        for _ in range(8):
            if name in self._members:
                return self._members[name]
            if name not in self._links:
                break
            name = self._links[name]
        raise VerifyFailed("not in the archive", where=name)

    def _on_member(self, member: Member) -> bool:
        if len(self._members) + len(self._links) >= MAX_FILES:
            raise Unreadable(f"more than {MAX_FILES} files")
        if member.name in self._members or member.name in self._links:
            raise Unreadable(f"two members are called {member.name[:100]!r}: readers differ on it")
        if member.kind is MemberKind.FILE:
            self._members[member.name] = member
        elif member.kind in (MemberKind.HARD_LINK, MemberKind.SYMLINK):
            self._links[member.name] = link_target(member)
        return False


class _Section(io.RawIOBase):
    """A part of a file as a file."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        super().__init__()
        self._file = path.open("rb")
        self._start = start
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        count = min(len(buffer), max(0, self._size - self._position))
        self._file.seek(self._start + self._position)
        data = self._file.read(count)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _walk(root: Path) -> Iterator[tuple[str, int]]:
    pending = [root]
    count = 0
    while pending:
        here = pending.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                count += 1
                if count > MAX_FILES:
                    raise VerifyFailed(f"more than {MAX_FILES} files", where=str(root))
                status = entry.stat(follow_symlinks=False)
                path = Path(entry.path)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(path)
                elif stat.S_ISREG(status.st_mode):
                    yield str(path.relative_to(root)), status.st_size
                else:
                    raise VerifyFailed("neither a file nor a directory", where=str(path))


def _ignore_content(_member: Member, _piece: memoryview, _last: bool) -> None:
    pass


def _ignore_text(_header: int, _text: bytes) -> None:
    pass
