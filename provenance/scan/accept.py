"""The gate: a clean, complete and current report about exactly this image makes it a CleanImage."""

from __future__ import annotations

from dataclasses import dataclass

from images.digests import Digest
from images.errors import CredentialFound, VerifyFailed
from images.oci import OciImage
from provenance.scan.report import ScanReport, Verdict


@dataclass(frozen=True, slots=True)
class CleanImage:
    """Permit: every byte of the image was read, and nothing in it matches under the report's ruleset.

    Constructed only by :func:`accept`.
    """

    image: OciImage
    report: ScanReport


def accept(report: ScanReport, image: OciImage, *, min_ruleset: int = 1) -> CleanImage:
    """The permit. Raises CredentialFound: rule and place of the first findings, or what was not read."""
    if report.subject != image.digest:
        raise VerifyFailed(f"the scan report is about {report.subject}", where=str(image.digest))
    hint = f"builder scan {image.digest}"
    if report.ruleset < min_ruleset:
        raise CredentialFound(
            f"scanned under ruleset {report.ruleset}, and policy asks for {min_ruleset}",
            where=str(image.digest),
            hint=hint,
            reason="ruleset",
        )
    if report.verdict is Verdict.FOUND:
        shown = "; ".join(f"{finding.rule} in {finding.place}" for finding in report.findings[:3])
        more = f" and {len(report.findings) - 3} more" if len(report.findings) > 3 else ""
        raise CredentialFound(
            f"the image holds a credential: {shown}{more}", where=str(image.digest), hint=hint
        )
    if report.verdict is Verdict.INCOMPLETE:
        why = "; ".join(report.incomplete[:3]) or "not every byte was read"
        raise CredentialFound(
            f"the scan is incomplete: {why}", where=str(image.digest), hint=hint, reason="incomplete"
        )
    return CleanImage(image, report)


def require_opened(report: ScanReport, *, accepted: frozenset[Digest]) -> None:
    """Every archive inside was opened, is the base's or a locked artifact's, or accepted by its hash.

    Raises CredentialFound naming the first that is not. What was too much to be listed is not accepted.
    """
    left = [member for member in report.opaque if not member.by and member.digest not in accepted]
    unlisted = report.opaque_count - len(report.opaque)
    if not left and not unlisted:
        return
    shown = (f"{one.path} ({one.format}, {one.digest}): {one.reason}" for one in left)
    first = next(shown, "too many to list")
    raise CredentialFound(
        f"{len(left) + unlisted} archives inside were not opened: {first}",
        where=report.subject,
        hint=f"builder scan --strict {report.subject}",
        reason="not-opened",
    )
