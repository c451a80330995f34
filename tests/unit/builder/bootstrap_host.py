"""A host whose clients are tables of fixed answers; a client that nobody scripted is an error."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backend.runner import Command, Ending, Outcome
from builder.bootstrap import Host

Answer = Callable[[Command], Outcome]


def ended(code: int = 0, stdout: str = "", stderr: str = "") -> Outcome:
    """A child that ran to its end."""
    return Outcome(ending=Ending.EXITED, exit_code=code, stdout=stdout.encode(), stderr=stderr.encode())


NOT_INSTALLED = Outcome(ending=Ending.NOT_FOUND, exit_code=None)


@dataclass
class Clients:
    """Answers by the first word of the command line that matches; every command is kept."""

    answers: dict[str, Answer | Outcome] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)

    def run(self, command: Command, on_stderr: Callable[[bytes], None] | None = None) -> Outcome:
        """In place of the process runner."""
        self.commands.append(command)
        for word, answer in self.answers.items():
            if word in command.argv:
                outcome = answer if isinstance(answer, Outcome) else answer(command)
                if on_stderr is not None:
                    on_stderr(outcome.stderr)
                return outcome
        raise AssertionError(f"nobody scripted {command.argv}")

    def host(self, root: Path) -> Host:
        """A host with these clients, and cache and work below ``root``."""
        return Host(
            environment={"HOME": "/nowhere", "PATH": "/nowhere"},
            cache=root / "cache",
            work=root / "work",
            run=self.run,
        )


def tree_tar(path: Path, files: dict[str, bytes]) -> None:
    """What mmdebstrap would write."""
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo("./" + name)
            member.size = len(content)
            member.mode = 0o755
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def on_amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that the committed pins are for, wherever the tests run."""
    names = list(os.uname())
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*names[:4], "x86_64")))
