"""What `verify --ci` prints with --json: of one project and its image, verified or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Answer, Document, Kind
from builder.cli.documents.shapes import Count, DigestText, Text
from builder.cli.documents.verified import CheckDocument
from provenance.sarif import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class CiProblemDocument:
    """``rule``: config, lock, policy, image, or the id of a check. ``file``: in the checkout, or empty.

    ``line``: from 1; 0 is the whole file.
    """

    rule: Text
    level: Level
    message: str
    hint: str
    file: str
    line: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class CiDocument(Document):
    """Every part that could be tried. ``verified``: lock, policy and image hold, all of them.

    ``digest``, ``lock``, ``policy``: null where there is none that can be read. ``checks``: empty where
    verify could not begin.
    """

    KIND: ClassVar = Kind("verify-ci", "verify --ci", Answer.VERDICT)

    digest: DigestText | None
    verified: bool
    image: str
    lock: DigestText | None
    policy: DigestText | None
    problems: tuple[CiProblemDocument, ...]
    checks: tuple[CheckDocument, ...]
    ignored: tuple[str, ...]
