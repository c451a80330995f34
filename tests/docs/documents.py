"""Reads the fenced examples of README.md and docs/: each is executed, parsed, or marked as a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What a fence may say. console: executed. toml, json: parsed. text: output or a picture, nothing to type.
LANGUAGES = {"console", "toml", "json", "text"}

_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    """One fenced block: its document, the line it starts on, its language and its text."""

    document: str
    line: int
    language: str
    text: str

    @property
    def commands(self) -> tuple[str, ...]:
        """The lines to type of a console block, continuation lines joined."""
        joined = self.text.replace("\\\n", " ")
        return tuple(line[2:] for line in joined.splitlines() if line.startswith("$ "))


def documents() -> tuple[Path, ...]:
    return (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def examples() -> Iterator[Example]:
    for path in documents():
        text = path.read_text()
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield Example(path.relative_to(ROOT).as_posix(), line, match.group(1), match.group(2))
