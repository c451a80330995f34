"""What an index says of the statements about one package: npm's and PyPI's document, as sigstore bundles."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from images.errors import VerifyFailed
from images.strictjson import is_number, read_object
from provenance.bundles import BUNDLE_TYPE
from provenance.statements import PAYLOAD_TYPE

if TYPE_CHECKING:
    from images.strictjson import JsonValue

MAX_DOCUMENT: Final = 1024 * 1024
MAX_STATEMENTS: Final = 20
_MAX_DEPTH: Final = 24


def npm_bundles(raw: bytes, where: str) -> tuple[bytes, ...]:
    """The bundles in what npm's registry says of one version. Raises VerifyFailed for another form.

    Without those that the registry signed with a key of its own: they say what its signature says.
    """
    found = []
    for item in _listed(_document(raw, where), "attestations", where):
        bundle = _object(_object(item, "an attestation", where).get("bundle"), "a bundle", where)
        if "publicKey" not in _object(bundle.get("verificationMaterial"), "verificationMaterial", where):
            found.append(_bytes(bundle))
    return tuple(found)


def pypi_bundles(raw: bytes, where: str) -> tuple[bytes, ...]:
    """The attestations in a provenance object of PEP 740, as bundles. Raises VerifyFailed for another one."""
    document = _document(raw, where)
    _version(document, where)
    listed = [
        item
        for group in _listed(document, "attestation_bundles", where)
        for item in _listed(_object(group, "attestation_bundles", where), "attestations", where)
    ]
    if len(listed) > MAX_STATEMENTS:
        raise VerifyFailed(f"more than {MAX_STATEMENTS} attestations", where=where)
    return tuple(_bytes(_from_pep740(_object(item, "an attestation", where), where)) for item in listed)


def _document(raw: bytes, where: str) -> dict[str, JsonValue]:
    return read_object(raw, where, max_bytes=MAX_DOCUMENT, max_depth=_MAX_DEPTH, error=VerifyFailed)


def _listed(document: dict[str, JsonValue], name: str, where: str) -> list[JsonValue]:
    found = document.get(name)
    if not isinstance(found, list) or len(found) > MAX_STATEMENTS:
        raise VerifyFailed(f"{name} is not a list of at most {MAX_STATEMENTS}", where=where)
    return found


def _object(value: JsonValue, name: str, where: str) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise VerifyFailed(f"{name} is not an object", where=where)
    return value


def _version(document: dict[str, JsonValue], where: str) -> None:
    if not is_number(document.get("version"), 1):
        raise VerifyFailed("attestations of another version than 1", where=where)


def _from_pep740(item: dict[str, JsonValue], where: str) -> dict[str, JsonValue]:
    """PEP 740 holds the parts of a bundle under names of its own."""
    _version(item, where)
    material = _object(item.get("verification_material"), "verification_material", where)
    envelope = _object(item.get("envelope"), "envelope", where)
    return {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": {
            "certificate": {"rawBytes": material.get("certificate")},
            "tlogEntries": material.get("transparency_entries"),
        },
        "dsseEnvelope": {
            "payload": envelope.get("statement"),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": envelope.get("signature")}],
        },
    }


def _bytes(bundle: dict[str, JsonValue]) -> bytes:
    """Written anew, so that one statement has one form in a lock. What is signed is base64 in there."""
    return json.dumps(bundle, sort_keys=True, separators=(",", ":")).encode()
