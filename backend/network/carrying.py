"""Carry bytes both ways between two connected streams until both have ended, or a bound says stop."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from backend.network.attempts import Attempt, Decision

_CHUNK: Final = 64 * 1024
_HELD: Final = 4 * _CHUNK  # bytes that one direction may have read and not yet written
_NO_MORE_WRITING: Final = 1  # SHUT_WR


class Stream(Protocol):
    """What this needs of a socket."""

    def fileno(self) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes | bytearray, /) -> int: ...
    def shutdown(self, how: int, /) -> None: ...
    def setblocking(self, flag: bool, /) -> None: ...


@dataclass(slots=True)
class _Way:
    """One direction. ``ended``: its source will say no more; ``closed``: its sink was told so."""

    source: Stream
    sink: Stream
    held: bytearray = field(default_factory=bytearray)
    ended: bool = False
    closed: bool = False

    def read(self) -> int:
        try:
            chunk = self.source.recv(_CHUNK)
        except BlockingIOError:
            return 0
        except OSError:  # reset: what it said until then is still carried
            chunk = b""
        self.ended = not chunk
        self.held += chunk
        return len(chunk)

    def write(self) -> None:
        try:
            if self.held:
                del self.held[: self.sink.send(self.held[:_CHUNK])]
            if self.ended and not self.held and not self.closed:
                self.closed = True
                self.sink.shutdown(_NO_MORE_WRITING)
        except BlockingIOError:
            return
        except OSError:  # nobody hears it any more
            self.held.clear()
            self.ended = self.closed = True


@dataclass(slots=True)
class Tunnel:
    """Two connected streams. Carried bytes are counted into ``attempt``.

    ``spend`` is told of each byte, and says False when the launch may have no more. Whoever sets ``stopping``
    also shuts both streams down, so that this wakes.
    """

    near: Stream
    far: Stream
    attempt: Attempt
    spend: Callable[[int], bool]
    stopping: threading.Event

    def carry(self, early: bytes, idle_seconds: float, half_closed_seconds: float) -> Decision:
        """Until both sides have ended. ``early``: what ``far`` has said already.

        Nothing may come for ``idle_seconds``; for ``half_closed_seconds`` once one side has ended.
        """
        out, back = _Way(self.near, self.far), _Way(self.far, self.near, bytearray(early))
        self.attempt.received += len(early)
        within = self.spend(len(early))
        for stream in (self.near, self.far):
            stream.setblocking(False)
        with selectors.DefaultSelector() as selector:
            while within and not (out.closed and back.closed):
                _watch(selector, out, back)
                ready = selector.select(half_closed_seconds if out.ended or back.ended else idle_seconds)
                if self.stopping.is_set():
                    return Decision.CUT_AT_THE_END
                if not ready:
                    return Decision.CUT_IDLE
                within = self.spend(self._moved(ready, out, back))
        return Decision.CARRIED if within else Decision.CUT_BYTES

    def _moved(self, ready: list[tuple[selectors.SelectorKey, int]], out: _Way, back: _Way) -> int:
        """Read what is there, write what can be written; how many bytes came."""
        sent = received = 0
        for key, events in ready:
            if events & selectors.EVENT_READ:
                if key.fileobj is self.near:
                    sent += out.read()
                else:
                    received += back.read()
        for way in (out, back):
            way.write()
        self.attempt.sent += sent
        self.attempt.received += received
        return sent + received


def _watch(selector: selectors.BaseSelector, out: _Way, back: _Way) -> None:
    """Read where there is room, write where something waits."""
    for reading, writing in ((out, back), (back, out)):
        stream = reading.source
        events = 0
        if not reading.ended and len(reading.held) < _HELD:
            events |= selectors.EVENT_READ
        if writing.held:
            events |= selectors.EVENT_WRITE
        known = stream.fileno() in selector.get_map()
        if events and known:
            selector.modify(stream, events)
        elif events:
            selector.register(stream, events)
        elif known:
            selector.unregister(stream)
