"""Bring an image and the evidence about it from a registry into a layout of its own; nothing is believed."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from builder.registry.failing import registry_failure
from builder.resolve.exchange import Member, Resolver, exchange, said_error, unexpected
from builder.resolve.pulling import Place, Wanted, member_name, pull, wanted_of, wrong_digest
from builder.storage.landing import Entry, add_entry, image_entry, index_entry, referrer_entry
from images.config import BaseReference
from images.digests import Digest
from images.errors import NetworkFailed, NetworkReason, PinError, VerifyFailed
from images.key import content_key
from images.lock import Lock
from images.lockfile import MAX_LOCK_BYTES, parse_lock
from images.oci import MEDIA_MANIFEST, Manifest, OciImage, Platform, parse_manifest
from images.strictjson import JsonValue
from provenance.bundles import BUNDLE_TYPE, MAX_BUNDLE_BYTES
from provenance.layout import blob_path, open_image, read_blob
from provenance.layout_writing import init_layout, write_blob
from provenance.ledger import entry_of_bundle
from provenance.referrers import LOCK_TYPE, MAX_REFERRERS
from provenance.travelling import why_it_stays

# One of ours has about a thousand bytes; what is larger is somebody else's.
MAX_REFERRER_MANIFEST: Final = 128 * 1024
LIMITS: Final = {BUNDLE_TYPE: MAX_BUNDLE_BYTES, LOCK_TYPE: MAX_LOCK_BYTES}
_MOST_BASES: Final = 2  # whose manifests are asked for: a lock names one, and an image has one lock
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_NAMED: Final = re.compile(r"(blobs|manifests)/sha256-([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """``asked``: the digest that the reference named, maybe of an index. ``locks``: those attached to it.

    ``entries``: what belongs into the state's layout, in order. ``left``: a line for each thing left out.
    """

    layout: Path
    asked: Digest
    image: OciImage
    entries: tuple[Entry, ...]
    evidence: int
    locks: tuple[tuple[Lock, bytes], ...]
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How a registry is asked: through which resolver, for which platform, and the command to type again.

    ``known``: the state's layout, whose blobs need not come again.
    """

    resolver: Resolver
    platform: Platform
    known: Path
    command: str


def bring(reference: BaseReference, asking: Asking, layout: Path) -> Brought:
    """The image that ``reference`` names (its digest, else its tag), re-hashed to the last byte, in the new
    ``layout``, with its evidence and the manifest of its base.

    Raises NetworkFailed with its reason, PinError for what is no image, HostError.
    """
    have = frozenset(
        Digest.from_hex(file.name)
        for file in (asking.known / "blobs" / "sha256").iterdir()
        if _HEX.fullmatch(file.name)
    )
    try:
        collected = _collect(reference, asking, layout, have)
    except VerifyFailed:
        # A blob that was here already is damaged: this time everything comes.
        shutil.rmtree(layout)
        collected = _collect(reference, asking, layout, frozenset())
    return collected


def _collect(reference: BaseReference, asking: Asking, layout: Path, have: frozenset[Digest]) -> Brought:
    init_layout(layout)
    coming = _Coming(reference, asking.platform, layout, have, _place(reference, asking))
    document = exchange(_request(reference, asking.platform, have), asking.resolver, coming.take)
    if (error := said_error(document, "code", "hop", "retry_after")) is not None:
        raise registry_failure(error[0], error[1:], reference, asking.command)
    wanted, evidence = coming.finish()
    for descriptor in wanted.had.values():
        _link(blob_path(asking.known, descriptor.digest), blob_path(layout, descriptor.digest))
    pinned = wanted.base
    image = _open(pinned, asking, layout, damaged_here=bool(wanted.had))
    entries = [image_entry(image)]
    if pinned.digest is not None and pinned.digest != image.digest:
        entries.append(index_entry(layout, pinned.digest))
    evidence.left += [f"{one}: not whole in the registry" for one in _left(document)]
    referrers = evidence.accepted()
    for digest in referrers:
        entries.append(referrer_entry(layout, digest))
        add_entry(layout, entries[-1])
    for base in sorted(_bases(image, evidence))[:_MOST_BASES]:
        entries += _base_entry(replace(pinned, digest=base, tag=""), asking, layout, image, evidence.left)
    return Brought(
        layout=layout,
        asked=pinned.digest or image.digest,
        image=image,
        entries=tuple(entries),
        evidence=len(referrers),
        locks=tuple(evidence.locks),
        left=tuple(evidence.left),
    )


def _place(reference: BaseReference, asking: Asking) -> Place:
    return Place("the command", str(reference), asking.command)


def _request(reference: BaseReference, platform: Platform, have: frozenset[Digest]) -> dict[str, JsonValue]:
    if reference.registry is None:
        raise ValueError(f"nowhere to ask for {reference}")
    named: dict[str, JsonValue] = (
        {"digest": str(reference.digest)} if reference.digest else {"tag": reference.tag}
    )
    return {
        "pull": {
            "registry": reference.registry[0],
            "repository": reference.registry[1],
            **named,
            "platforms": [f"{platform.os}/{platform.architecture}"],
            "have": [str(digest) for digest in sorted(have)],
            "evidence": {
                "types": list(LIMITS),
                "most_manifest": MAX_REFERRER_MANIFEST,
                "most_blob": dict(LIMITS),
            },
        },
    }


def _open(pinned: BaseReference, asking: Asking, layout: Path, *, damaged_here: bool) -> OciImage:
    try:
        return open_image(layout, pinned.digest or Digest.of(b""), asking.platform)
    except VerifyFailed as broken:
        if damaged_here:
            raise
        raise PinError(
            f"what is there is no image for {asking.platform}: {broken.what}",
            where=str(pinned),
            hint="name another tag or digest",
        ) from None


def _left(document: dict[str, JsonValue]) -> list[str]:
    found = document.get("left", [])
    if not isinstance(found, list) or len(found) > MAX_REFERRERS:
        raise unexpected("no list of what was left")
    return [str(one)[:100] for one in found]


def _bases(image: OciImage, evidence: _Evidence) -> set[Digest]:
    """The base of a lock that the provenance names: to compare an image with its plan, its base is needed."""
    return {
        lock.base.image(image.platform).manifest
        for lock, raw in evidence.locks
        if image.platform in lock.platforms
        and (Digest.of(raw), content_key(lock, image.platform)) in evidence.said
    }


def _base_entry(
    base: BaseReference, asking: Asking, layout: Path, image: OciImage, left: list[str]
) -> list[Entry]:
    """The manifest of a base whose layers the image begins with, unless the state has it."""
    if base.digest is None:
        return []
    try:
        open_image(asking.known, base.digest, asking.platform)
    except VerifyFailed:
        pass
    else:
        return []
    have = frozenset(layer.digest for layer in image.manifest.layers)
    try:
        pull(base, (asking.platform,), asking.resolver, layout, _place(base, asking), have=have)
        return [image_entry(open_image(layout, base.digest, asking.platform))]
    except (PinError, VerifyFailed) as broken:
        left.append(f"the base {base.digest}: {broken.what}")
        return []


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise VerifyFailed("not here any more", where=str(source)) from None
    except OSError:
        shutil.copyfile(source, target)


@dataclass(slots=True)
class _Coming:
    """What the container sends: the image as its manifests say, then what was listed as evidence about it."""

    reference: BaseReference
    platform: Platform
    layout: Path
    have: frozenset[Digest]
    place: Place
    wanted: Wanted | None = None
    evidence: _Evidence | None = None

    def take(self, member: Member) -> None:
        if self.wanted is None:
            digest = self.reference.digest or _digest_in(member, "blobs")
            pinned = replace(self.reference, digest=digest)
            self.wanted = wanted_of(pinned, (self.platform,), self.layout, self.place, self.have)
        if not self.wanted.whole:
            self.wanted.take(member)
            return
        if self.evidence is None:
            self.evidence = _Evidence(self.wanted.base, self.layout, _image_of(self.wanted))
        self.evidence.take(member)

    def finish(self) -> tuple[Wanted, _Evidence]:
        if self.wanted is None:
            raise unexpected("nothing")
        self.wanted.finish()
        image = _image_of(self.wanted)
        return self.wanted, self.evidence or _Evidence(self.wanted.base, self.layout, image)


def _image_of(wanted: Wanted) -> Digest:
    """The manifest that evidence is about: the one of the index that came, else what was asked for."""
    if len(wanted.images) != 1:
        raise NetworkFailed(
            NetworkReason.NOT_FOUND,
            f"{len(wanted.images)} images for this platform in the index, and one is needed",
            where=str(wanted.base),
            hint="name the digest of one of its images",
        )
    return wanted.images[0]


@dataclass(slots=True)
class _Evidence:
    """Manifests as they were listed, each read for what itself says; then the blobs of those that fit."""

    base: BaseReference
    layout: Path
    image: Digest
    seen: set[Digest] = field(default_factory=set)
    claims: dict[Digest, Manifest] = field(default_factory=dict)
    awaited: dict[Digest, int] = field(default_factory=dict)
    here: set[Digest] = field(default_factory=set)
    said: set[tuple[Digest, Digest]] = field(default_factory=set)  # a lock and its key, by provenance
    locks: list[tuple[Lock, bytes]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def take(self, member: Member) -> None:
        if member.name.startswith("manifests/"):
            self._manifest(member)
            return
        digest = _digest_in(member, "blobs")
        limit = self.awaited.pop(digest, None)
        if limit is None:
            raise unexpected("a blob that nobody asked for")
        try:
            content = member.stream(member_name("blobs", digest), limit)
            write_blob(self.layout, content, "", expected=digest)
        except VerifyFailed:
            raise wrong_digest(digest, self.base) from None
        self.here.add(digest)

    def _manifest(self, member: Member) -> None:
        digest = _digest_in(member, "manifests")
        if digest in self.seen or len(self.seen) >= MAX_REFERRERS:
            raise unexpected("more referrers than there can be")
        self.seen.add(digest)
        raw = member.read(member.name, MAX_REFERRER_MANIFEST)
        if Digest.of(raw) != digest:
            raise wrong_digest(digest, self.base)
        why = self._claim(digest, raw)
        if why:
            self.left.append(f"{digest}: {why}")

    def _claim(self, digest: Digest, raw: bytes) -> str:
        """Note what a manifest wants to be; or say why it is nothing for us."""
        try:
            manifest = parse_manifest(raw, f"manifest {digest}")
        except VerifyFailed as broken:
            return broken.what
        if manifest.subject is None or manifest.subject.digest != self.image:
            return "it is about another image"
        limit = LIMITS.get(manifest.artifact_type)
        if limit is None:
            return f"evidence of type {manifest.artifact_type[:100]!r} is not ours"
        if len(manifest.layers) != 1:
            return "not exactly one blob"
        blobs = (manifest.config, manifest.layers[0])
        if any(blob.size > limit for blob in blobs):
            return "larger than evidence can be"
        write_blob(self.layout, raw, MEDIA_MANIFEST)
        self.claims[digest] = manifest
        self.awaited |= {blob.digest: limit for blob in blobs if blob.digest not in self.here}
        return ""

    def accepted(self) -> list[Digest]:
        """The manifests of what came whole, is about the image and of a closed list of kinds."""
        found = []
        # Bundles first: a lock comes along if one of them names it.
        for digest, manifest in sorted(
            self.claims.items(), key=lambda one: one[1].artifact_type == LOCK_TYPE
        ):
            blobs = {manifest.config.digest, manifest.layers[0].digest}
            if not blobs <= self.here:
                self.left.append(f"{digest}: its blobs did not come")
            elif why := self._why_not(manifest):
                self.left.append(f"{digest}: {why}")
            else:
                found.append(digest)
        return found

    def _why_not(self, manifest: Manifest) -> str:
        raw = read_blob(self.layout, manifest.layers[0], LIMITS[manifest.artifact_type])
        if manifest.artifact_type == LOCK_TYPE:
            return self._why_no_lock(raw)
        if why := why_it_stays(raw, self.image):
            return why
        entry = entry_of_bundle(raw, self.image)
        if entry is not None:
            self.said.add((entry.lock, entry.key))
        return ""

    def _why_no_lock(self, raw: bytes) -> str:
        if Digest.of(raw) not in {lock for lock, _ in self.said}:
            return "a lock that no provenance names"
        try:
            self.locks.append((parse_lock(raw, error=VerifyFailed), raw))
        except VerifyFailed as broken:
            return broken.what
        return ""


def _digest_in(member: Member, folder: str) -> Digest:
    found = _NAMED.fullmatch(member.name)
    if found is None or found[1] != folder:
        raise unexpected(f"{member.name[:80]!r}, where {folder} should be")
    return Digest.from_hex(found[2])
