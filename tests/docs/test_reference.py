"""Reference pages say what the program says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from images.errors import ExitCode, LaunchReason, NetworkReason
from tests.docs import command_line, result_schemas

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", (REFERENCE / "exit-codes.md").read_text(), re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(int(c), c.name.lower()) for c in ExitCode]


def test_network_reasons() -> None:
    text = (REFERENCE / "exit-codes.md").read_text()
    assert all(f"`{reason.value}`" in text for reason in NetworkReason)


def test_launch_refusals() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", (REFERENCE / "launch-refusals.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(reason.value for reason in LaunchReason)


def test_the_command_line_page_is_the_programs_own_help() -> None:
    assert command_line.PAGE.read_text() == command_line.render(), "run: python -m tests.docs.command_line"


@pytest.mark.parametrize("command", result_schemas.RESULTS)
def test_the_schemas_of_results_are_those_of_the_types(command: str) -> None:
    made = result_schemas.render(command)
    jsonschema.Draft202012Validator.check_schema(json.loads(made))
    assert result_schemas.page(command).read_text() == made, "run: python -m tests.docs.result_schemas"
