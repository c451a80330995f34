"""What `show IMAGE` prints with --json: what an image is and holds. Nothing is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from backend.elsewhere.showing import Form
from backend.journal import Boundary
from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import Count, DigestText, Text
from images.lock import Authentication


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLayerDocument:
    """One layer, as it is stored."""

    digest: DigestText
    bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLockDocument:
    """A lock that is attached. By name: version of agents and tools, package of MCP servers, else integrity.

    ``artifacts``: their number. ``trusted_on_first_use``: the first that nobody vouched for, in words.
    """

    digest: DigestText
    base: Text
    agents: dict[str, str]
    mcp: dict[str, str]
    skills: dict[str, str]
    tools: dict[str, str]
    archives: dict[str, str]
    node: str
    artifacts: Count
    authenticated: dict[Authentication, Count]
    trusted_on_first_use: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLockDocument:
    """An attached lock that is none."""

    digest: DigestText
    problem: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceDocument:
    """What an attached bundle claims. Whether its signature holds is for verify to say."""

    predicate_type: str
    statement: DigestText


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenEvidenceDocument:
    """An attached bundle that is none."""

    problem: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLaunchDocument:
    """One launch of the image. ``exit_code``: the command's own."""

    launch: Text
    mode: str
    engine: str
    reached: Boundary
    exit_code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownImageDocument:
    """One image. ``config``: digest of its configuration. ``bytes``: of its layers, as they are stored.

    ``unreadable``: what is attached and is no evidence, and why.
    """

    digest: DigestText
    config: DigestText
    platform: Text
    bytes: Count
    layers: tuple[ShownLayerDocument, ...]
    user: str
    labels: dict[str, str]
    locks: tuple[ShownLockDocument | BrokenLockDocument, ...]
    evidence: tuple[EvidenceDocument | BrokenEvidenceDocument, ...]
    unreadable: tuple[str, ...]
    launches: tuple[ShownLaunchDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowImageDocument(Document):
    """What an image is, and what is attached to it."""

    KIND: ClassVar = Kind("show-image", "show [IMAGE]")

    image: ShownImageDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowElsewhereDocument(Document):
    """The plan of a launch for use elsewhere: ``text`` as without ``--json``; not admitted by builder."""

    KIND: ClassVar = Kind("show-elsewhere", "show [IMAGE] --as FORM")

    image: DigestText
    form: Form
    text: str
