"""Git's object names and the stream of ``cat-file --batch``: each object is hashed again as it passes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from backend.workspace.refusals import CandidateReason, CandidateRefused

_HEADER_BYTES: Final = 200


class ObjectFormat(StrEnum):
    """How a repository names its objects."""

    SHA1 = "sha1"
    SHA256 = "sha256"

    @property
    def digits(self) -> int:
        """Hexadecimal digits of a name."""
        return 40 if self is ObjectFormat.SHA1 else 64

    def is_name(self, text: str) -> bool:
        """A full, lowercase object name, and not the null one."""
        return bool(re.fullmatch(rf"[0-9a-f]{{{self.digits}}}", text)) and text != "0" * self.digits

    def hasher(self, kind: str, size: int) -> Any:
        """A hash that has taken the header of an object of this kind and size."""
        # The name of an object, not a proof of its content: that is the digest of what is exported.
        new = hashlib.sha1(usedforsecurity=False) if self is ObjectFormat.SHA1 else hashlib.sha256()
        new.update(f"{kind} {size}\0".encode())
        return new

    def name_of(self, kind: str, content: bytes) -> str:
        """The name of an object with this content."""
        hasher = self.hasher(kind, len(content))
        hasher.update(content)
        return str(hasher.hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One object to read: its name, its kind, and the most bytes that it may have."""

    name: str
    kind: str
    max_bytes: int


class Receiver(Protocol):
    """Who takes the content of objects, in the order in which they were asked for."""

    def begin(self, index: int, size: int) -> None: ...

    def data(self, chunk: bytes) -> None: ...

    def end(self) -> None: ...


class BatchReader:
    """Takes the output of ``cat-file --batch`` in chunks of any size. Raises CandidateRefused."""

    def __init__(self, wanted: Sequence[Wanted], form: ObjectFormat, receiver: Receiver) -> None:
        self._wanted = wanted
        self._form = form
        self._receiver = receiver
        self._index = 0
        self._header = bytearray()
        self._left = -1  # bytes of the current object still to come; -1 = a header is next
        self._hash: Any = None

    def take(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest:
            if self._left < 0:
                rest = self._take_header(rest)
            elif self._left > 0:
                piece = bytes(rest[: self._left])
                self._hash.update(piece)
                self._receiver.data(piece)
                self._left -= len(piece)
                rest = rest[len(piece) :]
            else:
                self._finish(bytes(rest[:1]))
                rest = rest[1:]

    def close(self) -> None:
        """All that was wanted has come."""
        if self._index != len(self._wanted) or self._left >= 0 or self._header:
            raise CandidateRefused(CandidateReason.TREE, "git ended before it had given every object")

    def _take_header(self, rest: memoryview) -> memoryview:
        text = bytes(rest[:_HEADER_BYTES])
        line, found, _ = text.partition(b"\n")
        self._header += line
        if len(self._header) > _HEADER_BYTES or self._index >= len(self._wanted):
            raise CandidateRefused(CandidateReason.TREE, "git answers what was not asked")
        if found:
            self._begin(bytes(self._header))
            self._header.clear()
        return rest[len(line) + len(found) :]

    def _begin(self, header: bytes) -> None:
        wanted = self._wanted[self._index]
        words = header.decode("ascii", "replace").split(" ")
        if words[0] != wanted.name or len(words) != 3 or not words[2].isdigit():
            raise CandidateRefused(CandidateReason.TREE, "an object is not there", where=wanted.name)
        if words[1] != wanted.kind:
            raise CandidateRefused(
                CandidateReason.OBJECT_KIND, f"a {words[1]}, not a {wanted.kind}", where=wanted.name
            )
        size = int(words[2])
        if size > wanted.max_bytes:
            raise CandidateRefused(
                CandidateReason.TOO_LARGE,
                f"a {wanted.kind} of {size} bytes; at most {wanted.max_bytes} are taken",
                where=wanted.name,
            )
        self._receiver.begin(self._index, size)
        self._hash = self._form.hasher(wanted.kind, size)
        self._left = size

    def _finish(self, newline: bytes) -> None:
        wanted = self._wanted[self._index]
        if newline != b"\n" or self._hash.hexdigest() != wanted.name:
            raise CandidateRefused(
                CandidateReason.TREE, "its bytes do not hash to its name", where=wanted.name
            )
        self._receiver.end()
        self._index += 1
        self._left = -1


class Collected:
    """A receiver that keeps whole objects in memory, up to a sum."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._parts: list[bytes] = []
        self.contents: list[bytes] = []

    def begin(self, _index: int, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise CandidateRefused(CandidateReason.TOO_LARGE, "trees or links of this commit are too large")
        self._parts = []

    def data(self, chunk: bytes) -> None:
        self._parts.append(chunk)

    def end(self) -> None:
        self.contents.append(b"".join(self._parts))
