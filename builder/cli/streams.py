"""Standard input, output and error: there, whatever the caller closed."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open what is closed on the null device, before anything else is opened.

    The next file would get the free number otherwise: a database as standard error, that a child writes into.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
