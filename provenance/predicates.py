"""What our statements say: one closed pydantic model for each predicate type, and the URIs that name them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from images.digests import Digest
from images.errors import VerifyFailed

# One place to change when the project has a home; until then a reserved domain.
URI_ROOT: Final = "https://agent-image-builder.example/"
BUILD_TYPE: Final = f"{URI_ROOT}build/v1"
SCAN_TYPE: Final = f"{URI_ROOT}scan/v1"
DETECTION_TYPE: Final = f"{URI_ROOT}detection/v1"
LAUNCH_TYPE: Final = f"{URI_ROOT}launch/v1"
POLICY_URI: Final = f"{URI_ROOT}policy/v1"
PROVENANCE_TYPE: Final = "https://slsa.dev/provenance/v1"
VSA_TYPE: Final = "https://slsa.dev/verification_summary/v1"
SBOM_TYPE: Final = "https://cyclonedx.org/bom"
SBOM_SPEC: Final = "1.6"
PREDICATE_TYPES: Final = frozenset(
    {PROVENANCE_TYPE, SCAN_TYPE, DETECTION_TYPE, VSA_TYPE, LAUNCH_TYPE, SBOM_TYPE}
)
SLSA_LEVEL: Final = "SLSA_BUILD_LEVEL_1"  # an own host promises no more
SLSA_VERSION: Final = "1.2"
# SLSA lets a vendor extend a predicate by fields that begin with its name; others ignore them.
AUDIT_FIELD: Final = "agentimagebuilder_audit"
# Properties in the metadata of a bill of materials: who made it, of which lock, under which content key.
SBOM_BUILDER: Final = "agent-image-builder:builder-id"
SBOM_LOCK: Final = "agent-image-builder:lock"
SBOM_KEY: Final = "agent-image-builder:content-key"


def parse_time(text: str) -> datetime:
    """A moment as our statements write it; ValueError otherwise."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _is_time(text: str) -> str:
    parse_time(text)
    return text


Text = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
DigestText = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
# RFC 3339 in UTC with a Z, whole seconds: one form, so that equal times are equal bytes.
Time = Annotated[
    str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$"), AfterValidator(_is_time)
]
Count = Annotated[int, Field(ge=0)]


class _Open(BaseModel):
    """A predicate of SLSA: what we do not know is ignored, as its specification wants."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", alias_generator=to_camel)


class _Closed(BaseModel):
    """A predicate of ours: what this version does not know is refused."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", alias_generator=to_camel)


class ExternalParameters(_Closed):
    """Everything that came from outside of the builder; closed, and compared with the expectation."""

    image: Text
    lock: DigestText
    platform: Text


class InternalParameters(_Open):
    """What the builder added by itself: the content key it computed."""

    content_key: DigestText


class Dependency(_Open):
    """A thing the build took in: name and digests."""

    name: Text
    digest: dict[str, str]


class BuildDefinition(_Open):
    """SLSA provenance v1, first half."""

    build_type: Text
    external_parameters: ExternalParameters
    internal_parameters: InternalParameters
    resolved_dependencies: tuple[Dependency, ...] = Field(max_length=20_000)


class BuilderIdentity(_Open):
    """Who built."""

    id: Text


class BuildMetadata(_Open):
    """When, by the builder's own clock."""

    started_on: Time
    finished_on: Time


class RunDetails(_Open):
    """SLSA provenance v1, second half."""

    builder: BuilderIdentity
    metadata: BuildMetadata


class ProvenancePredicate(_Open):
    """``https://slsa.dev/provenance/v1`` with our buildType."""

    build_definition: BuildDefinition
    run_details: RunDetails


class AcceptedFinding(_Closed):
    """A finding that was cleared, and by what."""

    rule: Text
    place: Text
    by: Text


class OpaqueSaid(_Closed):
    """An archive inside of the image that was not opened, and who answers for it."""

    path: Text
    format: Text
    digest: DigestText
    reason: Text
    by: Annotated[str, Field(max_length=1000)]


class ScanPredicate(_Closed):
    """``scan/v1``: no match under a ruleset, in so many bytes. It never says "no secret"."""

    builder: BuilderIdentity
    scanned_on: Time
    ruleset: Annotated[int, Field(ge=1)]
    ruleset_digest: DigestText
    engine: Text
    verdict: Literal["clean", "found", "incomplete"]
    bytes_scanned: Count
    layers: tuple[DigestText, ...] = Field(max_length=256)
    nested: Text
    not_opened: Count
    # Statements under ruleset 1 have none: they opened nothing.
    opaque: tuple[OpaqueSaid, ...] = Field(default=(), max_length=10_000)
    accepted: tuple[AcceptedFinding, ...] = Field(max_length=10_000)


class DetectedCli(_Closed):
    """What one CLI answered to ``--version``."""

    name: Text
    pinned: Text
    reported: Text
    exit_code: int
    output_digest: DigestText


class DetectedUser(_Closed):
    """Whom it ran as."""

    uid: Annotated[int, Field(ge=1)]
    gid: Annotated[int, Field(ge=1)]


class DetectionPredicate(_Closed):
    """``detection/v1``: what was seen inside, offline, under the hardening of a launch."""

    builder: BuilderIdentity
    detected_on: Time
    agents: tuple[DetectedCli, ...] = Field(min_length=1, max_length=64)
    user: DetectedUser
    root_behaviour: tuple[Text, ...] = Field(max_length=64)
    engine: Text
    hardening: tuple[Text, ...] = Field(max_length=64)


class VerifierIdentity(_Open):
    """Who verified."""

    id: Text


class DigestSet(_Closed):
    """A digest set of one SHA-256."""

    sha256: Sha256


class PolicyReference(_Open):
    """Under which policy."""

    uri: Text
    digest: DigestSet


class InputAttestation(_Open):
    """One statement that was looked at, by the SHA-256 of its bytes."""

    digest: DigestSet


class AuditSummary(_Open):
    """The layer audit that a verifier made: under which rules and content key, and its report's digest."""

    rules: Annotated[int, Field(ge=1)]
    key: DigestText
    report: DigestSet
    entries: Count
    bytes: Count


class VsaPredicate(_Open):
    """``https://slsa.dev/verification_summary/v1``; ``audit`` is our one extension of it."""

    verifier: VerifierIdentity
    time_verified: Time
    resource_uri: Text
    policy: PolicyReference
    input_attestations: tuple[InputAttestation, ...] = Field(min_length=1, max_length=256)
    verification_result: Literal["PASSED", "FAILED"]
    verified_levels: tuple[Text, ...] = Field(max_length=64)
    audit: AuditSummary | None = Field(default=None, alias=AUDIT_FIELD)


class SbomHash(_Open):
    """One hash, by CycloneDX's name of its algorithm."""

    alg: Text
    content: Text


class SbomComponent(_Open):
    """One part, as far as it is compared with the lock."""

    bom_ref: Text = Field(alias="bom-ref")
    name: Text
    version: str = ""
    purl: str = ""
    hashes: tuple[SbomHash, ...] = Field(default=(), max_length=16)


class SbomProperty(_Open):
    """A name and a value."""

    name: Text
    value: Text


class SbomMetadata(_Open):
    """What the bill is of, and who says so."""

    component: SbomComponent
    properties: tuple[SbomProperty, ...] = Field(max_length=100)

    def property(self, name: str) -> str:
        """The value of the only property of this name; empty where there is none, or two."""
        found = [one.value for one in self.properties if one.name == name]
        return found[0] if len(found) == 1 else ""


class SbomPredicate(_Open):
    """``https://cyclonedx.org/bom``: a CycloneDX document, as far as it is compared with image and lock."""

    bom_format: Literal["CycloneDX"]
    spec_version: Literal["1.6"]
    metadata: SbomMetadata
    components: tuple[SbomComponent, ...] = Field(max_length=60_000)


Predicate = TypeVar("Predicate", bound=BaseModel)


def read_predicate(model: type[Predicate], predicate_json: bytes, where: str) -> Predicate:
    """A predicate from JSON that was parsed strictly before. Raises VerifyFailed with its dotted path."""
    try:
        return model.model_validate_json(predicate_json)
    except ValidationError as broken:
        first = broken.errors(include_url=False, include_input=False, include_context=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise VerifyFailed(f"predicate field {path[:200]!r}: {first['msg'][:200]}", where=where) from None


def resource_uri(image_name: str, digest: Digest) -> str:
    """The name of the image in a VSA, compared exactly."""
    return f"oci:{image_name}@{digest}"
