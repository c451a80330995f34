"""What `scan` prints with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from builder.cli.documents import Answer, Document, Kind
from builder.cli.documents.shapes import Follows

SCAN_REPORT: Final = "https://agent-image-builder.example/schemas/scan-report/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedDocument(Document):
    """The report. A finding, anything unread, with ``--strict`` an unopened archive: exit code 6."""

    KIND: ClassVar = Kind("scan", "scan PATH|DIGEST", Answer.VERDICT)

    report: Annotated[dict[str, object], Follows(**{"$ref": SCAN_REPORT})]
