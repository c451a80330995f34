"""The parser of every command: it never ends the process, and takes whole names only."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn


class BadUsage(Exception):
    """What argparse complained about, and in which command (``builder gc``)."""

    def __init__(self, message: str, command: str) -> None:
        super().__init__(message)
        self.message = message
        self.command = command


class Parser(argparse.ArgumentParser):
    """Only says what is wrong, and takes no half of an option: our next one would change what it means."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **{**named, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        raise BadUsage(message, self.prog)
