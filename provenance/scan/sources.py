"""What there is to scan: the layers and documents of one image, or of everything in a saved archive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from images.digests import Digest
from images.errors import VerifyFailed
from images.oci import (
    DOCKER_INDEX,
    MEDIA_INDEX,
    MEDIA_LAYER_GZIP,
    MEDIA_LAYER_TAR,
    MEDIA_LAYER_ZSTD,
    Descriptor,
)
from provenance.layout import open_blob, read_blob, read_index, read_manifest
from provenance.scan.report import PlaceKind
from provenance.scan.sniff import SNIFF_BYTES, is_tar, nested_format

MAX_DOCUMENT: Final = 16 << 20
_LAYER_TYPES: Final = {"gzip": MEDIA_LAYER_GZIP, "zstd": MEDIA_LAYER_ZSTD, "tar": MEDIA_LAYER_TAR}


@dataclass(frozen=True, slots=True)
class LayerSource:
    """A tar, stored as ``layer`` says; ``diff_id`` where it must be checked."""

    layer: Descriptor
    diff_id: Digest | None
    open: Callable[[], BinaryIO]


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """Bytes that are no tar: manifests, configurations, attestations, whatever else there is.

    ``read`` gives at most ``MAX_DOCUMENT`` bytes, re-hashed where ``name`` is a digest, or raises
    VerifyFailed. One at a time: an archive may hold more of them than memory.
    """

    name: str  # its digest, or the name the caller gave
    read: Callable[[], bytes] = field(repr=False)
    kind: PlaceKind = PlaceKind.DOCUMENT


@dataclass(frozen=True, slots=True)
class Sources:
    """All of it, and what is missing. ``subject``: a manifest digest, or the identity of an archive."""

    subject: str
    layers: tuple[LayerSource, ...]
    documents: tuple[DocumentSource, ...]
    missing: tuple[str, ...] = ()


def image_sources(layout: Path, digest: Digest) -> Sources:
    """Manifest, configuration and layers of one image. Raises VerifyFailed.

    The stored bytes of each layer are hashed again while they are scanned. Their diff ids are not: the caller
    holds an OciImage, so they were found to follow from the same stored bytes.
    """
    manifest = read_manifest(layout, digest)
    unique = {layer.digest: layer for layer in manifest.layers}
    return Sources(
        digest,
        tuple(LayerSource(layer, None, partial(open_blob, layout, layer)) for layer in unique.values()),
        (
            DocumentSource(digest, partial(bytes, manifest.raw), PlaceKind.MANIFEST),
            DocumentSource(
                manifest.config.digest, partial(read_blob, layout, manifest.config), PlaceKind.CONFIG
            ),
        ),
    )


def with_referrers(sources: Sources, layout: Path) -> Sources:
    """And every manifest whose subject the image is, with its blobs: attestations, bundles, locks.

    One that cannot be read is named as missing.
    """
    documents = list(sources.documents)
    missing = list(sources.missing)
    for entry in read_index(layout).manifests:
        try:
            manifest = read_manifest(layout, entry.digest)
            if manifest.subject is None or manifest.subject.digest != sources.subject:
                continue
            read = partial(read_blob, layout, manifest.digest)
            documents.append(DocumentSource(manifest.digest, read, PlaceKind.MANIFEST))
            for blob in (manifest.config, *manifest.layers):
                documents.append(DocumentSource(blob.digest, partial(read_blob, layout, blob, MAX_DOCUMENT)))
        except VerifyFailed as broken:
            if not _is_index(entry):
                missing.append(f"{entry.digest}: {broken}")
    unique = {document.name: document for document in documents}
    return replace(sources, documents=tuple(unique.values()), missing=tuple(missing))


def _is_index(entry: Descriptor) -> bool:
    return entry.media_type in (MEDIA_INDEX, DOCKER_INDEX)


def layer_type(file: BinaryIO, *, named_layer: bool) -> str:
    """The media type that a blob's first bytes call for; empty when it is no layer. The file is rewound."""
    head = file.read(SNIFF_BYTES)
    file.seek(0)
    if is_tar(head):
        return MEDIA_LAYER_TAR
    found = _LAYER_TYPES.get(nested_format("", head), "")
    return found or (MEDIA_LAYER_TAR if named_layer else "")


def read_document(file: BinaryIO, name: str) -> bytes:
    """All of it; raises VerifyFailed beyond ``MAX_DOCUMENT``."""
    raw = file.read(MAX_DOCUMENT + 1)
    if len(raw) > MAX_DOCUMENT:
        raise VerifyFailed(f"more than {MAX_DOCUMENT} bytes, and no layer", where=name)
    return raw
