"""The base image in the lock: found in the state's layout, re-hashed, its digests under their own names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from images.config import BaseReference
from images.digests import Digest
from images.errors import PinError, VerifyFailed
from images.lock import BaseImage, BaseLock
from images.oci import Platform
from provenance.layout import list_images, open_image

REF_NAME: Final = "org.opencontainers.image.ref.name"


def lock_base(base: BaseReference, platforms: tuple[Platform, ...], layout: Path) -> BaseLock:
    """The base for each declared platform. A tag is looked up by name and recorded as unpinned.

    Raises PinError when the layout lacks it or one of the platforms (a registry is not asked yet).
    """
    requested = base.digest or _by_name(base, layout)
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
