"""Index a locked artifact: path, kind, mode and hash of each of its files, each hashed once."""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol, TypeAlias

from isal import igzip
from isal.igzip_lib import IsalError

from images.errors import StateError, VerifyFailed
from images.lock import Artifact, ArtifactKind
from provenance.audit.pieces import BLOCK, Pieces
from provenance.strictzip import open_zip

# Opens the bytes that a lock's integrity names, compared with it before the first one is handed out.
OpenArtifact: TypeAlias = Callable[[Artifact], AbstractContextManager[BinaryIO]]

CHUNK: Final = 1 << 20
MAX_UNPACKED: Final = 8 << 30
MAX_MEMBERS: Final = 100_000
MAX_EXTENDED: Final = 1 << 20
# Type flags: files, of old writers too; directories; links, devices and pipes, which stay outside.
_GZIP: Final = b"\x1f\x8b"
_FILE: Final = b"0\x007"
_FOLDER: Final = b"5"
_LEFT_OUT: Final = b"12346"
_RECORD: Final = re.compile(rb"([1-9][0-9]{0,6}) ([^=\n]+)=")


@dataclass(frozen=True, slots=True)
class Member:
    """One file (``content``: its SHA-256) or directory (empty) below the one top directory of an artifact."""

    path: str
    executable: bool
    content: bytes


@dataclass(frozen=True, slots=True)
class _Header:
    """What counts of one tar header."""

    name: bytes
    kind: int
    mode: int
    size: int


class _Reader(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


def index_artifact(artifact: Artifact, open_artifact: OpenArtifact) -> tuple[Member, ...]:
    """Files and directories of an artifact in its order; of one name twice, the later counts.

    Links and special files are left out, as the build leaves them out. The paths of a wheel are its own.
    StateError when it cannot be read.
    """
    stripped = 0 if artifact.kind is ArtifactKind.ARCHIVE else 1
    try:
        with open_artifact(artifact) as file:
            if artifact.kind is ArtifactKind.WHEEL:
                return tuple(_wheel_members(file))
            if not _is_gzip(file):
                return tuple(_members(Pieces(_pieces(file)), stripped).values())
            with igzip.open(file, "rb") as plain:  # type: ignore[no-untyped-call]
                return tuple(_members(Pieces(_pieces(plain)), stripped).values())
    except (VerifyFailed, EOFError, OSError, IsalError, zlib.error, ValueError) as broken:  # type: ignore[misc]
        raise StateError(f"an artifact that cannot be read ({broken})", where=artifact.id) from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as broken:
        raise StateError(f"an artifact that is no readable wheel ({broken})", where=artifact.id) from None


def _is_gzip(file: BinaryIO) -> bool:
    head = file.read(2)
    file.seek(0)
    return head == _GZIP


def _wheel_members(file: BinaryIO) -> Iterator[Member]:
    """Files alone: a wheel's directories follow from them."""
    with open_zip(file) as archive:
        members = archive.infolist()
        if len(members) > MAX_MEMBERS or sum(one.file_size for one in members) > MAX_UNPACKED:
            raise ValueError("too large")
        for one in members:
            if one.is_dir():
                continue
            found = hashlib.sha256()
            with archive.open(one) as content:
                while chunk := content.read(CHUNK):
                    found.update(chunk)
            yield Member(one.filename, bool(one.external_attr >> 16 & 0o111), found.digest())


def _pieces(plain: _Reader) -> Iterator[bytes]:
    left = MAX_UNPACKED
    while piece := plain.read(CHUNK):
        left -= len(piece)
        if left < 0:
            raise ValueError("too large")
        yield piece


def _members(pieces: Pieces, stripped: int) -> dict[str, Member]:
    found: dict[str, Member] = {}
    for number, header in enumerate(_headers(pieces)):
        if number >= MAX_MEMBERS:
            raise ValueError("too many members")
        name = header.name.decode("utf-8", "surrogateescape")
        path = "/".join(part for part in name.split("/")[stripped:] if part not in ("", "."))
        if header.kind in _FILE and not name.endswith("/"):
            member = Member(path, bool(header.mode & 0o111), pieces.hash(header.size))
        else:
            pieces.skip(header.size)
            member = Member(path, False, b"")
        pieces.skip(-header.size % BLOCK)
        if path and header.kind in _FILE + _FOLDER:
            found.pop(path, None)
            found[path] = member
    return found


def _headers(pieces: Pieces) -> Iterator[_Header]:
    """The headers of members, extended ones applied; the caller takes the content before the next one."""
    name, size = b"", -1
    while pieces.more() and any(block := pieces.take(BLOCK)):
        if sum(block) - sum(block[148:156]) + 8 * 32 != _number(block[148:156]):
            raise ValueError("a wrong checksum")
        own = _Header(_name(block), block[156], _number(block[100:108]), _number(block[124:136]))
        if own.kind == ord("x"):
            records = dict(_records(_extended(pieces, own.size)))
            if any(key.startswith(b"GNU.sparse") for key in records):
                raise ValueError("a sparse member")
            name = records.get(b"path", name)
            size = _size(records.get(b"size"))
        elif own.kind == ord("L"):
            name = _extended(pieces, own.size).rstrip(b"\0")
        elif own.kind in b"gK":
            _extended(pieces, own.size)
        elif own.kind in _FILE + _FOLDER + _LEFT_OUT:
            yield _Header(name or own.name, own.kind, own.mode, own.size if size < 0 else size)
            name, size = b"", -1
        else:
            raise ValueError(f"a member of type {chr(own.kind)!r}")


def _name(block: bytes) -> bytes:
    name, prefix = (block[start:end].partition(b"\0")[0] for start, end in ((0, 100), (345, 500)))
    return prefix + b"/" + name if prefix and block[257:263] == b"ustar\0" else name


def _extended(pieces: Pieces, size: int) -> bytes:
    if size > MAX_EXTENDED:
        raise ValueError("a long extended header")
    data = pieces.take(size)
    pieces.skip(-size % BLOCK)
    return data


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """PAX records, each of just the length that it says: a length of nothing would never end."""
    at = 0
    while at < len(data):
        found = _RECORD.match(data, at)
        end = at + int(found[1]) if found else 0
        if found is None or not found.end() < end <= len(data) or data[end - 1] != ord("\n"):
            raise ValueError("a broken PAX record")
        yield found[2], data[found.end() : end - 1]
        at = end


def _size(record: bytes | None) -> int:
    """What a PAX record says; -1: it says nothing."""
    if record is None:
        return -1
    if not record or record.strip(b"0123456789"):
        raise ValueError("a PAX record with a size that is no number")
    return int(record)


def _number(field: bytes) -> int:
    """Octal digits alone: Python would take a sign and underscores too."""
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise ValueError("a number in a form on which readers differ")
    return int(digits or b"0", 8)
