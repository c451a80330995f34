"""What `build` prints with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import DigestText, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltDocument(Document):
    """An image that is here, clean, detected and signed. ``digest``: of its manifest for ``platform``.

    ``key``: its content key. ``lock``: digest of the lock that it is made of. ``reused``: it was here before.
    """

    KIND: ClassVar = Kind("build", "build")

    digest: DigestText
    key: DigestText
    lock: DigestText
    platform: Text
    reused: bool
