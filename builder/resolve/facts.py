"""What the registry says of versions: when each was published, its signatures. Nothing is believed yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from builder.resolve.exchange import unexpected
from builder.resolve.statements_offered import NO_OFFER, Offer, read_offer
from images.errors import HostError
from images.strictjson import JsonValue, read_json
from provenance.npm_signatures import Signed

FACTS_NAME: Final = "facts.json"
MAX_FACTS: Final = 64 * 1024 * 1024
_MAX_VERSIONS: Final = 100_000
_MAX_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class FactsRequest:
    """What does the registry say of these versions of a package? None: of all.

    ``statements``: bring those of its publisher too, where some are offered.
    """

    name: str
    versions: tuple[str, ...] = ()
    statements: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """One version: ``published`` as the registry writes it, empty when it does not say."""

    version: str
    published: str
    deprecated: bool
    signatures: tuple[Signed, ...]
    attested: bool  # statements of its publisher are offered
    offer: Offer = NO_OFFER  # them, where they were asked for


@dataclass(frozen=True, slots=True)
class Facts:
    """The registry's answer for one package: an npm error code, or its versions."""

    code: str
    releases: tuple[Release, ...] = ()

    def release(self, version: str) -> Release | None:
        """One version, if the registry has it."""
        return next((one for one in self.releases if one.version == version), None)


def read_facts(raw: bytes, asked: tuple[FactsRequest, ...]) -> tuple[Facts, ...]:
    """The container's answer, in the order asked. HostError when it has another form."""
    try:
        listed = read_json(raw, FACTS_NAME, max_bytes=MAX_FACTS, max_depth=8, error=HostError)
    except HostError as broken:
        raise unexpected(str(broken)) from None
    if not isinstance(listed, list) or len(listed) != len(asked):
        raise unexpected("not one answer for each package")
    return tuple(_facts(value, request) for value, request in zip(listed, asked, strict=True))


def _facts(value: JsonValue, asked: FactsRequest) -> Facts:
    if not isinstance(value, dict):
        raise unexpected("facts that are no object")
    if value.get("code"):
        return Facts(_text(value["code"]))
    listed = value.get("versions")
    if not isinstance(listed, list) or len(listed) > _MAX_VERSIONS:
        raise unexpected("facts without versions")
    releases = tuple(_release(item) for item in listed)
    if asked.versions and not {one.version for one in releases} <= set(asked.versions):
        raise unexpected("facts about something that was not asked")
    return Facts("", releases)


def _release(value: JsonValue) -> Release:
    if not isinstance(value, dict):
        raise unexpected("a version that is no object")
    listed = value.get("signatures")
    signatures = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return Release(
        version=_text(value.get("version")),
        published=_text(value.get("published")),
        deprecated=value.get("deprecated") is not False,
        attested=value.get("attested") is True,
        offer=read_offer(value.get("statements")),
        signatures=tuple(Signed(_text(item.get("keyid")), _text(item.get("sig"))) for item in signatures),
    )


def _text(value: JsonValue) -> str:
    return value[:_MAX_TEXT] if isinstance(value, str) else ""
