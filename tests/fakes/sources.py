"""A source made ready from a real repository, and what the scripted engine answers to a launch with files."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from backend.containers import ContainerPlan, ExecPlan
from backend.measuring import LEFT, SIZE
from backend.requests import LaunchSource, SourceRoute
from backend.runner import Outcome
from backend.workspace.git import Git, open_git
from backend.workspace.importing import ExportLimits
from backend.workspace.origin import find_origin
from backend.workspace.prepared import PreparedSource, prepare_source
from backend.workspace.producer import export_command, prepare_command
from tests.fakes.engine import FakeEngine, said
from tests.fakes.exports import Desk, desk
from tests.fakes.repositories import ENVIRONMENT, Repo

PLENTY = b"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 100 1 90000000 1% /workspace\n"
SMALL = b"12\t/workspace\n"


def git_of(root: Path) -> Git:
    """A git of ours below ``root``."""
    home = root / "git-home"
    home.mkdir(mode=0o700, exist_ok=True)
    return open_git(home, {"PATH": ENVIRONMENT["PATH"]})


def operator_of(root: Path) -> Repo:
    """An operator's repository of two commits and an uncommitted change, made once."""
    if (root / "operator").exists():
        return Repo(root / "operator")
    repo = Repo.new(root / "operator")
    repo.commit({"readme": "one\n", "src/a.txt": "a\n"}, "first")
    repo.commit({"src/run.sh": "#!/bin/sh\n"}, "second")
    repo.write({"readme": "changed\n", "untracked": "x"})
    return repo


def source_of(root: Path, *, route: SourceRoute = SourceRoute.BIND) -> LaunchSource:
    """The operator's HEAD, made ready in ``root/staging``."""
    return LaunchSource(prepared=prepared_of(root), route=route)


def prepared_of(root: Path) -> PreparedSource:
    """The same, alone."""
    staging = root / "staging"
    staging.mkdir(exist_ok=True)
    git, operator = git_of(root), operator_of(root)
    return prepare_source(git, find_origin(git, operator.path), operator.head, staging)


@dataclass
class Agent:
    """A clone that stands for the workspace inside: what is committed there is what the engine exports."""

    at: Desk

    @property
    def workspace(self) -> Repo:
        return self.at.workspace

    def answers(self, engine: FakeEngine, base: str) -> None:
        """The scripted engine prepares, measures, and exports what this clone holds by then."""

        def export(_: ContainerPlan, __: ExecPlan, ___: bytes) -> Outcome:
            done = self.at.produce(max_pack=ExportLimits().pack_bytes, base=base)
            stream = (self.at.folder / "export").read_bytes()
            return said(stream, exit_code=done.exit_code or 0, stderr=done.stderr)

        engine.answers[prepare_command()] = said()
        engine.answers[export_command(base, ExportLimits().pack_bytes)] = export
        engine.answers[SIZE] = said(SMALL)
        engine.answers[LEFT] = said(PLENTY)


def agent_of(root: Path, operator: Repo) -> Agent:
    """An agent's clone of the operator's repository."""
    folder = root / "agent"
    folder.mkdir()
    return Agent(desk(git_of(root), operator, folder))


def members(tar: bytes) -> dict[str, tarfile.TarInfo]:
    """What was copied in, by name."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return {member.name: member for member in archive}
