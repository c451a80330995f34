"""Ask apt what it would take for the toolchain now, and compare that with the lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from builder.building.base_check import read_base
from builder.resolve.debian import TOOLCHAIN, offered_debian
from builder.resolve.exchange import Resolver
from builder.resolve.newest import PinStanding, Standing
from images.config import ImageConfig
from images.errors import PinError, UsageError, VerifyFailed
from images.lock import Lock
from images.oci import Platform
from images.toolchain import TOOLCHAIN_PARENT, split_name
from provenance.layout import Rehash, open_image

_NAMED: Final = 12  # packages that are named in one line

Versions = Mapping[Platform, Mapping[str, str]]  # by name with architecture, ``make:amd64``


def ask_toolchain(config: ImageConfig, lock: Lock | None, layout: Path, resolver: Resolver) -> PinStanding:
    """How the locked packages stand to what apt would add to the same base now.

    A package that the archive has no more is an answer; an archive that cannot be asked raises NetworkFailed.
    """
    standing = PinStanding(TOOLCHAIN, TOOLCHAIN_PARENT, ",".join(config.debian), "", Standing.UNKNOWN)
    if lock is None or lock.toolchain is None or lock.toolchain.asked != config.debian:
        return replace(standing, note="no lock says which versions it has: builder lock")
    try:
        # Hashed where they are read, to their ends.
        images = [
            open_image(layout, image.manifest, image.platform, rehash=Rehash.LATER)
            for image in lock.base.images
        ]
        facts = {image.platform: read_base(image).debian for image in images}
    except (VerifyFailed, UsageError):
        return replace(standing, note="apt needs the locked base, which is not whole in this state")
    try:
        offered = offered_debian(config.debian, facts, resolver)
    except PinError as gone:
        return replace(standing, standing=Standing.GONE, note=gone.what)
    return compare_toolchain(config, _locked(lock), offered)


def compare_toolchain(config: ImageConfig, locked: Versions, offered: Versions) -> PinStanding:
    """The packages asked for as the lock has them, against every package that would be another one now."""
    pinned = _listed(
        (name, version)
        for versions in locked.values()
        for name, version in versions.items()
        if split_name(name)[0] in config.debian
    )
    moved = [
        (name, versions.get(name, "none"))
        for platform, versions in offered.items()
        for name in sorted({*versions, *locked.get(platform, {})})
        if versions.get(name) != locked.get(platform, {}).get(name)
    ]
    standing = Standing.OUTDATED if moved else Standing.CURRENT
    pinned = pinned or ",".join(config.debian)
    return PinStanding(TOOLCHAIN, TOOLCHAIN_PARENT, pinned, _listed(moved) or pinned, standing)


def _locked(lock: Lock) -> Versions:
    found: dict[Platform, dict[str, str]] = {}
    for tree in lock.toolchain.trees if lock.toolchain else ():
        artifacts = (lock.artifact(one) for one in tree.unpacked)
        found[tree.platform] = {one.name: one.version for one in artifacts}
    return found


def _listed(packages: Iterable[tuple[str, str]]) -> str:
    """Without a blank, as one column of a line: ``git=1:2.39.5-0,make=4.3-4.1``."""
    words = sorted({f"{split_name(name)[0]}={version}" for name, version in packages})
    more = [f"+{len(words) - _NAMED}"] if len(words) > _NAMED else []
    return ",".join([*words[:_NAMED], *more])
