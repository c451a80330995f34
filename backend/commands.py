"""What one child process is asked to do and what came of it: values and the bounded keeper of one pipe."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

STDOUT_LIMIT: Final = 1 << 34
OnChunk = Callable[[bytes], None]
Input: TypeAlias = bytes | Path | int | Iterator[bytes] | None


@dataclass(frozen=True, slots=True)
class Feed:
    """Bytes for a job to bring somewhere: how many, and the chunks, made when the container reads them."""

    size: int = 0
    chunks: Callable[[], Iterator[bytes]] = lambda: iter(())


NO_FEED: Final = Feed()


class Ending(StrEnum):
    """How a child ended. Outcomes, not exceptions."""

    EXITED = "exited"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    OVERFLOWED = "overflowed"  # more on standard output than ``stdout_limit``
    HUNG_UP = "hung-up"  # the terminal that it was shown on went away
    NOT_FOUND = "not-found"  # no such executable, or no such working directory
    NOT_STARTED = "not-started"  # the kernel refused: arguments too long, no permission, no memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """What the kernel lets one child, and each child of it, have: anonymous memory in bytes, processor time
    in seconds, the size in bytes of a file that it writes. It leaves no core dump."""

    memory: int
    cpu_seconds: int
    file_bytes: int

    def around(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The argv of the same program below ``prlimit`` (util-linux): the limits hold before it starts."""
        # RLIMIT_DATA, not RLIMIT_AS: a file mapped for reading is the page cache's, not the child's memory.
        bounds = (f"--data={self.memory}", f"--cpu={self.cpu_seconds}", f"--fsize={self.file_bytes}")
        return ("prlimit", "--core=0", *bounds, "--", *argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One child: argv only, an explicit environment, a time limit in seconds, bounded capture in bytes.

    ``stdin`` is bytes, a file, an open descriptor (it stays the caller's), an iterator of chunks that is
    pulled as the child reads, or nothing (/dev/null). With ``stdout_path`` standard output goes to that
    private file, at most ``stdout_limit`` bytes, and is not captured; the live callback sees it all the same.
    With ``limits`` the program is named by its absolute path.
    """

    argv: tuple[str, ...] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    deadline: float
    working_dir: Path = Path("/")
    stdin: Input = field(default=None, repr=False)
    hold_stdin: bool = False  # keep the pipe open after ``stdin`` (bytes or chunks) until the child ends
    stdout_path: Path | None = None
    stdout_limit: int = STDOUT_LIMIT
    capture: int = 1 << 20  # most bytes kept of each pipe, the first ones; the live callbacks see every chunk
    grace: float = 5.0  # seconds between TERM and KILL on the group
    pass_fds: tuple[int, ...] = field(default=())
    limits: ChildLimits | None = None
    terminal: int | None = (
        None  # a terminal's descriptor in the place of all three pipes: nothing is captured
    )

    @property
    def started_argv(self) -> tuple[str, ...]:
        """What is really started: ``argv``, below its limits if it has some."""
        return self.argv if self.limits is None else self.limits.around(self.argv)

    @property
    def stdout_bound(self) -> int:
        """Most bytes of standard output that are kept, in memory or in the file."""
        return self.capture if self.stdout_path is None else self.stdout_limit


@dataclass(frozen=True, slots=True)
class BoundedFile:
    """Where standard output goes instead of into memory: a private file, and the most bytes that it takes."""

    path: Path
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a child. ``exit_code`` is negative for a signal, and None if it never ran."""

    ending: Ending
    exit_code: int | None
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    detail: str = ""

    @property
    def ok(self) -> bool:
        """It ran and exited with 0."""
        return self.ending is Ending.EXITED and self.exit_code == 0


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the caller sees and says while a child runs."""

    on_stdout: OnChunk | None = None
    on_stderr: OnChunk | None = None
    cancelled: Callable[[], bool] | None = None


class Sink:
    """One pipe of a child, kept up to a limit, in memory or in a file, and shown live whole."""

    def __init__(self, limit: int, live: OnChunk | None, output: int | None) -> None:
        """``output``: a descriptor, which gets no byte beyond the limit either."""
        self._limit = limit
        self._live = live
        self._output = output
        self._kept = bytearray()
        self.total = 0

    def take(self, chunk: bytes) -> None:
        room = max(0, self._limit - self.total)
        self.total += len(chunk)
        if self._output is not None:
            rest = memoryview(chunk)[:room]
            while rest:
                rest = rest[os.write(self._output, rest) :]
        else:
            self._kept += chunk[:room]
        if self._live is not None:
            self._live(chunk)

    @property
    def kept(self) -> bytes:
        return bytes(self._kept)

    @property
    def overflowed(self) -> bool:
        return self._output is not None and self.total > self._limit

    @property
    def complaint(self) -> str:
        return f"more than {self._limit} bytes of output" if self.overflowed else ""

    @property
    def truncated(self) -> bool:
        return self._output is None and self.total > len(self._kept)


class Failure:
    """Takes an exception out of the supervising thread into the one that asks."""

    def __init__(self) -> None:
        self._raised: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, raised: BaseException | None, _trace: object) -> bool:
        self._raised = raised
        return True

    def pass_on(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised


def exit_handle(pid: int) -> int | None:
    """A descriptor that turns readable when the child ends; None where there is none (a tick notices)."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def not_started(command: Command, refused: OSError | ValueError) -> Outcome:
    """Names the executable or directory only: the other arguments are nobody's business in a log."""
    if isinstance(refused, ValueError):
        return Outcome(ending=Ending.NOT_STARTED, exit_code=None, detail="an argument holds a zero byte")
    missing = isinstance(refused, FileNotFoundError | NotADirectoryError)
    what = str(refused.filename or (command.argv[0] if command.argv else "nothing"))
    ending = Ending.NOT_FOUND if missing else Ending.NOT_STARTED
    return Outcome(ending=ending, exit_code=None, detail=f"{what}: {refused.strerror}")
