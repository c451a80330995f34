"""What `verify` prints with --json: of one image, verified or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from builder.cli.documents import Answer, Document, Kind
from builder.cli.documents.shapes import Count, DigestText, Says, Text
from provenance.audit.report import DifferenceKind, Origin
from provenance.checks import Check, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDocument:
    """One check, with the number and id of docs/reference/verify-checks.md. ``hint``: empty for the usual."""

    number: int
    id: Text
    title: Text
    status: Status
    message: str
    hint: str


def check_document(check: Check) -> CheckDocument:
    """One answer as it is printed."""
    return CheckDocument(
        number=int(check.id),
        id=check.id.name.lower(),
        title=check.id.title,
        status=check.status,
        message=check.message,
        hint=check.hint,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDocument:
    """The install script of ``script`` put the bytes of ``member`` of ``artifact`` at ``path``."""

    path: str
    script: str
    artifact: str
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDifferenceDocument:
    """``layer``: its number in the image, from 0. ``path``: empty for the layer as such."""

    kind: DifferenceKind
    layer: int
    path: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDocument:
    """The layer audit. ``entries`` and ``bytes``: of our layers. Lists are bounded, the counts are not."""

    rules: int
    image: DigestText
    key: DigestText
    entries: Count
    bytes: Count
    origins: dict[Origin, Count]
    scripts: tuple[PlacedDocument, ...]
    differences: tuple[AuditDifferenceDocument, ...]
    differenceCount: Count  # noqa: N815  (as it is hashed)
    unaudited: tuple[str, ...]
    replayed: tuple[str, ...]
    unexplained: tuple[str, ...]
    unexplainedCount: Count  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltDocument:
    """The same lock, built again to the same digest. ``statement``: its digest; null if it was not signed."""

    engine: Text
    statement: DigestText | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedDocument(Document):
    """Every check with its own answer. ``verified``: whether all that the policy asks for is proved.

    ``image``: its name, by evidence that counts; empty without. ``policy``: its digest. ``ignored``: evidence
    that counts for nothing, and why. ``attested``: digest of the summary signed now, or empty. ``audit``:
    null where no layer could be audited. ``rebuilt``: null where nothing was built again.
    """

    KIND: ClassVar = Kind("verify", "verify [IMAGE]", Answer.VERDICT)

    digest: DigestText
    verified: bool
    image: str
    policy: DigestText
    checks: tuple[CheckDocument, ...]
    ignored: tuple[str, ...]
    attested: Annotated[str, Says(pattern="^(sha256:[0-9a-f]{64})?$")]
    audit: AuditDocument | None
    rebuilt: RebuiltDocument | None
