"""Pull an image by digest through the resolver container into the layout; follow only what hashes right."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from builder.resolve.exchange import Member, Resolver, exchange, said_error, unexpected
from builder.resolve.failures import AT, At, failure
from images.config import BaseReference
from images.digests import Digest
from images.errors import BuilderError, NetworkFailed, NetworkReason, PinError, VerifyFailed
from images.oci import (
    MAX_MANIFEST_BYTES,
    MEDIA_INDEX,
    Descriptor,
    Platform,
    parse_index,
    parse_manifest,
)
from images.strictjson import JsonValue, read_object
from provenance.layout import read_blob
from provenance.layout_writing import add_manifest, write_blob

MAX_BLOB: Final = 16 << 30


def member_name(folder: str, digest: Digest) -> str:
    """What the container calls the file with these bytes."""
    return f"{folder}/{str(digest).replace(':', '-')}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the operator wrote the reference (file, dotted path), and the command to type again."""

    file: str
    path: str
    command: str

    @property
    def another(self) -> str:
        """The way on when there is no such image."""
        return f"choose another digest in {self.file}"


BUILDER_TOML: Final = Place("builder.toml", "image.base", "builder lock")


def pull(
    base: BaseReference,
    platforms: tuple[Platform, ...],
    resolver: Resolver,
    layout: Path,
    place: Place = BUILDER_TOML,
    *,
    have: frozenset[Digest] = frozenset(),
) -> None:
    """Bring the image of a pinned reference, for these platforms, into ``layout``; who uses it re-hashes it.

    ``have``: blobs that need not come, since the layout has them.

    Raises PinError when the registry no longer has the digest (the tag is never asked instead), NetworkFailed
    with its reason, or HostError. The layout names the image only when all of it is there.
    """
    found = base.registry
    if found is None or base.digest is None:
        raise PinError(
            f"{base} is not in the state's layout, and its name has no registry",
            where=place.path,
            hint="builder bootstrap makes a base and prints its digest; or write HOST/NAME@sha256:…",
        )
    wanted = wanted_of(base, platforms, layout, place, have)
    request: dict[str, JsonValue] = {
        "resolve": [],
        "view": [],
        "fetch": [],
        "pull": {
            "registry": found[0],
            "repository": found[1],
            "digest": str(base.digest),
            "platforms": [str(platform) for platform in platforms],
            **({"have": [str(digest) for digest in sorted(have)]} if have else {}),
        },
    }
    document = exchange(request, resolver, wanted.take)
    if (error := said_error(document, "code", *AT)) is not None:
        raise _pull_failure(base, place, *error)
    wanted.finish()


def wanted_of(
    base: BaseReference,
    platforms: tuple[Platform, ...],
    layout: Path,
    place: Place,
    have: frozenset[Digest],
) -> Wanted:
    """What must come of a reference with a digest: its manifest first."""
    if base.digest is None:
        raise ValueError(f"nothing pins {base}")
    wanted = Wanted(base, platforms, layout, place, have)
    wanted.add(Descriptor(MEDIA_INDEX, base.digest, MAX_MANIFEST_BYTES), is_manifest=True, exact=False)
    return wanted


@dataclass(slots=True)
class Wanted:
    """What must come next: only what an already hashed manifest names, in its order.

    ``have``: blobs that do not come; ``had``: those of them that are needed. ``images``: manifests that came.
    """

    base: BaseReference
    platforms: tuple[Platform, ...]
    layout: Path
    place: Place
    have: frozenset[Digest] = frozenset()
    had: dict[Digest, Descriptor] = field(default_factory=dict)
    images: list[Digest] = field(default_factory=list)
    manifests: deque[tuple[Descriptor, bool]] = field(default_factory=deque)
    blobs: dict[Digest, Descriptor] = field(default_factory=dict)
    top: tuple[bytes, str] | None = None

    def add(self, descriptor: Descriptor, *, is_manifest: bool, exact: bool = True) -> None:
        if is_manifest:
            self.manifests.append((descriptor, exact))
        elif descriptor.digest in self.have:
            self.had.setdefault(descriptor.digest, descriptor)
        else:
            self.blobs.setdefault(descriptor.digest, descriptor)

    def take(self, member: Member) -> None:
        if self.manifests:
            descriptor, exact = self.manifests.popleft()
            self._take_manifest(member, descriptor, exact)
        elif self.blobs:
            digest = next(iter(self.blobs))
            self._store(member, self.blobs.pop(digest))
        else:
            raise unexpected("more than was asked")

    @property
    def whole(self) -> bool:
        """All of it came."""
        return not (self.manifests or self.blobs) and self.top is not None

    def finish(self) -> None:
        if not self.whole or self.top is None:
            raise unexpected("less than was asked")
        raw, media_type = self.top
        add_manifest(self.layout, raw, media_type=media_type)

    def _take_manifest(self, member: Member, descriptor: Descriptor, exact: bool) -> None:
        if exact and member.size != descriptor.size:
            raise wrong_digest(descriptor.digest, self.base)
        self._store(member, descriptor)
        raw = read_blob(self.layout, descriptor.digest)
        what = f"manifest {descriptor.digest}"
        try:
            document = read_object(raw, what, max_bytes=MAX_MANIFEST_BYTES, error=VerifyFailed)
            if "manifests" in document and self.top is None:
                self.top = (raw, str(document.get("mediaType", MEDIA_INDEX)))
                for child in parse_index(raw, what).manifests:
                    if _serves(child.platform, self.platforms):
                        self.add(child, is_manifest=True)
                return
            manifest = parse_manifest(raw, what)
        except VerifyFailed as broken:
            raise PinError(
                f"{self.base} is no image: {broken.what}",
                where=what,
                hint=self.place.another,
            ) from None
        self.top = self.top or (raw, manifest.media_type)
        self.images.append(manifest.digest)
        for blob in (manifest.config, *manifest.layers):
            self.add(blob, is_manifest=False)

    def _store(self, member: Member, descriptor: Descriptor) -> None:
        content = member.stream(member_name("blobs", descriptor.digest), MAX_BLOB)
        try:
            write_blob(self.layout, content, descriptor.media_type, expected=descriptor.digest)
        except VerifyFailed:
            raise wrong_digest(descriptor.digest, self.base) from None


def wrong_digest(digest: Digest, base: BaseReference) -> NetworkFailed:
    """The registry, or whoever is in between, sent something else than was asked for."""
    return NetworkFailed(
        NetworkReason.WRONG_DIGEST,
        f"the registry sent other bytes than {digest}",
        where=str(base),
        hint="ask whoever runs the registry; nothing of it was taken",
    )


def _serves(platform: Platform | None, wanted: tuple[Platform, ...]) -> bool:
    """A variant (arm64/v8) serves its architecture: it is the only one that our platforms can mean."""
    return platform is not None and any(
        (platform.os, platform.architecture) == (one.os, one.architecture) for one in wanted
    )


def _pull_failure(base: BaseReference, place: Place, *said: str) -> BuilderError:
    code, *at = said
    if code == "E404":
        return PinError(
            f"the registry no longer has this digest: {base}",
            where=place.path,
            hint=f"{place.another}; a copy in a store or layout still builds",
            reason="not-found",
        )
    broken = failure(code, replace(At(*at), item=str(base), spec="", step="pull", alias=""))
    broken.hint = broken.hint.replace("builder lock", place.command)
    return broken
