"""From a staged layout into the state's: blobs first, each by a rename; names last, evidence at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from builder.state import State
from images.digests import Digest
from images.key import content_key
from images.lock import Lock
from images.oci import MEDIA_INDEX, MEDIA_MANIFEST, Descriptor, OciImage, Platform, parse_manifest
from provenance.layout import Rehash, blob_path, open_image, read_blob, read_index, stamp_layers
from provenance.layout_writing import add_manifest, adopt_blob
from provenance.ledger import entry_of_bundle, open_ledger
from provenance.referrers import read_referrers


@dataclass(frozen=True, slots=True)
class Entry:
    """One manifest for the layout's index, with all the blobs it needs, its own among them."""

    raw: bytes
    descriptor: Descriptor
    blobs: frozenset[Digest]


@dataclass(frozen=True, slots=True)
class Landed:
    """How many blobs and manifests the state lacked."""

    blobs: int
    manifests: int


def image_entry(image: OciImage) -> Entry:
    """A re-hashed image."""
    manifest = image.manifest
    blobs = frozenset({manifest.digest, manifest.config.digest, *(layer.digest for layer in manifest.layers)})
    found = Descriptor(manifest.media_type, manifest.digest, len(manifest.raw), platform=image.platform)
    return Entry(manifest.raw, found, blobs)


def index_entry(layout: Path, digest: Digest) -> Entry:
    """The index that named an image; what else it names is not needed."""
    raw = read_blob(layout, digest)
    return Entry(raw, Descriptor(MEDIA_INDEX, digest, len(raw)), frozenset({digest}))


def referrer_entry(layout: Path, digest: Digest) -> Entry:
    """One piece of evidence, typed and annotated as its own manifest says."""
    raw = read_blob(layout, digest)
    manifest = parse_manifest(raw, f"manifest {digest}")
    found = Descriptor(
        MEDIA_MANIFEST,
        digest,
        len(raw),
        annotations=manifest.annotations,
        artifact_type=manifest.artifact_type,
    )
    blobs = frozenset({digest, manifest.config.digest, *(layer.digest for layer in manifest.layers)})
    return Entry(raw, found, blobs)


def add_entry(layout: Path, entry: Entry) -> None:
    """Name it in the layout's index; its blobs are there."""
    found = entry.descriptor
    add_manifest(
        layout,
        entry.raw,
        media_type=found.media_type,
        annotations=found.annotations,
        artifact_type=found.artifact_type,
        platform=found.platform,
    )


def land(state: State, staged: Path, entries: Iterable[Entry]) -> Landed:
    """Everything of ``entries``, in their order, out of the layout ``staged``, which loses it. Every blob of
    them was hashed there."""
    entries = tuple(entries)
    blobs = sorted(frozenset[Digest]().union(*(entry.blobs for entry in entries)))
    new_blobs = sum(adopt_blob(state.layout, blob_path(staged, one), one) for one in blobs)
    named = {one.digest for one in read_index(state.layout).manifests}
    new_manifests = 0
    for entry in entries:
        if entry.descriptor.digest not in named:
            add_entry(state.layout, entry)
            named.add(entry.descriptor.digest)
            new_manifests += 1
    return Landed(new_blobs, new_manifests)


def remember(state: State, digest: Digest, lock: Lock, lock_digest: Digest, platform: Platform) -> None:
    """Let an image be found by the key of its lock. What was built here under that key is not replaced."""
    key = content_key(lock, platform)
    image = open_image(state.layout, digest, rehash=Rehash.BYTES)
    with open_ledger(state.ledger) as ledger:
        for attached in read_referrers(state.layout, digest).bundles:
            entry = entry_of_bundle(attached.data, digest)
            if entry is None or (entry.key, entry.lock) != (key, lock_digest):
                continue
            if ledger.find(entry.key, entry.platform) is None:
                ledger.record(entry, stamp_layers(image))
