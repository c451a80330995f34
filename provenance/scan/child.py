"""The scanning process: a request on standard input, the report on standard output, nothing else."""

from __future__ import annotations

import sys

from images.errors import UsageError, VerifyFailed
from provenance.scan.allow import shipped_allow_list
from provenance.scan.archive import open_archive
from provenance.scan.archive_sources import archive_sources
from provenance.scan.collect import shown_text
from provenance.scan.engine import Engine
from provenance.scan.incomplete import incomplete_report
from provenance.scan.known import known_shapes
from provenance.scan.layer_report import to_lines
from provenance.scan.passes import Scanned, scan_and_tell
from provenance.scan.report_json import report_to_json
from provenance.scan.request import EXIT_REFUSED, MAX_REQUEST, ScanRequest, Target, read_request
from provenance.scan.sources import Sources, image_sources, with_referrers

NOT_FOUND = "not-found"


def main() -> int:
    """0: a report was written. EXIT_REFUSED: no image there, as standard error says. Else: a crash."""
    try:
        request = read_request(sys.stdin.buffer.read(MAX_REQUEST + 1))
        scanned = _scan(request)
    except UsageError as refused:
        sys.stderr.write(f"{shown_text(refused.what)}\n")
        return EXIT_REFUSED
    sys.stdout.buffer.write(report_to_json(scanned.report))
    if request.tell_layers:
        sys.stdout.buffer.write(to_lines(scanned.layers))
    sys.stdout.buffer.flush()
    return 0


def _scan(request: ScanRequest) -> Scanned:
    allow = shipped_allow_list()
    try:
        sources = _sources(request)
    except VerifyFailed as broken:
        if broken.reason == NOT_FOUND:
            raise UsageError(broken.what, where=broken.where) from None
        subject = request.digest or f"archive:{request.path.name}"
        return Scanned(incomplete_report(subject, allow, shown_text(str(broken))), ())
    return scan_and_tell(sources, request, allow, Engine(known=known_shapes(request.known)))


def _sources(request: ScanRequest) -> Sources:
    if request.target is not Target.ARCHIVE and request.digest is not None:
        found = image_sources(request.path, request.digest)
        return with_referrers(found, request.path) if request.target is Target.IMAGE_AND_REFERRERS else found
    return archive_sources(open_archive(request.path))


if __name__ == "__main__":
    raise SystemExit(main())
