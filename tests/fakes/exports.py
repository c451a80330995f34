"""A workspace as an agent leaves it, what its export says, and exports that nobody honest would make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.commands import Command, Outcome
from backend.runner import run
from backend.workspace.git import Git
from backend.workspace.importing import ExportLimits, ImportedCommit, NothingNew, import_export
from backend.workspace.origin import find_origin
from backend.workspace.producer import export_command
from backend.workspace.reading import FetchedCommit, fetch_commit
from tests.fakes.repositories import ENVIRONMENT, Repo

MAX_PACK = 64 * 1024 * 1024


@dataclass(frozen=True)
class Desk:
    """Our side (``git``, ``source``) and the agent's (``workspace``) of one run."""

    git: Git
    source: FetchedCommit
    workspace: Repo
    folder: Path

    @property
    def base(self) -> str:
        return self.source.commit.name

    def produce(self, max_pack: int = MAX_PACK, base: str = "") -> Outcome:
        """What the export command does in the workspace; its output is in ``folder/export``."""
        return run(
            Command(
                argv=export_command(base or self.base, max_pack),
                environment={"PATH": ENVIRONMENT["PATH"], "HOME": str(self.workspace.path)},
                deadline=60,
                working_dir=self.workspace.path,
                stdout_path=self.folder / "export",
            )
        )

    def bring(self, run_id: str = "run", **limits: Any) -> ImportedCommit | NothingNew:
        """Import what was produced."""
        return import_export(
            self.git,
            self.source.repository,
            self.folder / "export",
            base=self.base,
            run=run_id,
            limits=ExportLimits(**limits),
        )

    def send(self, forged: Forged) -> Path:
        """Put a forged export in the place of a produced one."""
        file = self.folder / "export"
        file.write_bytes(forged.stream(self.base))
        return file

    def everything(self) -> dict[str, int]:
        """Every file of our repository and its size."""
        root = self.source.repository.path
        return {str(p.relative_to(root)): p.stat().st_size for p in root.rglob("*") if p.is_file()}


def desk(git: Git, operator: Repo, folder: Path, *clone: str) -> Desk:
    """A run that starts from the operator's HEAD, with the workspace cloned as a controller would."""
    source = fetch_commit(git, find_origin(git, operator.path), operator.head, folder / "ours.git")
    operator.git("clone", "--quiet", *clone, f"file://{operator.path}", str(folder / "workspace"))
    workspace = Repo(folder / "workspace")
    workspace.git("checkout", "--quiet", "-b", "work")
    return Desk(git, source, workspace, folder)


@dataclass
class Forged:
    """An export made by hand: the manifest fits the pack unless ``change`` says otherwise."""

    commit: str
    pack: bytes
    parents: tuple[str, ...] = ()
    change: Callable[[dict[str, Any]], object] = field(default=lambda _: None)

    def stream(self, base: str) -> bytes:
        manifest = {
            "schema": 1,
            "format": "agent-image-builder-export",
            "objectFormat": "sha1",
            "base": base,
            "commit": self.commit,
            "parents": list(self.parents),
            "branch": "work",
            "pack": {
                "size": len(self.pack),
                "sha256": hashlib.sha256(self.pack).hexdigest(),
                "objects": int.from_bytes(self.pack[8:12], "big") if self.pack else 0,
            },
            "notExported": {"total": 0, "complete": True, "entries": []},
        }
        self.change(manifest)
        body = json.dumps(manifest).encode()
        return b"agent-image-builder-export 1 %d %d\n" % (len(body), len(self.pack)) + body + self.pack
