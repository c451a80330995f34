"""The single assertions of a verification: each takes values, and answers one numbered check."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, cast

from images.digests import Digest
from images.errors import BuilderError, VerifyFailed
from images.key import content_key
from images.lock import BaseImage, Lock
from images.oci import Index, OciImage, parse_index
from provenance.checks import Check, CheckId, failed, not_performed, passed
from provenance.evidence import Accepted, Evidence
from provenance.expectations import Matched, provenance_of
from provenance.layout import read_blob
from provenance.policy import Mode, Policy
from provenance.predicates import (
    DETECTION_TYPE,
    SCAN_TYPE,
    VSA_TYPE,
    DetectionPredicate,
    ScanPredicate,
    VsaPredicate,
    parse_time,
    resource_uri,
)
from provenance.scan.report import NESTED

# Clocks of two machines differ by this much without anybody lying.
CLOCK_SKEW: Final = timedelta(minutes=5)
_LEVEL: Final = re.compile(r"SLSA_BUILD_LEVEL_[1-9]")


def policy_in_force(policy: Policy, now: datetime) -> Check:
    """Check 16: the policy's own end has not come."""
    if now > policy.valid_until:
        why = f"the policy ended on {policy.valid_until:%Y-%m-%d %H:%M} UTC"
        return failed(CheckId.POLICY, why, f"renew valid_until and serial in {policy.path}")
    mode = f"{policy.mode} mode, serial {policy.serial}, until {policy.valid_until:%Y-%m-%d}"
    return passed(CheckId.POLICY, mode)


def key_recomputed(matched: Matched, image: OciImage) -> Check:
    """Check 7: the lock's key is the one that was signed, and the signed dependencies are the lock's."""
    lock = matched.lock
    if lock is None:
        return failed(CheckId.KEY, matched.why_no_lock, "builder verify --lock builder.lock DIGEST")
    if image.platform not in lock.platforms:
        return failed(CheckId.KEY, f"the lock is not for {image.platform}")
    key = content_key(lock, image.platform)
    artifacts = {(one.id, str(one.integrity)) for one in lock.artifacts_for(image.platform)}
    for one in matched.provenance:
        definition = provenance_of(one).build_definition
        if definition.internal_parameters.content_key != key:
            return failed(CheckId.KEY, f"the lock's key is {key}, but the builder signed another")
        signed = {
            (dependency.name, f"{algorithm}:{value}")
            for dependency in definition.resolved_dependencies
            for algorithm, value in dependency.digest.items()
            if dependency.name != "base"
        }
        if signed != artifacts:
            return failed(CheckId.KEY, "the artifacts that the builder signed are not those of the lock")
    return passed(CheckId.KEY, str(key))


def base_allowed(matched: Matched, image: OciImage, policy: Policy) -> Check:
    """Check 8: the lock's base is one of the policy's, and its layers are exactly the image's first."""
    lock = matched.lock
    if lock is None or image.platform not in lock.platforms:
        return not_performed(CheckId.BASE, "no lock that tells the base")
    base = lock.base.image(image.platform)
    if not lock.base.pinned and policy.mode is Mode.REQUIRED:
        return failed(CheckId.BASE, "the base was named by a tag alone; required mode needs a digest")
    why = _not_allowed(base, lock, image.layout, policy)
    if why:
        return failed(CheckId.BASE, why, f"add it to bases in {policy.path}, if you trust it")
    why = _not_prefix(base, image)
    if why:
        return failed(CheckId.BASE, why)
    for one in matched.provenance:
        named = [
            dependency.digest
            for dependency in provenance_of(one).build_definition.resolved_dependencies
            if dependency.name == "base"
        ]
        if named != [{"sha256": base.manifest.hex}]:
            return failed(CheckId.BASE, "the base that the builder signed is not the lock's")
    return passed(CheckId.BASE, f"{base.manifest}, {len(base.layers)} layers")


def _not_allowed(base: BaseImage, lock: Lock, layout: Path, policy: Policy) -> str:
    """An allowed index allows its manifests, but only those that the index itself, re-hashed, lists."""
    if base.manifest in policy.bases:
        return ""
    index = lock.base.index
    if index is None or index not in policy.bases:
        return f"base {base.manifest} is not one of the policy's bases"
    try:
        listed: Index = parse_index(read_blob(layout, index), f"index {index}")
    except VerifyFailed as broken:
        return f"the policy allows index {index}, which cannot be followed: {broken}"
    if base.manifest not in {entry.digest for entry in listed.manifests}:
        return f"base {base.manifest} is not in the allowed index {index}"
    return ""


def _not_prefix(base: BaseImage, image: OciImage) -> str:
    count = len(base.layers)
    if not count or len(base.diff_ids) != count:
        return "the lock's base has no layers, or not as many as diff ids"
    own = [(layer.digest, layer.size) for layer in image.manifest.layers[:count]]
    if own != [(layer.digest, layer.size) for layer in base.layers]:
        return f"the image's first {count} layers are not those of the base"
    if image.settings.diff_ids[:count] != base.diff_ids:
        return f"the image's first {count} diff ids are not those of the base"
    return ""


def scan_clean(evidence: Evidence, image: OciImage, policy: Policy) -> tuple[tuple[Accepted, ...], Check]:
    """Check 10: no trusted scan speaks against the image, and one at least is complete and new enough.

    Every trusted scan counts: a clean one under an old ruleset does not outweigh a finding under a newer one.
    """
    found = evidence.of_type(SCAN_TYPE)
    layers = tuple(str(layer.digest) for layer in image.manifest.layers)
    scans = [cast(ScanPredicate, one.predicate) for one in found]
    for one, scan in zip(found, scans, strict=True):
        if scan.verdict != "clean":
            return (), failed(CheckId.SCAN, f"a trusted scan says {scan.verdict!r} (statement {one.digest})")
        if scan.layers != layers:
            return (), failed(CheckId.SCAN, f"the scan read other layers (statement {one.digest})")
    if not scans:
        return (), not_performed(CheckId.SCAN, "no trusted scan statement")
    newest = max(scans, key=lambda scan: scan.ruleset)
    if newest.ruleset < policy.min_ruleset:
        why = f"scanned under ruleset {newest.ruleset}, the policy asks for {policy.min_ruleset}"
        return (), failed(CheckId.SCAN, why, "builder build")
    enough = tuple(one for one, scan in zip(found, scans, strict=True) if scan.ruleset >= policy.min_ruleset)
    if policy.nested_opened and (why := _unopened(newest, policy)):
        return (), failed(CheckId.SCAN, why, "builder scan --strict DIGEST")
    nested = f"{newest.not_opened} archives inside not opened"
    said = f"no match under ruleset {newest.ruleset}, {newest.bytes_scanned} bytes, {nested}"
    return enough, passed(CheckId.SCAN, said)


def _unopened(scan: ScanPredicate, policy: Policy) -> str:
    """Why the archives inside are not all accounted for; empty when they are."""
    if scan.nested != NESTED:
        return "the scan opened no archives inside of the image, and the policy asks for it"
    left = [one for one in scan.opaque if not one.by]
    unlisted = scan.not_opened - len(left)
    if unlisted > 0:
        return f"{unlisted} archives that were not opened are not listed in the scan statement"
    for one in left:
        if one.digest not in policy.opaque:
            return f"{one.path[:200]} ({one.format}, {one.digest}) was not opened: {one.reason[:100]}"
    return ""


def detection_agrees(evidence: Evidence, matched: Matched | None) -> tuple[tuple[Accepted, ...], Check]:
    """Check 15: every trusted detection saw the lock's agents at the lock's versions, as its user."""
    found = evidence.of_type(DETECTION_TYPE)
    if not found or matched is None or matched.lock is None:
        return (), not_performed(CheckId.DETECTION, "no trusted detection, or no lock to compare with")
    lock = matched.lock
    pinned = {(str(agent.name), agent.version) for agent in lock.agents}
    for one in found:
        seen = cast(DetectionPredicate, one.predicate)
        for agent in seen.agents:
            if agent.reported != agent.pinned or agent.exit_code != 0:
                why = f"{agent.name} {agent.pinned} reported {agent.reported!r} (exit code {agent.exit_code})"
                return (), failed(CheckId.DETECTION, why)
        if {(agent.name, agent.pinned) for agent in seen.agents} != pinned or len(seen.agents) != len(pinned):
            return (), failed(CheckId.DETECTION, "the agents that were detected are not those of the lock")
        if (seen.user.uid, seen.user.gid) != (lock.user.uid, lock.user.gid):
            return (), failed(CheckId.DETECTION, f"detected as uid {seen.user.uid}, not as the lock's user")
    said = ", ".join(f"{name} {version}" for name, version in sorted(pinned))
    return found, passed(CheckId.DETECTION, said)


def config_as_planned(
    image: OciImage, lock: Lock | None, compare: Callable[[OciImage, Lock], None] | None
) -> Check:
    """Check 11: nothing that no image of ours has; and, where it can be compared, the plan."""
    found = image.settings
    wrong = [
        name
        for name, bad in (
            ("volumes", bool(found.volumes)),
            ("ONBUILD triggers", bool(found.on_build)),
            ("a health check", found.health_check),
            ("no user, or root", found.user.partition(":")[0] in ("", "0", "root")),
            ("no entry point", not found.entrypoint),
            ("annotations", bool(image.manifest.annotations)),
            ("a subject", image.manifest.subject is not None),
        )
        if bad
    ]
    if wrong:
        return failed(CheckId.CONFIG, f"the image has {', '.join(wrong)}")
    if compare is None or lock is None:
        return not_performed(CheckId.CONFIG, "nothing forbidden in it; the plan is not compared here")
    try:
        compare(image, lock)
    except BuilderError as differs:
        return failed(CheckId.CONFIG, differs.what, differs.hint)
    return passed(CheckId.CONFIG, "user, environment, labels, entry point and layers as the lock plans them")


def young_enough(matched: Matched | None, policy: Policy, now: datetime) -> Check:
    """Check 13: by the builder's signed word and our clock; no trusted time, so a limit and not a proof."""
    if matched is None:
        return not_performed(CheckId.AGE, "no provenance that meets the expectation")
    finished = max(
        parse_time(provenance_of(one).run_details.metadata.finished_on) for one in matched.provenance
    )
    if finished > now + CLOCK_SKEW:
        return failed(CheckId.AGE, f"built in the future: {finished:%Y-%m-%d %H:%M} UTC")
    if policy.max_age is None:
        return not_performed(CheckId.AGE, "the policy sets no max_age")
    if now - finished > policy.max_age:
        why = f"built on {finished:%Y-%m-%d}, the policy's max_age is {policy.max_age.days} days"
        return failed(CheckId.AGE, why, "builder build")
    return passed(CheckId.AGE, f"built on {finished:%Y-%m-%d} by the builder's clock")


def summary_passed(
    evidence: Evidence, image_name: str, image: OciImage, relied: Sequence[tuple[Accepted, ...]]
) -> tuple[Accepted | None, Check]:
    """Check 19: a verifier said PASSED of this name and digest, and saw one of each group in ``relied``.

    A trusted FAILED fails the check whatever else is attached. One about another name does not count. Of
    several, one that binds a layer audit is taken.
    """
    wanted = resource_uri(image_name, image.digest)
    unmet = ["no trusted verification summary"]
    met: list[Accepted] = []
    found = evidence.of_type(VSA_TYPE)
    for one in found:
        if cast(VsaPredicate, one.predicate).verification_result != "PASSED":
            return None, failed(CheckId.SUMMARY, f"a trusted verifier said FAILED (statement {one.digest})")
    for one in found:
        summary = cast(VsaPredicate, one.predicate)
        seen = {Digest.from_hex(given.digest.sha256) for given in summary.input_attestations}
        if summary.resource_uri != wanted:
            unmet.append(f"a summary is for {summary.resource_uri[:200]!r}, not {wanted!r}")
        elif not all(seen & {one.digest for one in group} for group in relied):
            unmet.append("the summary was made without the statements that are relied on now")
        elif not any(_LEVEL.fullmatch(level) for level in summary.verified_levels):
            unmet.append("the summary verifies no build level")
        else:
            met.append(one)
    if met:
        chosen = max(met, key=lambda one: cast(VsaPredicate, one.predicate).audit is not None)
        summary = cast(VsaPredicate, chosen.predicate)
        said = f"PASSED by {summary.verifier.id} on {summary.time_verified}"
        return chosen, passed(CheckId.SUMMARY, said)
    return None, not_performed(CheckId.SUMMARY, unmet[-1])
