"""Take a stream in pieces through the engine: every byte once, no credential cut by a border between two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from provenance.scan.engine import EngineStopped, Finder
from provenance.scan.judge import LEFT_CONTEXT, RIGHT_CONTEXT, Confirmed, judge

BLOCK_BYTES: Final = 4 << 20
MAX_CANDIDATES: Final = 1_000_000  # of one stream: more is an attack on the scanner, or no image of ours

OnFound: TypeAlias = Callable[[int, Confirmed], None]


class ByteScan:
    """``on_found`` gets the offset in the stream. Raises EngineStopped, and what ``on_found`` raises."""

    def __init__(self, finder: Finder, on_found: OnFound) -> None:
        self._finder = finder
        self._on_found = on_found
        self._buffer = bytearray()
        self._filled = 0
        self._origin = 0  # stream offset of the buffer's first byte
        self._judged = 0  # buffer offset from which candidates are still to be judged
        self._candidates = 0
        self.scanned = 0

    @property
    def border(self) -> int:
        """The stream offset before which everything is judged."""
        return self._origin + self._judged

    def feed(self, view: memoryview) -> bool:
        """The next bytes; whether the border has moved."""
        moved = False
        if not self._buffer:
            self._buffer = bytearray(BLOCK_BYTES + RIGHT_CONTEXT)
        while view:
            room = len(self._buffer) - self._filled
            part = view[:room]
            self._buffer[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            view = view[room:]
            if self._filled == len(self._buffer):
                with memoryview(self._buffer) as whole:
                    self._scan(whole, final=False)
                moved = True
        return moved

    def finish(self) -> None:
        """No more bytes."""
        if self._filled:
            with memoryview(self._buffer)[: self._filled] as rest:
                self._scan(rest, final=True)

    def whole(self, data: memoryview) -> None:
        """All of a stream that is in memory already."""
        if data:
            self._filled = len(data)
            self._scan(data, final=True)

    def _scan(self, view: memoryview, *, final: bool) -> None:
        """Judge what starts before the right context; that is judged with the next block around it."""
        limit = self._filled if final else self._filled - RIGHT_CONTEXT
        for candidate in self._finder.find(view):
            if not self._judged <= candidate.at < limit:
                continue
            self._candidates += 1
            if self._candidates > MAX_CANDIDATES:
                raise EngineStopped(f"more than {MAX_CANDIDATES} candidates")
            found = judge(view, candidate)
            if found:
                self._on_found(self._origin + candidate.at, found)
        self.scanned += limit - self._judged
        if final:
            return
        keep = max(0, limit - LEFT_CONTEXT)
        self._buffer[: self._filled - keep] = self._buffer[keep : self._filled]
        self._origin += keep
        self._judged = limit - keep
        self._filled -= keep
