"""Two things to compare: a lock, a project's lock, or an image with the lock attached to it."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builder.locking import open_project, read_lock_file
from images.difference import FieldChange, pairs
from images.digests import Digest
from images.errors import UsageError, VerifyFailed
from images.lock import Lock, config_digest
from images.lockfile import parse_lock
from images.oci import OciImage, Platform
from provenance.layout import Rehash, open_image, open_layer
from provenance.referrers import read_referrers
from provenance.stricttar import StrictTar

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two. ``lock`` or ``image`` is there, or both. ``notes``: what limits the answer."""

    words: str
    lock: Lock | None
    image: OciImage | None
    notes: tuple[str, ...] = ()


def open_side(words: str, layout: Callable[[], Path], platform: Platform) -> Side:
    """A digest (in ``layout()``, which only a digest needs), a ``.toml`` or its folder, else a lock file.

    Raises UsageError or VerifyFailed naming what cannot be read. Nothing is judged: ``verify`` does that.
    """
    if words.startswith("sha256:"):
        return _image(words, layout(), platform)
    path = Path(words)
    if path.is_dir():
        path /= "builder.toml"
    if not path.exists():
        raise UsageError(
            "there is no such file",
            where=words,
            hint="name a lock, a builder.toml or its folder, or an image as sha256:…",
        )
    if path.suffix == ".toml":
        return _project(path)
    return Side(words, read_lock_file(path)[0], None)


def file_differences(before: OciImage, after: OciImage) -> tuple[FieldChange, ...]:
    """Paths whose kind, mode, owner or content differ; only layers that are not in both images are read."""
    common = {layer.digest for layer in before.manifest.layers} & {
        layer.digest for layer in after.manifest.layers
    }
    return tuple(
        sorted(pairs(_files(before, common), _files(after, common)), key=lambda change: change.field)
    )


def _image(words: str, layout: Path, platform: Platform) -> Side:
    image = open_image(layout, Digest(words), platform, rehash=Rehash.BYTES)
    locks = {attached.data for attached in read_referrers(layout, image.digest).locks}
    if len(locks) != 1:
        note = f"{words}: {len(locks) or 'no'} locks are attached, so its packages are not compared"
        return Side(words, None, image, (note,))
    try:
        return Side(words, parse_lock(locks.pop(), where=f"lock of {words}", error=VerifyFailed), image)
    except VerifyFailed as broken:
        return Side(words, None, image, (f"{broken}; its packages are not compared",))


def _project(path: Path) -> Side:
    project = open_project(path)
    lock, _ = read_lock_file(project.lock_path)
    if lock.config != config_digest(project.config):
        note = f"{project.lock_path} is stale, and it is what is compared (builder lock)"
        return Side(str(path), lock, None, (note,))
    return Side(str(path), lock, None)


def _files(image: OciImage, without: Container[Digest]) -> dict[str, str]:
    """Path -> what it is, for the layers that are not in ``without``; a later layer covers an earlier one."""
    found: dict[str, str] = {}
    for number, layer in enumerate(image.manifest.layers):
        if layer.digest in without:
            continue
        try:
            with (
                open_layer(image, number) as stream,
                StrictTar.open(fileobj=stream, mode="r|", errorlevel=2) as archive,
            ):
                for member in archive:
                    found[member.name.strip("/")] = _described(archive, member)
        except (tarfile.TarError, EOFError) as broken:
            raise VerifyFailed(f"no tar: {type(broken).__name__}", where=f"layer {layer.digest}") from None
    return found


def _described(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    """One line that differs when the entry does: kind, mode, owner, size and hash, or where it leads."""
    head = f"{member.mode:04o} {member.uid}:{member.gid}"
    if member.issym() or member.islnk():
        return f"{'link' if member.issym() else 'hard link'} {head} {member.linkname}"
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        return f"{'directory' if member.isdir() else 'special'} {head}"
    digest = hashlib.sha256()
    while chunk := content.read(_CHUNK):
        digest.update(chunk)
    return f"file {head} {member.size} sha256:{digest.hexdigest()}"
