"""The README's first command: what it printed, and the state, policy and project that it left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from images.errors import ExitCode
from tests.results import check_printed

ROOT = Path(__file__).resolve().parents[2]
BUILDER = Path(sys.executable).with_name("builder")
STATE = ROOT / ".state/state/agent-image-builder"
CONFIG = ROOT / ".state/config/agent-image-builder"
PROJECT = ROOT / ".state/project"


def type_builder(
    *words: str, engine: str, state: Path, config: Path, cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Type a command, as a person would; what follows ``--`` stays last."""
    head, tail = list(words), []
    if "--" in head:
        at = head.index("--")
        head, tail = head[:at], head[at:]
    places = ["--state", str(state), "--config-dir", str(config), "--engine", engine]
    done = subprocess.run(
        [str(BUILDER), *head, *places, *tail],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    check_printed(words, done.stdout)
    return done


@dataclass(frozen=True)
class Spine:
    """What the README's first command left behind for one engine."""

    engine: str
    output: str
    state: Path = STATE
    config: Path = CONFIG
    project: Path = PROJECT

    def builder(
        self, *words: str, state: Path | None = None, config: Path | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Type a command against this state, or against a copy of it."""
        return type_builder(
            *words,
            engine=self.engine,
            state=state or self.state,
            config=config or self.config,
            cwd=cwd or self.project,
        )

    @cached_property
    def digest(self) -> str:
        """Of the image that the command built."""
        done = self.builder("build")
        assert done.returncode == 0, done.stderr[-3000:]
        assert re.fullmatch(r"sha256:[0-9a-f]{64}\n", done.stdout)
        return done.stdout.strip()


def run_first_command(engine: str) -> Spine:
    """Run it. The first time it takes many minutes; then what is there is found and kept.

    Where several runs share one state, who started them ran it and names what it printed (tools/test).
    """
    if (printed := os.environ.get("BUILDER_TEST_FIRST_IMAGE")) is not None:
        return Spine(engine, Path(printed).read_text())
    done = subprocess.run(
        [str(ROOT / "tools/first-image"), "--yes", "--engine", engine],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    return Spine(engine, done.stdout + done.stderr)


def refused(done: subprocess.CompletedProcess[str], code: ExitCode, *words: str) -> None:
    """Exit code, what failed, and what to type next; never a traceback."""
    assert done.returncode == code, done.stderr[-3000:]
    assert "error: " in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
