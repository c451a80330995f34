"""tools/first-image shows each command so that a copy of the line does the same, and says how to go on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools/first-image"


@pytest.mark.parametrize(
    "words",
    [
        ["build", "--engine", "docker"],
        ["run", "--", "sh", "-c", "id; claude --version; pi --version"],
        ["run", "--", "echo", "it's", "", "$HOME", "a\nb", "*", "`id`", '"'],
    ],
)
def test_what_is_shown_can_be_typed(words: list[str]) -> None:
    at = SCRIPT.read_text().index("typed() {")
    function = SCRIPT.read_text()[at:].partition("\n}\n")[0] + "\n}\n"
    shown = bash(function + 'typed "$@"', words)
    assert bash(f"printf '%s\\0' {shown}", []).split("\0")[:-1] == words


def test_it_ends_with_the_shell_that_the_pages_expect() -> None:
    end = SCRIPT.read_text().partition('say "done in ')[2]
    for line in ("export PATH=", "export XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "cd "):
        assert line in end


def bash(script: str, words: list[str]) -> str:
    done = subprocess.run(
        ["bash", "-euc", script, "bash", *words], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout
