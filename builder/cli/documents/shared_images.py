"""What `push` and `pull` print with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import Count, DigestText, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedDocument(Document):
    """An image that is in a registry, whole. ``reference``: what others pull. ``tags``: what points to it.

    ``evidence``: how many referrers. ``sent``, ``sentBytes``: blobs that the registry lacked. ``left``: a
    line for each thing that stayed here.
    """

    KIND: ClassVar = Kind("push", "push IMAGE REF")

    reference: Text
    digest: DigestText
    tags: tuple[str, ...]
    evidence: Count
    sent: Count
    sentBytes: Count  # noqa: N815  (as it is printed)
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledDocument(Document):
    """An image that is in the state, whole. Nothing of it is trusted yet.

    ``reference``: with the digest that was named. ``digest``: of the image for this machine. ``locks``: of
    those attached to it. ``blobs``, ``manifests``: how many were not here. ``left``: a line for each thing
    that did not come along.
    """

    KIND: ClassVar = Kind("pull", "pull REF")

    reference: Text
    digest: DigestText
    locks: tuple[DigestText, ...]
    evidence: Count
    blobs: Count
    manifests: Count
    left: tuple[str, ...]
