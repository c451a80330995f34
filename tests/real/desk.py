"""A project in a state of its own, for tests that lock, build and start one configuration of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from builder.state import State
from tests.real.layouts import copy_state
from tests.real.spine import PROJECT, type_builder

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def greeting(server: str) -> str:
    """Shell words that print what a server answers, in the first 90 s, to one who greets it.

    Its input stays open until it has answered: a busy machine takes its time.
    """
    return (
        f"mkfifo ~/in; {server} <~/in >~/out 2>/dev/null & exec 3>~/in;"
        f"printf '%s\\n' '{json.dumps(HELLO)}' >&3; n=0;"
        "until grep -q serverInfo ~/out || [ $n -gt 90 ]; do sleep 1; n=$((n + 1)); done;"
        "cat ~/out; exec 3>&-;"
    )


@dataclass(frozen=True)
class Desk:
    """A project with a configuration and a state of its own; artifacts are the kept state's."""

    engine: str
    root: Path

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def state(self) -> Path:
        return self.root / "state"

    def builder(self, *words: str) -> str:
        """Type a command that must succeed; what it printed."""
        done = self.type(*words)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Type a command."""
        config = self.root / "config"
        return type_builder(*words, engine=self.engine, state=self.state, config=config, cwd=self.project)


def make_desk(engine: str, kept: State, root: Path, toml: str) -> Desk:
    """A copy of the kept state, a policy of its own, a project of one file, and the kept project's lock.

    That lock is stale here: what has the same pin keeps its tree, the rest is to be resolved.
    """
    made = Desk(engine, root)
    copy_state(kept.root, made.state)
    (made.state / "marks.json").unlink(missing_ok=True)  # its policy is another one
    made.project.mkdir()
    (made.project / "builder.toml").write_text(toml)
    shutil.copy(PROJECT / "builder.lock", made.project)
    made.builder("init", "--unencrypted-keys")
    return made


def inside(desk: Desk, digest: str, script: str) -> str:
    """What a command prints inside, as the agent, launched as every run is: hardened, with no network."""
    return desk.builder("run", digest, "--lock", "builder.lock", "--", "sh", "-c", script)
