"""Start the scanning child, and trust of its answer only what can be checked again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.credentials import RULESET_VERSION, Secret
from images.digests import Digest
from images.errors import CredentialFound, UsageError
from images.oci import OciImage
from provenance.scan.allow import PackageTree, shipped_allow_list
from provenance.scan.incomplete import incomplete_report
from provenance.scan.report import ScanReport
from provenance.scan.report_json import report_from_json
from provenance.scan.request import EXIT_REFUSED, ScanRequest, Target
from provenance.scan.ruleset import ruleset_digest

CHILD_ARGV: Final = (sys.executable, "-I", "-m", "provenance.scan.child")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """What came of the child. ``exit_code`` None: it never ran or was ended by us, as ``detail`` says."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes = b""
    detail: str = ""


# argv, standard input -> result. The whole environment is HOME=/; no descriptors are passed; a deadline.
RunChild = Callable[[tuple[str, ...], bytes], ChildResult]


def scan_image(
    image: OciImage,
    *,
    key: Secret,
    run_child: RunChild,
    documents: Iterable[tuple[str, bytes]] = (),
    packages: Iterable[PackageTree] = (),
    known: tuple[Secret, ...] = (),
    threads: int = 2,
) -> ScanReport:
    """Scan every byte of an image of a layout, and ``documents`` (bundles, attestations) with it.

    ``key``: at least 16 random bytes, fresh for this run. ``packages``: which directories hold which package
    of the lock. ``known``: values of the operator's own, to be found in any spelling. A child that crashed,
    was ended or wrote no report is an *incomplete* report, never an error.
    """
    request = ScanRequest(
        target=Target.IMAGE,
        path=image.layout.absolute(),
        digest=image.digest,
        key=key,
        threads=threads,
        documents=tuple(documents),
        packages=tuple(packages),
        known=known,
    )
    try:
        report = _ask(request, run_child, subject=image.digest)
    except UsageError as gone:
        return incomplete_report(image.digest, shipped_allow_list(), str(gone))
    return _check_answer(report, image, request)


def scan_archive(
    path: Path,
    *,
    key: Secret,
    run_child: RunChild,
    digest: Digest | None = None,
    known: tuple[Secret, ...] = (),
    threads: int = 2,
) -> ScanReport:
    """Scan an OCI layout, an OCI archive or what `docker save` wrote, whole, or one ``digest`` of a layout.

    With a digest, all that refers to it in the layout is read too. Without lock or engine. Raises UsageError
    when ``path`` is no image at all.
    """
    request = ScanRequest(
        target=Target.ARCHIVE if digest is None else Target.IMAGE_AND_REFERRERS,
        path=path.absolute(),
        digest=digest,
        key=key,
        threads=threads,
        known=known,
    )
    return _ask(request, run_child, subject=digest or f"archive:{path.name}")


def _ask(request: ScanRequest, run_child: RunChild, *, subject: str) -> ScanReport:
    allow = shipped_allow_list()
    result = run_child(CHILD_ARGV, request.to_json())
    if result.exit_code == EXIT_REFUSED:
        raise UsageError(
            f"cannot be scanned: {result.stderr.decode('utf-8', 'replace').strip()[:500]}",
            where=str(request.path),
            hint="give an OCI layout, an OCI archive, or a file written by docker save",
        )
    if result.exit_code != 0:
        why = result.detail or f"ended with {result.exit_code}"
        return incomplete_report(subject, allow, f"the scanning process failed: {why}")
    try:
        return report_from_json(result.stdout)
    except CredentialFound as broken:
        return incomplete_report(subject, allow, str(broken))


def _check_answer(report: ScanReport, image: OciImage, request: ScanRequest) -> ScanReport:
    """The child speaks of this image, of all its layers, and under our tables; else it is incomplete."""
    allow = shipped_allow_list()
    layers = (layer.digest for layer in image.manifest.layers)
    named = (name for name, _ in request.documents)
    expected = {image.digest, image.manifest.config.digest, *layers, *named}
    covered = {blob.digest for blob in report.coverage}
    if report.incomplete:
        return report
    if report.subject != image.digest or not expected <= covered:
        return incomplete_report(image.digest, allow, "the scanner's report is not about all of this image")
    if report.ruleset != RULESET_VERSION or report.ruleset_digest != ruleset_digest(allow):
        return incomplete_report(image.digest, allow, "the scanner's report was made under another ruleset")
    return report
