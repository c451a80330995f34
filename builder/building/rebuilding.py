"""Build an image's own lock again, in staging, and compare: the same digest, or what differs."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from builder.building.bench import build_lock, detect_agents, open_bench, scan_for_credentials
from builder.building.layer_difference import describe_difference
from builder.locking import fetch_missing
from builder.workshop import Workshop, recipe
from images.digests import Digest
from images.errors import UsageError, VerifyFailed
from images.key import summarise
from images.lock import Lock
from images.oci import OciImage
from provenance.referrers import add_referrer
from provenance.scan.accept import accept
from provenance.signing import StatementSigner
from provenance.statements import BuildFacts, provenance_statement
from provenance.verify import VerifiedImage


@dataclass(frozen=True, slots=True)
class Signer:
    """The rebuilder who signs a match: who, the id that the policy pairs with him, this program's version."""

    signer: StatementSigner
    rebuilder_id: str
    version: str


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A second build with the same digest: on which engine, and its signed statement (None: not signed)."""

    engine: str
    statement: Digest | None


def rebuild(
    workshop: Workshop, verified: VerifiedImage, *, now: Callable[[], datetime], signer: Signer | None
) -> Rebuilt:
    """Build the expected lock again in a fresh build container. Nothing of it enters the state's layout.

    With a ``signer`` the second image is scanned and its agents are started as in any build, since only such
    an image can be stated; then the statement is attached to the first. VerifyFailed (reason
    ``rebuild-differs``) names the layers and paths that differ; nothing is attached then.
    """
    with workshop.at_work():
        return _rebuild(workshop, verified, now, signer)


def _rebuild(
    workshop: Workshop, verified: VerifiedImage, now: Callable[[], datetime], signer: Signer | None
) -> Rebuilt:
    lock, image = verified.lock, verified.image
    _require_own_recipe(workshop, lock)
    fetch_missing(workshop, lock)
    started = now()
    with open_bench(workshop, now) as bench, workshop.state.staging("rebuild") as staging:
        again = build_lock(bench, lock, image.platform, staging)
        _require_same(image, again)
        workshop.reporter.say(f"rebuilt: the same digest, {again.digest}")
        facts = bench.engine.facts()
        engine = f"{facts.product} {facts.version}, {'rootless' if facts.rootless else 'rootful'}"
        if signer is None:
            return Rebuilt(engine, None)
        summary = summarise(lock, image.platform)
        report = scan_for_credentials(bench, again, lock).report
        detected = detect_agents(bench, accept(report, image), summary)
    said = BuildFacts(
        image_name=verified.image_name,
        builder_id=signer.rebuilder_id,
        builder_version=signer.version,
        started=started,
        finished=now(),
        invocation=uuid.uuid4().urn,
    )
    (bundle,) = signer.signer.sign((provenance_statement(detected, summary, said),))
    add_referrer(image, bundle)
    return Rebuilt(engine, bundle.statement.digest)


def _require_own_recipe(workshop: Workshop, lock: Lock) -> None:
    """Another template, renderer or BuildKit makes another image, which would tell nothing about this one."""
    own = recipe()
    # A build container from elsewhere is asked for its BuildKit when it is there.
    pinned = workshop.settings.build_container is None
    pairs = (
        ("template", lock.recipe.template, own.template),
        ("renderer", lock.recipe.renderer, own.renderer),
        ("BuildKit", lock.recipe.buildkit, own.buildkit if pinned else lock.recipe.buildkit),
    )
    wrong = [f"{name} {locked}, here {mine}" for name, locked, mine in pairs if locked != mine]
    if wrong:
        raise UsageError(
            f"this version builds otherwise than the lock says: {'; '.join(wrong)}",
            hint="rebuild with the version of builder that wrote the lock",
            reason="stale-lock",
        )


def _require_same(image: OciImage, again: OciImage) -> None:
    if again.digest == image.digest:
        return
    lines = "".join(f"\n  {line}" for line in describe_difference(image, again))
    raise VerifyFailed(
        f"the same lock, built again, is another image, {again.digest}{lines}",
        where=str(image.digest),
        hint="builder verify --rebuild again; a step that makes another image each time is the fault",
        reason="rebuild-differs",
    )
