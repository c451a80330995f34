"""What `lock`, with its options, and `outdated` print with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import Count, DigestText
from builder.resolve.newest import Standing
from images.lock import Authentication


@dataclass(frozen=True, slots=True, kw_only=True)
class PinDocument:
    """One pin of builder.toml; ``newest`` is null when nothing can be proposed."""

    name: str
    place: str
    pinned: str
    newest: str | None
    standing: Standing
    deprecated: bool
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutdatedDocument(Document):
    """How each pin stands. ``outdated``: whether an upgrade would move one."""

    KIND: ClassVar = Kind("outdated", "outdated")

    outdated: bool
    pins: tuple[PinDocument, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedDocument(Document):
    """``lock``: its digest. ``artifacts``: their number. ``authenticated``: how many of them in which way.

    ``changed``: whether builder.lock is another one than before.
    """

    KIND: ClassVar = Kind("lock", "lock")

    lock: DigestText
    artifacts: Count
    authenticated: dict[Authentication, Count]
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedDocument(LockedDocument):
    """The same, and ``moved``: the pins of builder.toml that are others now."""

    KIND: ClassVar = Kind("lock-upgrade", "lock --upgrade [NAME]")

    moved: tuple[PinDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshLockDocument(Document):
    """The lock is of this builder.toml and of these settings; a stale one is exit code 2."""

    KIND: ClassVar = Kind("lock-check", "lock --check")

    lock: DigestText
    fresh: Literal[True]
