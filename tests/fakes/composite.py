"""A small stand-in for the service that runs composite actions: steps in bash, with the files it gives.

It knows what our action.yml uses of the service's language, and refuses everything else.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*([a-z.-]+)\s*\}\}")


@dataclass(frozen=True)
class Ran:
    """What came of a run. ``output``: of all steps, both streams. ``summary``: of the last step."""

    code: int
    output: str
    outputs: dict[str, str]
    summary: str


def load_action(path: Path) -> dict[str, Any]:
    """action.yml as the service reads it."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def run_action(
    folder: Path, workspace: Path, temporary: Path, given: Mapping[str, str], **environment: str
) -> Ran:
    """Run the steps in ``workspace`` until one fails."""
    action = load_action(folder / "action.yml")
    assert set(given) <= set(action["inputs"]), "an input that the action does not have"
    values = {f"inputs.{name}": str(one.get("default", "")) for name, one in action["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in given.items()}
    said, code, summary = "", 0, ""
    for number, step in enumerate(action["runs"]["steps"]):
        assert set(step) <= {"name", "id", "shell", "env", "run"}, "what this stand-in does not know"
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input in the text of a command"
        files = {name: temporary / f"{name}-{number}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        done = subprocess.run(
            # As the service starts it: the text in a file of its own.
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=workspace,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(temporary),
                "CI": "true",
                "GITHUB_ACTIONS": "true",
                "GITHUB_WORKSPACE": str(workspace),
                "GITHUB_ACTION_PATH": str(folder),
                "RUNNER_TEMP": str(temporary),
                **{name: str(file) for name, file in files.items()},
                **environment,
                **{name: _filled(str(value), values) for name, value in step.get("env", {}).items()},
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        said, code, summary = said + done.stdout, done.returncode, files["GITHUB_STEP_SUMMARY"].read_text()
        for line in files["GITHUB_OUTPUT"].read_text().splitlines():
            name, _, value = line.partition("=")
            values[f"steps.{step['id']}.outputs.{name}"] = value
        if code:
            break
    outputs = {name: _filled(one["value"], values) for name, one in action.get("outputs", {}).items()}
    return Ran(code, said, outputs, summary)


def _filled(text: str, values: Mapping[str, str]) -> str:
    """Every expression is one name; what no step has set is empty, as in the service."""
    assert "${{" not in _EXPRESSION.sub("", text), f"an expression that this stand-in does not know: {text}"
    return _EXPRESSION.sub(lambda found: values.get(found[1], ""), text)
