"""A command that only looks something up starts nothing heavy: what is not needed is not imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "python_on_whales",
    "cryptography.x509",
    "pyperscan",
    "rich",
    "sigstore",
    "backend.engines.select",
    "builder.bootstrap",
    "builder.building.buildkit",
)


BUILD = "builder.cli.verbs.build_verb"


@pytest.mark.parametrize(
    ("module", "heavy"),
    # show reads the journal of launches, which is the backend's.
    [(BUILD, (*HEAVY, "backend.containers", "backend.runner")), ("builder.cli.verbs.show_verb", HEAVY)],
)
def test_a_known_image_is_answered_without_engine_buildkit_and_scanner(
    module: str, heavy: tuple[str, ...]
) -> None:
    code = f"import sys, {module}; print(*sorted(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
