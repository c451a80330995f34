"""What one clean layer adds to a report, as a report of that layer alone: told apart, and put back in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from images.credentials import RULESET_VERSION
from images.errors import CredentialFound
from provenance.scan.allow import AllowList
from provenance.scan.collect import Collected
from provenance.scan.report import Cleared, ScanReport, Verdict
from provenance.scan.report_json import report_from_json, report_to_json
from provenance.scan.ruleset import engine_identity, ruleset_digest

# Short hashes are keyed anew in each run, so none is kept: the allow-list has what it is made of.
NO_HASH: Final = "0" * 16


def layer_reports(report: ScanReport, collected: Collected, allow: AllowList) -> tuple[ScanReport, ...]:
    """Of each layer of a clean report that can be remembered: its part depends on its bytes alone."""
    if report.verdict is not Verdict.CLEAN or report.opaque_count != len(report.opaque):
        return ()
    parts = (
        replace(
            report,
            subject=blob.digest,
            coverage=(blob,),
            cleared=tuple(_unhashed(one) for one in report.cleared if one.finding.place.blob == blob.digest),
            opened=collected.opened[blob.digest],
            opened_bytes=collected.opened_bytes[blob.digest],
            opaque=(own := tuple(one for one in report.opaque if one.layer == blob.digest)),
            opaque_count=len(own),
        )
        for blob in report.coverage
        if blob.kind == "layer"
    )
    return tuple(part for part in parts if not why_not(part, part.subject, allow))


def _unhashed(one: Cleared) -> Cleared:
    return replace(one, finding=replace(one.finding, hash=NO_HASH))


def why_not(part: ScanReport, layer: str, allow: AllowList) -> str:
    """Why this is no report of one clean layer that another scan may use; empty if it is one.

    What a package's place in the lock cleared is not: another lock may place it elsewhere.
    """
    ours = (RULESET_VERSION, ruleset_digest(allow), engine_identity())
    if (part.ruleset, part.ruleset_digest, part.engine) != ours:
        return "made with other tables or another engine"
    if part.subject != layer or [(one.digest, one.kind) for one in part.coverage] != [(layer, "layer")]:
        return "about something else"
    if part.verdict is not Verdict.CLEAN:
        return "not clean"
    if part.opaque_count != len(part.opaque) or any(one.layer != layer or one.by for one in part.opaque):
        return "opaque members that are not its own, or not all"
    for one in part.cleared:
        found = one.finding
        bare = (found.place.blob, found.hash, found.file, found.explained) == (layer, NO_HASH, "", "")
        if not bare or allow.value_hash(one.entry) is None:
            return "cleared findings that are not its own, or not by their value"
    return ""


def to_lines(parts: Iterable[ScanReport]) -> bytes:
    """One line of JSON for each."""
    return b"".join(report_to_json(part) for part in parts)


def from_lines(raw: bytes, allow: AllowList) -> tuple[ScanReport, ...]:
    """Strict. Raises CredentialFound for anything that is no report of one clean layer."""
    parts = tuple(report_from_json(line) for line in raw.splitlines())
    for part in parts:
        wrong = why_not(part, part.subject, allow)
        if wrong:
            raise CredentialFound(f"a layer's report: {wrong}", where="scan report", reason="incomplete")
    return parts
