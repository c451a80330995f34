"""What a registry has now under the tag of a base, and whether the pinned digest is still there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from builder.resolve.exchange import Member, Resolver, exchange, said_error, unexpected
from builder.resolve.failures import At, failure
from images.config import BaseReference
from images.digests import Digest
from images.errors import VerifyFailed
from images.oci import MAX_MANIFEST_BYTES, parse_index
from images.strictjson import JsonValue

_MISSING: Final = frozenset({"E404", "E410"})


@dataclass(frozen=True, slots=True)
class Tagged:
    """``now``: what the tag names (None: there is no tag, or it names nothing).

    ``names_pinned``: that is the pinned digest, or an index with it. ``pinned_is_there``: in the registry.
    """

    now: Digest | None
    names_pinned: bool
    pinned_is_there: bool


def look_up(base: BaseReference, resolver: Resolver) -> Tagged:
    """Ask the registry of a pinned base. Nothing is pulled and nothing is believed but what hashes right.

    Raises NetworkFailed with its reason, or HostError. ``base`` must have a registry and a digest.
    """
    if base.registry is None or base.digest is None:
        raise ValueError(f"nothing to ask about {base}")
    references = (str(base.digest), *((base.tag,) if base.tag else ()))
    request: dict[str, JsonValue] = {
        "resolve": [],
        "view": [],
        "newest": [],
        "fetch": [],
        "pull": {
            "registry": base.registry[0],
            "repository": base.registry[1],
            "look_up": list(references),
        },
    }
    came: dict[str, bytes] = {}

    def take(member: Member) -> None:
        came[member.name] = member.read(member.name, MAX_MANIFEST_BYTES)

    document = exchange(request, resolver, take)
    if (error := said_error(document, "code", "hop", "retry_after")) is not None:
        code, hop, wait = error
        broken = failure(code, At(str(base), step="look up", hop=hop, retry_after=wait, alias=""))
        broken.hint = broken.hint.replace("builder lock", "builder outdated")
        raise broken
    pinned, *tagged = _answers(document, references, came)
    now = tagged[0] if tagged else None
    return Tagged(
        now=Digest.of(now) if now is not None else None,
        names_pinned=now is not None and base.digest in _digests(now),
        pinned_is_there=pinned is not None and Digest.of(pinned) == base.digest,
    )


def _answers(
    document: dict[str, JsonValue], references: tuple[str, ...], came: dict[str, bytes]
) -> list[bytes | None]:
    found = document.get("found")
    if not isinstance(found, list) or len(found) != len(references):
        raise unexpected("not one answer for each reference")
    answers: list[bytes | None] = []
    for number, code in enumerate(found):
        raw = came.pop(f"manifests/{number}.json", None)
        missing = isinstance(code, str) and code in _MISSING
        if (code == "") != (raw is not None) or not (code == "" or missing):
            raise unexpected("neither a manifest nor an error code")
        answers.append(raw)
    if came:
        raise unexpected("more than was asked")
    return answers


def _digests(raw: bytes) -> set[Digest]:
    """The digest of a manifest, and of an index's manifests too: either can be the one that is pinned."""
    try:
        children = {entry.digest for entry in parse_index(raw, "index").manifests}
    except VerifyFailed:
        children = set()
    return {Digest.of(raw), *children}
