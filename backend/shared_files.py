"""Whether the engine sees the files that we see: a nonce, bound read-only and read back inside."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from backend.containers import ContainerPlan, EngineFacts, ExecPlan, ReadOnlyBind
from backend.death_watch import AGENT
from backend.engines.client import complaint
from backend.engines.protocol import Engine
from backend.runner import Command, spawn
from backend.tools import created
from images.errors import HostError
from provenance.writing import state_errors

TARGET: Final = "/source"
_NAME: Final = "nonce"
_START_SECONDS: Final = 20.0
_SELINUX: Final = Path("/sys/fs/selinux/enforce")

# What the bind shows to the agent's uid, whether it can be written to, and every mount at or below it.
SCRIPT: Final = r"""
cat "$1/nonce" && printf '\n' || exit 81
(: >"$1/written") 2>/dev/null && exit 82
while read -r _ _ _ _ target options _; do
    case $target in "$1" | "$1"/*) printf '%s %s\n' "$target" "$options" ;; esac
done </proc/self/mountinfo
"""


@dataclass(frozen=True, slots=True)
class Planted:
    """A directory of ours with one file, whose content nobody else knows."""

    folder: Path
    nonce: str

    @property
    def bind(self) -> ReadOnlyBind:
        """How a probe's container gets it."""
        return ReadOnlyBind(source=self.folder, target=TARGET)


@contextlib.contextmanager
def planted(staging: Path) -> Iterator[Planted]:
    """A fresh nonce below ``staging``; the caller removes staging."""
    folder = staging / f"shared-{secrets.token_hex(8)}"
    nonce = secrets.token_hex(32)
    with state_errors(folder):
        folder.mkdir()
        (folder / _NAME).write_text(nonce)
        # The agent's uid is another one than ours: what it reads is open below a directory that is closed.
        folder.chmod(0o755)
        (folder / _NAME).chmod(0o644)
    yield Planted(folder, nonce)


def ask_shared(engine: Engine, plan: ContainerPlan, facts: EngineFacts, staging: Path) -> str:
    """Why our files are not the engine's; empty when they are. An engine elsewhere is never given a path."""
    if facts.remote:
        return "the engine resolves paths on another machine"
    with planted(staging) as found:
        return why_not_shared(engine, replace(plan, read_only_binds=(found.bind,)), found)


def why_not_shared(engine: Engine, plan: ContainerPlan, found: Planted) -> str:
    """Why the engine does not see our files through ``plan``, which binds them; empty when it does."""
    try:
        with created(engine, plan) as container:
            argv, environment = engine.attach_argv(container)
            with spawn(Command(argv=argv, environment=environment, deadline=120.0)) as tether:
                until = time.monotonic() + _START_SECONDS
                while tether.wait(0.02) is None and time.monotonic() < until:
                    state = engine.inspect(container)
                    if state is not None and state.running:
                        break
                look = ExecPlan(argv=("sh", "-c", SCRIPT, "sh", TARGET), user=AGENT, working_dir="/")
                outcome = engine.exec(container, look, deadline=30.0)
    except HostError as refused:
        return _with_selinux(refused.what)
    said = outcome.stdout.decode("utf-8", "replace").splitlines()
    if outcome.exit_code == 82:
        return "what was bound read-only could be written to"
    if not outcome.ok or said[:1] != [found.nonce]:
        return _with_selinux(f"the file is not the one that was written: {complaint(outcome.stderr)}")
    mounts = [line.split(" ") for line in said[1:]]
    if [mount[0] for mount in mounts] != [TARGET] or "ro" not in mounts[0][1].split(","):
        return "the bind brought other mounts along, or is not read-only"
    return ""


def _with_selinux(why: str) -> str:
    """SELinux denies what the modes allow: told apart, and never cured by a label on what is not ours."""
    with contextlib.suppress(OSError):
        if _SELINUX.read_text().strip() == "1":
            return f"{why} (SELinux is enforcing: the engine's label may not read ours)"
    return why
