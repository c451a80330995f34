"""`builder store export`: one archive with all that a teammate without a network builds and verifies from."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from builder.locking import read_lock_file
from builder.roles import Role
from builder.storage.archive_format import (
    BLOCK,
    END,
    MAX_BLOB_BYTES,
    ExportManifest,
    LockedFile,
    Part,
    PartManifest,
    blob_name,
    header,
)
from builder.workshop import Workshop, tool_digest
from images.digests import Digest, Integrity
from images.errors import StateError, UsageError, VerifyFailed
from images.key import content_key
from images.lock import Lock
from images.lockfile import parse_lock
from images.oci import MEDIA_INDEX, MEDIA_MANIFEST, OciImage
from provenance.layout import Rehash, open_blob, open_image, read_blob, read_manifest
from provenance.ledger import open_ledger
from provenance.referrers import read_referrers
from provenance.writing import settle, state_errors, temporary_file

_CHUNK: Final = 1 << 20
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the archive's digest and size, and what is in it."""

    digest: Digest
    size: int
    manifest: ExportManifest


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is exported: a lock, its exact bytes, and the image that was built from it, if any."""

    lock: Lock
    raw: bytes
    image: OciImage | None


@dataclass(slots=True)
class _Blobs:
    """The archive's blobs as they are found: size of each, and how its bytes are read again."""

    layout: Path
    sizes: dict[Digest, int] = field(default_factory=dict)
    stored: dict[Digest, Integrity] = field(default_factory=dict)
    given: dict[Digest, bytes] = field(default_factory=dict)

    def add(self, digest: Digest, size: int, what: str) -> None:
        if size > MAX_BLOB_BYTES:
            raise UsageError(f"{what} is larger than {MAX_BLOB_BYTES} bytes", where=str(digest))
        self.sizes[digest] = size

    def add_bytes(self, data: bytes) -> Digest:
        digest = Digest.of(data)
        self.sizes[digest] = len(data)
        self.given[digest] = data
        return digest

    def add_image(self, image: OciImage) -> None:
        manifest = image.manifest
        self.add(manifest.digest, len(manifest.raw), "a manifest")
        for blob in (manifest.config, *manifest.layers):
            self.add(blob.digest, blob.size, "a layer")


def export(workshop: Workshop, out: Path, *, lock_path: Path | None, image: Digest | None) -> Exported:
    """Write ``out`` whole or not at all: for a lock file, or for a built image and the lock attached to it.

    Raises StateError for what is missing or damaged in the state, UsageError for a lock or an image that
    cannot be exported.
    """
    with workshop.at_work():
        with workshop.reporter.step("hash what goes into the archive"):
            subject = _subject_of_image(workshop, image) if image else _subject_of_lock(workshop, lock_path)
            blobs = _Blobs(workshop.state.layout)
            manifest = _collect(workshop, subject, blobs)
        with workshop.reporter.step(f"write {out}") as step:
            return _write(workshop, manifest, blobs, out, step.update)


def _subject_of_image(workshop: Workshop, digest: Digest) -> _Subject:
    layout = workshop.state.layout
    image = open_image(layout, digest, rehash=Rehash.BYTES)
    locks = {attached.data for attached in read_referrers(layout, image.digest).locks}
    if len(locks) != 1:
        raise UsageError(
            f"{len(locks)} different locks are attached to this image, and one is needed",
            where=str(digest),
            hint="builder store export OUT --lock builder.lock",
        )
    (raw,) = locks
    return _Subject(parse_lock(raw, where=f"the lock attached to {digest}"), raw, image)


def _subject_of_lock(workshop: Workshop, path: Path | None) -> _Subject:
    lock, raw = read_lock_file(path or Path("builder.lock"))
    if workshop.platform not in lock.platforms:
        return _Subject(lock, raw, None)
    with open_ledger(workshop.state.ledger) as ledger:
        entry = ledger.find(content_key(lock, workshop.platform), workshop.platform)
    if entry is None or entry.lock != Digest.of(raw):
        workshop.reporter.say("no image of this lock was built here: the archive is for building it")
        return _Subject(lock, raw, None)
    layout = workshop.state.layout
    image = open_image(layout, entry.digest, workshop.platform, rehash=Rehash.BYTES)
    if raw not in {attached.data for attached in read_referrers(layout, image.digest).locks}:
        raise StateError(
            "the lock is not attached to its image", where=str(image.digest), hint="builder build"
        )
    return _Subject(lock, raw, image)


def _collect(workshop: Workshop, subject: _Subject, blobs: _Blobs) -> ExportManifest:
    lock, layout = subject.lock, workshop.state.layout
    manifests = _bases(workshop, lock, blobs)
    for part, role, locked in (
        (Part.BUILD_CONTAINER, Role.BUILD_CONTAINER, lock.tools.build_container),
        (Part.RESOLVER, Role.RESOLVER, lock.tools.resolver),
    ):
        manifests.append(_tool(workshop, part, role, locked, blobs))
    if subject.image is not None:
        image = subject.image
        blobs.add_image(image)
        manifests.append(PartManifest(Part.IMAGE, image.digest, image.manifest.media_type))
        attached = read_referrers(layout, image.digest)
        for line in attached.unreadable:
            workshop.reporter.warn(f"left out, because it cannot be read: {line}")
        for one in (*attached.bundles, *attached.locks):
            manifests.append(_referrer(layout, one.manifest, blobs))
    artifacts = sorted(
        _artifact(workshop, integrity, name, blobs)
        for integrity, name in {one.integrity: one.id for one in lock.artifacts}.items()
    )
    platform = subject.image.platform if subject.image else workshop.platform
    return ExportManifest(
        platform=platform,
        lock=blobs.add_bytes(subject.raw),
        manifests=tuple(manifests),
        artifacts=tuple(artifacts),
        blobs=tuple(sorted(blobs.sizes.items())),
    )


def _bases(workshop: Workshop, lock: Lock, blobs: _Blobs) -> list[PartManifest]:
    """The base for this machine, and for the other platforms of the lock as far as they are here."""
    layout, found = workshop.state.layout, []
    for base in sorted(lock.base.images, key=lambda one: str(one.platform)):
        try:
            image = open_image(layout, base.manifest, base.platform, rehash=Rehash.BYTES)
        except VerifyFailed as broken:
            if base.platform == workshop.platform:
                raise StateError(
                    f"the base of the lock is not whole in this state: {broken.what}",
                    where=str(base.manifest),
                    hint="builder build, which brings it; then export again",
                ) from None
            workshop.reporter.warn(f"left out: the base for {base.platform} is not here")
            continue
        blobs.add_image(image)
        found.append(PartManifest(Part.BASE, image.digest, image.manifest.media_type))
    if not found:
        raise UsageError("no base of the lock is in this state", where=str(lock.base.requested))
    return found


def _tool(workshop: Workshop, part: Part, role: Role, locked: Digest, blobs: _Blobs) -> PartManifest:
    """What builds here now, else what the lock was made with."""
    layout = workshop.state.layout
    candidates = [locked]
    with contextlib.suppress(UsageError):  # none is set up here; the lock's may have come with an import
        candidates.insert(0, tool_digest(workshop, role))
    why = ""
    for digest in candidates:
        try:
            image = open_image(layout, digest, workshop.platform, rehash=Rehash.BYTES)
        except VerifyFailed as broken:
            why = why or broken.what
            continue
        blobs.add_image(image)
        if image.digest == digest:
            return PartManifest(part, digest, image.manifest.media_type)
        index = read_blob(layout, digest)
        blobs.add(digest, len(index), "an index")
        return PartManifest(part, digest, MEDIA_INDEX)
    raise StateError(
        f"the {role.replace('-', ' ')} is not whole in this state: {why}",
        where=str(candidates[0]),
        hint="builder bootstrap",
    )


def _referrer(layout: Path, digest: Digest, blobs: _Blobs) -> PartManifest:
    manifest = read_manifest(layout, digest)
    blobs.add(digest, len(manifest.raw), "a manifest")
    for blob in (manifest.config, *manifest.layers):
        blobs.add(blob.digest, len(read_blob(layout, blob, MAX_BLOB_BYTES)), "evidence")
    return PartManifest(Part.REFERRER, digest, MEDIA_MANIFEST)


def _artifact(workshop: Workshop, integrity: Integrity, name: str, blobs: _Blobs) -> LockedFile:
    with workshop.store.open(integrity, name) as file:
        if integrity.algorithm == "sha256":
            digest, size = Digest.from_hex(integrity.hex), file.seek(0, 2)
        else:
            found = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                found.update(chunk)
            digest, size = Digest.from_hex(found.hexdigest()), file.tell()
    blobs.add(digest, size, name)
    blobs.stored[digest] = integrity
    return LockedFile(integrity, digest)


def _write(workshop: Workshop, manifest: ExportManifest, blobs: _Blobs, out: Path, update: Say) -> Exported:
    whole = hashlib.sha256()
    with state_errors(out), temporary_file(out.parent) as (file, temporary):
        for chunk in _members(workshop, manifest, blobs, update):
            whole.update(chunk)
            file.write(chunk)
        size = file.tell()
        settle(file, temporary, out)
    return Exported(Digest.from_hex(whole.hexdigest()), size, manifest)


def _members(workshop: Workshop, manifest: ExportManifest, blobs: _Blobs, update: Say) -> Iterator[bytes]:
    for name, data in manifest.small_members():
        yield from (header(name, len(data)), data, bytes(-len(data) % BLOCK))
    for number, (digest, size) in enumerate(manifest.blobs):
        update(f"{number + 1} of {len(manifest.blobs)}")
        yield header(blob_name(digest), size)
        with _open(workshop, digest, blobs) as source:
            yield from _hashed(source, digest, size)
        yield bytes(-size % BLOCK)
    yield END


@contextmanager
def _open(workshop: Workshop, digest: Digest, blobs: _Blobs) -> Iterator[BinaryIO]:
    if digest in blobs.given:
        yield io.BytesIO(blobs.given[digest])
    elif digest in blobs.stored:
        path = workshop.store.path_of(blobs.stored[digest])
        with state_errors(path), path.open("rb") as file:
            yield file
    else:
        with open_blob(blobs.layout, digest) as file:
            yield file


def _hashed(source: BinaryIO, digest: Digest, size: int) -> Iterator[bytes]:
    """The bytes as they were when they were counted: whatever changed meanwhile must not be passed on."""
    found, passed = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK):
        passed += len(chunk)
        found.update(chunk)
        yield chunk
    if passed != size or found.hexdigest() != digest.hex:
        raise StateError("it was changed while it was read", where=str(digest), hint="export again")
