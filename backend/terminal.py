"""The caller's terminal: found, made raw while a command has it, and given back as it was."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from backend import terminal_guard
from backend.runner import Child, Command, spawn
from backend.terminal_guard import MARKED, READY, Settings, give_back, is_marked, pack
from backend.terminal_modes import Modes
from images.errors import HostError

GUARD_SECONDS: Final = 8 * 24 * 3600.0  # longer than any launch; its end is the end of its input
READY_SECONDS: Final = 30.0  # what a guard gets to start, on a machine that is busy
OLDER_SECONDS: Final = 2.0  # what an older controller's guard gets to give the terminal back

_TIOCGDEV: Final = 0x80045432  # which device a descriptor is, also one that came through /dev/tty
_TTY: Final = os.makedev(5, 0)  # /dev/tty, as Linux numbers it
_NO_SIZE: Final = (24, 80)  # rows and columns of a terminal that does not know, as of a serial line


@dataclass(frozen=True, slots=True)
class CallerTerminal:
    """One terminal, opened by us: its descriptor does not block, and is nobody else's."""

    descriptor: int

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def size(self) -> bytes:
        """The kernel's winsize. OSError once it has gone."""
        found = fcntl.ioctl(self.descriptor, termios.TIOCGWINSZ, bytes(8))
        rows, columns, wide, high = struct.unpack("HHHH", found)
        return struct.pack("HHHH", rows or _NO_SIZE[0], columns or _NO_SIZE[1], wide, high)

    def in_front(self) -> bool:
        """Whether we are the job that the terminal's user talks to; so is who has no job control at all."""
        try:
            return os.tcgetpgrp(self.descriptor) == os.getpgrp()
        except OSError:
            return True

    @contextlib.contextmanager
    def held(self) -> Iterator[HeldTerminal]:
        """Raw while the block lasts. A guard gives it back should this process die, however it dies."""
        _wait_for_older(self.descriptor)
        held = HeldTerminal(self)
        with held.guard:
            try:
                held.claim()
                yield held
            finally:
                held.release()


class HeldTerminal:
    """A terminal that a command has. ``guard``: the process that would give it back."""

    def __init__(self, terminal: CallerTerminal) -> None:
        self._terminal = terminal
        self._saved = _settings(terminal.descriptor)
        self._mark = secrets.token_bytes(len(MARKED))
        self._modes = Modes()
        self._told = b""
        self._last = b"\n"
        self.guard = _guard(terminal.descriptor, self._saved, self._mark)

    def claim(self) -> bool:
        """Raw mode, also after a shell that had us stopped took it back; whether we are in front."""
        if not self._terminal.in_front():
            return False
        with contextlib.suppress(termios.error):  # it has gone: whoever reads from it is told
            if not is_marked(self._terminal.descriptor, self._mark):
                with _whoever_is_in_front():
                    termios.tcsetattr(self._terminal.descriptor, termios.TCSANOW, self._raw())
        return True

    def shown(self, chunk: bytes) -> None:
        """Note what the command wrote to it, and tell the guard which modes it has switched on."""
        self._last = chunk[-1:]
        self._modes.feed(chunk)
        undo = self._modes.undo
        if undo != self._told:
            with contextlib.suppress(OSError):  # a guard that is behind is told next time; one may be dead
                os.write(self.guard.stdin, undo.hex().encode() + b"\n")
                self._told = undo

    def release(self) -> None:
        """As it was, unless somebody else has it by now."""
        descriptor = self._terminal.descriptor
        undo = self._modes.undo + (b"" if self._last == b"\n" else b"\r\n")
        with contextlib.suppress(OSError, termios.error), _whoever_is_in_front():
            if is_marked(descriptor, self._mark):
                give_back(descriptor, self._saved, undo)

    def _raw(self) -> Settings:
        settings = _copied(self._saved)
        make_raw(settings)
        for at, value in zip(MARKED, self._mark, strict=True):
            settings[6][at] = bytes((value,))
        return settings


def caller_terminal(source: int, target: int) -> CallerTerminal | None:
    """The terminal that both descriptors are, opened anew.

    None where they are not one terminal, where it cannot be opened, or where we are a job in its background.
    """
    device = _device(source)
    if device is None or device != _device(target):
        return None
    for path in (_name(source), "/dev/tty"):  # its own name may be another user's, as after su
        try:
            # O_NONBLOCK holds for what is opened here, and not for what the shell shares with us.
            descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        found = CallerTerminal(descriptor)
        if _device(descriptor) == device and found.in_front():
            return found
        os.close(descriptor)
    return None


def make_raw(settings: Settings) -> None:
    """Every byte as it is, both ways: what a key or a line means is for the terminal inside to say."""
    iflag = termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON
    iflag |= termios.IGNBRK | termios.PARMRK | termios.INLCR | termios.IGNCR
    settings[0] &= ~iflag
    settings[1] &= ~termios.OPOST
    settings[2] = settings[2] & ~(termios.CSIZE | termios.PARENB) | termios.CS8
    lflag = termios.ECHO | termios.ECHONL | termios.ICANON | termios.IEXTEN | termios.ISIG
    settings[3] &= ~lflag
    settings[6][termios.VMIN], settings[6][termios.VTIME] = 1, 0


def _guard(descriptor: int, saved: Settings, mark: bytes) -> Child:
    """One that has said that it is ready: a terminal without a guard is never made raw."""
    program = Path(terminal_guard.__file__)
    said, ready = bytearray(), threading.Event()

    def hear(chunk: bytes) -> None:
        said.extend(chunk[: len(READY)])
        if said == READY:
            ready.set()

    child = spawn(
        Command(
            argv=(sys.executable, "-I", "-S", str(program), str(descriptor), pack(saved), mark.hex()),
            environment={},
            deadline=GUARD_SECONDS,
            pass_fds=(descriptor,),
        ),
        on_stdout=hear,
    )
    until = time.monotonic() + READY_SECONDS
    while not ready.wait(0.02) and child.wait(0) is None and time.monotonic() < until:
        pass
    if not ready.is_set():
        ended = child.end()
        raise HostError(
            f"no guard of the terminal can be started: {ended.detail or ended.ending.value}",
            where="terminal",
            hint="builder run --no-tty",
        )
    os.set_blocking(child.stdin, False)
    return child


def _settings(descriptor: int) -> Settings:
    try:
        return termios.tcgetattr(descriptor)
    except termios.error as broken:
        raise HostError(f"the terminal does not answer: {broken}", hint="builder run --no-tty") from None


def _copied(settings: Settings) -> Settings:
    return [*settings[:6], [*settings[6]]]


def _device(descriptor: int) -> int | None:
    """Which terminal it is; None for what is none."""
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, _TIOCGDEV, bytes(4)), sys.byteorder)
    except OSError:
        return None


def _is_itself(descriptor: int) -> bool:
    """Whether it was opened by its own name, and not through /dev/tty."""
    return os.fstat(descriptor).st_rdev != _TTY


def _name(descriptor: int) -> str:
    try:
        return os.ttyname(descriptor)
    except OSError:
        return "/dev/tty"


def _wait_for_older(descriptor: int) -> None:
    """What it is set to now would be the mode of a controller that has just died, until its guard is done.

    The lock is the open file's own, so it lasts until both we and our guard have gone. One that a stopped job
    still holds is not waited for: the shell has set the terminal for itself then.
    """
    until = time.monotonic() + OLDER_SECONDS
    # Of /dev/tty there is one for the whole machine, and its lock would be everybody's.
    while _is_itself(descriptor) and time.monotonic() < until:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)
        else:
            return


@contextlib.contextmanager
def _whoever_is_in_front() -> Iterator[None]:
    """A job in the background may set its terminal while SIGTTOU is blocked, and would be stopped else."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
