"""Write a set of files as one layer: a tar and its zstd form that depend on nothing but the files."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import zstandard

from builder.bootstrap.files import Entry, FileSet, Kind, chunks
from images.digests import Digest

LEVEL: Final = 3
_BLOCK: Final = 512
_TYPES: Final = {
    Kind.FILE: tarfile.REGTYPE,
    Kind.DIRECTORY: tarfile.DIRTYPE,
    Kind.SYMLINK: tarfile.SYMTYPE,
    Kind.HARDLINK: tarfile.LNKTYPE,
}
_CAPABILITY: Final = b"SCHILY.xattr.security.capability"


@dataclass(frozen=True, slots=True)
class WrittenLayer:
    """A compressed layer on disk. ``diff_id`` is the digest of the tar within."""

    path: Path
    diff_id: Digest


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


class _Both:
    """Hash and compress the same bytes."""

    def __init__(self, compressed: _Sink) -> None:
        self.found = hashlib.sha256()
        self._compressed = compressed

    def write(self, data: bytes) -> None:
        self.found.update(data)
        self._compressed.write(data)


def write_layer(files: FileSet, epoch: int, path: Path) -> WrittenLayer:
    """The layer at ``path`` (zstd level 3, one thread); every time stamp is ``epoch``, seconds since 1970."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, threads=0)
    with path.open("wb") as out, compressor.stream_writer(out, closefd=False) as compressed:
        sink = _Both(compressed)
        write_tar(files, epoch, sink)
    return WrittenLayer(path, Digest.from_hex(sink.found.hexdigest()))


def write_tar(files: FileSet, epoch: int, out: _Sink | BinaryIO) -> None:
    """The uncompressed tar: entries by path, numeric owners only, PAX records only where they are needed."""
    for path in sorted(files):
        entry = files[path]
        header = _header(entry, epoch)
        if entry.capability:
            out.write(_capability_records(entry, epoch))
        out.write(header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        for piece in chunks(entry.content):
            out.write(piece)
        out.write(bytes(-entry.size % _BLOCK))
    out.write(bytes(2 * _BLOCK))


def _header(entry: Entry, epoch: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(entry.path)
    header.type = _TYPES[entry.kind]
    header.mode = entry.mode
    header.uid, header.gid = entry.uid, entry.gid
    header.mtime = epoch
    header.size = entry.size
    header.linkname = entry.target
    return header


def _capability_records(entry: Entry, epoch: int) -> bytes:
    """A PAX header of our own: tarfile would mark the value, which is not UTF-8, in a way few readers know.

    Readers heed only the last such header before an entry, so the entry must not need one for its path.
    """
    if not entry.path.isascii() or len(entry.path) > tarfile.LENGTH_NAME:
        raise ValueError(f"a file with capabilities needs a short, plain path: {entry.path!r}")
    record = _pax_record(_CAPABILITY, entry.capability)
    header = tarfile.TarInfo("PaxHeaders/" + entry.path.rpartition("/")[2])
    header.type = tarfile.XHDTYPE
    header.mtime = epoch
    header.size = len(record)
    return header.tobuf(tarfile.USTAR_FORMAT) + record + bytes(-len(record) % _BLOCK)


def _pax_record(key: bytes, value: bytes) -> bytes:
    """``LENGTH KEY=VALUE\\n`` where LENGTH counts itself."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest
