"""Start the scanning child, and trust of its answer only what can be checked again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.credentials import RULESET_VERSION, Secret
from images.digests import Digest
from images.errors import CredentialFound, UsageError
from images.oci import OciImage
from provenance.scan.allow import PackageTree, shipped_allow_list
from provenance.scan.incomplete import incomplete_report
from provenance.scan.layer_report import from_lines
from provenance.scan.memory import LayerMemory
from provenance.scan.report import ScanReport, Verdict
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
    memory: LayerMemory | None = None,
) -> ScanReport:
    """Scan every byte of an image of a layout, and ``documents`` (bundles, attestations) with it.

    ``key``: at least 16 random bytes, fresh for this run. ``packages``: which directories hold which package
    of the lock. ``known``: values of the operator's own, to be found in any spelling. A child that crashed,
    was ended or wrote no report is an *incomplete* report, never an error. ``memory``: layers that it knows
    are hashed and not scanned again, and it learns of the others; not beside ``known`` values.
    """
    if known:
        memory = None  # what is remembered was not searched for these
    request = ScanRequest(
        target=Target.IMAGE,
        path=image.layout.absolute(),
        digest=image.digest,
        key=key,
        threads=threads,
        documents=tuple(documents),
        packages=tuple(packages),
        known=known,
        settled=memory.recall(image) if memory else (),
        tell_layers=memory is not None,
    )
    try:
        report, layers = _ask(request, run_child, subject=image.digest)
    except UsageError as gone:
        return incomplete_report(image.digest, shipped_allow_list(), str(gone))
    checked = _check_answer(report, image, request)
    if memory and checked.verdict is Verdict.CLEAN:
        memory.remember(image, _learned(checked, image, layers, request))
    return checked


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
    report, _ = _ask(request, run_child, subject=digest or f"archive:{path.name}")
    return report


def _ask(
    request: ScanRequest, run_child: RunChild, *, subject: str
) -> tuple[ScanReport, tuple[ScanReport, ...]]:
    """The report, and those of its layers if they were asked for."""
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
        return incomplete_report(subject, allow, f"the scanning process failed: {why}"), ()
    try:
        if not request.tell_layers:
            return report_from_json(result.stdout), ()
        whole, _, layers = result.stdout.partition(b"\n")
        return report_from_json(whole), from_lines(layers, allow)
    except CredentialFound as broken:
        return incomplete_report(subject, allow, str(broken)), ()


def _learned(
    report: ScanReport, image: OciImage, parts: tuple[ScanReport, ...], request: ScanRequest
) -> Iterator[ScanReport]:
    """The reports of layers of this image that were scanned just now, and agree with the whole one."""
    ours = {str(layer.digest) for layer in image.manifest.layers} - {one.subject for one in request.settled}
    yield from (one for one in parts if one.subject in ours and set(one.coverage) <= set(report.coverage))


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
