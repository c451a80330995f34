"""The one process runner: every child of this product on the host is started here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Ending(StrEnum):
    """How a child ended. Outcomes, not exceptions."""

    EXITED = "exited"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    NOT_FOUND = "not-found"  # no such executable, or no such working directory
    NOT_STARTED = "not-started"  # the kernel refused: arguments too long, no permission, no memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One child: argv only, an explicit environment, a time limit in seconds, bounded capture in bytes."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    deadline: float
    working_dir: Path = Path("/")
    stdin: bytes | Path | int | None = None  # bytes, a file, an open descriptor, or nothing (/dev/null)
    stdout_path: Path | None = None  # written there instead of captured
    capture: int = 1 << 20  # most bytes kept of each pipe; the live callbacks see every chunk
    grace: float = 5.0  # seconds between TERM and KILL on the group
    pass_fds: tuple[int, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a child. ``exit_code`` is negative for a signal, as in the standard library; None if never run."""

    ending: Ending
    exit_code: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    detail: str = ""

    @property
    def ok(self) -> bool:
        """It ran and exited with 0."""
        return self.ending is Ending.EXITED and self.exit_code == 0


def run(
    command: Command,
    *,
    on_stdout: Callable[[bytes], None] | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Outcome:
    """Run to the end: own session, both pipes drained at once, TERM then KILL on the whole group."""
    raise NotImplementedError
