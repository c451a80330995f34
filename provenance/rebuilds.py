"""Count those who built the same image again: rebuilders' statements that say what the builder's says."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from images.oci import OciImage
from provenance.assertions import CLOCK_SKEW, key_recomputed
from provenance.checks import Check, CheckId, Status, failed, not_performed, passed
from provenance.evidence import Accepted, Evidence
from provenance.expectations import Matched, provenance_of
from provenance.policy import Policy
from provenance.predicates import BUILD_TYPE, parse_time
from provenance.signers import party


def rebuilt_by_others(
    evidence: Evidence, matched: Matched, image: OciImage, policy: Policy, now: datetime
) -> Check:
    """Check 18: as many distinct rebuilders as the policy asks for built this image from this lock.

    One about another name, lock or platform does not count. One about this lock that names another key,
    artifact or base speaks against the image, and fails the check whatever else is attached.
    """
    found, wanted = evidence.rebuilds, policy.min_rebuilds
    if not found and not wanted:
        return not_performed(CheckId.REBUILDS, "the policy asks for none, and none is attached")
    if matched.lock is None:
        return not_performed(CheckId.REBUILDS, matched.why_no_lock)
    parties: set[str] = set()
    unmet: list[str] = []
    for one in found:
        problem = _other(one, matched, image) or _too_early(one, now)
        if problem:
            unmet.append(f"statement {one.digest} {problem}")
            continue
        against = _against(one, matched, image)
        if against:
            return failed(
                CheckId.REBUILDS, f"a trusted rebuilder contradicts (statement {one.digest}): {against}"
            )
        # By key or identity, however many statements it signed. A policy has none in two roles, and one
        # identity under two issuers is one: nobody counts double, and no builder confirms himself.
        parties.add(party(one.bundle.signer))
    who = f" by {', '.join(sorted(parties))}" if parties else ""
    said = f"{len(parties)} of {wanted} asked for{who}" if wanted else f"{len(parties)}, none asked for{who}"
    if len(parties) < wanted:
        return failed(CheckId.REBUILDS, "; ".join([said, *unmet[:3]]))
    return passed(CheckId.REBUILDS, said)


def _other(one: Accepted, matched: Matched, image: OciImage) -> str:
    """What else the statement is about; empty when it is about this name, lock and platform."""
    definition = provenance_of(one).build_definition
    parameters = definition.external_parameters
    pairs = (
        ("buildType", definition.build_type, BUILD_TYPE),
        ("image", parameters.image, matched.image_name),
        ("lock", parameters.lock, str(matched.lock_digest)),
        ("platform", parameters.platform, str(image.platform)),
    )
    wrong = [f"{name} {is_so[:200]!r}" for name, is_so, should_be in pairs if is_so != should_be]
    return f"is about {', '.join(wrong)}" if wrong else ""


def _too_early(one: Accepted, now: datetime) -> str:
    finished = parse_time(provenance_of(one).run_details.metadata.finished_on)
    return f"says it was built on {finished:%Y-%m-%d %H:%M} UTC" if finished > now + CLOCK_SKEW else ""


def _against(one: Accepted, matched: Matched, image: OciImage) -> str:
    """Why it cannot be true together with the lock that it names itself."""
    key = key_recomputed(replace(matched, provenance=(one,)), image)
    if key.status is not Status.PASSED:
        return key.message
    named = [
        dependency.digest
        for dependency in provenance_of(one).build_definition.resolved_dependencies
        if dependency.name == "base"
    ]
    if matched.lock is None or named != [{"sha256": matched.lock.base.image(image.platform).manifest.hex}]:
        return "the base that it signed is not the lock's"
    return ""
