"""Sort what is attached to an image: which statements count under a policy, and where others failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

from images.digests import Digest
from images.errors import VerifyFailed
from provenance.bundles import UnverifiedBundle, open_bundle
from provenance.checks import Check, CheckId, failed, not_performed, passed
from provenance.policy import Policy, Trusted
from provenance.policy_model import Role
from provenance.predicates import (
    DETECTION_TYPE,
    PROVENANCE_TYPE,
    SBOM_BUILDER,
    SBOM_TYPE,
    SCAN_TYPE,
    VSA_TYPE,
    DetectionPredicate,
    ProvenancePredicate,
    SbomPredicate,
    ScanPredicate,
    VsaPredicate,
    read_predicate,
)
from provenance.referrers import Attached
from provenance.signers import Keyless, in_words
from provenance.signing import Bundle, check_certificate, check_signature, is_signed_by, read_certified
from provenance.statements import parse_statement

Predicate: TypeAlias = ProvenancePredicate | ScanPredicate | DetectionPredicate | VsaPredicate | SbomPredicate

_MODELS: Final[dict[str, type[Predicate]]] = {
    PROVENANCE_TYPE: ProvenancePredicate,
    SCAN_TYPE: ScanPredicate,
    DETECTION_TYPE: DetectionPredicate,
    VSA_TYPE: VsaPredicate,
    SBOM_TYPE: SbomPredicate,
}
# The order in which a bundle passes the first checks; how far it came decides which of them failed.
REQUIRED_TYPES: Final = (PROVENANCE_TYPE, SCAN_TYPE, DETECTION_TYPE)
STAGES: Final = (
    CheckId.SIGNATURE,
    CheckId.REVOKED,
    CheckId.PREDICATE,
    CheckId.SUBJECT,
    CheckId.SIGNER,
)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A statement about this image alone, by a trusted signer who calls himself what the policy lets him."""

    bundle: Bundle
    predicate: Predicate
    trusted: Trusted

    @property
    def digest(self) -> Digest:
        """The statement's identity."""
        return self.bundle.statement.digest


@dataclass(frozen=True, slots=True)
class Rejected:
    """A bundle that does not count: at which check it failed, of which (claimed) predicate type, and why.

    ``fatal``: a trusted signer made it for this image and it is wrong in itself. It is then not ignored: when
    a trusted signer cannot be understood, the check fails.
    """

    stage: CheckId
    predicate_type: str
    why: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """All bundles of one image, in order of statement digest; one attached twice counts once."""

    accepted: tuple[Accepted, ...]
    rejected: tuple[Rejected, ...]

    def of_type(self, predicate_type: str) -> tuple[Accepted, ...]:
        """The accepted ones of one type; without those of rebuilders, who replace nobody's word."""
        return tuple(
            one
            for one in self.accepted
            if one.bundle.statement.predicate_type == predicate_type
            and one.trusted.role is not Role.REBUILDER
        )

    @property
    def rebuilds(self) -> tuple[Accepted, ...]:
        """The accepted provenance of rebuilders."""
        return tuple(one for one in self.accepted if one.trusted.role is Role.REBUILDER)


def sort_evidence(attached: Iterable[Attached], image: Digest, policy: Policy, now: datetime) -> Evidence:
    """Judge every bundle on its own. An untrusted or malformed one never helps, and never breaks.

    HostError when the policy trusts identities and the library for certificates is not there.
    """
    if any(isinstance(entry.signer, Keyless) for entry in policy.trust):
        from provenance.keyless import require_library  # noqa: PLC0415  (X.509: only where it is asked for)

        require_library(str(policy.path))
    accepted: dict[Digest, Accepted] = {}
    rejected: list[Rejected] = []
    for one in attached:
        where = f"bundle in {one.manifest}"
        try:
            bundle = open_bundle(one.data, where)
        except VerifyFailed as broken:
            rejected.append(Rejected(CheckId.SIGNATURE, "", str(broken)))
            continue
        found = _judge(bundle, image, policy, now, where)
        if isinstance(found, Accepted):
            accepted.setdefault(found.digest, found)
        else:
            rejected.append(found)
    return Evidence(tuple(accepted[digest] for digest in sorted(accepted)), tuple(rejected))


def _judge(
    bundle: UnverifiedBundle, image: Digest, policy: Policy, now: datetime, where: str
) -> Accepted | Rejected:
    try:
        found = _by_certificate(bundle, policy, where) if bundle.certified else _by_key(bundle, policy, where)
    except VerifyFailed as broken:
        return Rejected(CheckId.SIGNATURE, _claimed_type(bundle), str(broken))
    trusted, who = found.trusted, in_words(found.trusted.who)
    if policy.revoked.has(trusted.who):
        return Rejected(CheckId.REVOKED, _claimed_type(bundle), f"{where}: signed by the revoked {who}")
    if trusted.not_after is not None and now > trusted.not_after:
        # A key has no trusted time: what it signed before its end cannot be told from what it signs after it.
        # An identity has one, and still: what the operator ended counts for nothing, however old.
        why = f"{where}: signed by {who}, which ended on {trusted.not_after:%Y-%m-%d}"
        return Rejected(CheckId.SIGNATURE, _claimed_type(bundle), why)
    try:
        signed = found.read()
    except VerifyFailed as broken:
        return Rejected(CheckId.PREDICATE, "", f"signed by the trusted {who}, but {broken}")
    return _judge_statement(signed, trusted, image, policy, where)


@dataclass(frozen=True, slots=True)
class _Found:
    """Whose signature holds, of those whom the policy trusts, and how to read what was signed."""

    trusted: Trusted
    read: Callable[[], Bundle]


def _by_key(bundle: UnverifiedBundle, policy: Policy, where: str) -> _Found:
    """Only a key's entry can answer for a bundle without a certificate. Raises VerifyFailed."""
    # The hint is anybody's word: it chooses which key is tried first, and nothing else.
    keys = [(entry, entry.signer) for entry in policy.trust if not isinstance(entry.signer, Keyless)]
    for entry, key in sorted(keys, key=lambda pair: pair[1].hint != bundle.hint):
        if is_signed_by(bundle, key):
            return _Found(entry, partial(check_signature, bundle, key, where))
    raise VerifyFailed("not signed by a key that the policy trusts", where=where)


def _by_certificate(bundle: UnverifiedBundle, policy: Policy, where: str) -> _Found:
    """Only an identity's entry can answer for a certificate, each under its own root. Raises VerifyFailed."""
    trusted = [(entry, entry.signer) for entry in policy.trust if isinstance(entry.signer, Keyless)]
    problems: list[str] = []
    for root in dict.fromkeys(keyless.root for _, keyless in trusted):
        try:
            certified = check_certificate(bundle, root, where)
        except VerifyFailed as broken:
            problems.append(broken.what)
            continue
        for entry, keyless in trusted:
            if (keyless.root, keyless.identity) == (root, certified.identity):
                return _Found(entry, partial(read_certified, certified, where))
        problems.append(f"signed by {in_words(certified.identity)}, whom the policy does not trust")
    why = "; ".join(dict.fromkeys(problems)) or "signed with a certificate, and the policy trusts keys alone"
    raise VerifyFailed(why, where=where)


def _judge_statement(  # noqa: PLR0911  (one for each way not to count)
    signed: Bundle, trusted: Trusted, image: Digest, policy: Policy, where: str
) -> Accepted | Rejected:
    statement = signed.statement
    kind = statement.predicate_type
    if not statement.is_about(image):
        named = ", ".join(
            f"{name}:{value}"[:80] for subject in statement.subjects[:3] for name, value in subject
        )
        return Rejected(CheckId.SUBJECT, kind, f"{where}: the statement is about {named}")
    if kind not in trusted.predicate_types:
        why = f"{where}: {kind[:200]} is not for the {trusted.role} {in_words(trusted.who)} to sign"
        return Rejected(CheckId.PREDICATE, kind, why)
    if not statement.is_only_about(image):
        why = f"{where}: more than one subject or digest, so it is not about this image alone"
        return Rejected(CheckId.SUBJECT, kind, why, fatal=True)
    if kind not in _MODELS:
        return Rejected(CheckId.PREDICATE, kind, f"{where}: {kind[:200]} says nothing for a verification")
    try:
        predicate = read_predicate(_MODELS[kind], statement.predicate_json, where)
    except VerifyFailed as broken:
        return Rejected(CheckId.PREDICATE, kind, str(broken), fatal=True)
    name = speaker(predicate)
    if name in policy.revoked.builder_ids:
        return Rejected(CheckId.REVOKED, kind, f"{where}: by the revoked builder id {name[:200]}")
    if name not in trusted.ids:
        why = f"{where}: the signer calls itself {name[:200]!r}, which is not paired with its key"
        return Rejected(CheckId.SIGNER, kind, why)
    return Accepted(signed, predicate, trusted)


def judge_stages(evidence: Evidence, image: Digest, policy: Policy) -> tuple[Check, ...]:
    """The checks that a statement of each required type passes on its way: 2, 3, 4, 5 and 12.

    A type fails at the check that the best of its bundles did not pass; for checks before that it passed.
    """
    reached = {kind: _furthest(evidence, kind) for kind in REQUIRED_TYPES}
    said = {
        CheckId.SIGNATURE: "by " + ", ".join(sorted({str(one.trusted.who) for one in evidence.accepted})),
        CheckId.REVOKED: "neither image, signer nor builder id",
        CheckId.PREDICATE: "provenance, scan, detection",
        CheckId.SUBJECT: str(image),
        CheckId.SIGNER: ", ".join(sorted({speaker(one.predicate) for one in evidence.accepted})),
    }
    checks = []
    for number, stage in enumerate(STAGES):
        problems = [why for stopped, why in reached.values() if stopped == number]
        problems += [one.why for one in evidence.rejected if one.fatal and one.stage is stage]
        if stage is CheckId.REVOKED and image in policy.revoked.digests:
            problems.append(f"the policy revokes image {image}")
        if problems:
            checks.append(failed(stage, "; ".join(dict.fromkeys(problems))[:2000]))
        elif all(stopped > number for stopped, _ in reached.values()):
            checks.append(passed(stage, said[stage]))
        else:
            checks.append(not_performed(stage, "an earlier check failed"))
    return tuple(checks)


def _furthest(evidence: Evidence, kind: str) -> tuple[int, str]:
    """The stage that stopped the best bundle of this type, and why; past the last when one is accepted."""
    if evidence.of_type(kind):
        return len(STAGES), ""
    tried = [(STAGES.index(one.stage), one.why) for one in evidence.rejected if one.predicate_type == kind]
    if not tried:
        return 0, f"no statement of type {kind} is attached"
    best = max(stage for stage, _ in tried)
    return best, "; ".join(why for stage, why in tried if stage == best)


def speaker(predicate: Predicate) -> str:
    """Whom the signer says it is: the builder's or the verifier's id."""
    if isinstance(predicate, ProvenancePredicate):
        return predicate.run_details.builder.id
    if isinstance(predicate, VsaPredicate):
        return predicate.verifier.id
    if isinstance(predicate, SbomPredicate):
        return predicate.metadata.property(SBOM_BUILDER)
    return predicate.builder.id


def _claimed_type(bundle: UnverifiedBundle) -> str:
    """The type an unverified payload claims: only to word a message."""
    try:
        return parse_statement(bundle.payload, "claimed").predicate_type
    except VerifyFailed:
        return ""
