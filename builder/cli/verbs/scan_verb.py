"""`builder scan`: any OCI layout, saved archive or image of the state; no engine, no lock, no network."""

from __future__ import annotations

from pathlib import Path

from builder.building.scanning import scan_path
from builder.cli.invocation import Invocation, Result
from builder.cli.session import state_of
from images.digests import Digest
from images.errors import ExitCode
from provenance.scan.report import ScanReport, Verdict
from provenance.scan.report_json import report_document


def run(invocation: Invocation) -> Result:
    """Exit 0: no match under this ruleset and every byte read. Exit 6: found, or incomplete."""
    target: str = invocation.options.target
    with invocation.reporter.step(f"scan {target}"):
        if target.startswith("sha256:"):
            report = scan_path(state_of(invocation).layout, Digest(target))
        else:
            report = scan_path(Path(target))
    strict = invocation.options.strict and report.nested_count > 0
    _show(invocation, report, strict=strict)
    bad = report.verdict is not Verdict.CLEAN or strict
    return Result(
        document={"report": report_document(report)}, code=ExitCode.CREDENTIAL if bad else ExitCode.DONE
    )


def _show(invocation: Invocation, report: ScanReport, *, strict: bool) -> None:
    say = invocation.reporter.say
    for finding in report.findings:
        say(f"found: {finding.rule} in {finding.place} ({finding.hash})")
    for cleared in report.cleared:
        invocation.reporter.detail(
            f"cleared: {cleared.finding.rule} in {cleared.finding.place}: {cleared.entry}"
        )
    for reason in report.incomplete:
        say(f"incomplete: {reason}")
    for member in report.nested if strict else ():
        say(f"not opened: {member.format} {member.path} in {member.layer[:19]}")
    say(
        f"{report.verdict}: {report.bytes_scanned} bytes under ruleset {report.ruleset}, "
        f"{len(report.findings)} found, {len(report.cleared)} published samples cleared, "
        f"{report.nested_count} archives not opened"
    )
