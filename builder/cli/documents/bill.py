"""What `sbom` prints with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import Count, DigestText


@dataclass(frozen=True, slots=True, kw_only=True)
class SbomDocument(Document):
    """The signed bill of materials of a verified image. ``sbom``: CycloneDX 1.6, as it was signed.

    ``statement``: the digest of what was signed. ``components``: their number, without the image itself.
    """

    KIND: ClassVar = Kind("sbom", "sbom [IMAGE]")

    image: DigestText
    statement: DigestText
    components: Count
    sbom: dict[str, object]
