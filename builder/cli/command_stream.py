"""Where the output of a command inside goes, byte for byte: standard output or error of ours."""

from __future__ import annotations

import contextlib
from typing import BinaryIO

from images.errors import HostError


class CommandStream:
    """Writes at once what comes, and knows whether the last line is at its end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._open_line = False

    def write(self, chunk: bytes) -> None:
        """HostError when it cannot be written: what is said is not lost in silence, the launch ends."""
        try:
            self._stream.write(chunk)
            self._stream.flush()
        except OSError as broken:
            raise HostError(
                f"the command's output cannot be written: {broken.strerror}",
                where=f"descriptor {self._stream.fileno()}",
                hint="give it a reader that stays, or a file on a disk with room",
                reason="output",
            ) from None
        if chunk:
            self._open_line = not chunk.endswith(b"\n")

    def end_line(self) -> None:
        """What follows begins on a line of its own. Whoever cannot write it now will hear of it then."""
        if self._open_line:
            with contextlib.suppress(HostError):
                self.write(b"\n")
