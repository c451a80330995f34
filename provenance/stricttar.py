"""Python's reader of tars without what it forgives: for every tar that somebody else has made.

``tarfile`` takes a broken header after the first for the end of the archive, reads an extended header of
any size into memory, follows any number of them by recursion, and makes up bytes for the holes of a sparse
member. Other readers do otherwise, so what they unpack would not be what was looked at.
"""

from __future__ import annotations

import re
import struct
import tarfile
from typing import Any, Final, Protocol, Self

MAX_EXTENDED: Final = 1 << 20  # bytes of a PAX record or a long name
MAX_IN_A_ROW: Final = 8  # extended headers before one member
_CHUNK: Final = 1 << 20
_EXTENDED: Final = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    }
)
_RECORDS: Final = frozenset({tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE})
_RECORD: Final = re.compile(rb"([1-9][0-9]{0,7}) ([^=\n]+)=")
_WHOLE: Final = frozenset({b"size", b"uid", b"gid"})
_TIME: Final = re.compile(rb"-?[0-9]{1,18}(\.[0-9]*)?")
# What ``TarFile.next`` takes for the end; its other errors of headers are an end.
_BROKEN: Final = (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]
# What it lets out instead, for numbers and texts that it did not think of.
_STUMBLED: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
_READS_AT_END: Final = 16  # a whole tar asks a few times; a member that is said to be huge, without end


class _Header(tarfile.TarInfo):
    """A member whose header must hold."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Header:
        try:
            return super().fromtarfile(archive)
        except (*_BROKEN, *_STUMBLED) as broken:
            raise tarfile.ReadError(f"a broken header: {broken}") from None

    def _proc_member(self, archive: StrictTar) -> tarfile.TarInfo:
        """Called by the library with each header; the one place that it leaves for other kinds."""
        if self.size < 0:
            raise tarfile.ReadError("a member of a negative size")
        archive.in_a_row = archive.in_a_row + 1 if self.type in _EXTENDED else 0
        if archive.in_a_row > MAX_IN_A_ROW or (archive.in_a_row and self.size > MAX_EXTENDED):
            raise tarfile.ReadError("extended headers that are too many or too long")
        if self.type in _RECORDS:
            self._check_records(archive)
        found: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        if found.sparse is not None or found.size < 0:
            raise tarfile.ReadError("a sparse member, or one of a negative size")
        return found

    def _check_records(self, archive: StrictTar) -> None:
        """The library guesses where a record ends, and takes a number that is none for 0."""
        stream: Any = archive.fileobj
        data: bytes = stream.read(-(-self.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)
        records = data[: self.size].rstrip(b"\0")
        while records:
            found = _RECORD.match(records)
            end = int(found[1]) if found else 0
            if found is None or not found.end() < end <= len(records) or records[end - 1] != ord("\n"):
                raise tarfile.ReadError("a broken record")
            value = records[found.end() : end - 1]
            if (found[2] in _WHOLE and not value.isdigit()) or (
                found[2] == b"mtime" and not _TIME.fullmatch(value)
            ):
                raise tarfile.ReadError("a record of a number that is none")
            records = records[end:]
        stream.buf, stream.pos = data + stream.buf, stream.pos - len(data)  # for the library to read


class StrictTar(tarfile.TarFile):
    """As ``tarfile.TarFile``; what it would forgive is a ``tarfile.ReadError``."""

    tarinfo = _Header
    in_a_row = 0

    @classmethod
    def open(cls, *, fileobj: _Reader, mode: str, errorlevel: int = 1) -> Self:  # type: ignore[override]
        """A stream that is read once, from its beginning. ``mode``: ``r|``."""
        given: Any = _Source(fileobj)
        return super().open(fileobj=given, mode=mode, errorlevel=errorlevel)  # type: ignore[call-overload,no-any-return]


class _Source:
    """What a tar is read from: a stream whose end is told a few times, and not without end."""

    def __init__(self, inner: _Reader) -> None:
        self._inner, self._left = inner, _READS_AT_END

    def read(self, size: int = -1, /) -> bytes:
        data = self._inner.read(size)
        self._left -= not data
        if self._left < 0:
            raise tarfile.ReadError("a member that is longer than all of it")
        return data


class _Reader(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class Bounded:
    """What a tar is read from: a stream that ends with an error when it grows past ``most`` bytes."""

    def __init__(self, inner: _Reader, most: int, error: Exception | None = None) -> None:
        self._inner, self._left = inner, most
        self._error = error or ValueError("too large")

    def read(self, size: int = -1, /) -> bytes:
        data = self._inner.read(size if size >= 0 else _CHUNK)
        self._left -= len(data)
        if self._left < 0:
            raise self._error
        return data
