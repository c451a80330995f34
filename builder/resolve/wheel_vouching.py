"""Fetch the wheels of a lock, and find out who published each that the lock does not know yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from builder.resolve.exchange import Resolver
from builder.resolve.pypi_job import PypiFetch, PypiJob, perform_pypi
from builder.resolve.pypi_tree import WheelChoice
from builder.resolve.statements_offered import Index, Stated, judge_offer, tell
from images.lock import Artifact, ArtifactKind, Authentication
from images.pypi import PYPI_REGISTRY
from provenance.attestation_documents import pypi_bundles
from provenance.attestations import Published, problem_with_attestation
from provenance.npm_signatures import Judged
from provenance.publishers import Publishers

PYPI: Final = Index(pypi_bundles, alias=PYPI_REGISTRY, step="facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelTrust:
    """Whom to expect as publishers, and who hears why something does not count."""

    publishers: Publishers = field(default_factory=Publishers)
    on_note: Callable[[str], None] = lambda _: None


def kept_wheel(artifact: Artifact, trust: WheelTrust) -> Judged | None:
    """What a lock already says of a wheel; None when it does not hold by today's expectations."""
    if problem_with_attestation(artifact, trust.publishers) is not None:
        return None
    return Judged(artifact.authenticated, artifact.signer, attestation=artifact.attestation)


def fetch_and_vouch_wheels(
    wanted: Iterable[PypiFetch], known: Mapping[WheelChoice, Judged], trust: WheelTrust, resolver: Resolver
) -> dict[WheelChoice, Judged]:
    """Bring the wheels that the store lacks; how each was authenticated.

    ``known``: what the lock says already, which is not asked about again. Nobody is asked without a root to
    check the answer with. Raises PinError for a wheel whose expected publisher has not signed for it.
    """
    by_choice = {item.choice: item for item in wanted}
    asking = trust.publishers.root is not None
    fresh = tuple(by_choice[choice] for choice in sorted(by_choice) if asking and choice not in known)
    lacking = lacking_wheels(by_choice.values(), resolver)
    offers = (
        perform_pypi(PypiJob(fetch=lacking, statements=fresh), resolver).offers if fresh or lacking else ()
    )
    stated = {
        item.choice: judge_offer(_about(item.choice), offer, trust.publishers, PYPI)
        for item, offer in zip(fresh, offers, strict=True)
    }
    tell(((choice.filename, one) for choice, one in stated.items()), trust.on_note)
    return {choice: known[choice] if choice in known else _judged(stated.get(choice)) for choice in by_choice}


def lacking_wheels(wanted: Iterable[PypiFetch], resolver: Resolver) -> tuple[PypiFetch, ...]:
    """Those that the store does not have whole, each once."""
    lacking = {item.choice: item for item in wanted if not resolver.store.intact(item.choice.integrity)}
    return tuple(lacking[choice] for choice in sorted(lacking))


def _about(choice: WheelChoice) -> Published:
    return Published(
        ArtifactKind.WHEEL, choice.name, choice.version, choice.integrity, filename=choice.filename
    )


def _judged(stated: Stated | None) -> Judged:
    found = stated.attestation if stated is not None else None
    if stated is not None and found is not None and stated.counts:
        return Judged(Authentication.PYPI_ATTESTED, found.publisher, attestation=found)
    return Judged(Authentication.TOFU, attestation=found)
