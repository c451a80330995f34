"""Lay out what one build reads on disk: contexts made from values and the store, never live directories."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from builder.storage.store import ContentStore
from images.digests import canonical_json
from images.errors import StateError
from images.oci import Descriptor, OciImage
from images.render import BuildContext, ContextArtifact
from provenance.layout import LAYOUT_VERSION, blob_path, read_blob


@dataclass(frozen=True, slots=True)
class StagedBuild:
    """Private places of one build: the main context, the artifacts, the base, the buildx client's home, the
    output."""

    context: Path
    artifacts: Path
    base: Path
    client: Path
    output: Path


def stage_build(
    context: BuildContext, base: OciImage, store: ContentStore, buildx: Path, staging: Path
) -> StagedBuild:
    """Fill ``staging`` (empty, private, ours). Modes are set, never inherited: the umask decides nothing.

    The layers of ``base`` lie in the output already: BuildKit does not send back what is there, and all of it
    is hashed when the image is opened. They lie in a layout of their own too: buildx lets BuildKit list,
    read, add and remove what it likes in a layout that it is given, so it is given none that stays.
    Raises StateError when an artifact is missing or damaged, or the disk does not take it.
    """
    staged = StagedBuild(
        context=staging / "context",
        artifacts=staging / "artifacts",
        base=staging / "base",
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
        for layer in base.manifest.layers:
            blob = blob_path(staged.output, layer.digest)
            _directory(blob.parent, below=staging)
            # A copy: a hard link would touch the original, which is known by its stamp.
            shutil.copyfile(blob_path(base.layout, layer.digest), blob)
        _lay_out(base, staged, below=staging)
    except OSError as broken:
        raise StateError(f"the build cannot be staged: {broken.strerror}", where=str(staging)) from None
    return staged


def _lay_out(base: OciImage, staged: StagedBuild, *, below: Path) -> None:
    """A layout with the base alone. Its layers are the copies that lie in the output."""
    manifest = base.manifest
    config = read_blob(base.layout, manifest.config)
    entry = Descriptor(media_type=manifest.media_type, digest=base.digest, size=len(manifest.raw))
    files = {
        staged.base / "oci-layout": canonical_json({"imageLayoutVersion": LAYOUT_VERSION}),
        staged.base / "index.json": canonical_json({"schemaVersion": 2, "manifests": [entry.to_json()]}),
        blob_path(staged.base, base.digest): manifest.raw,
        blob_path(staged.base, manifest.config.digest): config,
    }
    for path, content in files.items():
        _write(path, content, below=below)
    for layer in manifest.layers:
        link = blob_path(staged.base, layer.digest)
        if not link.exists():  # an image may have one layer twice
            link.hardlink_to(blob_path(staged.output, layer.digest))


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
