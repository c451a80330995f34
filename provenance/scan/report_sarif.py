"""A scan report as SARIF: findings as errors, cleared ones as closed, what was not opened as notes."""

from __future__ import annotations

from collections.abc import Iterator

from provenance.sarif import Level, SarifResult, SarifRule, sarif_log
from provenance.scan.report import Finding, ScanReport

NOT_OPENED = "not-opened"
_HELP = (
    "Make the credential worthless where it was issued, take it out of what the image is made of, and build "
    "again: removing it in a later layer does not remove it. Each rule is in docs/reference/scan-rules.md."
)
_OPAQUE_HELP = "Unpack it and scan what is inside. docs/how-to/scan-any-image.md says how one is accepted."


def report_sarif(report: ScanReport, *, version: str) -> bytes:
    """The whole report; it holds no value, as the report itself holds none."""
    results = [*_found(report), *_cleared(report), *_not_opened(report)]
    ids = dict.fromkeys(result.rule for result in results)
    rules = [_rule(id) for id in ids]
    return sarif_log(rules, results, version=version, failures=_failures(report))


def _rule(id: str) -> SarifRule:
    if id == NOT_OPENED:
        return SarifRule(id, "An archive inside of the image was not opened", _OPAQUE_HELP)
    return SarifRule(id, f"A credential, by scan rule {id}", _HELP)


def _found(report: ScanReport) -> Iterator[SarifResult]:
    for finding in report.findings:
        message = f"A credential by rule {finding.rule} in {finding.place} (keyed hash {finding.hash})."
        yield _placed(finding, Level.ERROR, message)


def _cleared(report: ScanReport) -> Iterator[SarifResult]:
    for cleared in report.cleared:
        message = f"A published sample by rule {cleared.finding.rule} in {cleared.finding.place}."
        yield _placed(cleared.finding, Level.NOTE, message, f"allow-list entry {cleared.entry}")


def _placed(finding: Finding, level: Level, message: str, accepted: str = "") -> SarifResult:
    place = finding.place
    return SarifResult(
        rule=finding.rule,
        level=level,
        message=message,
        path=place.path or place.blob,
        offset=place.offset,
        inside=f"{place.kind.value} of {place.blob}",
        accepted=accepted,
    )


def _not_opened(report: ScanReport) -> Iterator[SarifResult]:
    for member in report.opaque:
        yield SarifResult(
            rule=NOT_OPENED,
            level=Level.NOTE,
            message=f"{member.format} of {member.size} bytes, {member.digest}: {member.reason}.",
            path=member.path,
            inside=member.layer,
            accepted=member.by,
        )


def _failures(report: ScanReport) -> Iterator[str]:
    yield from (f"not everything was read: {reason}" for reason in report.incomplete)
    for blob in report.coverage:
        if blob.scanned != blob.total:
            yield f"{blob.total - blob.scanned} bytes of {blob.kind} {blob.digest} were not read"
