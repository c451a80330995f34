"""What an image must have been built from: the expected lock, and the provenance that says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from images.digests import Digest
from images.errors import VerifyFailed
from images.lock import Lock
from images.lockfile import parse_lock
from images.oci import OciImage
from provenance.checks import Check, CheckId, failed, not_performed, passed
from provenance.evidence import Accepted, Evidence
from provenance.policy import Mode, Policy
from provenance.predicates import BUILD_TYPE, PROVENANCE_TYPE, ProvenancePredicate
from provenance.referrers import Attached

NO_EXPECTATION_HINT = "builder verify --lock builder.lock DIGEST, or add the image to [expect] in policy.toml"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the caller expects beside the policy's ``[expect]``; where both speak they must agree.

    ``image_name``: from the builder.toml that names the image. ``lock``: the bytes of the expected lock.
    """

    image_name: str | None = None
    lock: bytes | None = None


@dataclass(frozen=True, slots=True)
class Matched:
    """The provenance that meets the expectation (all of one image name and one lock), and that lock."""

    provenance: tuple[Accepted, ...]
    image_name: str
    lock_digest: Digest
    lock: Lock | None
    why_no_lock: str = ""


def match_expectation(
    expectation: Expectation,
    evidence: Evidence,
    locks: Iterable[Attached],
    image: OciImage,
    policy: Policy,
) -> tuple[Matched | None, Check]:
    """Choose the provenance that says what is expected. Others, of another lock or name, do not count.

    One digest can have several true provenances: the same image under two names, or after `builder lock`
    wrote the same pins anew. When several meet the expectation, the first by name and lock digest is taken.
    """
    found = evidence.of_type(PROVENANCE_TYPE)
    if not found:
        return None, not_performed(CheckId.PARAMETERS, "no trusted provenance")
    met: dict[tuple[str, Digest], list[Accepted]] = {}
    unmet: list[str] = []
    expected = False
    for one in found:
        parameters = provenance_of(one).build_definition.external_parameters
        name, built_from = parameters.image, Digest(parameters.lock)
        wanted = _wanted(expectation, policy, name)
        problem = _mismatch(one, expectation, wanted, image)
        if not wanted and not problem and policy.mode is Mode.REQUIRED:
            problem = f"nothing is expected of {name!r}, and required mode needs an expectation"
        if problem:
            unmet.append(problem)
        else:
            met.setdefault((name, built_from), []).append(one)
            expected = expected or bool(wanted)
    if not met:
        return None, failed(CheckId.PARAMETERS, "; ".join(unmet[:3]), NO_EXPECTATION_HINT)
    (name, digest), chosen = min(met.items(), key=lambda item: item[0])
    lock, why = _find_lock(expectation, locks, digest)
    matched = Matched(tuple(chosen), name, digest, lock, why)
    if not expected:
        return matched, not_performed(
            CheckId.PARAMETERS, f"nothing is expected of {name!r} (development mode)"
        )
    return matched, passed(CheckId.PARAMETERS, f"{name}, lock {digest}, {image.platform}")


def provenance_of(accepted: Accepted) -> ProvenancePredicate:
    """The predicate of a statement that was sorted as provenance."""
    return cast(ProvenancePredicate, accepted.predicate)


def _wanted(expectation: Expectation, policy: Policy, name: str) -> tuple[Digest, ...]:
    """Every lock digest that somebody expects for this image name."""
    given = None if expectation.lock is None else Digest.of(expectation.lock)
    return tuple(digest for digest in (given, policy.expected_lock(name)) if digest is not None)


def _mismatch(
    accepted: Accepted, expectation: Expectation, wanted: tuple[Digest, ...], image: OciImage
) -> str:
    definition = provenance_of(accepted).build_definition
    parameters = definition.external_parameters
    if definition.build_type != BUILD_TYPE:
        return f"buildType {definition.build_type[:100]!r} is not {BUILD_TYPE}"
    if expectation.image_name is not None and parameters.image != expectation.image_name:
        return f"built as {parameters.image!r}, expected {expectation.image_name!r}"
    if parameters.platform != str(image.platform):
        return f"built for {parameters.platform!r}, but the image is for {image.platform}"
    if len(set(wanted)) > 1:
        return f"the lock given is {wanted[0]}, but the policy expects {wanted[1]}"
    if wanted and parameters.lock != wanted[0]:
        return f"built from lock {parameters.lock}, expected {wanted[0]}"
    return ""


def _find_lock(
    expectation: Expectation, locks: Iterable[Attached], digest: Digest
) -> tuple[Lock | None, str]:
    """The lock of this digest: as given, or as it travels with the image. The digest is what is trusted."""
    given = () if expectation.lock is None else (expectation.lock,)
    for raw in (*given, *(attached.data for attached in locks)):
        if Digest.of(raw) == digest:
            try:
                return parse_lock(raw, where=f"lock {digest}", error=VerifyFailed), ""
            except VerifyFailed as broken:
                return None, str(broken)
    return None, f"lock {digest} is neither given nor attached"
