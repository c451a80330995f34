"""What an audit means for a verification: made here, attested by a verifier who made it, or neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from images.digests import Digest
from images.errors import BuilderError
from provenance.audit.report import AUDIT_RULES, AuditReport, Origin
from provenance.checks import Check, CheckId, failed, not_performed, passed
from provenance.evidence import Accepted
from provenance.policy_model import AuditGap
from provenance.predicates import VsaPredicate

_TOLD = 3  # differences in the check's own line; the report has more


def judge_audit(
    audit: Callable[[], AuditReport] | None,
    *,
    key: Digest | None,
    summary: Accepted | None,
    needed: bool,
    image: Digest,
    accept_unexplained: bool = False,
) -> tuple[AuditReport | None, Check]:
    """Check 9. ``audit`` raises a BuilderError when it cannot be made here: no word against the image.

    ``key``: the lock's content key. ``summary``: the trusted verification summary that is relied on.
    ``needed``: without an audit, here or attested, the check fails. ``accept_unexplained``: the policy
    accepts by name that what the scripts of Debian packages wrote is compared with nothing.
    """
    why = "not run here"
    if audit is not None:
        try:
            report = audit()
        except BuilderError as broken:
            why = f"not run here: {broken}" + (f"; to have it: {broken.hint}" if broken.hint else "")
        else:
            return report, _judge(report, accept_unexplained)
    attested = _attested(summary, key)
    if attested:
        return None, not_performed(CheckId.AUDIT, f"attested by {attested}, {why}")
    why = f"{why}, and no trusted summary binds one"
    if needed:
        return None, failed(
            CheckId.AUDIT, f"the policy requires an audit: {why}", f"builder verify --attest {image}"
        )
    return None, not_performed(CheckId.AUDIT, why)


def _judge(report: AuditReport, accept_unexplained: bool) -> Check:
    if report.complete or (report.ok and accept_unexplained):
        counts = [f"{count} {_WORDS[origin]}" for origin, count in report.origins]
        if report.unexplained_count:
            counts.append(f"{report.unexplained_count} accepted by the policy and compared with nothing")
        return passed(
            CheckId.AUDIT,
            f"{report.entries} entries, {report.bytes} bytes: {', '.join(counts)}; report {report.digest}",
        )
    if report.ok:
        return failed(
            CheckId.AUDIT,
            f"{report.unexplained_count} files that scripts of Debian packages wrote were not replayed here, "
            f"such as {', '.join(report.unexplained[:_TOLD])}",
            f"verify with an engine, or accept {AuditGap.UNAUDITED_FILES} by name in policy.toml",
        )
    told = "; ".join(str(difference) for difference in report.differences[:_TOLD])
    more = report.difference_count - min(_TOLD, len(report.differences))
    return failed(
        CheckId.AUDIT,
        told + (f"; and {more} more" if more else ""),
        "builder build --no-cache, in another build container",
    )


_WORDS = {
    Origin.ARTIFACT: "files of locked artifacts",
    Origin.DIRECTORY: "directories",
    Origin.COMMAND_LINK: "command links",
    Origin.SCRIPT: "placed by install scripts",
    Origin.GENERATED: "generated",
    Origin.WORKING_DIRECTORY: "working directory",
    Origin.REPLAYED: "made again by a replay",
}


def _attested(summary: Accepted | None, key: Digest | None) -> str:
    """Whose key vouches for an audit against this very lock, under rules that are not older than ours."""
    audit = cast(VsaPredicate, summary.predicate).audit if summary is not None else None
    if summary is None or audit is None or audit.key != key or audit.rules < AUDIT_RULES:
        return ""
    return f"{summary.trusted.who} (report sha256:{audit.report.sha256})"
