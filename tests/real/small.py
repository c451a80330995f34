"""The example project with Pi alone: what shows by a small image need not be built with three agents."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from images.config import parse_config
from images.lock import ArtifactKind, Lock, config_digest
from images.lockfile import lock_bytes, parse_lock


def write_small_project(example: Path, folder: Path) -> None:
    """builder.toml and its lock in ``folder``, from those of ``example``: nothing is resolved again."""
    text, lock = only_pi(
        (example / "builder.toml").read_text(), parse_lock((example / "builder.lock").read_bytes())
    )
    (folder / "builder.toml").write_text(text)
    (folder / "builder.lock").write_bytes(lock_bytes(lock))


def only_pi(text: str, lock: Lock) -> tuple[str, Lock]:
    """Both with nothing in them but Node and Pi."""
    for line in ("claude-code = .*", "opencode = .*", "agent = .*", "install-scripts = .*"):
        text = re.sub(rf"^{line}\n", "", text, flags=re.MULTILINE)
    (pi,) = (agent for agent in lock.agents if agent.name == "pi")
    kept = {entry.artifact for tree in pi.trees for entry in tree.entries}
    kept |= {artifact.id for artifact in lock.artifacts if artifact.kind is ArtifactKind.NODE}
    artifacts = tuple(
        replace(one, parents=tuple(name for name in one.parents if name in {*kept, pi.place, "node"}))
        for one in lock.artifacts
        if one.id in kept
    )
    small = replace(lock, agents=(pi,), artifacts=artifacts, install_scripts=())
    return text, replace(small, config=config_digest(parse_config(text, where="builder.toml")))
