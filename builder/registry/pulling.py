"""Pull an image with its evidence into the state: whole in staging first, then named."""

from __future__ import annotations

from dataclasses import dataclass

from builder.providing import open_resolver
from builder.registry.bringing import Asking, Brought, bring
from builder.storage.landing import land, remember
from builder.storage.references import refer_to_import
from builder.workshop import Workshop
from images.config import BaseReference
from images.digests import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """``asked``: what the reference named, maybe an index; ``digest``: the image for this machine.

    ``blobs``, ``manifests``: how many the state lacked. ``left``: a line for each thing left out.
    """

    asked: Digest
    digest: Digest
    locks: tuple[Digest, ...]
    evidence: int
    blobs: int
    manifests: int
    left: tuple[str, ...]


def pull_image(workshop: Workshop, reference: BaseReference) -> Pulled:
    """Everything, or nothing that has a name. No trust comes along: no policy, no key, no rollback mark.

    Raises NetworkFailed with its reason, PinError for what is no image, StateError, HostError.
    """
    with (
        workshop.at_work(),
        workshop.state.staging("pull") as staging,
        workshop.reporter.step(f"pull {reference}") as step,
        open_resolver(workshop, step) as resolver,
    ):
        asking = Asking(
            resolver=resolver,
            platform=workshop.platform,
            known=workshop.state.layout,
            command=f"builder pull {reference}",
        )
        return take(workshop, bring(reference, asking, staging / "layout"))


def take(workshop: Workshop, brought: Brought) -> Pulled:
    """What was brought, into the state's layout; its locks hold what they name from now on."""
    state, image = workshop.state, brought.image
    for _, raw in brought.locks:
        refer_to_import(state, raw)
    landed = land(state, brought.layout, brought.entries)
    for lock, raw in brought.locks:
        if image.platform in lock.platforms:
            remember(state, image.digest, lock, Digest.of(raw), image.platform)
    return Pulled(
        asked=brought.asked,
        digest=image.digest,
        locks=tuple(sorted(Digest.of(raw) for _, raw in brought.locks)),
        evidence=brought.evidence,
        blobs=landed.blobs,
        manifests=landed.manifests,
        left=brought.left,
    )
