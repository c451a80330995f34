"""Reads the fenced examples of README.md and docs/: each is executed, parsed, or marked as a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What a fence may say. console: executed. toml, json: parsed. text: output or a picture, nothing to type.
LANGUAGES = {"console", "toml", "json", "text"}
# A second word after ``console``: typed on a bare machine alone (benchmarks/newcomer.py), by root, or where
# this is the engine. What has none is typed there as well.
BARE = {"root", "rootful", "rootless", "docker", "docker-rootless", "podman"}
# In expected output: whatever stands there, or any lines at all.
ANYTHING = "…"

_FENCE = re.compile(r"^```([^\s`]*)((?: [a-z-]+)*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a console block, and what the block shows of its output: lines, in this order."""

    command: str
    shown: tuple[str, ...]

    def missing(self, said: str) -> str | None:
        """The first shown line that is not in what it said, after the ones before; None when all are."""
        lines = iter(said.splitlines())
        for line in self.shown:
            pattern = re.compile(".*".join(map(re.escape, line.split(ANYTHING))))
            if line != ANYTHING and not any(pattern.fullmatch(one) for one in lines):
                return line
        return None


@dataclass(frozen=True, slots=True)
class Example:
    """One fenced block: its document, the line it starts on, its language, who types it, and its text."""

    document: str
    line: int
    language: str
    where: frozenset[str]
    text: str

    @property
    def steps(self) -> tuple[Step, ...]:
        """What a console block has one type, continuation lines joined, with what it shows of the answer."""
        found: list[Step] = []
        for line in self.text.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], ()))
            elif found:
                found[-1] = Step(found[-1].command, (*found[-1].shown, line))
            else:
                raise ValueError(f"{self.document}:{self.line}: output before a command")
        return tuple(found)

    @property
    def commands(self) -> tuple[str, ...]:
        """The lines to type of a console block."""
        return tuple(step.command for step in self.steps)


def documents() -> tuple[Path, ...]:
    return (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def examples() -> Iterator[Example]:
    for path in documents():
        text = path.read_text()
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            words = frozenset(match[2].split())
            yield Example(path.relative_to(ROOT).as_posix(), line, match[1], words, match[3])
