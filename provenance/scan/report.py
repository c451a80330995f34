"""What a scan found, where, and how much it read: the report that an image is accepted or refused by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from images.digests import Digest

REPORT_SCHEMA = 2
NESTED = "opened"  # archives inside of layers, as far as the closed list of formats goes
MAX_FINDINGS = 1000
MAX_LISTED = 4096  # opaque members that are named; all are counted
MAX_REASONS = 100


class Verdict(StrEnum):
    """The answer. CLEAN means: every byte was read and nothing matches under this ruleset; no more."""

    CLEAN = "clean"
    FOUND = "found"
    INCOMPLETE = "incomplete"


class PlaceKind(StrEnum):
    """What kind of thing a finding lies in."""

    CONTENT = "content"  # of a layer's member
    MEMBER_PATH = "member-path"  # a path rule: the file should not be there, or not with this in it
    MEMBER_NAME = "member-name"  # the name or link target itself
    HEADER = "header"  # PAX records, and names in one field
    TAIL = "tail"  # after the end of the archive
    CONFIG = "config"
    MANIFEST = "manifest"
    DOCUMENT = "document"  # attestations, bundles, other blobs


# Places that lie in a file of a layer.
IN_FILES = frozenset({PlaceKind.CONTENT, PlaceKind.MEMBER_PATH})


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where: the blob's digest, the redacted path of a member or key of a document, an offset in that."""

    kind: PlaceKind
    blob: str
    path: str = ""
    offset: int | None = None

    def __str__(self) -> str:
        where = f"{self.kind.value} {self.path}" if self.path else self.kind.value
        at = "" if self.offset is None else f" at byte {self.offset}"
        return f"{where}{at} in {self.blob[:19]}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One credential. ``hash``: HMAC-SHA-256 of its value's SHA-256 under the run's key, 16 hex digits.

    ``file``: digest of the layer's own file that it lies in, where it lies in one.
    """

    rule: str
    place: Place
    hash: str
    file: str = ""
    explained: str = ""  # the locked artifact or base that the file is a part of; explains, never clears


@dataclass(frozen=True, slots=True)
class Cleared:
    """A finding that an entry of the shipped allow-list explains as harmless."""

    finding: Finding
    entry: str


@dataclass(frozen=True, slots=True)
class OpaqueMember:
    """An archive or compressed file in a layer that was not opened, or not to its end.

    Its bytes were scanned as they are. ``file``: hash of the layer's own file that it lies in, often itself.
    ``by``: who answers for it: the base, a locked artifact or the policy; empty: nobody.
    """

    layer: str
    path: str
    format: str
    digest: Digest
    size: int
    reason: str
    file: Digest
    by: str = ""


@dataclass(frozen=True, slots=True)
class BlobCoverage:
    """One layer or document: bytes it has when decompressed, and bytes that went through the engine."""

    digest: str
    kind: str  # "layer" or "document"
    total: int
    scanned: int
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """The result of one scan. ``subject``: a platform manifest digest, or the archive's own identity."""

    subject: str
    ruleset: int
    ruleset_digest: Digest
    engine: str
    coverage: tuple[BlobCoverage, ...]
    findings: tuple[Finding, ...]
    cleared: tuple[Cleared, ...]
    opened: int
    opened_bytes: int
    opaque: tuple[OpaqueMember, ...]
    opaque_count: int
    incomplete: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Derived, never stored: a credential first, then doubt, then the good news."""
        if self.findings:
            return Verdict.FOUND
        if self.incomplete or any(blob.scanned != blob.total for blob in self.coverage) or not self.coverage:
            return Verdict.INCOMPLETE
        return Verdict.CLEAN

    @property
    def unanswered(self) -> int:
        """Opaque members that nobody answers for; those too many to be listed are among them."""
        return self.opaque_count - sum(1 for member in self.opaque if member.by)

    @property
    def bytes_scanned(self) -> int:
        """Bytes that went through the engine, of all layers and documents."""
        return sum(blob.scanned for blob in self.coverage)
