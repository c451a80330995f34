"""The files of an image before they are a layer: entries, sets of them, and the digest that names a set."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

from images.digests import Digest

_CHUNK: Final = 1 << 20


class Kind(StrEnum):
    """What a layer may hold; devices, pipes and sockets have no place in one."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARDLINK = "hardlink"


@dataclass(frozen=True, slots=True)
class Stretch:
    """``size`` bytes of a file on disk, from ``offset``."""

    path: Path
    offset: int
    size: int


Content: TypeAlias = bytes | Stretch


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry: a relative path without ``./``; ``target`` of a hard link is such a path too."""

    path: str
    kind: Kind
    mode: int
    uid: int = 0
    gid: int = 0
    content: Content = b""
    target: str = ""
    capability: bytes = b""  # the security.capability attribute, in its v2 form

    @property
    def size(self) -> int:
        """Bytes of content."""
        return self.content.size if isinstance(self.content, Stretch) else len(self.content)


FileSet: TypeAlias = Mapping[str, Entry]  # by path


def file(path: str, content: Content, *, mode: int = 0o644, capability: bytes = b"") -> Entry:
    """A root-owned regular file."""
    return Entry(path=path, kind=Kind.FILE, mode=mode, content=content, capability=capability)


def symlink(path: str, target: str) -> Entry:
    """A root-owned symbolic link."""
    return Entry(path=path, kind=Kind.SYMLINK, mode=0o777, target=target)


def directory(path: str, *, mode: int = 0o755, uid: int = 0, gid: int = 0) -> Entry:
    """A directory."""
    return Entry(path=path, kind=Kind.DIRECTORY, mode=mode, uid=uid, gid=gid)


def from_disk(path: str, source: Path, *, mode: int) -> Entry:
    """A root-owned regular file with the content of ``source``."""
    return file(path, Stretch(source, 0, source.stat().st_size), mode=mode)


def chunks(content: Content) -> Iterator[bytes]:
    """The bytes of ``content``, in pieces of at most 1 MiB. EOFError when the file has become shorter."""
    if isinstance(content, bytes):
        for start in range(0, len(content), _CHUNK):
            yield content[start : start + _CHUNK]
        return
    left = content.size
    with content.path.open("rb") as stream:
        stream.seek(content.offset)
        while left:
            piece = stream.read(min(_CHUNK, left))
            if not piece:
                raise EOFError(f"{content.path} ended {left} bytes early")
            left -= len(piece)
            yield piece


def read(content: Content) -> bytes:
    """All bytes of ``content``; for small files."""
    return b"".join(chunks(content))


def collect(entries: Iterable[Entry]) -> dict[str, Entry]:
    """A set of entries, sorted by path. The first path of a group of hard links carries the content."""
    found = {entry.path: entry for entry in entries}
    linked: dict[str, list[str]] = {}
    for entry in found.values():
        if entry.kind is Kind.HARDLINK:
            linked.setdefault(entry.target, [entry.target]).append(entry.path)
    for target, paths in linked.items():
        first, *rest = sorted(paths)
        original = found[target]
        found[first] = replace(original, path=first)
        for path in rest:
            found[path] = replace(original, path=path, kind=Kind.HARDLINK, target=first, content=b"")
    return {path: found[path] for path in sorted(found)}


def join(*sets: FileSet) -> dict[str, Entry]:
    """One set: what comes later wins, but a directory that is there already keeps its mode and owner.

    Parents that nobody brings are made, root-owned, 0755.
    """
    found: dict[str, Entry] = {}
    for part in sets:
        for path, entry in part.items():
            before = found.get(path)
            if before is None or Kind.DIRECTORY not in (before.kind, entry.kind):
                found[path] = entry
    for path in list(found):
        for parent in PurePosixPath(path).parents:
            name = str(parent)
            if name != "." and name not in found:
                found[name] = directory(name)
    return {path: found[path] for path in sorted(found)}


def digest_of(files: FileSet) -> Digest:
    """What names a set: the SHA-256 over one line for each entry, its content's hash included."""
    found = hashlib.sha256()
    for line in describe(files):
        found.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return Digest.from_hex(found.hexdigest())


def describe(files: FileSet) -> Iterator[str]:
    """One line for each entry, sorted by path: kind, mode, owner, size, content hash, path, target."""
    for path in sorted(files):
        entry = files[path]
        content = hashlib.sha256()
        for piece in chunks(entry.content):
            content.update(piece)
        yield (
            f"{entry.kind} {entry.mode:04o} {entry.uid}:{entry.gid} {entry.size} {content.hexdigest()} "
            f"{entry.capability.hex() or '-'} {path!r} {entry.target!r}"
        )
