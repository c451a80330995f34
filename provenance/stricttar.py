"""Python's reader of tars without what it forgives: for every tar that somebody else has made.

``tarfile`` takes a broken header after the first for the end of the archive, reads an extended header of
any size into memory, follows any number of them by recursion, and makes up bytes for the holes of a sparse
member. Other readers do otherwise, so what they unpack would not be what was looked at.
"""

from __future__ import annotations

import tarfile
from typing import Final, Protocol

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
# What ``TarFile.next`` takes for the end; its other errors of headers are an end.
_BROKEN: Final = (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]


class _Header(tarfile.TarInfo):
    """A member whose header must hold."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Header:
        try:
            return super().fromtarfile(archive)
        except _BROKEN as broken:
            raise tarfile.ReadError(f"a broken header: {broken}") from None

    def _proc_member(self, archive: StrictTar) -> tarfile.TarInfo:
        """Called by the library with each header; the one place that it leaves for other kinds."""
        if self.size < 0:
            raise tarfile.ReadError("a member of a negative size")
        archive.in_a_row = archive.in_a_row + 1 if self.type in _EXTENDED else 0
        if archive.in_a_row > MAX_IN_A_ROW or (archive.in_a_row and self.size > MAX_EXTENDED):
            raise tarfile.ReadError("extended headers that are too many or too long")
        found: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        if found.sparse is not None or found.size < 0:
            raise tarfile.ReadError("a sparse member, or one of a negative size")
        return found


class StrictTar(tarfile.TarFile):
    """As ``tarfile.TarFile``; what it would forgive is a ``tarfile.ReadError``."""

    tarinfo = _Header
    in_a_row = 0


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
