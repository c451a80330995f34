"""What `builder diff` prints with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Document, Kind
from images.difference import Change
from images.lock import ArtifactKind, Authentication


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDocument:
    """One value that differs; null where there is none."""

    field: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactDocument:
    """One version of a package as a lock has it."""

    version: str
    integrity: str
    bytes: int
    platforms: tuple[str, ...]
    registry: str
    authenticated: Authentication
    signer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageDocument:
    """A package of which something differs. ``other_bytes``: versions on both sides with other bytes."""

    kind: ArtifactKind
    name: str
    change: Change
    before: tuple[ArtifactDocument, ...]
    after: tuple[ArtifactDocument, ...]
    other_bytes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptDocument:
    """An install script: the commands of all locked versions of a package, and whether they run."""

    package: str
    event: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    ran: bool
    runs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesDocument:
    """Of all artifacts."""

    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LockDocument:
    """What differs between two locks."""

    fields: tuple[FieldDocument, ...]
    packages: tuple[PackageDocument, ...]
    scripts: tuple[ScriptDocument, ...]
    bytes: BytesDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDocument:
    """One layer."""

    digest: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersDocument:
    """The layers of two images."""

    kept: tuple[LayerDocument, ...]
    removed: tuple[LayerDocument, ...]
    added: tuple[LayerDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDocument:
    """What differs between two images."""

    fields: tuple[FieldDocument, ...]
    environment: tuple[FieldDocument, ...]
    labels: tuple[FieldDocument, ...]
    layers: LayersDocument
    files: tuple[FieldDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceDocument:
    """``lock`` and ``image`` are null where not both sides have one."""

    same: bool
    lock: LockDocument | None
    image: ImageDocument | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffDocument(Document):
    """What differs between two locks, projects or images; nothing is judged."""

    KIND: ClassVar = Kind("diff", "diff BEFORE AFTER")

    diff: DifferenceDocument
