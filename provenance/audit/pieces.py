"""Take a byte stream that arrives in pieces apart: exact counts and hashes, without copying the pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from images.errors import VerifyFailed

BLOCK: Final = 512
_ZEROS: Final = bytes(BLOCK)


class Pieces:
    """A tar's bytes in order. Everything raises VerifyFailed when they end too early."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._view = memoryview(b"")
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes. For what is bounded: headers and records."""
        end = self._at + size
        if end <= len(self._view):
            found = self._view[self._at : end].tobytes()
            self._at = end
            return found
        return b"".join(map(bytes, self._parts(size)))

    def hash(self, size: int) -> bytes:
        """SHA-256 of the next ``size`` bytes."""
        end = self._at + size
        if end <= len(self._view):
            digest = hashlib.sha256(self._view[self._at : end]).digest()
            self._at = end
            return digest
        found = hashlib.sha256()
        for part in self._parts(size):
            found.update(part)
        return found.digest()

    def skip(self, size: int) -> None:
        """Past the next ``size`` bytes."""
        for _ in self._parts(size):
            pass

    def skip_padding(self, size: int) -> None:
        """Past the zeros that fill up the last block of ``size`` bytes."""
        missing = -size % BLOCK
        if missing and self.take(missing) != _ZEROS[:missing]:
            raise VerifyFailed("bytes between two entries")

    def more(self) -> bool:
        """Whether there is another byte."""
        return self._at < len(self._view) or self._next()

    def rest(self) -> Iterator[memoryview]:
        """Whatever is left, to the end of the stream."""
        while self.more():
            part, self._at = self._view[self._at :], len(self._view)
            yield part

    def _parts(self, size: int) -> Iterator[memoryview]:
        while size:
            if not self.more():
                raise VerifyFailed("the tar is cut short")
            part = self._view[self._at : self._at + size]
            self._at += len(part)
            size -= len(part)
            yield part

    def _next(self) -> bool:
        """The next piece that is not empty; False at the end of the stream."""
        for piece in self._pieces:
            if piece:
                self._view, self._at = memoryview(piece), 0
                return True
        return False
