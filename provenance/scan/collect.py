"""Gather what the passes find: cleared or not, hashed under the run's key, never the value itself."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import Counter
from dataclasses import dataclass, field, replace

from images.credentials import Secret
from images.redaction import hide, redact
from provenance.scan.allow import AllowList, Packages
from provenance.scan.report import (
    MAX_FINDINGS,
    MAX_LISTED,
    MAX_REASONS,
    BlobCoverage,
    Cleared,
    Finding,
    OpaqueMember,
    Place,
    ScanReport,
)

MAX_PATH = 512
INSIDE = "!"  # in a path: before what lies inside of an archive


@dataclass(slots=True)
class Collected:
    """Everything gathered so far."""

    findings: dict[tuple[str, Place], Finding] = field(default_factory=dict)
    cleared: dict[tuple[str, Place], Cleared] = field(default_factory=dict)
    # Of each layer.
    opened: Counter[str] = field(default_factory=Counter)
    opened_bytes: Counter[str] = field(default_factory=Counter)
    opaque: list[OpaqueMember] = field(default_factory=list)
    opaque_count: int = 0
    coverage: list[BlobCoverage] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    # Opaque members, by number, that are still to be hashed: layer and unredacted path.
    unhashed: dict[int, tuple[str, str]] = field(default_factory=dict)
    # Layer and unredacted path of the file that each finding lies in.
    files: dict[tuple[str, Place], tuple[str, str]] = field(default_factory=dict)


class Collector:
    """Shared by the threads of one scan."""

    def __init__(
        self, key: Secret, allow: AllowList, packages: Packages, known: tuple[Secret, ...] = ()
    ) -> None:
        self._key = key
        self._known = known
        self._allow = allow
        self._packages = packages
        self._lock = threading.Lock()
        self.collected = Collected()

    def found(self, rule: str, place: Place, value: bytes) -> None:
        """One credential at an unredacted place."""
        entry = self._allow.entry_for(rule, value, self._packages.locate(place.path))
        shown = Place(place.kind, place.blob, self.shown(place.path), place.offset)
        finding = Finding(rule, shown, keyed_hash(self._key, hashlib.sha256(value).hexdigest()))
        with self._lock:
            gathered = self.collected
            if entry:
                gathered.cleared.setdefault((rule, shown), Cleared(finding, entry))
            else:
                gathered.findings.setdefault((rule, shown), finding)
                gathered.files.setdefault((rule, shown), (place.blob, place.path.partition(INSIDE)[0]))
        self._require_few()

    def shown(self, text: str) -> str:
        """As :func:`shown_text`, and without the operator's own values."""
        return shown_text(hide(text, self._known) if self._known else text)

    def opened(self, layer: str, files: int, size: int) -> None:
        """Archives that were opened, and how much was scanned of what they hold."""
        with self._lock:
            self.collected.opened[layer] += files
            self.collected.opened_bytes[layer] += size

    def opaque(self, member: OpaqueMember, unhashed: str = "") -> None:
        """An archive that was not opened, or not to its end. ``unhashed``: its path, if nobody hashed it."""
        with self._lock:
            gathered = self.collected
            gathered.opaque_count += 1
            if len(gathered.opaque) < MAX_LISTED:
                if unhashed:
                    gathered.unhashed[len(gathered.opaque)] = (member.layer, unhashed)
                gathered.opaque.append(member)

    def covered(self, blob: BlobCoverage) -> None:
        """A layer or document is done, or its pass has ended early."""
        with self._lock:
            self.collected.coverage.append(blob)

    def settled(self, part: ScanReport) -> None:
        """What an earlier scan found in the same layer: the same report comes of it as of another scan."""
        (coverage,) = part.coverage
        self.opened(coverage.digest, part.opened, part.opened_bytes)
        for member in part.opaque:
            self.opaque(member)
        with self._lock:
            for one in part.cleared:
                sha256 = self._allow.value_hash(one.entry) or ""
                finding = replace(one.finding, hash=keyed_hash(self._key, sha256))
                self.collected.cleared.setdefault((finding.rule, finding.place), Cleared(finding, one.entry))
        self._require_few()
        self.covered(coverage)

    def _require_few(self) -> None:
        if len(self.collected.findings) + len(self.collected.cleared) > MAX_FINDINGS:
            raise TooMany(f"more than {MAX_FINDINGS} findings")

    def incomplete(self, reason: str) -> None:
        """Something was not read."""
        with self._lock:
            if len(self.collected.incomplete) < MAX_REASONS:
                self.collected.incomplete.append(self.shown(reason))


class TooMany(Exception):
    """The image is full of findings: the answer is clear, and the pass ends."""


def keyed_hash(key: Secret, sha256: str) -> str:
    """16 hex digits that tell findings apart and give nothing away without the key.

    ``sha256``: of the value, so that what the allow-list names by it needs no value for the same answer.
    """
    return hmac.new(key.reveal(), sha256.encode(), hashlib.sha256).hexdigest()[:16]


def shown_text(text: str) -> str:
    """Text from an image as people and terminals may see it: redacted, printable, bounded."""
    hidden = redact(text)
    printable = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in hidden)
    return printable if len(printable) <= MAX_PATH else printable[: MAX_PATH - 1] + "…"
