"""`builder scan`: any OCI layout, saved archive or image of the state; no engine, no lock, no network."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import assert_never

from builder.building.scanning import scan_path
from builder.cli.documents.scanned import ScannedDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.known_values import known_values
from builder.cli.session import state_of
from images.digests import Digest
from images.errors import CredentialFound
from provenance.scan.report import Finding, ScanReport, Verdict
from provenance.scan.report_json import report_document
from provenance.scan.report_sarif import report_sarif
from provenance.writing import replace_file


def run(invocation: Invocation) -> Result[ScannedDocument]:
    """Exit 0: no match under this ruleset and every byte read. Exit 6: found, or incomplete."""
    target: str = invocation.options.target
    known = known_values(invocation)
    with invocation.reporter.step(f"scan {target}"):
        if target.startswith("sha256:"):
            report = scan_path(state_of(invocation).layout, Digest(target), known)
        else:
            report = scan_path(Path(target), known=known)
    strict = invocation.options.strict and report.unanswered > 0
    _show(invocation, report)
    if invocation.options.sarif is not None:
        replace_file(invocation.options.sarif, report_sarif(report, version=version("agent-image-builder")))
    return Result(
        document=ScannedDocument(report={**report_document(report)}),
        failure=_failure(report, strict=strict),
    )


def _failure(report: ScanReport, *, strict: bool) -> CredentialFound | None:
    """Why its exit code is 6; the lines above name each place."""
    match report.verdict:
        case Verdict.FOUND:
            what, reason = f"{len({one.hash for one in report.findings})} credentials are in it", ""
            hint = "make these credentials worthless, and take them out of what the image is made of"
        case Verdict.INCOMPLETE:
            what, reason = "the scan is incomplete", "incomplete"
            hint = "mend what could not be read, and scan again"
        case Verdict.CLEAN:
            if not strict:
                return None
            what, reason = f"{report.unanswered} archives in it were not opened", "not-opened"
            hint = "unpack and scan them, or scan without --strict"
        case _:
            assert_never(report.verdict)
    return CredentialFound(what, where=report.subject, hint=hint, reason=reason)


def _show(invocation: Invocation, report: ScanReport) -> None:
    say = invocation.reporter.say
    for found in _by_value(report.findings):
        more = f", and at {len(found) - 1} more places" if len(found) > 1 else ""
        explained = f"; {found[0].explained}" if found[0].explained else ""
        say(f"found: {found[0].rule} in {found[0].place} ({found[0].hash}){more}{explained}")
        for other in found[1:]:
            invocation.reporter.detail(f"also: {other.rule} in {other.place}")
    for cleared in report.cleared:
        invocation.reporter.detail(
            f"cleared: {cleared.finding.rule} in {cleared.finding.place}: {cleared.entry}"
        )
    for reason in report.incomplete:
        say(f"incomplete: {reason}")
    for member in report.opaque:
        where = f"{member.format} {member.path} in {member.layer[:19]}"
        say(f"not opened: {where}: {member.reason} ({member.digest})")
    say(
        f"{report.verdict}: {report.bytes_scanned} bytes under ruleset {report.ruleset}, "
        f"{len(report.findings)} found, {len(report.cleared)} published samples cleared, "
        f"{report.opened} archives inside opened, {report.unanswered} not"
    )


def _by_value(findings: tuple[Finding, ...]) -> list[list[Finding]]:
    """One value may be at many places: copied, packed, spelled in another way, in a file of the table."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.hash, []).append(finding)
    return list(groups.values())
