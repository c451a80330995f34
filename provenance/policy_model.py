"""The shape of policy.toml as a model: its keys, their forms and their bounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from images.additions import ADDITION_NAME, MAX_ADDITION_NAME, MAX_ADDITIONS, VARIABLE_NAME
from images.attestation import ISSUER, PUBLISHER
from images.authenticity import CAN_BE, KEY_ID, SIGNER
from images.config import parse_duration, parse_peer
from images.errors import LaunchReason
from images.lock import ArtifactKind, Authentication
from images.schema_version import One
from provenance.predicates import (
    DETECTION_TYPE,
    LAUNCH_TYPE,
    PROVENANCE_TYPE,
    SBOM_TYPE,
    SCAN_TYPE,
    VSA_TYPE,
)
from provenance.publishers import PackageText, PublisherToml, matching


class AuditGap(StrEnum):
    """What a policy may live with in a layer audit."""

    UNAUDITED_FILES = "unaudited-files"


# What a policy may accept by name: a thing that this host cannot enforce, never a proof that is missing; and
# of the layer audit what the scripts of Debian packages wrote, where nobody can run them again.
ACCEPTABLE: Final[dict[str, LaunchReason | AuditGap]] = {
    one.value: one
    for one in (LaunchReason.LIMITS_NOT_ENFORCED, LaunchReason.KEYS_READABLE, AuditGap.UNAUDITED_FILES)
}
MAX_ENTRIES: Final = 1000
MAX_PEERS: Final = 200
KEY: Final = "key"
KEYLESS: Final = "keyless"
BY_DESCRIPTOR: Final = "descriptor"  # in place of "file:PATH": the value is given at each launch


class Role(StrEnum):
    """What a key may speak for."""

    BUILDER = "builder"
    VERIFIER = "verifier"
    LAUNCHER = "launcher"
    REBUILDER = "rebuilder"


ROLE_TYPES: Final = {
    Role.BUILDER: (PROVENANCE_TYPE, SCAN_TYPE, DETECTION_TYPE, SBOM_TYPE),
    Role.VERIFIER: (VSA_TYPE,),
    Role.LAUNCHER: (LAUNCH_TYPE,),
    Role.REBUILDER: (PROVENANCE_TYPE,),
}


def _checked(parse: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC it lies outside of the years 1 to 9999") from None


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
DigestText = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Duration = Annotated[str, _checked(parse_duration)]
Reason = Annotated[str, StringConstraints(min_length=3, max_length=500, strip_whitespace=True)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]*:[\x21-\x7e]+$", max_length=500)]
Digests = Annotated[list[DigestText], Field(max_length=MAX_ENTRIES)]
Identifiers = Annotated[list[Identifier], Field(max_length=MAX_ENTRIES)]


def _authentication(text: str) -> str:
    if text not in set(Authentication):
        raise ValueError(f"{text[:40]!r}; expected one of {', '.join(Authentication)}")
    return text


def _can_be(require: dict[str, list[str]]) -> dict[str, list[str]]:
    """What no artifact of a kind can be would refuse every image, and not say so here."""
    for kind, ways in require.items():
        if kind not in set(ArtifactKind):
            raise ValueError(f"{kind[:40]!r}; expected one of {', '.join(ArtifactKind)}")
        can = CAN_BE[ArtifactKind(kind)]
        if not ways or not set(ways) <= can:
            raise ValueError(f"{kind}: expected some of {', '.join(sorted(can))}")
    return require


_URI: Final = "a URI, exactly as the certificate has it; an address as mailto:NAME@HOST"
IdentityText = Annotated[str, matching(PUBLISHER, _URI)]
IssuerText = Annotated[str, matching(ISSUER, "the https:// address of who issues the logins")]
AuthenticationText = Annotated[str, AfterValidator(_authentication)]
SignerText = Annotated[str, StringConstraints(pattern=rf"^{SIGNER.pattern}$")]
KeyIdText = Annotated[str, StringConstraints(pattern=rf"^{KEY_ID.pattern}$")]
PeerText = Annotated[str, _checked(parse_peer)]
KeyFile = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AcceptToml(_Strict):
    """One named thing that this operator lives with, and why."""

    what: str
    why: Reason

    @model_validator(mode="after")
    def _known(self) -> AcceptToml:
        if self.what not in ACCEPTABLE:
            expected = ", ".join(sorted(ACCEPTABLE))
            raise ValueError(f"what: {self.what[:60]!r} cannot be accepted; expected one of {expected}")
        return self


class RevokedToml(_Strict):
    """What is no longer believed: images, keys (fingerprints), builder ids, identities."""

    digests: Digests = []
    keys: Digests = []
    builder_ids: Identifiers = []
    identities: Annotated[list[IdentityText], Field(max_length=MAX_ENTRIES)] = []


def _each_once(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise ValueError("one is named twice; expected each once")
    return names


AdditionText = Annotated[str, StringConstraints(pattern=ADDITION_NAME, max_length=MAX_ADDITION_NAME)]
VariableText = Annotated[str, StringConstraints(pattern=VARIABLE_NAME)]
Names = Annotated[list[AdditionText], Field(max_length=MAX_ADDITIONS), AfterValidator(_each_once)]
# Where a value is, never the value: whoever may read the policy would read it.
SecretText = Annotated[str, StringConstraints(pattern=rf"^(file:[^\x00-\x1f]{{1,1000}}|{BY_DESCRIPTOR})$")]


class EnableToml(_Strict):
    """MCP servers and Skills that are turned on; of a server, by variable, where each of its secrets is."""

    mcp: Names = []
    skills: Names = []
    secrets: Annotated[
        dict[AdditionText, Annotated[dict[VariableText, SecretText], Field(min_length=1, max_length=100)]],
        Field(max_length=MAX_ADDITIONS),
    ] = {}

    @model_validator(mode="after")
    def _of_servers(self) -> EnableToml:
        if off := sorted(set(self.secrets) - set(self.mcp)):
            raise ValueError(f"secrets: {off[0]} is not in mcp; expected servers that are turned on")
        return self


class TrustToml(_Strict):
    """One key or identity, the role it has, and whom it may call itself."""

    role: str
    kind: str
    key: KeyFile = ""
    identity: IdentityText = ""
    issuer: IssuerText = ""
    trusted_root: KeyFile = ""
    builder_ids: Identifiers = []
    verifier_ids: Identifiers = []
    launcher_ids: Identifiers = []
    rebuilder_ids: Identifiers = []
    predicate_types: Annotated[list[str], Field(max_length=20)] | None = None
    not_after: Moment | None = None

    @model_validator(mode="after")
    def _whole(self) -> TrustToml:
        if self.role not in set(Role):
            raise ValueError(f"role: {self.role[:40]!r}; expected one of {', '.join(Role)}")
        self._check_kind()
        named = {
            Role.BUILDER: self.builder_ids,
            Role.VERIFIER: self.verifier_ids,
            Role.LAUNCHER: self.launcher_ids,
            Role.REBUILDER: self.rebuilder_ids,
        }
        for role, ids in named.items():
            if bool(ids) is not (role == self.role):
                needed = "needs" if role == self.role else "cannot have"
                raise ValueError(f"role {self.role} {needed} {role}_ids")
        if self.predicate_types is not None and not (
            self.predicate_types and set(self.predicate_types) <= set(ROLE_TYPES[Role(self.role)])
        ):
            expected = ", ".join(ROLE_TYPES[Role(self.role)])
            raise ValueError(f"predicate_types: expected some of {expected}")
        return self

    def _check_kind(self) -> None:
        """Each kind with all of its own keys, and none of the other's. An empty issuer would be anybody."""
        parts = {
            KEY: {"key": self.key},
            KEYLESS: {"identity": self.identity, "issuer": self.issuer, "trusted_root": self.trusted_root},
        }
        if self.kind not in parts:
            raise ValueError(f'kind: {self.kind[:40]!r}; expected "{KEY}" or "{KEYLESS}"')
        for kind, named in parts.items():
            for name, value in named.items():
                if bool(value) is not (kind == self.kind):
                    needed = "needs" if kind == self.kind else "cannot have"
                    raise ValueError(f'kind = "{self.kind}" {needed} {name}')
        if self.kind == KEYLESS and self.role == Role.LAUNCHER:
            raise ValueError('kind: launches are signed by a key; expected "key"')


class PolicyToml(_Strict):
    """policy.toml: whom to believe, what to expect, what to accept."""

    schema_: One = Field(alias="schema")
    serial: Annotated[int, Field(ge=1, lt=2**53)]
    valid_until: Moment
    mode: Literal["required", "development"]
    accept: Annotated[list[AcceptToml], Field(max_length=100)] = []
    max_age: Duration | None = None
    min_rebuilds: Annotated[int, Field(ge=0, le=100)] = 0
    min_ruleset: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    nested: Literal["listed", "opened"] = "listed"
    opaque: Annotated[dict[DigestText, Reason], Field(max_length=MAX_ENTRIES)] = {}
    refuse_tofu: bool = False
    refuse: Annotated[list[AuthenticationText], Field(max_length=100)] = []
    require: Annotated[
        dict[str, list[AuthenticationText]], Field(max_length=100), AfterValidator(_can_be)
    ] = {}
    refuse_signers: Annotated[list[SignerText], Field(max_length=MAX_ENTRIES)] = []
    npm_keys: Annotated[dict[KeyIdText, KeyFile], Field(max_length=100)] = {}
    sigstore_root: KeyFile | None = None
    publishers: Annotated[dict[PackageText, PublisherToml], Field(max_length=MAX_ENTRIES)] = {}
    require_audit: bool = False
    bases: Digests = []
    revoked: RevokedToml = RevokedToml()
    network: Annotated[list[PeerText], Field(max_length=MAX_PEERS)] = []
    enable: EnableToml = EnableToml()
    engine_store: Literal["trust", "rehash"] = "trust"
    expect: Annotated[dict[str, DigestText], Field(max_length=MAX_ENTRIES)] = {}
    trust: Annotated[list[TrustToml], Field(min_length=1, max_length=100)]
