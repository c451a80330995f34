"""`builder build --cache`: a proved image looked up in a registry by its content key, instead of a build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from builder.providing import open_resolver
from builder.registry.bringing import Asking, Brought, bring
from builder.registry.reference import key_tag
from builder.storage.landing import land
from builder.verifying import Chosen, Verification, verify_image
from images.config import BaseReference
from images.errors import HostError, NetworkFailed, NetworkReason, PinError, VerifyFailed
from provenance.expectations import Expectation
from provenance.layout import Rehash, open_image, stamp_layers
from provenance.ledger import entry_of_bundle, open_ledger
from provenance.verify import Purpose

if TYPE_CHECKING:
    from builder.locking import Project
    from builder.resolve.exchange import Resolver
    from builder.workshop import Workshop
    from images.digests import Digest
    from images.lock import LockSummary
    from provenance.policy import Policy
    from provenance.verify import VerifiedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What is looked for: the key of a lock, and what an image found there must be. ``cache``: HOST/NAME."""

    cache: BaseReference
    project: Project
    summary: LockSummary
    lock_raw: bytes
    policy: Policy
    now: Callable[[], datetime]


def find_in_cache(workshop: Workshop, lookup: Lookup) -> Digest | None:
    """The image of this key, taken from the registry, if everything about it holds under the policy; else
    None, with the reason told: whatever a cache answers, it can only cost time.
    """
    reporter, cache = workshop.reporter, lookup.cache
    try:
        with (
            workshop.state.staging("cache") as staging,
            reporter.step(f"look for this key in {cache.name}") as step,
            open_resolver(workshop, step) as resolver,
        ):
            return take_proved(workshop, lookup, resolver, staging)
    except NetworkFailed as failed:
        if failed.reason == NetworkReason.NOT_FOUND:
            reporter.say(f"cache: {cache.name} has no image of this key")
        else:
            reporter.warn(f"cache: {failed} ({failed.reason}); built here instead")
    except (PinError, VerifyFailed, HostError) as refused:
        reporter.warn(f"cache: not used, since it does not hold: {refused}; built here instead")
    return None


def take_proved(workshop: Workshop, lookup: Lookup, resolver: Resolver, staging: Path) -> Digest:
    """Into the state, when every check passed on the copy below ``staging``. VerifyFailed otherwise."""
    reference = replace(lookup.cache, digest=None, tag=key_tag(lookup.summary.key))
    asking = Asking(
        resolver=resolver,
        platform=lookup.summary.platform,
        known=workshop.state.layout,
        command="builder build --no-cache",
    )
    brought = bring(reference, asking, staging / "layout")
    verified = _prove(workshop, lookup, brought)
    if verified.content_key != lookup.summary.key:
        raise VerifyFailed("it is of another content key", where=str(brought.image.digest))
    land(workshop.state, brought.layout, brought.entries)
    with open_ledger(workshop.state.ledger) as ledger:
        entry = entry_of_bundle(verified.provenance.raw, verified.image.digest)
        if entry is not None:
            image = open_image(workshop.state.layout, entry.digest, rehash=Rehash.BYTES)
            ledger.record(entry, stamp_layers(image))
    workshop.reporter.say(
        f"cache: {verified.image.digest} verifies, with {brought.evidence} pieces of evidence"
    )
    return verified.image.digest


def _prove(workshop: Workshop, lookup: Lookup, brought: Brought) -> VerifiedImage:
    """All checks that a verification by hand makes, against the lock beside builder.toml."""
    expectation = Expectation(image_name=lookup.project.config.name, lock=lookup.lock_raw)
    report = verify_image(
        Chosen(brought.image.digest, expectation, lookup.project, lookup.summary.key),
        Verification(
            state=workshop.state,
            layout=brought.layout,
            # A build cannot supply what others must: it would only be made again each time.
            policy=replace(lookup.policy, min_rebuilds=0),
            purpose=Purpose.INSPECTION,
            platform=lookup.summary.platform,
            now=lookup.now,
        ),
        rescan=True,
        audit=True,
    )
    return report.require()
