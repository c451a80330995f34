"""What `doctor`, `init` and `bootstrap` print with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from backend.probe import ProbeState
from builder.cli.documents import Answer, Document, Kind
from builder.cli.documents.shapes import DigestText, Text
from provenance.policy import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEngineDocument:
    """The engine that answered, by its own words."""

    product: str
    version: str
    api_version: str
    endpoint: str
    rootless: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLineDocument:
    """One answer about the host or its engine. ``remedy``: what to do; empty when it is held."""

    name: str
    state: ProbeState
    detail: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorDocument(Document):
    """What this host can enforce. ``engine``: null when none answers.

    ``required_mode``: whether it can hold on this host; if not, exit code 3.

    ``state`` of a line: ``acceptable`` lines are refused unless policy accepts them by name, ``noted`` ones
    refuse nothing, ``unknown`` ones could not be asked.
    """

    KIND: ClassVar = Kind("doctor", "doctor", Answer.VERDICT)

    engine: HostEngineDocument | None
    required_mode: bool
    lines: tuple[HostLineDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedDocument:
    """One thing that the first policy accepts by name, and the reason that it gives."""

    what: Text
    why: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class InitDocument(Document):
    """The first files. ``written`` and ``kept``: paths; what is there is never overwritten.

    ``mode`` and ``accepted``: what a policy written now says, found by looking at the host.
    """

    KIND: ClassVar = Kind("init", "init")

    written: tuple[Text, ...]
    kept: tuple[Text, ...]
    mode: Mode
    accepted: tuple[AcceptedDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolImagesDocument:
    """Manifest digests."""

    base: DigestText
    build_container: DigestText
    resolver: DigestText


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapDocument(Document):
    """The base and the tool images that this state has now."""

    KIND: ClassVar = Kind("bootstrap", "bootstrap")

    images: ToolImagesDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapOutputDocument(Document):
    """``lock``: the file that was written. ``images``: what its pins make; this state keeps those it has."""

    KIND: ClassVar = Kind("bootstrap-output", "bootstrap --refresh --output FILE")

    lock: Text
    images: ToolImagesDocument
