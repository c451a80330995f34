"""The report of a scan that read nothing: the child never answered, or there was nothing to read."""

from __future__ import annotations

from images.credentials import RULESET_VERSION
from provenance.scan.allow import AllowList
from provenance.scan.report import ScanReport
from provenance.scan.ruleset import engine_identity, ruleset_digest


def incomplete_report(subject: str, allow: AllowList, reason: str) -> ScanReport:
    """INCOMPLETE, for this reason."""
    return ScanReport(
        subject=subject,
        ruleset=RULESET_VERSION,
        ruleset_digest=ruleset_digest(allow),
        engine=engine_identity(),
        coverage=(),
        findings=(),
        cleared=(),
        opened=0,
        opened_bytes=0,
        opaque=(),
        opaque_count=0,
        incomplete=(reason,),
    )
