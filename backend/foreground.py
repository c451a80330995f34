"""Run one command on the caller's terminal: a pair of terminals of our own, and every byte carried across."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from backend.commands import Command, Ending, OnChunk, Outcome
from backend.runner import Child, spawn
from backend.terminal import CallerTerminal, HeldTerminal, make_raw

# Docker sizes a terminal after it has started the command, and a program that finds no columns may divide by
# them: whoever is waited for here becomes the command itself.
SIZED: Final = (
    'n=0; while [ "$(stty size 2>/dev/null)" = "0 0" ] && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.02; done;'
    ' exec "$@"'
)

_CHUNK: Final = 1 << 14
_TICK: Final = 0.05  # seconds between two looks at the size, at who is in front, and at ``cancelled``
_TYPED: Final = 1 << 16  # bytes of input that may wait for the command
_LAST_WORDS: Final = 2.0  # seconds that a terminal gets to take what a command that ended had written
_QUIET: Final = 0.2  # seconds without a byte, once the client has ended and something still holds its side


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreground:
    """One client to run: its argv and environment, a time limit in seconds, and who is told of each chunk."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    deadline: float
    on_chunk: OnChunk
    cancelled: Callable[[], bool] | None = None


def sized(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The same command, once its terminal has a size."""
    return ("sh", "-c", SIZED, "sh", *argv)


def run_foreground(terminal: CallerTerminal, what: Foreground) -> Outcome:
    """Run to the end on the terminal, which is as it was afterwards. Nothing is captured.

    HUNG_UP when the terminal went away. An exception, as from a signal's handler, ends the client and is
    passed on. A time-out or cancellation ends the client only. Raises HostError without a guard.
    """
    with terminal.held() as held, _pair(terminal) as (ours, theirs):
        command = Command(
            argv=what.argv, environment=what.environment, deadline=what.deadline, terminal=theirs.take()
        )
        with spawn(command) as child:
            theirs.close()  # so that ours ends when the client does
            relay = _Relay(terminal, held, ours, child, what)
            relay.to_the_end()
            outcome = child.end()
    if relay.lost and outcome.ending is Ending.CANCELLED:
        return replace(outcome, ending=Ending.HUNG_UP, detail="the terminal has gone")
    return outcome


class _Side:
    """A descriptor that is closed once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def take(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextlib.contextmanager
def _pair(terminal: CallerTerminal) -> Iterator[tuple[int, _Side]]:
    """Our end, which does not block, and the client's, raw from the start: it means nothing by any byte."""
    ours, other = os.openpty()
    theirs = _Side(other)
    try:
        settings = termios.tcgetattr(other)
        make_raw(settings)
        termios.tcsetattr(other, termios.TCSANOW, settings)
        with contextlib.suppress(OSError):  # it went away: the first read says so
            fcntl.ioctl(ours, termios.TIOCSWINSZ, terminal.size())
        os.set_blocking(ours, False)
        yield ours, theirs
    finally:
        theirs.close()
        os.close(ours)


class _Relay:
    """The loop: what is typed goes in, what is shown comes out, and each waits for the other's pace."""

    def __init__(
        self, terminal: CallerTerminal, held: HeldTerminal, ours: int, child: Child, what: Foreground
    ) -> None:
        self._terminal = terminal
        self._held = held
        self._ours = ours
        self._child = child
        self._what = what
        self._typed = b""
        self._shown = memoryview(b"")
        self._size = b""
        self._in_front = True
        self._ended = False  # nothing more comes from the client
        self.lost = False

    def to_the_end(self) -> None:
        """Until the client has ended and its last words were shown, or it has to end."""
        next_look = 0.0
        while not self.lost and not self._ended:
            if time.monotonic() >= next_look:
                if self._child.wait(0) is not None:
                    break
                if self._what.cancelled is not None and self._what.cancelled():
                    return
                self._look()
                next_look = time.monotonic() + _TICK
            self._carry(_TICK)
        self._last_words()
        self._child.wait(_LAST_WORDS)  # it has let go of its side, and is about to say its exit code

    def _look(self) -> None:
        self._in_front = self._held.claim()
        with contextlib.suppress(OSError):
            size = self._terminal.size()
            if size != self._size:
                self._size = size
                fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)
                # The client has no controlling terminal, so the kernel tells nobody.
                if self._child.pid is not None and self._child.wait(0) is None:
                    os.killpg(self._child.pid, signal.SIGWINCH)

    def _carry(self, seconds: float) -> None:
        """Wait for one of the four directions, and do what is possible at once."""
        outer, inner = self._terminal.descriptor, self._ours
        poll = select.poll()
        reads = self._in_front and len(self._typed) < _TYPED
        poll.register(outer, select.POLLIN * reads | select.POLLOUT * bool(self._shown))
        wanted = select.POLLIN * (not self._shown) | select.POLLOUT * bool(self._typed)
        if wanted:  # else the end of the client would be told again and again to nobody
            poll.register(inner, wanted)
        ready = dict(poll.poll(1000 * seconds))
        if ready.get(outer, 0) & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
            self.lost = True
            return
        if ready.get(inner, 0) & (select.POLLIN | select.POLLHUP | select.POLLERR):
            self._from_client()
        if ready.get(outer, 0) & select.POLLOUT or self._shown:
            self._to_terminal()
        if ready.get(outer, 0) & select.POLLIN:
            self._from_terminal()
        if self._typed:
            self._to_client()

    def _from_client(self) -> None:
        if self._shown:
            return
        try:
            chunk = os.read(self._ours, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # nobody holds the other side any more
            chunk = b""
        if not chunk:
            self._ended = True
            return
        self._what.on_chunk(chunk)
        self._held.shown(chunk)
        self._shown = memoryview(chunk)

    def _to_terminal(self) -> None:
        try:
            self._shown = self._shown[os.write(self._terminal.descriptor, self._shown) :]
        except BlockingIOError:
            return
        except OSError:
            self.lost = True

    def _from_terminal(self) -> None:
        try:
            chunk = os.read(self._terminal.descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self.lost = True
            return
        # Nothing, for a line's end as a shell's mode has it: a terminal that has gone says so to the poll.
        self._typed += chunk

    def _to_client(self) -> None:
        try:
            self._typed = self._typed[os.write(self._ours, self._typed) :]
        except BlockingIOError:
            return
        except OSError:  # it takes no more; what it says last still comes
            self._typed = b""

    def _last_words(self) -> None:
        """What a client that has ended wrote before; a terminal that is stuck is not waited for."""
        self._in_front, self._typed = False, b""
        until = time.monotonic() + _LAST_WORDS
        quiet = time.monotonic() + _QUIET
        while not self.lost and time.monotonic() < until and (self._shown or not self._ended):
            before = bytes(self._shown)
            self._carry(0.01)
            if bytes(self._shown) != before:
                quiet = time.monotonic() + _QUIET
            elif time.monotonic() >= quiet and not self._shown:
                return
