"""Lay out what one build reads on disk: contexts made from values and the store, never live directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from builder.storage.store import ContentStore
from images.errors import StateError
from images.render import BuildContext, ContextArtifact


@dataclass(frozen=True, slots=True)
class StagedBuild:
    """Private places of one build: the main context, the artifacts, the buildx client's home, the output."""

    context: Path
    artifacts: Path
    client: Path
    output: Path


def stage_build(context: BuildContext, store: ContentStore, buildx: Path, staging: Path) -> StagedBuild:
    """Fill ``staging`` (empty, private, ours). Modes are set, never inherited: the umask decides nothing.

    Raises StateError when an artifact is missing or damaged, or the disk does not take it.
    """
    staged = StagedBuild(
        context=staging / "context",
        artifacts=staging / "artifacts",
        client=staging / "client",
        output=staging / "output",
    )
    try:
        for file in context.files:
            _write(staged.context / file.path, file.content, below=staging)
        for item in context.artifacts:
            _link(item, store, staged.artifacts, below=staging)
        plugins = staged.client / "cli-plugins"
        _directory(plugins, below=staging)
        (plugins / "docker-buildx").symlink_to(buildx)
        _write(staged.client / "config.json", b"{}\n", below=staging)
    except OSError as broken:
        raise StateError(f"the build cannot be staged: {broken.strerror}", where=str(staging)) from None
    return staged


def _write(path: Path, content: bytes, *, below: Path) -> None:
    _directory(path.parent, below=below)
    path.write_bytes(content)
    path.chmod(0o644)


def _directory(path: Path, *, below: Path) -> None:
    """Make a directory and its parents below the staging directory, 0755 whatever the umask."""
    if path != below and not path.is_dir():
        _directory(path.parent, below=below)
        path.mkdir()
        path.chmod(0o755)


def _link(item: ContextArtifact, store: ContentStore, artifacts: Path, *, below: Path) -> None:
    """A hard link to the store's file, re-hashed; where a copy was made instead, others may read that too."""
    folder = artifacts / item.folder
    _directory(folder, below=below)
    target = store.link_into(folder, item.name, item.artifact.integrity, item.artifact.id)
    if target.stat().st_mode & 0o444 != 0o444:
        target.chmod(0o444)
