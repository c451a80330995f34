"""In-toto Statements v1 about one platform manifest: made from permits or parsed strictly, bytes kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from images.digests import Digest, canonical_json
from images.errors import VerifyFailed
from images.oci import OciImage
from images.strictjson import read_object
from provenance.audit.report import AUDIT_RULES
from provenance.predicates import (
    AUDIT_FIELD,
    BUILD_TYPE,
    DETECTION_TYPE,
    LAUNCH_TYPE,
    POLICY_URI,
    PROVENANCE_TYPE,
    SBOM_TYPE,
    SCAN_TYPE,
    SLSA_LEVEL,
    SLSA_VERSION,
    VSA_TYPE,
    resource_uri,
)
from provenance.scan.report import NESTED

if TYPE_CHECKING:
    from images.lock import Artifact, LockSummary
    from images.strictjson import JsonValue
    from provenance.audit.report import AuditReport
    from provenance.scan.accept import CleanImage

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"  # all minor versions; v1.1 as a type does not exist
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
MAX_STATEMENT_BYTES: Final = 4 * 1024 * 1024
MAX_SUBJECTS: Final = 1024
MAX_PLACE: Final = 1000  # characters of a place; the scan report has it whole


@dataclass(frozen=True, slots=True)
class Statement:
    """Permit: a well-formed Statement v1. ``raw`` is what is signed; it is never encoded again.

    ``subjects``: of each, its digests as (algorithm, value). ``digest``: of ``raw``, its identity.
    """

    raw: bytes = field(repr=False)
    digest: Digest
    predicate_type: str
    subjects: tuple[tuple[tuple[str, str], ...], ...]
    predicate_json: bytes = field(repr=False)

    def is_about(self, image: Digest) -> bool:
        """One of the subjects has this SHA-256."""
        return any(("sha256", image.hex) in subject for subject in self.subjects)

    def is_only_about(self, image: Digest) -> bool:
        """Exactly one subject, and its one digest is this SHA-256."""
        return self.subjects == ((("sha256", image.hex),),)


def parse_statement(raw: bytes, where: str) -> Statement:
    """From untrusted bytes. Unknown fields are ignored, as in-toto wants. Raises VerifyFailed."""
    document = read_object(raw, where, max_bytes=MAX_STATEMENT_BYTES, error=VerifyFailed)
    if document.get("_type") != STATEMENT_TYPE:
        raise VerifyFailed(f"not a statement of type {STATEMENT_TYPE}", where=where)
    predicate_type = document.get("predicateType")
    if not isinstance(predicate_type, str) or not predicate_type:
        raise VerifyFailed("a statement without a predicate type", where=where)
    subjects = document.get("subject")
    if not isinstance(subjects, list) or not 1 <= len(subjects) <= MAX_SUBJECTS:
        raise VerifyFailed(f"a statement without 1 to {MAX_SUBJECTS} subjects", where=where)
    predicate = document.get("predicate")
    if not isinstance(predicate, dict | None):
        raise VerifyFailed("a predicate that is not an object", where=where)
    return Statement(
        raw=raw,
        digest=Digest.of(raw),
        predicate_type=predicate_type,
        subjects=tuple(_digests(subject, where) for subject in subjects),
        predicate_json=json.dumps(predicate or {}).encode(),
    )


def _digests(subject: JsonValue, where: str) -> tuple[tuple[str, str], ...]:
    digests = subject.get("digest") if isinstance(subject, dict) else None
    if not isinstance(digests, dict) or not digests:
        raise VerifyFailed("a subject without a digest", where=where)
    found = []
    for algorithm, value in sorted(digests.items()):
        if not isinstance(value, str):
            raise VerifyFailed("a subject's digest is not text", where=where)
        found.append((algorithm, value))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DetectedAgent:
    """One CLI's answer. ``output_digest``: of everything it printed."""

    name: str
    pinned: str
    reported: str
    exit_code: int
    output_digest: Digest


@dataclass(frozen=True, slots=True)
class DetectedImage:
    """Permit: a clean image whose CLIs, started offline under the real hardening, report the pinned versions.

    Constructed only by ``backend.detect``.
    """

    clean: CleanImage
    agents: tuple[DetectedAgent, ...]
    uid: int
    gid: int
    root_behaviour: tuple[str, ...]
    engine: str
    hardening: tuple[str, ...]

    @property
    def image(self) -> OciImage:
        """The image itself."""
        return self.clean.image


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFacts:
    """Who built, under which name, and when (UTC)."""

    image_name: str
    builder_id: str
    builder_version: str
    started: datetime
    finished: datetime
    invocation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verifier's decision about one image, for a VSA. ``inputs``: digests of the statements looked at.

    ``audit``: the layer audit that it made and that passed, if it made one.
    """

    image: Digest
    image_name: str
    passed: bool
    verifier_id: str
    verifier_version: str
    policy: Digest
    inputs: tuple[Digest, ...]
    at: datetime
    audit: AuditReport | None = None


def _origin(artifact: Artifact) -> dict[str, JsonValue]:
    """Where it came from and how it was authenticated, as the lock says."""
    origin: dict[str, JsonValue] = {
        "registry": artifact.registry,
        "authenticated": str(artifact.authenticated),
    }
    return origin | ({"signer": artifact.signer} if artifact.signer else {})


def provenance_statement(detected: DetectedImage, lock: LockSummary, facts: BuildFacts) -> Statement:
    """SLSA provenance v1. It takes a DetectedImage, so neither scan nor detection can have been forgotten."""
    dependencies: list[JsonValue] = [{"name": "base", "digest": {"sha256": lock.base.manifest.hex}}]
    for artifact in lock.artifacts:
        integrity = artifact.integrity
        dependencies.append(
            {
                "name": artifact.id,
                "digest": {integrity.algorithm: integrity.hex},
                "annotations": _origin(artifact),
            }
        )
    return _make(
        detected.image.digest,
        PROVENANCE_TYPE,
        {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "image": facts.image_name,
                    "lock": str(lock.digest),
                    "platform": str(lock.platform),
                },
                "internalParameters": {
                    "contentKey": str(lock.key),
                    "template": str(lock.recipe.template),
                    "renderer": lock.recipe.renderer,
                    "buildkit": lock.recipe.buildkit,
                    "epoch": lock.recipe.epoch,
                    "compression": f"{lock.recipe.compression}:{lock.recipe.level}",
                },
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {
                    "id": facts.builder_id,
                    "version": {"agent-image-builder": facts.builder_version},
                },
                "metadata": {
                    "invocationId": facts.invocation,
                    "startedOn": utc(facts.started),
                    "finishedOn": utc(facts.finished),
                },
            },
        },
    )


def detection_statement(detected: DetectedImage, facts: BuildFacts) -> Statement:
    """``detection/v1``: what was seen inside."""
    return _make(
        detected.image.digest,
        DETECTION_TYPE,
        {
            "builder": {"id": facts.builder_id},
            "detectedOn": utc(facts.finished),
            "agents": [
                {
                    "name": agent.name,
                    "pinned": agent.pinned,
                    "reported": agent.reported,
                    "exitCode": agent.exit_code,
                    "outputDigest": str(agent.output_digest),
                }
                for agent in detected.agents
            ],
            "user": {"uid": detected.uid, "gid": detected.gid},
            "rootBehaviour": list(detected.root_behaviour),
            "engine": detected.engine,
            "hardening": list(detected.hardening),
        },
    )


def scan_statement(clean: CleanImage, facts: BuildFacts) -> Statement:
    """``scan/v1``: no match under a ruleset, in every byte, and in what archives inside hold."""
    report = clean.report
    return _make(
        clean.image.digest,
        SCAN_TYPE,
        {
            "builder": {"id": facts.builder_id},
            "scannedOn": utc(facts.finished),
            "ruleset": report.ruleset,
            "rulesetDigest": str(report.ruleset_digest),
            "engine": report.engine,
            "verdict": str(report.verdict),
            "bytesScanned": report.bytes_scanned,
            "layers": [str(layer.digest) for layer in clean.image.manifest.layers],
            "nested": NESTED,
            "notOpened": report.unanswered,
            "opaque": [
                {
                    "path": member.path[:MAX_PLACE] or "-",
                    "format": member.format,
                    "digest": str(member.digest),
                    "reason": member.reason[:MAX_PLACE],
                    "by": member.by[:MAX_PLACE],
                }
                for member in report.opaque
            ],
            "accepted": [
                {
                    "rule": cleared.finding.rule,
                    "place": str(cleared.finding.place)[:MAX_PLACE],
                    "by": cleared.entry,
                }
                for cleared in report.cleared
            ],
        },
    )


def sbom_statement(detected: DetectedImage, sbom: dict[str, JsonValue]) -> Statement:
    """``https://cyclonedx.org/bom``: the bill of materials that ``provenance.sbom`` made of this image."""
    return _make(detected.image.digest, SBOM_TYPE, sbom)


def vsa_statement(decision: Decision) -> Statement:
    """A verification summary. A FAILED one is a note for people: ``referrers.add_referrer`` refuses it."""
    levels: list[JsonValue] = [SLSA_LEVEL if decision.passed else "FAILED"]
    audit: dict[str, JsonValue] = {} if decision.audit is None else {AUDIT_FIELD: _audit(decision.audit)}
    return _make(
        decision.image,
        VSA_TYPE,
        audit
        | {
            "verifier": {
                "id": decision.verifier_id,
                "version": {"agent-image-builder": decision.verifier_version},
            },
            "timeVerified": utc(decision.at),
            "resourceUri": resource_uri(decision.image_name, decision.image),
            "policy": {"uri": POLICY_URI, "digest": {"sha256": decision.policy.hex}},
            "inputAttestations": [{"digest": {"sha256": digest.hex}} for digest in sorted(decision.inputs)],
            "verificationResult": "PASSED" if decision.passed else "FAILED",
            "verifiedLevels": levels,
            "slsaVersion": SLSA_VERSION,
        },
    )


def _audit(report: AuditReport) -> JsonValue:
    return {
        "rules": AUDIT_RULES,
        "key": str(report.key),
        "report": {"sha256": report.digest.hex},
        "entries": report.entries,
        "bytes": report.bytes,
    }


def launch_statement(image: Digest, record: dict[str, JsonValue]) -> Statement:
    """``launch/v1``: a launch record (its fields are the backend's, docs/reference/provenance.md)."""
    return _make(image, LAUNCH_TYPE, record)


def utc(moment: datetime) -> str:
    """RFC 3339 in UTC, whole seconds, as all our statements write times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _make(image: Digest, predicate_type: str, predicate: JsonValue) -> Statement:
    subject: JsonValue = [{"name": "_", "digest": {"sha256": image.hex}}]
    raw = canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": subject,
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )
    return parse_statement(raw, f"our {predicate_type}")
