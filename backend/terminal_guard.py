"""Give a terminal back when its controller has died: a program of its own, in a session of its own.

It waits for the end of its standard input, whose other end the controller holds, and which the kernel closes
however that one dies. A terminal is the controller's for as long as it carries the mark that the controller
set with raw mode: it changes nothing of a terminal that a shell or a newer controller has taken meanwhile.

Started by its path, with the standard library alone: nothing of ours is imported here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
from typing import Any, Final

Settings = list[Any]  # what tcgetattr gives: six numbers, and the list of special characters

READY: Final = b"ready"  # on standard output, once only the end of its input moves it

# Special characters that mean nothing in raw mode: whoever set raw mode writes its mark there.
MARKED: Final = (
    termios.VERASE,
    termios.VKILL,
    termios.VREPRINT,
    termios.VDISCARD,
    termios.VWERASE,
    termios.VLNEXT,
)


def pack(settings: Settings) -> str:
    """What tcgetattr gave, as one argument."""
    *numbers, characters = settings
    values = [one[0] if isinstance(one, bytes) else one for one in characters]
    return ",".join(map(str, (*numbers, *values)))


def unpack(text: str) -> Settings:
    """What tcsetattr takes."""
    values = [int(word) for word in text.split(",")]
    return [*values[:6], values[6:]]


def mark_of(settings: Settings) -> bytes:
    """What stands where a mark would be."""
    return b"".join(settings[6][at] for at in MARKED)


def is_marked(terminal: int, mark: bytes) -> bool:
    """Whether it is still as whoever wrote that mark left it; OSError or termios.error: it has gone."""
    settings = termios.tcgetattr(terminal)
    return mark_of(settings) == mark and not settings[3] & (termios.ICANON | termios.ECHO | termios.ISIG)


def give_back(terminal: int, saved: Settings, undo: bytes) -> None:
    """The settings as they were, then what switches off the modes that the command had switched on.

    What was typed for the command, or answered to it, is not for the shell. It waits for nobody: a terminal
    that takes no more bytes gets no ``undo``.
    """
    termios.tcsetattr(terminal, termios.TCSANOW, saved)
    if undo:
        with contextlib.suppress(OSError):
            os.write(terminal, undo)
    termios.tcflush(terminal, termios.TCIFLUSH)


def told(source: int) -> bytes:
    """The last whole line that was written to ``source``, in hexadecimal, once nobody can write any more."""
    last, rest = b"", b""
    while said := os.read(source, 4096):
        *lines, rest = (rest + said).split(b"\n")
        last = lines[-1] if lines else last
    return bytes.fromhex(last.decode("ascii"))


def main() -> None:
    """``terminal_guard.py DESCRIPTOR SAVED MARK``."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTTOU, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # the controller has died already
        os.write(1, READY)
    terminal, saved, mark = int(sys.argv[1]), unpack(sys.argv[2]), bytes.fromhex(sys.argv[3])
    undo = told(0)
    with contextlib.suppress(OSError, termios.error):
        if is_marked(terminal, mark):
            give_back(terminal, saved, undo)


if __name__ == "__main__":
    main()
