"""A person at a terminal: a pair of terminals, what was typed on it, and what it has shown so far."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

PATIENCE = 30.0


class Person:
    """Holds the outer end. ``terminal``: the descriptor that a program would have as its standard streams.

    Reads all the time unless ``looks_away``; what was shown is in ``seen``.
    """

    def __init__(self, rows: int = 24, columns: int = 80) -> None:
        self._outer, self.terminal = os.openpty()
        os.set_blocking(self._outer, False)
        self.resize(rows, columns)
        self.seen = bytearray()
        self.looks_away = False
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()
        os.close(self.terminal)

    @property
    def name(self) -> str:
        return os.ttyname(self.terminal)

    @property
    def settings(self) -> list[object]:
        """Everything that termios knows of it."""
        return [*termios.tcgetattr(self.terminal)]

    @property
    def raw(self) -> bool:
        lflag = termios.tcgetattr(self.terminal)[3]
        return not lflag & (termios.ICANON | termios.ECHO | termios.ISIG)

    def type(self, keys: bytes) -> None:
        while keys:
            select.select([], [self._outer], [], 1)
            with contextlib.suppress(BlockingIOError):
                keys = keys[os.write(self._outer, keys) :]

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        """The window is closed."""
        self._over.set()
        if self._reader.is_alive():
            self._reader.join()
        if self._outer >= 0:
            os.close(self._outer)
            self._outer = -1

    def wait_for(self, text: bytes) -> None:
        until(lambda: text in self.seen, f"{text!r} is not in {bytes(self.seen[-2000:])!r}")

    def _read(self) -> None:
        while not self._over.is_set():
            if self.looks_away or not select.select([self._outer], [], [], 0.05)[0]:
                self._over.wait(0.01)
                continue
            with contextlib.suppress(OSError):
                self.seen += os.read(self._outer, 1 << 16)


def until(is_so: Callable[[], bool], otherwise: str) -> None:
    """Wait for something that must become so; fails after a long while."""
    ends = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < ends, otherwise
        time.sleep(0.01)


@contextlib.contextmanager
def beside(act: Callable[[], None]) -> Iterator[None]:
    """What the person does while the block runs; a failure of his is the test's."""
    failed: list[BaseException] = []

    def acting() -> None:
        try:
            act()
        except BaseException as broken:  # noqa: BLE001  (raised again in the test's own thread)
            failed.append(broken)

    thread = threading.Thread(target=acting, daemon=True)
    thread.start()
    yield
    thread.join(PATIENCE)
    if failed:
        raise failed[0]
    assert not thread.is_alive()
