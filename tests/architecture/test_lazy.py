"""A command that only looks something up starts nothing heavy: what is not needed is not imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "python_on_whales",
    "pyperscan",
    "rich",
    "backend.engines.select",
    "builder.bootstrap",
    "builder.building.buildkit",
)


@pytest.mark.parametrize("module", ["builder.cli.verbs.build_verb", "builder.cli.verbs.show_verb"])
def test_a_known_image_is_answered_without_engine_buildkit_and_scanner(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
