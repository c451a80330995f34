"""The numbered checks of `builder verify`: their stable numbers and names, and how one came out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class CheckId(IntEnum):
    """Numbers never change their meaning; a new one takes the next (docs/reference/verify-checks.md)."""

    CONTENT = 1
    SIGNATURE = 2
    SIGNER = 3
    SUBJECT = 4
    PREDICATE = 5
    PARAMETERS = 6
    KEY = 7
    BASE = 8
    AUDIT = 9
    SCAN = 10
    CONFIG = 11
    REVOKED = 12
    AGE = 13
    ROLLBACK = 14
    DETECTION = 15
    POLICY = 16
    RESCAN = 17
    REBUILDS = 18
    SUMMARY = 19
    ARTIFACTS = 20
    SBOM = 21

    @property
    def title(self) -> str:
        """What the check asserts, for people."""
        return _TITLES[self]


_TITLES = {
    CheckId.CONTENT: "content re-hashed",
    CheckId.SIGNATURE: "signed by a trusted key",
    CheckId.SIGNER: "signer paired with its id",
    CheckId.SUBJECT: "exactly one subject, this image",
    CheckId.PREDICATE: "statement and predicate types",
    CheckId.PARAMETERS: "parameters equal the expectation",
    CheckId.KEY: "content key recomputed",
    CheckId.BASE: "base allowed, its layers an exact prefix",
    CheckId.AUDIT: "layer audit",
    CheckId.SCAN: "scan complete, clean, ruleset new enough",
    CheckId.CONFIG: "configuration as planned",
    CheckId.REVOKED: "not revoked",
    CheckId.AGE: "not too old",
    CheckId.ROLLBACK: "not rolled back",
    CheckId.DETECTION: "agents report their pinned versions",
    CheckId.POLICY: "policy in force",
    CheckId.RESCAN: "local bytes scanned again",
    CheckId.REBUILDS: "rebuilt by others",
    CheckId.SUMMARY: "verification summary",
    CheckId.ARTIFACTS: "artifacts authenticated",
    CheckId.SBOM: "bill of materials equals the lock",
}


# What to type when a check fails and has no better word.
_HINTS = {
    CheckId.KEY: "builder build",
    CheckId.SCAN: "builder scan {digest}",
    CheckId.RESCAN: "builder scan {digest}",
    CheckId.SUMMARY: "builder verify --attest {digest}",
    CheckId.ARTIFACTS: "builder lock",
    CheckId.REBUILDS: "builder verify --sign-rebuild {digest}",
    CheckId.REVOKED: "builder lock",
    CheckId.SBOM: "builder build --no-cache",
}


class Status(StrEnum):
    """NOT_PERFORMED is never counted as passed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_PERFORMED = "not performed"


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its own message; ``hint`` is the next command to type."""

    id: CheckId
    status: Status
    message: str
    hint: str = ""

    def next_step(self, digest: str) -> str:
        """The hint, or what usually helps."""
        return self.hint or _HINTS.get(self.id, "builder build").format(digest=digest)

    def __str__(self) -> str:
        return f"{self.id:>2} {self.status.value}: {self.id.title}: {self.message}"


def passed(check: CheckId, message: str) -> Check:
    """The check holds."""
    return Check(check, Status.PASSED, message)


def failed(check: CheckId, message: str, hint: str = "") -> Check:
    """The check does not hold."""
    return Check(check, Status.FAILED, message, hint)


def not_performed(check: CheckId, message: str) -> Check:
    """The check was not made, and says why."""
    return Check(check, Status.NOT_PERFORMED, message)
