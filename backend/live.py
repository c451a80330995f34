"""A launch's output on its way to people and logs: redacted as it comes, and shown although no line ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from backend.agent_command import Output
from backend.commands import OnChunk
from images.credentials import Secret
from images.redaction import Redactor

PATIENCE: Final = 0.5  # seconds without a new byte after which an incomplete line is shown, but for a word


@contextmanager
def redacted(output: Output, secrets: Iterable[Secret] = ()) -> Iterator[Output]:
    """The same consumers, who see neither these values nor anything that has the shape of a credential.

    What is still held back is given to them at the end, also of a launch that fails. The record counts the
    command's own bytes. What is shown on a terminal passes all this by. Give it to
    :func:`backend.launch.launch` in place of ``output``.
    """
    known = tuple(secrets)
    out = None if output.on_stdout is None else _Stream(output.on_stdout, known)
    err = None if output.on_stderr is None else _Stream(output.on_stderr, known)
    streams = [stream for stream in (out, err) if stream is not None]

    def cancelled() -> bool:  # asked often, in the thread that the chunks come in
        for stream in streams:
            stream.look()
        return output.cancelled is not None and output.cancelled()

    try:
        yield Output(
            on_stdout=None if out is None else out.take,
            on_stderr=None if err is None else err.take,
            cancelled=cancelled,
            terminal=output.terminal,
        )
    finally:
        for stream in streams:
            stream.end()


def shown(output: Output | None, secrets: tuple[Secret, ...]) -> AbstractContextManager[Output]:
    """Whoever watches a command: :func:`redacted` where it was given secrets, else byte by byte."""
    watching = output or Output()
    return redacted(watching, secrets) if secrets else nullcontext(watching)


class _Stream:
    """One consumer behind a redactor."""

    def __init__(self, live: OnChunk, secrets: tuple[Secret, ...]) -> None:
        self._live = live
        self._redactor = Redactor(secrets)
        self._last: float | None = None  # when bytes came that may still be held back

    def take(self, chunk: bytes) -> None:
        self._last = time.monotonic()
        self._give(self._redactor.feed(chunk))

    def look(self) -> None:
        if self._last is not None and time.monotonic() - self._last >= PATIENCE:
            self._last = None
            self._give(self._redactor.flush())

    def end(self) -> None:
        self._give(self._redactor.close())

    def _give(self, shown: bytes) -> None:
        if shown:
            self._live(shown)
