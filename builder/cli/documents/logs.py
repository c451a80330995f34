"""What `logs` prints with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import Count, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLogDocument:
    """What one launch said. ``text``: redacted; null when none was kept. ``dropped``: bytes before it."""

    launch: Text
    text: str | None
    dropped: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsDocument(Document):
    """Of each launch of a run, or of the one asked for, what `run --keep-log` kept; oldest launch first."""

    KIND: ClassVar = Kind("logs", "logs RUN")

    logs: tuple[KeptLogDocument, ...]
