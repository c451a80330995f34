"""The façade: every name resolves, the three lists agree, and importing the package loads nothing."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import backend
from backend.commands import Command
from backend.runner import run


def test_the_lists_agree() -> None:
    tree = ast.parse(Path(backend.__file__).read_text())
    typed = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("backend.")
        for alias in node.names
    }
    assert typed == set(backend._HOMES) == set(backend.__all__)


@pytest.mark.parametrize("name", backend.__all__)
def test_each_name_resolves(name: str) -> None:
    assert getattr(backend, name).__module__.startswith("backend.")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'docker_run'"):
        getattr(backend, "docker_run")  # noqa: B009


def test_importing_the_package_loads_nothing_of_it() -> None:
    program = "import backend, sys; print(sorted(name for name in sys.modules if name.startswith('backend')))"
    root = str(Path(backend.__file__).resolve().parents[1])
    outcome = run(
        Command(argv=(sys.executable, "-c", program), environment={"PYTHONPATH": root}, deadline=60)
    )
    assert outcome.stdout.decode().strip() == "['backend']"
