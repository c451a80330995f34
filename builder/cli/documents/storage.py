"""What `store add`, `store export` and `store import` print with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import Count, DigestText, Says, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFileDocument:
    """One file in the content store. ``line``: for [archives] in builder.toml."""

    file: Text
    sha256: Annotated[str, Says(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, Says(minimum=1)]
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedDocument(Document):
    """The files that are in the store now."""

    KIND: ClassVar = Kind("store-add", "store add FILE")

    added: Annotated[tuple[AddedFileDocument, ...], Says(minItems=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDocument:
    """``archive``: its SHA-256. ``artifacts``, ``evidence``: how many. ``image``: null for a lock alone."""

    archive: DigestText
    file: Text
    size: Annotated[int, Says(minimum=1)]
    lock: DigestText
    image: DigestText | None
    artifacts: Count
    evidence: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedDocument(Document):
    """The archive that was written."""

    KIND: ClassVar = Kind("store-export", "store export OUT")

    exported: ArchiveDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDocument:
    """How much of it was not here."""

    artifacts: Count
    blobs: Count
    manifests: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtDocument:
    """``settings``: lines to write, to build with tool images that came. ``changed``: anything was new."""

    lock: DigestText
    image: DigestText | None
    artifacts: Count
    evidence: Count
    new: NewDocument
    changed: bool
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDocument(Document):
    """What an archive brought. Nothing of it is trusted yet."""

    KIND: ClassVar = Kind("store-import", "store import FILE")

    imported: BroughtDocument
