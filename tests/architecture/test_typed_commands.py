"""Who types commands in a test of the real thing has what they print with --json held against its schema."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Their standard output is thrown away or is that of a script, in which no --json is typed.
WITHOUT = {"without_a_network", "test_a_disk_that_is_full_in_the_middle"}


def typing(path: Path) -> list[ast.FunctionDef]:
    """Functions that start the program as a child: by its path, or by words that somebody put before it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FunctionDef):
            continue
        text = ast.unparse(node)
        starts = "subprocess.run(" in text or "subprocess.Popen(" in text
        if starts and ("BUILDER)" in text or "BUILDER}" in text or ".argv(" in text):
            found.append(node)
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "tests/real").glob("*.py")), ids=lambda path: path.name)
def test_what_is_printed_is_checked(path: Path) -> None:
    text = path.read_text()
    for node in typing(path):
        body = ast.unparse(node)
        if node.name in WITHOUT:
            assert "--json" not in body
        elif "*words" in body:
            assert "check_printed(words, done.stdout)" in body, f"{path.name}: {node.name}"
        elif "--json" in body:
            assert "check(json.loads(" in text, f"{path.name}: {node.name}"


def test_the_rule_finds_who_types() -> None:
    named = {node.name for path in (ROOT / "tests/real").glob("*.py") for node in typing(path)}
    assert {"type_builder", "builder", "verify", "build"} <= named
    assert named >= WITHOUT
