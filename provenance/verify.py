"""Verify one image offline: numbered checks, each with its own answer; all together make the permit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias, cast

from images.digests import Digest
from images.errors import BuilderError, VerifyFailed
from images.key import content_key
from images.lock import Lock
from images.oci import OciImage, Platform
from provenance import assertions
from provenance.audit.judge import judge_audit
from provenance.audit.report import AuditReport
from provenance.checks import Check, CheckId, Status, failed, not_performed, passed
from provenance.evidence import Accepted, Evidence, judge_stages, sort_evidence
from provenance.expectations import Expectation, Matched, match_expectation, provenance_of
from provenance.layout import Rehash, Stamp, open_image
from provenance.marks import check_marks, read_marks
from provenance.origins import judge_origins
from provenance.policy import Mode, Policy
from provenance.policy_model import AuditGap, Role
from provenance.predicates import SCAN_TYPE, ScanPredicate
from provenance.rebuilds import rebuilt_by_others
from provenance.referrers import read_referrers
from provenance.sbom_check import sbom_agrees
from provenance.scan.accept import accept, require_opened
from provenance.scan.report import ScanReport
from provenance.signing import Bundle

# Scans an image's local bytes in a child: provenance starts no process, so whoever can gives it.
Rescan: TypeAlias = Callable[[OciImage], ScanReport]
# Audits the image's layers against the lock's artifacts; raises a BuilderError when they are not at hand.
Audit: TypeAlias = Callable[[OciImage, Lock], AuditReport]
# Compares an image's configuration with the one its lock plans; raises a BuilderError naming what differs.
CompareConfig: TypeAlias = Callable[[OciImage, Lock], None]


class Purpose(StrEnum):
    """INSPECTION: is the image proved? ADMISSION: and did a verifier say so, with a key of its own?"""

    INSPECTION = "inspection"
    ADMISSION = "admission"


# Without these no image is verified, whatever else passed.
_NEEDED: Final = frozenset(CheckId) - {
    CheckId.AUDIT,
    CheckId.CONFIG,
    CheckId.AGE,
    CheckId.ROLLBACK,
    CheckId.RESCAN,
    CheckId.REBUILDS,
    CheckId.PARAMETERS,
    CheckId.SUMMARY,
    CheckId.ARTIFACTS,
    CheckId.SBOM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What to verify, against what. ``now``: the verifier's clock. ``marks``: the file, if there is one."""

    layout: Path
    digest: Digest
    platform: Platform | None
    policy: Policy
    expectation: Expectation
    now: datetime
    purpose: Purpose = Purpose.INSPECTION
    marks: Path | None = None
    rescan: Rescan | None = None
    audit: Audit | None = None
    compare_config: CompareConfig | None = None
    opened: OciImage | None = None  # already re-hashed by the caller, so not again
    known: Mapping[Digest, Stamp] | None = None  # layers hashed here before: compared by stamp, not read


@dataclass(frozen=True, slots=True)
class VerifiedImage:
    """Permit: an image that every needed check of :func:`verify` passed for, and the statements relied on."""

    image: OciImage
    image_name: str
    lock: Lock
    lock_digest: Digest
    content_key: Digest
    policy: Policy
    purpose: Purpose
    provenance: Bundle
    scan: Bundle
    detection: Bundle
    summary: Bundle | None
    sbom: Bundle | None
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationReport:
    """All checks in order. ``ignored``: one line for each attached bundle that does not count."""

    digest: Digest
    checks: tuple[Check, ...]
    image_name: str = ""
    ignored: tuple[str, ...] = ()
    inputs: tuple[Digest, ...] = ()  # the (re)builders' statements that were trusted and looked at, sorted
    verified: VerifiedImage | None = None
    audit: AuditReport | None = None  # of the layers, if it was made here

    @property
    def ok(self) -> bool:
        """The image is verified."""
        return self.verified is not None

    def check(self, which: CheckId) -> Check:
        """One check by its id."""
        return next(one for one in self.checks if one.id is which)

    def require(self) -> VerifiedImage:
        """The permit, or VerifyFailed naming the first check that failed."""
        if self.verified is None:
            raise self._failed()
        return self.verified

    @property
    def failure(self) -> VerifyFailed | None:
        """What ``require`` would raise; None when the image is verified."""
        return self._failed() if self.verified is None else None

    def _failed(self) -> VerifyFailed:
        order = {Status.FAILED: 0, Status.NOT_PERFORMED: 1, Status.PASSED: 2}
        first = min(self.checks, key=lambda one: (order[one.status], one.id))
        return VerifyFailed(
            f"check {int(first.id)} ({first.id.title}) {first.status.value}: {first.message}",
            where=str(self.digest),
            hint=first.next_step(self.digest),
            reason=first.id.name.lower(),
        )


def verify(request: VerifyRequest) -> VerificationReport:
    """Make every check that can be made; what is wrong with image or evidence is an answer, not raised."""
    policy = request.policy
    answers = [assertions.policy_in_force(policy, request.now), _rollback(request)]
    try:
        image = request.opened or open_image(
            request.layout, request.digest, request.platform, rehash=Rehash.BYTES, known=request.known
        )
        attached = read_referrers(image.layout, image.digest)
    except BuilderError as broken:
        answers.append(failed(CheckId.CONTENT, str(broken), broken.hint))
        return VerificationReport(digest=request.digest, checks=_numbered(answers))
    when = "" if request.known is None else ", where they changed since they were hashed before"
    layers = f"{len(image.manifest.layers)} layers{when}"
    answers.append(passed(CheckId.CONTENT, f"manifest, configuration, {layers}"))
    evidence = sort_evidence(attached.bundles, image.digest, policy, request.now)
    answers.extend(judge_stages(evidence, image.digest, policy))
    matched, parameters = match_expectation(request.expectation, evidence, attached.locks, image, policy)
    answers.append(parameters)
    relied = _assert(request, image, evidence, matched, answers)
    audit, audited = _audit(request, image, matched, relied)
    answers.append(audited)
    checks = _numbered(answers)
    verified = None
    if matched and matched.lock and relied and all_hold(checks, request):
        verified = VerifiedImage(
            image=image,
            image_name=matched.image_name,
            lock=matched.lock,
            lock_digest=matched.lock_digest,
            content_key=Digest(
                provenance_of(matched.provenance[0]).build_definition.internal_parameters.content_key
            ),
            policy=policy,
            purpose=request.purpose,
            provenance=matched.provenance[0].bundle,
            scan=relied.scans[0].bundle,
            detection=relied.detections[0].bundle,
            summary=relied.summary.bundle if relied.summary else None,
            sbom=relied.sbom.bundle if relied.sbom else None,
            checks=checks,
        )
    return VerificationReport(
        digest=image.digest,
        image_name=matched.image_name if matched else "",
        checks=checks,
        ignored=(*attached.unreadable, *(one.why for one in evidence.rejected)),
        inputs=tuple(
            one.digest for one in evidence.accepted if one.trusted.role in (Role.BUILDER, Role.REBUILDER)
        ),
        verified=verified,
        audit=audit,
    )


@dataclass(frozen=True, slots=True)
class _Relied:
    """The statements that a verification rests on, beside the provenance."""

    scans: tuple[Accepted, ...]
    detections: tuple[Accepted, ...]
    summary: Accepted | None
    sbom: Accepted | None


def _assert(
    request: VerifyRequest,
    image: OciImage,
    evidence: Evidence,
    matched: Matched | None,
    answers: list[Check],
) -> _Relied | None:
    """What is asserted of a re-hashed image, its sorted evidence and its lock."""
    policy = request.policy
    scans, scanned = assertions.scan_clean(evidence, image, policy)
    detections, detected = assertions.detection_agrees(evidence, matched)
    lock = matched.lock if matched else None
    sbom, billed = sbom_agrees(evidence, matched, image)
    answers += [
        billed,
        scanned,
        detected,
        assertions.config_as_planned(image, lock, request.compare_config),
        assertions.young_enough(matched, policy, request.now),
        _scan_again(image, request, evidence),
    ]
    if matched is None:
        return None
    answers += [
        assertions.key_recomputed(matched, image),
        assertions.base_allowed(matched, image, policy),
        judge_origins(matched.lock, matched.why_no_lock, policy.origins),
        rebuilt_by_others(evidence, matched, image, policy, request.now),
    ]
    if not (scans and detections):
        return None
    groups = (matched.provenance, scans, detections)
    summary, said = assertions.summary_passed(evidence, matched.image_name, image, groups)
    if said.status is Status.NOT_PERFORMED and request.purpose is Purpose.ADMISSION:
        said = failed(CheckId.SUMMARY, said.message, f"builder verify --attest {image.digest}")
    answers.append(said)
    return _Relied(scans, detections, summary, sbom)


def _numbered(answers: list[Check]) -> tuple[Check, ...]:
    """One answer for each check, in order; what nobody answered was not performed."""
    given = {check.id: check for check in answers}
    return tuple(given.get(one) or not_performed(one, "an earlier check failed") for one in CheckId)


def all_hold(checks: tuple[Check, ...], request: VerifyRequest) -> bool:
    """Nothing failed, and nothing that is needed was left out."""
    needed = set(_NEEDED)
    if request.policy.mode is Mode.REQUIRED:
        needed.add(CheckId.PARAMETERS)
    if request.purpose is Purpose.ADMISSION:
        needed.add(CheckId.SUMMARY)
    if request.policy.origins.asks:
        needed.add(CheckId.ARTIFACTS)
    if request.policy.max_age is not None:
        needed.add(CheckId.AGE)
    if request.policy.min_rebuilds:
        needed.add(CheckId.REBUILDS)
    if request.marks is not None:
        needed.add(CheckId.ROLLBACK)
    if request.rescan is not None:
        needed.add(CheckId.RESCAN)
    if request.compare_config is not None:
        needed.add(CheckId.CONFIG)
    holds = {check.id for check in checks if check.status is Status.PASSED}
    return needed <= holds and not any(check.status is Status.FAILED for check in checks)


def _rollback(request: VerifyRequest) -> Check:
    if request.marks is None:
        return not_performed(CheckId.ROLLBACK, "no state, so no marks to compare with")
    try:
        check_marks(read_marks(request.marks), request.policy)
    except BuilderError as broken:
        return failed(CheckId.ROLLBACK, str(broken), broken.hint)
    return passed(CheckId.ROLLBACK, f"policy serial {request.policy.serial} is the newest accepted here")


def _audit(
    request: VerifyRequest, image: OciImage, matched: Matched | None, relied: _Relied | None
) -> tuple[AuditReport | None, Check]:
    if matched is None or matched.lock is None:
        return None, not_performed(CheckId.AUDIT, "no lock to audit against")
    lock, audit = matched.lock, request.audit
    return judge_audit(
        None if audit is None else lambda: audit(image, lock),
        key=content_key(lock, image.platform) if image.platform in lock.platforms else None,
        summary=relied.summary if relied else None,
        needed=request.policy.require_audit and (audit is not None or request.purpose is Purpose.ADMISSION),
        image=image.digest,
        accept_unexplained=request.policy.accepts(AuditGap.UNAUDITED_FILES) is not None,
    )


def _answered(evidence: Evidence) -> frozenset[Digest]:
    """What a trusted scan found in locked artifacts: a host without the store cannot look there itself."""
    scans = (cast(ScanPredicate, one.predicate) for one in evidence.of_type(SCAN_TYPE))
    return frozenset(Digest(member.digest) for scan in scans for member in scan.opaque if member.by)


def _scan_again(image: OciImage, request: VerifyRequest, evidence: Evidence) -> Check:
    if request.rescan is None:
        return not_performed(CheckId.RESCAN, "no scanner was given")
    try:
        report = accept(request.rescan(image), image, min_ruleset=request.policy.min_ruleset).report
        if request.policy.nested_opened:
            require_opened(report, accepted=request.policy.opaque | _answered(evidence))
    except BuilderError as broken:
        return failed(CheckId.RESCAN, str(broken), broken.hint)
    return passed(CheckId.RESCAN, f"no match under ruleset {report.ruleset}, {report.bytes_scanned} bytes")
