"""Gather what the passes find: cleared or not, hashed under the run's key, never the value itself."""

from __future__ import annotations

import hashlib
import hmac
import threading
from dataclasses import dataclass, field

from images.credentials import Secret
from images.redaction import redact
from provenance.scan.allow import AllowList, Packages
from provenance.scan.report import (
    MAX_FINDINGS,
    MAX_LISTED,
    MAX_REASONS,
    BlobCoverage,
    Cleared,
    Finding,
    NestedMember,
    Place,
)

MAX_PATH = 512


@dataclass(slots=True)
class Collected:
    """Everything gathered so far."""

    findings: dict[tuple[str, Place], Finding] = field(default_factory=dict)
    cleared: dict[tuple[str, Place], Cleared] = field(default_factory=dict)
    nested: list[NestedMember] = field(default_factory=list)
    nested_count: int = 0
    coverage: list[BlobCoverage] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)


class Collector:
    """Shared by the threads of one scan."""

    def __init__(self, key: Secret, allow: AllowList, packages: Packages) -> None:
        self._key = key
        self._allow = allow
        self._packages = packages
        self._lock = threading.Lock()
        self.collected = Collected()

    def found(self, rule: str, place: Place, value: bytes) -> None:
        """One credential at an unredacted place."""
        entry = self._allow.entry_for(rule, value, self._packages.locate(place.path))
        shown = Place(place.kind, place.blob, shown_text(place.path), place.offset)
        finding = Finding(rule, shown, keyed_hash(self._key, value))
        with self._lock:
            gathered = self.collected
            if entry:
                gathered.cleared.setdefault((rule, shown), Cleared(finding, entry))
            else:
                gathered.findings.setdefault((rule, shown), finding)
            if len(gathered.findings) + len(gathered.cleared) <= MAX_FINDINGS:
                return
        raise TooMany(f"more than {MAX_FINDINGS} findings")

    def nested(self, member: NestedMember) -> None:
        """An archive that was not opened."""
        with self._lock:
            self.collected.nested_count += 1
            if len(self.collected.nested) < MAX_LISTED:
                self.collected.nested.append(member)

    def covered(self, blob: BlobCoverage) -> None:
        """A layer or document is done, or its pass has ended early."""
        with self._lock:
            self.collected.coverage.append(blob)

    def incomplete(self, reason: str) -> None:
        """Something was not read."""
        with self._lock:
            if len(self.collected.incomplete) < MAX_REASONS:
                self.collected.incomplete.append(shown_text(reason))


class TooMany(Exception):
    """The image is full of findings: the answer is clear, and the pass ends."""


def keyed_hash(key: Secret, value: bytes) -> str:
    """16 hex digits that tell findings apart and give nothing away without the key."""
    return hmac.new(key.reveal(), value, hashlib.sha256).hexdigest()[:16]


def shown_text(text: str) -> str:
    """Text from an image as people and terminals may see it: redacted, printable, bounded."""
    hidden = redact(text)
    printable = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in hidden)
    return printable if len(printable) <= MAX_PATH else printable[: MAX_PATH - 1] + "…"
