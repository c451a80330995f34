"""What the command of a launch said, kept because it was asked for: redacted, bounded, private."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.agent_command import Output
from backend.commands import OnChunk
from backend.live import redacted
from images.credentials import Secret
from provenance.small_files import read_small
from provenance.writing import state_errors

PIECE_BYTES: Final = 4 << 20
PIECES: Final = 2  # so at least the last 4 MiB are there, and at most 8

_PIECE: Final = re.compile(r"[0-9]{6}")
_LAUNCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*\.[0-9]+")


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """``data``: the newest bytes, of both streams as they came. ``dropped``: how many there were before."""

    data: bytes
    dropped: int


@contextmanager
def keeping(output: Output, logs: Path, launch_id: str, secrets: Iterable[Secret]) -> Iterator[Output]:
    """The same consumers, and a log beside them, which gets only what the redactor lets through.

    Raises StateError, which ends the launch, when the log cannot be written: it was asked for.
    """
    log = _Log(logs / launch_id)
    try:
        with redacted(Output(on_stdout=log.write, on_stderr=log.write), secrets) as quiet:
            yield Output(
                on_stdout=_both(output.on_stdout, quiet.on_stdout),
                on_stderr=_both(output.on_stderr, quiet.on_stderr),
                cancelled=output.cancelled,
            )
    finally:
        log.close()


def kept_output(logs: Path, launch_id: str) -> KeptOutput | None:
    """None where nothing was kept: not asked for, a foreground launch, or gone since."""
    folder = logs / launch_id
    if not _LAUNCH.fullmatch(launch_id) or not folder.is_dir():
        return None
    with state_errors(folder):
        pieces = pieces_of(folder)
        data = b"".join(read_small(piece, PIECE_BYTES) for piece in pieces)
    return KeptOutput(data=data, dropped=int(pieces[0].name) * PIECE_BYTES if pieces else 0)


def pieces_of(folder: Path) -> list[Path]:
    """The files of one log, oldest first."""
    return sorted(path for path in folder.iterdir() if _PIECE.fullmatch(path.name))


def _both(first: OnChunk | None, second: OnChunk | None) -> OnChunk:
    def take(chunk: bytes) -> None:
        for one in (first, second):
            if one is not None:
                one(chunk)

    return take


class _Log:
    """Pieces of one size, numbered; the newest stay. Nothing is made before there is something to keep."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handle: int | None = None
        self._number = 0
        self._left = PIECE_BYTES

    def write(self, chunk: bytes) -> None:
        with state_errors(self._folder):
            rest = memoryview(chunk)
            while rest:
                if self._handle is None or not self._left:
                    self._next_piece()
                written = os.write(self._open, rest[: self._left])
                self._left -= written
                rest = rest[written:]

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @property
    def _open(self) -> int:
        assert self._handle is not None  # noqa: S101  (a piece was begun just now)
        return self._handle

    def _next_piece(self) -> None:
        if self._handle is None:
            self._folder.mkdir(mode=0o700)
        else:
            self.close()
            self._number += 1
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(self._folder / f"{self._number:06}", how, 0o600)
        self._left = PIECE_BYTES
        (self._folder / f"{self._number - PIECES:06}").unlink(missing_ok=True)
