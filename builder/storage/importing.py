"""`builder store import`: a team archive into the state: staged whole, held against its lock, then named."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from builder.roles import Role
from builder.settings.settings_file import SETTINGS_NAME
from builder.storage.archive_format import INDEX_TYPES, Part, PartManifest
from builder.storage.archive_reading import StagedArchive, stage_archive
from builder.storage.landing import (
    Entry,
    add_entry,
    image_entry,
    index_entry,
    land,
    referrer_entry,
    remember,
)
from builder.storage.references import refer_to_import
from builder.workshop import Workshop, tool_digest
from images.digests import Digest
from images.errors import UsageError, VerifyFailed
from images.lock import Lock
from images.lockfile import MAX_LOCK_BYTES, parse_lock
from provenance.layout import open_image, read_blob
from provenance.referrers import read_referrers
from provenance.writing import state_errors

_HINT: Final = "ask for another: builder store export"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came in. ``image``: the built one, if it was in the archive. New: what the state lacked.

    ``settings``: lines for settings.toml, where this state would build with other tool images.
    """

    lock: Digest
    image: Digest | None
    referrers: int
    artifacts: int
    new_artifacts: int
    new_blobs: int
    new_manifests: int
    settings: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Anything was new."""
        return bool(self.new_artifacts or self.new_blobs or self.new_manifests)


@dataclass(frozen=True, slots=True)
class _Checked:
    """An archive whose every blob has its place: nothing else is in it."""

    archive: StagedArchive
    lock: Lock
    raw_lock: bytes
    entries: tuple[Entry, ...]


def import_archive(workshop: Workshop, path: Path) -> Imported:
    """Everything of the archive, or nothing that has a name. What its evidence is worth, verify tells.

    Raises UsageError, PinError or VerifyFailed for an archive that is not as it must be, StateError for the
    disk. Trust is never imported: no policy, no key, no rollback mark, no settings.
    """
    state = workshop.state
    with (
        workshop.at_work(),
        state.staging("import") as staging,
    ):
        with workshop.reporter.step(f"read {path}") as step:
            archive = stage_archive(path, staging, step.update)
        with workshop.reporter.step("hash and check what it holds"):
            checked = _checked(archive, str(path))
        with workshop.reporter.step("put it in its places"):
            return _land(workshop, checked)


def _checked(archive: StagedArchive, where: str) -> _Checked:
    try:
        return _check(archive, where)
    except VerifyFailed as broken:
        why = broken.what if str(archive.layout) in broken.where else str(broken)
        raise VerifyFailed(why, where=where, hint=_HINT, reason="archive") from None


def _check(archive: StagedArchive, where: str) -> _Checked:
    manifest = archive.manifest
    raw = _read_small(archive, manifest.lock, MAX_LOCK_BYTES, where)
    lock = parse_lock(raw, where=f"{where}: builder.lock")
    if manifest.platform not in lock.platforms:
        _refuse(f"it is for {manifest.platform}, which its lock does not declare", where)
    _check_artifacts(archive, lock, where)
    entries: list[Entry] = []
    for one in manifest.manifests:
        if one.part is not Part.REFERRER:
            entries += _image_entries(archive, one, lock, where)
    if manifest.image is not None:
        entries += _referrer_entries(archive, manifest.image, raw, where)
    needed = {manifest.lock, *(one.digest for one in manifest.artifacts)}
    needed.update(*(entry.blobs for entry in entries))
    extra = {digest for digest, _ in manifest.blobs} - needed
    if extra:
        _refuse(f"{len(extra)} blobs belong to nothing, {min(extra)} among them", where)
    return _Checked(archive, lock, raw, tuple(entries))


def _check_artifacts(archive: StagedArchive, lock: Lock, where: str) -> None:
    """The artifacts are the lock's, all of them and no others, each of its size."""
    sizes = dict(archive.manifest.blobs)
    found = {one.integrity: sizes[one.digest] for one in archive.manifest.artifacts}
    wanted = {one.integrity: one.size for one in lock.artifacts}
    if found != wanted:
        wrong = [str(one) for one in found.keys() | wanted.keys() if found.get(one) != wanted.get(one)]
        _refuse(f"its artifacts are not those of its lock: {min(wrong)} and {len(wrong) - 1} more", where)


def _image_entries(archive: StagedArchive, one: PartManifest, lock: Lock, where: str) -> list[Entry]:
    """An image, opened: every layer re-hashed, its tar too; and the index that names it, if there is one."""
    platform = archive.manifest.platform
    if one.part is Part.BASE:
        # A base may be for another declared platform than the one that this archive was made on.
        known = {base.manifest: base.platform for base in lock.base.images}
        if one.digest not in known:
            _refuse(f"the base {one.digest} is not one of its lock", where)
        platform = known[one.digest]
    image = open_image(archive.layout, one.digest, platform)
    entries = [image_entry(image)]
    is_index = image.digest != one.digest
    if is_index != (one.media_type in INDEX_TYPES) or (is_index and one.part is Part.BASE):
        _refuse(f"{one.digest} is not of type {one.media_type}", where)
    if is_index:
        entries.append(index_entry(archive.layout, one.digest))
    return entries


def _referrer_entries(archive: StagedArchive, image: Digest, raw_lock: bytes, where: str) -> list[Entry]:
    """Evidence of this image and nothing else, each whole; its lock is the archive's. Signatures: verify."""
    layout, entries = archive.layout, []
    for one in archive.manifest.of(Part.REFERRER):
        entries.append(referrer_entry(layout, one.digest))
        add_entry(layout, entries[-1])
    attached = read_referrers(layout, image)
    read = [one.manifest for one in (*attached.bundles, *attached.locks)]
    if attached.unreadable or len(read) != len(entries):
        _refuse(f"{len(entries) - len(read)} manifests are no evidence of its image", where)
    if {one.data for one in attached.locks} != {raw_lock}:
        _refuse("the lock attached to its image is another one", where)
    for entry in entries:
        for digest in entry.blobs:
            read_blob(layout, digest, MAX_LOCK_BYTES)
    return entries


def _land(workshop: Workshop, checked: _Checked) -> Imported:
    """Blobs and artifacts first, each by a rename; names last, evidence after its image."""
    state, archive = workshop.state, checked.archive
    manifest = archive.manifest
    refer_to_import(state, checked.raw_lock)
    layout_blobs = frozenset[Digest]().union(*(entry.blobs for entry in checked.entries))
    new_artifacts = 0
    uses = Counter(one.digest for one in manifest.artifacts)
    uses.update(layout_blobs)
    for one in manifest.artifacts:
        staged = archive.blob(one.digest)
        uses[one.digest] -= 1
        if uses[one.digest]:  # somebody else needs the same bytes: the layout, or one of another algorithm
            staged = staged.with_name(f"{staged.name}.{one.integrity.algorithm}")
            _copy(archive.blob(one.digest), staged)
        new_artifacts += workshop.store.adopt(staged, one.integrity)
    landed = land(state, archive.layout, checked.entries)
    if manifest.image is not None:
        remember(state, manifest.image, checked.lock, manifest.lock, manifest.platform)
    return Imported(
        lock=manifest.lock,
        image=manifest.image,
        referrers=len(manifest.of(Part.REFERRER)),
        artifacts=len(manifest.artifacts),
        new_artifacts=new_artifacts,
        new_blobs=landed.blobs,
        new_manifests=landed.manifests,
        settings=tuple(_settings_lines(workshop, manifest.manifests)),
    )


def _copy(source: Path, target: Path) -> None:
    """On disk before it gets a name, as what it is a copy of."""
    with state_errors(target), source.open("rb") as file, target.open("xb") as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        os.fsync(copy.fileno())


def _settings_lines(workshop: Workshop, manifests: Iterable[PartManifest]) -> Iterable[str]:
    """What to write to build with what came: never done by an import, since who resolves sees secrets."""
    keys = {Part.BUILD_CONTAINER: Role.BUILD_CONTAINER, Part.RESOLVER: Role.RESOLVER}
    for one in manifests:
        if one.part in keys and _here(workshop, keys[one.part]) != one.digest:
            yield f'{keys[one.part].replace("-", "_")} = "{one.digest}"  # {SETTINGS_NAME}'
        elif one.part is Part.BASE and _here(workshop, Role.BASE) is None:
            # Engines are probed on a base; whichever there is will do.
            yield f'base = "{one.digest}"  # {SETTINGS_NAME}'


def _here(workshop: Workshop, role: Role) -> Digest | None:
    try:
        return tool_digest(workshop, role)
    except UsageError:
        return None


def _read_small(archive: StagedArchive, digest: Digest, limit: int, where: str) -> bytes:
    try:
        return read_blob(archive.layout, digest, limit)
    except VerifyFailed as broken:
        _refuse(broken.what, where)


def _refuse(why: str, where: str) -> NoReturn:
    raise UsageError(why, where=where, hint=_HINT, reason="archive")
