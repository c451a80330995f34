"""What `gc` prints with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import Count, DigestText, Text
from builder.storage.collecting import Thing


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalDocument:
    """One thing that went: its name, the bytes that became free, and why it went."""

    thing: Thing
    name: Text
    bytes: Count
    why: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDocument:
    """One thing that stays, and what holds it."""

    digest: DigestText
    why: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionDocument:
    """``dry_run``: nothing was removed, what is listed would be. ``freed``: bytes of the state's disk."""

    dry_run: bool
    freed: Count
    removed: tuple[RemovalDocument, ...]
    held: tuple[HeldDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GcDocument(Document):
    """What nothing holds."""

    KIND: ClassVar = Kind("gc", "gc")

    gc: CollectionDocument
