"""Index a locked artifact: path, kind, mode and hash of each of its files, each hashed once."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, BinaryIO, Final, Protocol, TypeAlias, cast

from isal import igzip

from images.errors import StateError
from images.lock import Artifact

# Opens the bytes that a lock's integrity names, compared with it before the first one is handed out.
OpenArtifact: TypeAlias = Callable[[Artifact], AbstractContextManager[BinaryIO]]

CHUNK: Final = 1 << 20
MAX_UNPACKED: Final = 8 << 30
MAX_MEMBERS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Member:
    """One file (``content``: its SHA-256) or directory (empty) below the one top directory of an artifact."""

    path: str
    executable: bool
    content: bytes


class _Reader(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Bounded:
    """A decompressed stream that ends with an error when it grows past the limit."""

    def __init__(self, inner: _Reader) -> None:
        self._inner = inner
        self._left = MAX_UNPACKED

    def read(self, size: int = -1, /) -> bytes:
        data = self._inner.read(size if size >= 0 else CHUNK)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("too large")
        return data


def index_artifact(artifact: Artifact, open_artifact: OpenArtifact) -> tuple[Member, ...]:
    """Files and directories of an npm tarball in its order; of one name twice, the later counts.

    Anything else in it is left out, as the build leaves it out. StateError when it cannot be read.
    """
    try:
        with (
            open_artifact(artifact) as file,
            igzip.open(file, "rb") as plain,  # type: ignore[no-untyped-call]
            tarfile.open(fileobj=cast(BinaryIO, _Bounded(plain)), mode="r|", bufsize=CHUNK) as archive,
        ):
            return tuple(_members(archive).values())
    except (tarfile.TarError, EOFError, igzip.BadGzipFile, ValueError) as broken:
        raise StateError(
            f"an artifact that is no readable tarball ({type(broken).__name__})", where=artifact.id
        ) from None


def _members(archive: tarfile.TarFile) -> dict[str, Member]:
    found: dict[str, Member] = {}
    for number, member in enumerate(archive):
        if number >= MAX_MEMBERS:
            raise ValueError("too many members")
        archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep every header in memory
        path = "/".join(part for part in member.name.split("/")[1:] if part not in ("", "."))
        if not path or not (member.isreg() or member.isdir()):
            continue
        content = _hash(archive.extractfile(member)) if member.isreg() else b""
        found.pop(path, None)
        found[path] = Member(path, bool(member.mode & 0o111), content)
    return found


def _hash(file: IO[bytes] | None) -> bytes:
    found = hashlib.sha256()
    while file is not None and (chunk := file.read(CHUNK)):
        found.update(chunk)
    return found.digest()
