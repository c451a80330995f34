"""The scanning process: a request on standard input, the report on standard output, nothing else."""

from __future__ import annotations

import sys

from images.errors import BuilderError
from provenance.scan.allow import shipped_allow_list
from provenance.scan.archive import open_archive
from provenance.scan.archive_sources import archive_sources
from provenance.scan.engine import Engine
from provenance.scan.passes import scan_sources
from provenance.scan.report_json import report_to_json
from provenance.scan.request import MAX_REQUEST, ScanRequest, Target, read_request
from provenance.scan.sources import Sources, image_sources

# The parent tells a refused input from a crash by it.
EXIT_REFUSED = 3


def main() -> int:
    """0: a report was written. EXIT_REFUSED: the reason is on standard error, one line. Else: a crash."""
    try:
        request = read_request(sys.stdin.buffer.read(MAX_REQUEST + 1))
        report = scan_sources(_sources(request), request, shipped_allow_list(), Engine())
    except BuilderError as refused:
        sys.stderr.write(f"{refused}\n")
        return EXIT_REFUSED
    sys.stdout.buffer.write(report_to_json(report))
    sys.stdout.buffer.flush()
    return 0


def _sources(request: ScanRequest) -> Sources:
    if request.target is Target.IMAGE and request.digest is not None:
        return image_sources(request.path, request.digest)
    return archive_sources(open_archive(request.path))


if __name__ == "__main__":
    raise SystemExit(main())
