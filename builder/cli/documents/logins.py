"""What `login` and `logout` print with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import Text
from images.config import AgentName


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLoginDocument:
    """``credentials``: names alone. ``rotates``: it renews itself, so one launch at a time has it.

    ``leased``: one has it now. ``encrypted``: by a key of the session's keyring. ``saved``: last written.
    """

    agent: AgentName
    name: Text
    credentials: tuple[str, ...]
    rotates: bool
    leased: bool
    encrypted: bool
    saved: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginsDocument(Document):
    """Every login that is kept, by agent and name."""

    KIND: ClassVar = Kind("login-list", "login --list")

    logins: tuple[KeptLoginDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginDocument(Document):
    """A login that is kept now. ``launch``: whose record tells of it; null when nothing was started."""

    KIND: ClassVar = Kind("login", "login AGENT")

    login: KeptLoginDocument
    launch: Text | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutDocument(Document):
    """A login that is forgotten."""

    KIND: ClassVar = Kind("logout", "logout AGENT")

    agent: AgentName
    name: Text
