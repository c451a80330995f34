"""Every command that README and docs show is typed here, in order, as a reader would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, Example, examples
from tests.real.layouts import copy_state
from tests.real.spine import BUILDER, Spine

pytestmark = pytest.mark.real

# Typed by others: the first by the spine's fixture, the second is what runs this test.
README_COMMANDS = ("tools/first-image --yes", "tools/test --yes")


def consoles() -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = {}
    for example in examples():
        if example.language == "console" and example.document != "README.md":
            found.setdefault(example.document, []).append(example)
    return found


def test_the_readme_shows_the_two_commands_and_ci_runs_the_second() -> None:
    shown = [
        command
        for example in examples()
        if example.document == "README.md" and example.language == "console"
        for command in example.commands
    ]
    assert tuple(shown) == README_COMMANDS
    assert "tools/test --yes" in (ROOT / ".ci/run").read_text()


@pytest.mark.parametrize("document", sorted(consoles()))
def test_the_commands_of_a_page(spine: Spine, document: str, tmp_path: Path) -> None:
    state = tmp_path / "state" / "agent-image-builder"
    state.parent.mkdir()
    copy_state(spine.state, state)
    typed = [command for example in consoles()[document] for command in example.commands]
    if any(command.startswith("builder init") for command in typed):
        (state / "marks.json").unlink()  # who makes a first policy has accepted none yet
    project = tmp_path / "project"
    project.mkdir()
    environment = reader_environment(spine, tmp_path, document)
    for example in consoles()[document]:
        for command in example.commands:
            done = subprocess.run(
                ["bash", "-euc", command],
                cwd=project,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=1500,
                check=False,
            )
            assert done.returncode == 0, f"{document}:{example.line}: {command}\n{done.stderr[-3000:]}"


def reader_environment(spine: Spine, tmp_path: Path, document: str) -> dict[str, str]:
    """A reader's shell: own places, and `builder` on the PATH, with the engine that this run is about.

    How-tos start where the tutorial ends: with a configuration, a project and a built image.
    """
    commands = tmp_path / "bin"
    commands.mkdir()
    wrapper = commands / "builder"
    wrapper.write_text(f'#!/bin/sh\nverb=$1\nshift\nexec {BUILDER} "$verb" --engine {spine.engine} "$@"\n')
    wrapper.chmod(0o755)
    config = tmp_path / "config"
    config.mkdir(mode=0o700)
    if not document.startswith("docs/tutorial/"):
        subprocess.run(["cp", "-a", str(spine.config), str(config)], check=True)
        for name in ("builder.toml", "builder.lock"):
            (tmp_path / "project" / name).write_bytes((spine.project / name).read_bytes())
    return {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(config),
    }
