"""Read the tar of one of our layers strictly: every entry with all its fields, no byte left unlooked at.

Engines unpack layers with Go's archive/tar, BuildKit writes them with it. What that writer would not write
is either noted on the entry (``odd``) or, where readers could differ on what follows, refused whole.
"""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from images.errors import VerifyFailed
from provenance.audit.pieces import BLOCK, Pieces

MAX_PAX: Final = 1 << 16
MAX_NAME: Final = 100
_ZEROS: Final = bytes(BLOCK)
_HEADER: Final = struct.Struct("100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12s")
_OCTAL: Final = re.compile(rb"([0-7]{7}|[0-7]{11})\0")
_CHECKSUM: Final = re.compile(rb"([0-7]{6})\0 ")
_NO_DEVICE: Final = b"0000000\0"
_RECORD: Final = re.compile(rb"([1-9][0-9]{0,5}) ([^=\n]+)=")


class Kind(StrEnum):
    """What an entry is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    HARD_LINK = "hard link"
    SPECIAL = "device or pipe"


_KINDS: Final = {
    b"0": Kind.FILE,
    b"1": Kind.HARD_LINK,
    b"2": Kind.LINK,
    b"3": Kind.SPECIAL,
    b"4": Kind.SPECIAL,
    b"5": Kind.DIRECTORY,
    b"6": Kind.SPECIAL,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. ``path`` without slashes at its ends; ``content``: SHA-256 of a file's bytes, else empty.

    ``odd``: what the writer of our layers would not have written: records, names, stray bytes.
    """

    path: str
    kind: Kind
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int
    link: str
    content: bytes
    odd: tuple[str, ...] = ()


@dataclass(slots=True)
class _Extended:
    """What the PAX header before an entry says."""

    name: bytes
    records: dict[bytes, bytes]
    odd: list[str]


def read_entries(chunks: Iterator[bytes]) -> Iterator[Entry]:
    """The entries in order, each with its content read and hashed. Raises VerifyFailed at a broken tar."""
    pieces = Pieces(chunks)
    extended: _Extended | None = None
    while True:
        header = pieces.take(BLOCK)
        if header == _ZEROS:
            if extended is not None:
                raise VerifyFailed("the tar ends after an extended header")
            _read_end(pieces)
            return
        fields = _HEADER.unpack(header)
        _check_header(header, fields)
        if fields[7] == b"x":
            if extended is not None:
                raise VerifyFailed("two extended headers for one entry")
            extended = _read_extended(pieces, fields)
        else:
            yield _read_entry(pieces, fields, extended)
            extended = None


def _check_header(header: bytes, fields: tuple[bytes, ...]) -> None:
    """Its format, and the sum of its bytes."""
    if fields[9] != b"ustar\x0000":
        raise VerifyFailed("a tar header that is not of the ustar format")
    checksum = _CHECKSUM.fullmatch(fields[6])
    if checksum is None or int(checksum[1], 8) != sum(header) - sum(fields[6]) + 8 * 32:
        raise VerifyFailed("a tar header with a wrong checksum")


def _read_entry(pieces: Pieces, fields: tuple[bytes, ...], extended: _Extended | None) -> Entry:
    kind = _KINDS.get(fields[7])
    if kind is None:
        raise VerifyFailed(f"an entry of type {fields[7]!r}")
    odd = _oddities(fields, _NO_DEVICE)
    name, link = _names(fields, extended, odd)
    if kind is Kind.DIRECTORY:
        if not name.endswith(b"/"):
            odd.append("a directory's name without a slash at its end")
        name = name.removesuffix(b"/")
    path = name.decode("utf-8", "surrogateescape")
    if any(part in ("", ".", "..") for part in path.split("/")):
        odd.append("not a plain path below the root")
    size, content = _number(fields[4]), b""
    if kind is not Kind.FILE and size:
        raise VerifyFailed(f"a {kind.value} with content")
    if kind is Kind.FILE:
        content = pieces.hash(size)
        pieces.skip_padding(size)
    return Entry(
        path=path,
        kind=kind,
        mode=_number(fields[1]),
        uid=_number(fields[2]),
        gid=_number(fields[3]),
        mtime=_number(fields[5]),
        size=size,
        link=link.decode("utf-8", "surrogateescape"),
        content=content,
        odd=tuple(odd),
    )


def _oddities(fields: tuple[bytes, ...], no_device: bytes) -> list[str]:
    odd = []
    if any(fields[10]) or any(fields[11]):
        odd.append("an owner's name")
    if (fields[12], fields[13]) != (no_device, no_device):
        odd.append("device numbers")
    if any(fields[15]):
        odd.append("bytes after the header's fields")
    return odd


def _names(fields: tuple[bytes, ...], extended: _Extended | None, odd: list[str]) -> tuple[bytes, bytes]:
    """Name and link target, from the header or from the records before it."""
    name, link, prefix = (_text(fields[number], odd) for number in (0, 8, 14))
    if prefix:
        name = prefix + b"/" + name
    if extended is None:
        return name, link
    odd += extended.odd
    path = extended.records.get(b"path", name)
    target = extended.records.get(b"linkpath", link)
    # With a record, what the header itself names is read by nobody; it must still be the writer's.
    own_name = name.rstrip(b"/") == _ascii(path)[:MAX_NAME].rstrip(b"/")
    if prefix or not own_name or link != _ascii(target)[:MAX_NAME]:
        odd.append("another name in the header than in its records")
    if _extended_name(path) != extended.name:
        odd.append("another name in the extended header")
    return path, target


def _extended_name(path: bytes) -> bytes:
    """The name that Go gives the extended header of an entry."""
    folder, file = posixpath.split(path.decode("utf-8", "surrogateescape"))
    joined = posixpath.normpath(posixpath.join(folder, "PaxHeaders.0", file))
    return _ascii(joined.encode("utf-8", "surrogateescape"))[:MAX_NAME].rstrip(b"/")


def _read_extended(pieces: Pieces, fields: tuple[bytes, ...]) -> _Extended:
    size = _number(fields[4])
    if not 0 < size <= MAX_PAX:
        raise VerifyFailed(f"an extended header of {size} bytes")
    odd = _oddities(fields, bytes(8))
    if any(_number(fields[number]) for number in (1, 2, 3, 5)) or any(fields[8]) or any(fields[14]):
        odd.append("an extended header with fields of its own")
    records: dict[bytes, bytes] = {}
    data, position = pieces.take(size), 0
    pieces.skip_padding(size)
    while position < size:
        found = _RECORD.match(data, position)
        end = position + int(found[1]) if found else 0
        if found is None or not found.end() < end <= size or data[end - 1] != ord("\n"):
            raise VerifyFailed("a broken PAX record")
        key, value = found[2], data[found.end() : end - 1]
        if key in records or b"\0" in value or key == b"size" or key.startswith(b"GNU.sparse"):
            raise VerifyFailed(f"a PAX record {key[:60]!r} on which readers differ")
        records[key] = value
        if key not in (b"path", b"linkpath"):
            odd.append(f"a PAX record {key[:60].decode('ascii', 'backslashreplace')!r}")
        position = end
    return _Extended(_text(fields[0], odd), records, odd)


def _read_end(pieces: Pieces) -> None:
    """A second block of zeros, and nothing after it but zeros."""
    if pieces.take(BLOCK) != _ZEROS:
        raise VerifyFailed("an entry after the end of the tar")
    if any(any(part) for part in pieces.rest()):
        raise VerifyFailed("bytes after the end of the tar")


def _number(field: bytes) -> int:
    found = _OCTAL.fullmatch(field)
    if found is None:
        raise VerifyFailed("a number in a form on which readers differ")
    return int(found[1], 8)


def _text(field: bytes, odd: list[str]) -> bytes:
    text, _, rest = field.partition(b"\0")
    if any(rest):
        odd.append("bytes after the end of a name")
    return text


def _ascii(text: bytes) -> bytes:
    """As Go writes a name into a field that holds ASCII alone: everything else is dropped."""
    return bytes(byte for byte in text if byte < 0x80)
