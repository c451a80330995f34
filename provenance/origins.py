"""What a policy asks of how each artifact of a lock was authenticated, and whether a lock meets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from images.lock import Artifact, ArtifactKind, Authentication, Lock
from provenance.attestations import problem_with_attestation
from provenance.checks import Check, CheckId, failed, not_performed, passed
from provenance.npm_signatures import Keys, problem_with_signature, shipped_keys
from provenance.publishers import Publishers

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """``refuse``: nothing may be authenticated so. ``require``: of these kinds everything must be, one of so.

    ``refuse_signers``: whose signature counts for nothing (key ids, fingerprints, publishers). ``npm_keys``:
    with which the npm signatures in a lock are checked again. ``publishers``: who must have published what,
    and the trusted root with which the attestations in a lock are checked again.
    """

    refuse: frozenset[Authentication] = frozenset()
    require: tuple[tuple[ArtifactKind, frozenset[Authentication]], ...] = ()
    refuse_signers: frozenset[str] = frozenset()
    npm_keys: Keys = field(default_factory=shipped_keys)
    publishers: Publishers = field(default_factory=Publishers)

    @property
    def asks(self) -> bool:
        """Whether anything is asked at all."""
        return bool(self.refuse or self.require or self.refuse_signers or self.publishers.expected)

    def problem(self, artifact: Artifact) -> str | None:
        """Why the policy does not take this artifact; None when it does."""
        said = artifact.authenticated
        if said in self.refuse:
            return f"{artifact.id} is {said}"
        required = dict(self.require).get(artifact.kind)
        if required is not None and said not in required:
            return f"{artifact.id} is {said}, not {' or '.join(sorted(required))}"
        if artifact.signer and artifact.signer in self.refuse_signers:
            return f"{artifact.id} is signed by {artifact.signer}"
        return problem_with_signature(artifact, self.npm_keys) or problem_with_attestation(
            artifact, self.publishers
        )


def judge_origins(lock: Lock | None, why_no_lock: str, origins: Origins) -> Check:
    """Check 20: every artifact was authenticated as the policy asks; what the lock says of it holds here."""
    if not origins.asks:
        return not_performed(CheckId.ARTIFACTS, "the policy takes every way in which they are authenticated")
    if lock is None:
        return failed(CheckId.ARTIFACTS, why_no_lock)
    problems = [problem for one in lock.artifacts if (problem := origins.problem(one)) is not None]
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        listed = "; ".join(problems[:_SHOWN])
        return failed(
            CheckId.ARTIFACTS, f"{len(problems)} of {len(lock.artifacts)} artifacts refused: {listed}{more}"
        )
    return passed(CheckId.ARTIFACTS, count_origins(lock.artifacts) + _published(lock.artifacts))


def _published(artifacts: Iterable[Artifact]) -> str:
    """Who published what, in words, where somebody was expected; else nothing."""
    said = [f"{one.id} by {one.signer}" for one in artifacts if one.attestation and one.attestation.bundle]
    more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    return f"; published as expected: {', '.join(said[:_SHOWN])}{more}" if said else ""


def counted(artifacts: Iterable[Artifact]) -> dict[Authentication, int]:
    """How many artifacts were authenticated in which way, in the order of the enumeration; no zeros."""
    found = Counter(one.authenticated for one in artifacts)
    return {said: found[said] for said in Authentication if found[said]}


def count_origins(artifacts: Iterable[Artifact]) -> str:
    """In words: ``12 tofu, 3 npm-signature``."""
    return ", ".join(f"{number} {said}" for said, number in counted(artifacts).items())


def trusted_on_first_use(artifacts: Iterable[Artifact], most: int = 5) -> str:
    """The first of those that nobody vouched for, in words; empty when there is none."""
    labels = [one.label for one in artifacts if one.authenticated is Authentication.TOFU]
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more
