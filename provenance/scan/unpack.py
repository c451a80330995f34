"""Take one archive or compressed file apart, within bounds: its parts as streams. Pure, and never to disk.

The closed list of formats is :data:`OPENED`. What is wrong with a file is a :class:`NotOpened` with the
reason, at the latest when its last part has been read: nobody may then say that it was looked at.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Final, Protocol, TypeAlias
from zipfile import BadZipFile

import zstandard
from isal import isal_zlib
from isal.igzip_lib import IsalError

from provenance.layers import MAX_ZSTD_WINDOW
from provenance.strictzip import open_zip

CHUNK: Final = 1 << 20
MAX_PACKED: Final = 128 << 20  # bytes of one file that are held in memory
MAX_PART: Final = 2 << 30  # bytes of one part
FREE_BYTES: Final = 16 << 20
MAX_RATIO: Final = 1000  # beyond the free bytes, how much larger a part may be than what it came from
MAX_PARTS: Final = 100_000
_MEMORY: Final = 256 << 20  # of one decompressor
_BROKEN: Final = (
    lzma.LZMAError,
    zstandard.ZstdError,
    zlib.error,
    IsalError,
    BadZipFile,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
)
_LOCAL: Final = struct.Struct("<4s22xHH")
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_AR_MEMBER: Final = 60

Chunks: TypeAlias = Iterator[bytes]


class NotOpened(Exception):
    """Why a file, or what is left of it, was not looked into."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part: its name in the archive (empty where there is one only), its bytes.

    ``why_not``: it is there and cannot be read; ``stored`` are its packed bytes.
    """

    name: str
    chunks: Chunks
    why_not: str = ""
    stored: bytes = b""


def unpack(format: str, data: bytes) -> Iterator[Part]:
    """The parts of ``data``, each to be read to its end before the next. Raises NotOpened."""
    if format not in OPENED:
        raise NotOpened(f"{format} is not opened")
    if len(data) > MAX_PACKED:
        raise NotOpened(f"more than {MAX_PACKED} bytes")
    try:
        for number, part in enumerate(OPENED[format](data)):
            if number >= MAX_PARTS:
                raise NotOpened(f"more than {MAX_PARTS} parts")
            yield Part(part.name, _bounded(part.chunks, len(data)), part.why_not, part.stored)
    except _BROKEN as broken:  # type: ignore[misc]  # isal ships no type for its own
        raise NotOpened(f"corrupt {format}: {str(broken)[:100]}") from None


def _bounded(chunks: Chunks, packed: int) -> Chunks:
    """Ends with NotOpened where a part grows beyond what its archive can mean honestly."""
    most = min(MAX_PART, max(FREE_BYTES, MAX_RATIO * packed))
    size = 0
    try:
        for chunk in chunks:
            size += len(chunk)
            if size > most:
                raise NotOpened(f"expands to more than {most} bytes")
            yield chunk
    except _BROKEN as broken:  # type: ignore[misc]  # isal ships no type for its own
        raise NotOpened(f"corrupt: {str(broken)[:100]}") from None


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _gzip(data: bytes) -> Iterator[Part]:
    yield Part("", _zlib_members(data, 31))


def _git_object(data: bytes) -> Iterator[Part]:
    yield Part("", _zlib_members(data, 15))


def _zlib_members(data: bytes, window: int) -> Chunks:
    """Every member; zeros may follow, and what else follows is no part that anybody unpacks."""
    rest = data
    while rest.strip(b"\0"):
        rest = yield from _inflated(rest, window)
        if rest.strip(b"\0") and not rest.startswith(b"\x1f\x8b"):
            raise NotOpened("something else follows its end")


def _xz(data: bytes) -> Iterator[Part]:
    yield Part("", _streams(data, lambda: lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=_MEMORY)))


def _bzip2(data: bytes) -> Iterator[Part]:
    yield Part("", _streams(data, bz2.BZ2Decompressor))


def _streams(data: bytes, make: Callable[[], _Decompressor]) -> Chunks:
    rest = data
    while rest.strip(b"\0"):
        stream = make()
        pending = rest
        while not stream.eof:
            chunk = stream.decompress(pending, CHUNK)
            pending = b""
            if chunk:
                yield chunk
            elif not stream.eof:
                raise NotOpened("cut short")
        rest = stream.unused_data


def _zstd(data: bytes) -> Iterator[Part]:
    yield Part("", _zstd_chunks(data))


def _zstd_chunks(data: bytes) -> Chunks:
    unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    reader = unpacker.stream_reader(BytesIO(data), read_across_frames=True)
    while chunk := reader.read(CHUNK):
        yield chunk


def _zip(data: bytes) -> Iterator[Part]:
    """By its directory, which must be all that it holds: what readers could differ on is not opened."""
    with open_zip(BytesIO(data)) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    at = 0
    for entry in entries:
        name = entry.filename
        mark, names, extra = _LOCAL.unpack_from(data, entry.header_offset)
        start = entry.header_offset + _LOCAL.size + names + extra
        stored = data[start : start + entry.compress_size]
        unnamed = b"PK\x03\x04" in data[at : entry.header_offset]
        if entry.header_offset < at or mark != b"PK\x03\x04" or unnamed:
            raise NotOpened("members that its directory does not name, or that overlap")
        at = start + entry.compress_size
        if entry.flag_bits & _ENCRYPTED:
            yield Part(name, iter(()), "encrypted", stored)
        elif entry.compress_type not in _ZIP_METHODS:
            yield Part(name, iter(()), f"compressed by method {entry.compress_type}", stored)
        else:
            yield Part(name, _checked(_ZIP_METHODS[entry.compress_type](stored), entry.CRC, entry.file_size))


def _checked(chunks: Chunks, crc: int, size: int) -> Chunks:
    seen, total = 0, 0
    for chunk in chunks:
        seen = isal_zlib.crc32(chunk, seen)
        total += len(chunk)
        yield chunk
    if (seen, total) != (crc, size):
        raise NotOpened("its check sum does not hold")


def _inflated(data: bytes, window: int) -> Generator[bytes, None, bytes]:
    """One member to its end; returns what follows it."""
    member = isal_zlib.decompressobj(window)
    pending = data
    while not member.eof:
        chunk = member.decompress(pending, CHUNK)
        pending = member.unconsumed_tail
        if chunk:
            yield chunk
        elif not member.eof and not pending:
            raise NotOpened("cut short")
    return bytes(member.unused_data)


def _stored(data: bytes) -> Chunks:
    yield data


_ZIP_METHODS: Final[dict[int, Callable[[bytes], Chunks]]] = {
    0: _stored,
    8: partial(_inflated, window=-15),
    12: lambda data: _streams(data, bz2.BZ2Decompressor),
    93: _zstd_chunks,
}


def _deb(data: bytes) -> Iterator[Part]:
    """An ar archive: its members lie in it as they are."""
    at = 8
    while at < len(data):
        header = data[at : at + _AR_MEMBER]
        digits = header[48:58].strip()
        if len(header) < _AR_MEMBER or header[58:] != b"`\n" or not digits.isdigit():
            raise NotOpened("corrupt deb: no header of a member")
        start, size = at + _AR_MEMBER, int(digits)
        if start + size > len(data):
            raise NotOpened("cut short")
        yield Part(header[:16].decode("latin-1").strip(" /"), _stored(data[start : start + size]))
        at = start + size + size % 2


OPENED: Final[dict[str, Callable[[bytes], Iterator[Part]]]] = {
    "gzip": _gzip,
    "xz": _xz,
    "lzma": _xz,
    "bzip2": _bzip2,
    "zstd": _zstd,
    "zip": _zip,
    "deb": _deb,
    "git-object": _git_object,
}
