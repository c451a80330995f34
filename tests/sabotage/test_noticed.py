"""Some edits of the list are made with each run of the tests, all of them with ``--long``."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sabotage.edits import EDITS, Edit

ROOT = Path(__file__).resolve().parents[2]
SOME = 4  # each takes some seconds, half a minute on a busy machine


def of_this_program() -> list[Edit]:
    """Others with every change of the program, the same for the same one."""
    whole = hashlib.sha256()
    for layer in ("images", "provenance", "backend", "builder"):
        for path in sorted((ROOT / layer).rglob("*.py")):
            whole.update(path.read_bytes())
    order = sorted(EDITS, key=lambda edit: hashlib.sha256(whole.digest() + repr(edit).encode()).digest())
    return order[:SOME]


def run(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sabotage", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]


def test_some_edits_are_noticed() -> None:
    run(*(f"{edit.file}: {edit.old}" for edit in of_this_program()))


@pytest.mark.long
def test_every_edit_is_noticed() -> None:
    run()
