"""Evidence that travels with an image: bundles and the lock, attached as OCI referrers in the same layout."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.digests import Digest
from images.errors import UsageError, VerifyFailed
from images.lockfile import MAX_LOCK_BYTES
from images.oci import (
    DOCKER_MANIFEST,
    MEDIA_EMPTY,
    MEDIA_MANIFEST,
    Descriptor,
    Manifest,
    OciImage,
    parse_manifest,
)
from images.strictjson import JsonValue
from provenance.bundles import BUNDLE_TYPE, MAX_BUNDLE_BYTES
from provenance.layout import read_blob, read_index
from provenance.layout_writing import Annotations, add_manifest, write_blob
from provenance.predicates import VSA_TYPE, VsaPredicate, read_predicate
from provenance.signing import Bundle

LOCK_TYPE: Final = "application/vnd.agent-image-builder.lock.v1+json"
# Far above what one image gathers in years; beyond it somebody floods the layout.
MAX_REFERRERS: Final = 1024


@dataclass(frozen=True, slots=True)
class Attached:
    """One attached blob: of which artifact type, in which manifest, its bytes (re-hashed, nothing more)."""

    artifact_type: str
    manifest: Digest
    data: bytes


@dataclass(frozen=True, slots=True)
class Referrers:
    """What is attached to one image. ``unreadable``: one line for each that is damaged or malformed."""

    bundles: tuple[Attached, ...] = ()
    locks: tuple[Attached, ...] = ()
    unreadable: tuple[str, ...] = ()


def add_referrer(image: OciImage, bundle: Bundle) -> Descriptor:
    """Attach a signed statement, the way cosign and oras find it; the same bundle makes the same manifest.

    A FAILED verification summary is refused: tools exist that take any attached statement for an approval.
    """
    statement = bundle.statement
    if not statement.is_only_about(image.digest):
        raise UsageError("the statement is not about this image", where=str(image.digest))
    if statement.predicate_type == VSA_TYPE:
        verdict = read_predicate(VsaPredicate, statement.predicate_json, "verification summary")
        if verdict.verification_result != "PASSED":
            raise UsageError("a FAILED verification summary is never attached", where=str(image.digest))
    annotations = (
        ("dev.sigstore.bundle.content", "dsse-envelope"),
        ("dev.sigstore.bundle.predicateType", statement.predicate_type),
    )
    return _attach(image, BUNDLE_TYPE, bundle.raw, annotations)


def add_lock(image: OciImage, lock: bytes) -> Descriptor:
    """Attach the lock that the image was built from."""
    return _attach(image, LOCK_TYPE, lock, ())


def read_referrers(layout: Path, image: Digest) -> Referrers:
    """Everything of ours that is attached to ``image``, in the order of ``index.json``.

    A referrer that cannot be read is reported, not raised: what is attached can only add evidence, and who
    can attach must not be able to break. What a referrer is, its own manifest says, never ``index.json``.
    """
    bundles: list[Attached] = []
    locks: list[Attached] = []
    unreadable: list[str] = []
    for entry in read_index(layout).manifests:
        if entry.media_type not in (MEDIA_MANIFEST, DOCKER_MANIFEST):
            continue
        try:
            found = _attached(layout, entry, image)
        except VerifyFailed as broken:
            unreadable.append(str(broken))
            continue
        if found is not None:
            (locks if found.artifact_type == LOCK_TYPE else bundles).append(found)
        if len(bundles) + len(locks) > MAX_REFERRERS:
            raise VerifyFailed(f"more than {MAX_REFERRERS} referrers", where=str(image))
    return Referrers(tuple(bundles), tuple(locks), tuple(unreadable))


def _attached(layout: Path, entry: Descriptor, image: Digest) -> Attached | None:
    raw = read_blob(layout, entry)
    manifest = parse_manifest(raw, f"manifest {entry.digest}")
    if manifest.subject is None or manifest.subject.digest != image:
        return None
    if manifest.artifact_type not in (BUNDLE_TYPE, LOCK_TYPE):
        return None
    return Attached(manifest.artifact_type, entry.digest, _payload(layout, manifest))


def _payload(layout: Path, manifest: Manifest) -> bytes:
    if len(manifest.layers) != 1:
        raise VerifyFailed("a referrer without exactly one blob", where=str(manifest.digest))
    limit = MAX_LOCK_BYTES if manifest.artifact_type == LOCK_TYPE else MAX_BUNDLE_BYTES
    return read_blob(layout, manifest.layers[0], limit)


def _attach(image: OciImage, artifact_type: str, data: bytes, annotations: Annotations) -> Descriptor:
    layout = image.layout
    config = write_blob(layout, b"{}", MEDIA_EMPTY)
    blob = write_blob(layout, data, artifact_type)
    subject = Descriptor(image.manifest.media_type, image.digest, len(image.manifest.raw))
    document: dict[str, JsonValue] = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "artifactType": artifact_type,
        "config": config.to_json(),
        "layers": [blob.to_json()],
        "subject": subject.to_json(),
    }
    if annotations:
        document["annotations"] = dict(annotations)
    raw = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    return add_manifest(layout, raw, annotations=annotations, artifact_type=artifact_type)
