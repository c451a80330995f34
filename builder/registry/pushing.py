"""Push an image, its lock and its evidence to a registry: blobs, manifests, referrers, names last."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backend.commands import NO_FEED, Feed
from builder.registry.failing import registry_failure
from builder.registry.reference import base_tag, key_tag
from builder.resolve.exchange import Member, Resolver, exchange, said_error, unexpected
from images.config import BaseReference
from images.digests import Digest
from images.errors import NetworkFailed, NetworkReason, StateError, UsageError, VerifyFailed
from images.lock import Lock
from images.lockfile import parse_lock
from images.oci import MAX_MANIFEST_BYTES, MEDIA_MANIFEST, Descriptor, Manifest, OciImage
from images.strictjson import JsonValue
from provenance.layout import Rehash, open_blob, open_image, read_manifest
from provenance.ledger import entry_of_bundle
from provenance.referrers import Attached, read_referrers
from provenance.travelling import why_it_stays

_MOST_MANIFESTS: Final = 32 * 1024 * 1024  # bytes of them all; they lie in the memory of the container
_MOST_KEYS: Final = 4
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """``reference``: with the digest, as others pull it. ``tags``: what points there now, ours among them.

    ``sent``, ``sent_bytes``: blobs that the registry lacked. ``left``: a line for each thing left out.
    """

    reference: BaseReference
    digest: Digest
    tags: tuple[str, ...]
    evidence: int
    sent: int
    sent_bytes: int
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Document:
    """One manifest for the registry, and the tags that will point to it."""

    manifest: Manifest
    tags: tuple[str, ...] = ()

    def to_json(self, file: str) -> dict[str, JsonValue]:
        return {
            "file": file,
            "digest": str(self.manifest.digest),
            "media_type": self.manifest.media_type,
            "tags": list(self.tags),
        }

    @property
    def entry(self) -> dict[str, JsonValue]:
        """As a list of referrers names it."""
        one = self.manifest
        size, kind = len(one.raw), one.artifact_type
        return Descriptor(MEDIA_MANIFEST, one.digest, size, one.annotations, artifact_type=kind).to_json()


@dataclass(slots=True)
class _Load:
    """All that goes: blobs with their sizes (and the repository that may have them), manifests, referrers."""

    layout: Path
    image: _Document
    blobs: dict[Digest, int] = field(default_factory=dict)
    elsewhere: dict[Digest, str] = field(default_factory=dict)
    others: list[_Document] = field(default_factory=list)
    referrers: list[_Document] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def add(self, manifest: Manifest) -> None:
        """The blobs of a manifest."""
        for blob in (manifest.config, *manifest.layers):
            self.blobs[blob.digest] = blob.size


def push(layout: Path, digest: Digest, to: BaseReference, resolver: Resolver, command: str) -> Pushed:
    """The image of the layout, with what is attached to it, to the repository of ``to``, under its tag if it
    has one, and under the keys that its provenance names.

    What the registry has already does not travel; names are set when all of it is there. Raises VerifyFailed
    for an image that is not whole here, NetworkFailed with its reason, StateError, HostError.
    """
    if to.registry is None or to.digest is not None:
        raise UsageError(
            "a push goes to HOST/NAME or HOST/NAME:TAG", where=str(to), hint="leave the digest away"
        )
    load = _gather(layout, open_image(layout, digest, rehash=Rehash.LATER), to)
    request, files = _request(load, to)
    missing = _run(request, files, resolver, NO_FEED, to, command, load.image.manifest.digest)
    sizes = {one: load.blobs[one] for one in missing}
    if missing:
        brought: list[JsonValue] = [{"digest": str(one), "size": size} for one, size in sizes.items()]
        job = {**request, "brought": brought}
        feed = Feed(sum(sizes.values()), lambda: _bytes_of(layout, sizes))
        _run(job, files, resolver, feed, to, command, load.image.manifest.digest)
    return Pushed(
        reference=BaseReference(to.name, load.image.manifest.digest, to.tag),
        digest=load.image.manifest.digest,
        tags=load.image.tags,
        evidence=len(load.referrers),
        sent=len(sizes),
        sent_bytes=sum(sizes.values()),
        left=tuple(load.left),
    )


def _gather(layout: Path, image: OciImage, to: BaseReference) -> _Load:
    attached = read_referrers(layout, image.digest)
    load = _Load(
        layout,
        _Document(image.manifest, (*((to.tag,) if to.tag else ()), *_key_tags(attached.bundles, image))),
    )
    load.add(image.manifest)
    load.left += attached.unreadable
    for one in attached.bundles:
        if why := why_it_stays(one.data, image.digest):
            load.left.append(f"{one.manifest}: {why}")
        else:
            _attach(load, one)
    for one in attached.locks:
        _attach(load, one)
        _add_base(load, image, one.data, to)
    if sum(len(one.manifest.raw) for one in (load.image, *load.others, *load.referrers)) > _MOST_MANIFESTS:
        raise UsageError("more is attached to it than can be pushed at once", where=str(image.digest))
    return load


def _key_tags(bundles: tuple[Attached, ...], image: OciImage) -> tuple[str, ...]:
    """Places to look, by what the provenance says; whoever finds the image there proves it."""
    found = {entry.key for entry in (entry_of_bundle(one.data, image.digest) for one in bundles) if entry}
    return tuple(key_tag(key) for key in sorted(found)[:_MOST_KEYS])


def _attach(load: _Load, one: Attached) -> None:
    manifest = read_manifest(load.layout, one.manifest)
    load.add(manifest)
    load.referrers.append(_Document(manifest))


def _add_base(load: _Load, image: OciImage, raw: bytes, to: BaseReference) -> None:
    """The manifest of the base, for who has none: an image is compared with its plan on it. Its layers are
    the first ones of the image, and may lie in the base's own repository of the same registry already.
    """
    lock = _lock_of(raw)
    if lock is None or image.platform not in lock.platforms:
        return
    wanted = lock.base.image(image.platform).manifest
    try:
        base = open_image(load.layout, wanted, image.platform, rehash=Rehash.LATER).manifest
    except VerifyFailed:
        load.left.append(f"the manifest of the base, which is not here: {wanted}")
        return
    if not set(base.layers) <= set(image.manifest.layers) or any(
        one.manifest.digest == wanted for one in load.others
    ):
        return
    load.add(base)
    load.others.append(_Document(base, (base_tag(wanted),)))
    source = BaseReference(lock.base.name, wanted).registry
    if (
        source is not None
        and to.registry is not None
        and source[0] == to.registry[0]
        and source != to.registry
    ):
        load.elsewhere |= {layer.digest: source[1] for layer in base.layers}


def _lock_of(raw: bytes) -> Lock | None:
    try:
        return parse_lock(raw, error=VerifyFailed)
    except VerifyFailed:
        return None


def _request(load: _Load, to: BaseReference) -> tuple[dict[str, JsonValue], dict[str, bytes]]:
    if to.registry is None:
        raise ValueError(f"nowhere to push: {to}")
    documents = [load.image, *load.others, *load.referrers]
    files = {f"manifest-{number}": one.manifest.raw for number, one in enumerate(documents)}
    listed: list[dict[str, JsonValue]] = [
        one.to_json(file) for one, file in zip(documents, files, strict=True)
    ]
    after = 1 + len(load.others)
    referrers: list[JsonValue] = [
        {**one, "entry": document.entry} for one, document in zip(listed[after:], load.referrers, strict=True)
    ]
    blobs: list[JsonValue] = [
        {"digest": str(digest), "size": size, "from": load.elsewhere.get(digest, "")}
        for digest, size in load.blobs.items()
    ]
    others: list[JsonValue] = [*listed[1:after]]
    return {
        "registry": to.registry[0],
        "repository": to.registry[1],
        "image": listed[0],
        "others": others,
        "referrers": referrers,
        "blobs": blobs,
        "brought": [],
    }, files


def _run(  # noqa: PLR0917  (one run of the container, and what its failures are called)
    job: dict[str, JsonValue],
    files: dict[str, bytes],
    resolver: Resolver,
    feed: Feed,
    to: BaseReference,
    command: str,
    image: Digest,
) -> tuple[Digest, ...]:
    """The blobs that the registry lacks; none when the image is there and was read back."""
    back: list[bytes] = []

    def take(member: Member) -> None:
        back.append(member.read("manifest", MAX_MANIFEST_BYTES))

    document = exchange({"push": job}, resolver, take, files=files, feed=feed)
    if (error := said_error(document, "code", "hop", "retry_after")) is not None:
        raise registry_failure(error[0], error[1:], to, command)
    missing = _missing(document, {} if feed.size else job)
    # That each step ended well is no evidence that the image is there; what can be read is.
    if not missing and [Digest.of(raw) for raw in back] != [image]:
        raise NetworkFailed(
            NetworkReason.WRONG_DIGEST,
            "the registry does not give back the manifest that was pushed",
            where=str(to),
            hint="ask whoever runs the registry",
        )
    return missing


def _missing(document: dict[str, JsonValue], job: dict[str, JsonValue]) -> tuple[Digest, ...]:
    found = document.get("missing", [])
    asked = job.get("blobs", [])
    known = {one["digest"] for one in asked if isinstance(one, dict)} if isinstance(asked, list) else set()
    if (
        not isinstance(found, list)
        or len(set(map(str, found))) != len(found)
        or not set(map(str, found)) <= known
    ):
        raise unexpected("blobs that nobody asked about")
    return tuple(Digest(str(one)) for one in found)


def _bytes_of(layout: Path, sizes: dict[Digest, int]) -> Iterator[bytes]:
    """The blobs one behind the other, hashed as they are read: nothing changed is passed on whole."""
    for digest, size in sizes.items():
        found, passed = hashlib.sha256(), 0
        with open_blob(layout, Descriptor("", digest, size)) as file:
            while chunk := file.read(min(_CHUNK, size - passed)):
                passed += len(chunk)
                found.update(chunk)
                if passed == size and found.hexdigest() != digest.hex:
                    break
                yield chunk
        if passed != size or found.hexdigest() != digest.hex:
            raise StateError(
                "its bytes are not those of its digest: it was changed or damaged",
                where=str(digest),
                hint="builder build --no-cache",
            )
