"""Write into an OCI image layout: blobs, manifests, imports and one-image exports, whole or absent."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from images.digests import Digest
from images.errors import StateError, VerifyFailed
from images.oci import MAX_DESCRIPTORS, MEDIA_INDEX, MEDIA_MANIFEST, Descriptor, OciImage, Platform
from images.strictjson import JsonValue
from provenance.layout import LAYOUT_VERSION, blob_path, open_blob, open_image, read_index, read_manifest
from provenance.writing import move_into, replace_file, settle, state_errors, temporary_file

Annotations = tuple[tuple[str, str], ...]
_CHUNK: Final = 1 << 20


def init_layout(path: Path) -> None:
    """Make an empty layout, or do nothing when ``path`` is one already."""
    with state_errors(path):
        (path / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    if not (path / "oci-layout").exists():
        with locked(path):
            if not (path / "index.json").exists():
                _write_index(path, ())
            replace_file(path / "oci-layout", json.dumps({"imageLayoutVersion": LAYOUT_VERSION}).encode())
    read_index(path)


def write_blob(
    layout: Path, source: bytes | BinaryIO, media_type: str, *, expected: Digest | None = None
) -> Descriptor:
    """Store bytes under their digest (temporary name, fsync, rename). ``expected``: refuse any other digest.

    Raises VerifyFailed for another digest and StateError when the disk does not take it; leaves nothing.
    """
    folder = layout / "blobs" / "sha256"
    with state_errors(layout), temporary_file(folder) as (file, temporary):
        digest, size = _pour(source, file)
        if expected is not None and digest != expected:
            raise VerifyFailed(f"the bytes hash to {digest}", where=str(expected))
        settle(file, temporary, folder / digest.hex)
    return Descriptor(media_type=media_type, digest=digest, size=size)


def add_manifest(
    layout: Path,
    raw: bytes,
    *,
    media_type: str = MEDIA_MANIFEST,
    annotations: Annotations = (),
    artifact_type: str = "",
    platform: Platform | None = None,
) -> Descriptor:
    """Store a manifest (or index) and name it in ``index.json``; the blobs it names must be there already."""
    blob = write_blob(layout, raw, media_type)
    entry = Descriptor(
        media_type=media_type,
        digest=blob.digest,
        size=blob.size,
        annotations=tuple(sorted(annotations)),
        platform=platform,
        artifact_type=artifact_type,
    )
    with locked(layout):
        others = tuple(one for one in read_index(layout).manifests if one.digest != entry.digest)
        if len(others) >= MAX_DESCRIPTORS:
            raise StateError(f"the layout names {len(others)} manifests, the most it can", where=str(layout))
        _write_index(layout, (*others, entry))
    return entry


def import_image(source: Path, digest: Digest, into: Path, platform: Platform | None = None) -> OciImage:
    """Copy one image from a foreign layout, re-hash the copy, and only then name it in ``index.json``.

    Copied, never linked: the owner of ``source`` could change a shared file afterwards.
    """
    foreign = open_image(source, digest, platform)
    for blob in (*foreign.manifest.layers, foreign.manifest.config):
        with open_blob(source, blob) as file:
            write_blob(into, file, blob.media_type, expected=blob.digest)
    add_manifest(
        into, foreign.manifest.raw, media_type=foreign.manifest.media_type, platform=foreign.platform
    )
    return open_image(into, foreign.digest)


def export_single(layout: Path, digest: Digest, into: Path, *, annotations: Annotations = ()) -> Descriptor:
    """A private layout ``into`` (new or empty) with this image alone, blobs hard-linked where they can be.

    ``annotations`` go on its one entry in ``index.json``, where engines look for a name. The manifest is
    re-hashed, the blobs are not: who loads the result compares the id that the engine computed.
    """
    manifest = read_manifest(layout, digest)
    with state_errors(into):
        if into.is_dir() and any(into.iterdir()):
            raise StateError("not empty", where=str(into))
        init_layout(into)
        for blob in {one.digest for one in (*manifest.layers, manifest.config)}:
            _link_or_copy(blob_path(layout, blob), blob_path(into, blob))
    return add_manifest(into, manifest.raw, media_type=manifest.media_type, annotations=annotations)


def adopt_blob(layout: Path, staged: Path, digest: Digest) -> bool:
    """Take a blob that was written, hashed and put on disk in staging of ours; the caller names it later.

    What is there already and intact stays as it is: False.
    """
    path = blob_path(layout, digest)
    if _is_intact(path, digest):
        return False
    with state_errors(path):
        move_into(staged, path)
    return True


def drop_manifests(layout: Path, digests: frozenset[Digest]) -> None:
    """Take these entries out of ``index.json``; what they name stays where it is."""
    with locked(layout):
        index = read_index(layout)
        _write_index(layout, tuple(one for one in index.manifests if one.digest not in digests))


@contextmanager
def locked(layout: Path) -> Iterator[None]:
    """Hold the layout's lock: on its directory (no file of ours lies in it); freed with the process."""
    try:
        import fcntl  # noqa: PLC0415  (absent where layouts are only read)
    except ImportError:
        raise StateError(
            "writing a layout needs file locks, which this system lacks", where=str(layout)
        ) from None
    with state_errors(layout):
        handle = os.open(layout, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_intact(path: Path, digest: Digest) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest.hex
    except FileNotFoundError:
        return False
    except OSError as broken:
        raise StateError(f"cannot be read: {broken.strerror}", where=str(path)) from None


def _write_index(layout: Path, manifests: tuple[Descriptor, ...]) -> None:
    listed: list[JsonValue] = [entry.to_json() for entry in manifests]
    document: dict[str, JsonValue] = {"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": listed}
    replace_file(layout / "index.json", json.dumps(document, separators=(",", ":")).encode())


def _pour(source: bytes | BinaryIO, file: BinaryIO) -> tuple[Digest, int]:
    if isinstance(source, bytes):
        file.write(source)
        return Digest.of(source), len(source)
    found, size = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK):
        found.update(chunk)
        size += len(chunk)
        file.write(chunk)
    return Digest.from_hex(found.hexdigest()), size


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
