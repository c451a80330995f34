"""Writes action/requirements.lock: of tools/requirements.lock, what the program itself and its wheel need.

``python -m tests.docs.action_requirements``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from tests.docs.documents import ROOT

PAGE = ROOT / "action/requirements.lock"
_ROOT = "agent-image-builder (pyproject.toml)"
_HEAD = (
    "# Made of tools/requirements.lock by python -m tests.docs.action_requirements; a test holds the two.\n"
)


def render() -> str:
    """The blocks of the packages that are reached from the dependencies and from the build backend."""
    blocks = dict(_blocks((ROOT / "tools/requirements.lock").read_text()))
    wanted = {name for name, block in blocks.items() if _ROOT in _parents(block) and name in _asked()}
    while more := {name for name, block in blocks.items() if wanted & _parents(block)} - wanted:
        wanted |= more
    return _HEAD + "".join(blocks[name] for name in blocks if name in wanted)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    for block in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE):
        if found := re.match(r"[a-z0-9._-]+", block):
            yield found[0], block


def _parents(block: str) -> set[str]:
    return {
        line.strip("# ").removeprefix("via").strip()
        for line in block.splitlines()
        if line.startswith("    #")
    }


def _asked() -> set[str]:
    """By its bare name, everything in ``dependencies`` and ``build-system.requires``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    return {re.split(r"[\[<>=! ]", one)[0].lower() for one in asked}


if __name__ == "__main__":
    PAGE.write_text(render())
