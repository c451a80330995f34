"""The base image in the lock: found in the state's layout, re-hashed, its digests under their own names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from builder.resolve.exchange import Resolver
from builder.resolve.pulling import pull
from images.config import BaseReference
from images.digests import Digest
from images.errors import PinError, VerifyFailed
from images.lock import BaseImage, BaseLock
from images.oci import Platform
from provenance.layout import list_images, open_image

REF_NAME: Final = "org.opencontainers.image.ref.name"


def lock_base(
    base: BaseReference, platforms: tuple[Platform, ...], layout: Path, resolver: Resolver
) -> BaseLock:
    """The base for each declared platform: from the layout, else pulled by its digest into the layout.

    A tag is looked up in the layout by name, never in a registry, and recorded as unpinned. Raises PinError
    when there is no such image, or not for one of the platforms.
    """
    requested = base.digest or _by_name(base, layout)
    if base.pinned and base.registry is not None and not _is_there(requested, platforms, layout):
        pull(base, platforms, resolver, layout)
    images = tuple(_on_platform(base, requested, platform, layout) for platform in platforms)
    is_index = images[0].manifest != requested
    if not is_index and len(images) > 1:
        raise PinError(
            f"{base} is one platform's image, and {len(images)} platforms are declared",
            where="image.base",
            hint="name the digest of the index that holds them all",
        )
    return BaseLock(
        name=base.name,
        tag=base.tag,
        pinned=base.pinned,
        requested=requested,
        index=requested if is_index else None,
        images=images,
    )


def _is_there(digest: Digest, platforms: tuple[Platform, ...], layout: Path) -> bool:
    try:
        for platform in platforms:
            open_image(layout, digest, platform)
    except VerifyFailed:
        return False
    return True


def _by_name(base: BaseReference, layout: Path) -> Digest:
    names = {f"{base.name}:{base.tag}"} if base.tag else {base.name, f"{base.name}:latest"}
    found = {entry.digest for entry in list_images(layout) if dict(entry.annotations).get(REF_NAME) in names}
    if len(found) != 1:
        raise PinError(
            f"the tag {base} names {len(found)} images in the state's layout",
            where="image.base",
            hint="pin it as name@sha256:…; builder bootstrap prints the digest of the base it makes",
        )
    return found.pop()


def _on_platform(base: BaseReference, requested: Digest, platform: Platform, layout: Path) -> BaseImage:
    try:
        image = open_image(layout, requested, platform)
    except VerifyFailed as broken:
        raise PinError(
            f"the base cannot be used for {platform}: {broken.what}",
            where=f"image.base = {base}",
            hint="builder bootstrap makes a base and prints its digest",
        ) from None
    return BaseImage(
        platform=platform,
        manifest=image.digest,
        config=image.settings.digest,
        layers=image.manifest.layers,
        diff_ids=image.settings.diff_ids,
    )
