"""What `sessions` prints with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import Count, Text
from images.config import AgentName


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDocument:
    """``agents``: whose histories are in it. ``bytes``: of all of them. ``saved``: when the last was kept.

    ``in_use``: a run has it now.
    """

    name: Text
    agents: tuple[AgentName, ...]
    bytes: Count
    saved: Text
    in_use: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsDocument(Document):
    """Every session that is kept, by name."""

    KIND: ClassVar = Kind("session-list", "sessions")

    sessions: tuple[SessionDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRemovalDocument(Document):
    """A session that is forgotten, as it was."""

    KIND: ClassVar = Kind("session-removal", "sessions --remove NAME")

    removed: SessionDocument
