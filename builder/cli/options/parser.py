"""The parser of every command: it never ends the process, and takes whole names only."""

from __future__ import annotations

import argparse
from pathlib import Path
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
        self.register("type", Path, _named_path)

    def error(self, message: str) -> NoReturn:
        raise BadUsage(message, self.prog)


def _named_path(text: str) -> Path:
    """A path that says something: an empty one, as of a variable that is not set, would be the working
    directory, and so the policy, the state or the keys of whoever wrote that."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path; expected a file or a directory")
    return Path(text)
