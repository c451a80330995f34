"""Whether the command gets the terminal that `builder run` was typed on, or is captured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from backend.terminal import CallerTerminal, caller_terminal
from builder.cli.invocation import Invocation


@contextmanager
def terminal_of(invocation: Invocation) -> Iterator[CallerTerminal | None]:
    """The terminal, where standard input and output are one, and we are not a job in its background.

    None with ``--no-tty``; with ``--json``, whose output is data; and with ``--keep-log``, which needs words.
    """
    source, target = _number(sys.stdin), _number(sys.stdout)
    options = invocation.options
    captured = getattr(options, "no_tty", False) or getattr(options, "keep_log", False)
    wanted = not (captured or invocation.json_output)
    found = caller_terminal(source, target) if wanted and source is not None and target is not None else None
    if found is None:
        yield None
        return
    with found:
        yield found


def _number(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):  # closed, or a stand-in without one
        return None
