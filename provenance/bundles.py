"""Sigstore bundles v0.3 of the two forms we use: one DSSE envelope, one signature; a key or a certificate."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from images.errors import VerifyFailed
from images.strictjson import read_object

if TYPE_CHECKING:
    from images.strictjson import JsonValue

BUNDLE_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAX_BUNDLE_BYTES: Final = 8 * 1024 * 1024
MAX_SIGNATURE_BYTES: Final = 4096
MAX_STAMPS: Final = 8


@dataclass(frozen=True, slots=True)
class UnverifiedBundle:
    """A bundle of the right shape. Nothing in it is trusted before its signature; the hint never is.

    ``certified``: it brings a certificate and an entry of a transparency log in place of a key's hint.
    """

    raw: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    payload_type: str
    signature: bytes
    hint: str
    certified: bool = False


def open_bundle(raw: bytes, where: str) -> UnverifiedBundle:
    """Parse untrusted bytes into the closed form. Raises VerifyFailed naming ``where``.

    Either a key's hint and nothing else, or one certificate with exactly one log entry. What a form has no
    use for is refused: what nobody checks must not look as if somebody had.
    """
    document = read_object(raw, where, max_bytes=MAX_BUNDLE_BYTES, error=VerifyFailed)
    _closed(document, {"mediaType", "verificationMaterial", "dsseEnvelope"}, where)
    if document["mediaType"] != BUNDLE_TYPE:
        raise VerifyFailed(f"not a bundle of type {BUNDLE_TYPE}", where=where)
    material = _object(document["verificationMaterial"], "verificationMaterial", where)
    certified = bool(material.get("certificate"))
    if certified:
        _certified(material, where)
    hint = "" if certified else _hint(material, where)
    envelope = _object(document["dsseEnvelope"], "dsseEnvelope", where)
    _closed(envelope, {"payload", "payloadType", "signatures"}, where)
    signatures = envelope["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise VerifyFailed("not exactly one signature", where=where)
    signature = _object(signatures[0], "signature", where)
    _closed(signature, {"sig"}, where, optional={"keyid"})
    _text(signature.get("keyid", ""), "keyid", where)
    payload_type = _text(envelope["payloadType"], "payloadType", where)
    found = _base64(signature["sig"], "sig", where)
    if not 1 <= len(found) <= MAX_SIGNATURE_BYTES:
        raise VerifyFailed("a signature of an impossible size", where=where)
    return UnverifiedBundle(
        raw=raw,
        payload=_base64(envelope["payload"], "payload", where),
        payload_type=payload_type,
        signature=found,
        hint=hint,
        certified=certified,
    )


def write_bundle(payload: bytes, payload_type: str, signature: bytes, hint: str) -> bytes:
    """The bytes of a bundle. No keyid in the envelope: cosign takes it for a key that it does not know."""
    # Only who signs pays for this import (a third of a second).
    from sigstore_models.bundle.v1 import Bundle as SigstoreBundle  # noqa: PLC0415

    document = {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": payload_type,
            "signatures": [{"sig": base64.b64encode(signature).decode()}],
        },
    }
    return SigstoreBundle.from_dict(document).to_json().encode()


def _hint(material: dict[str, JsonValue], where: str) -> str:
    for unused in ("x509CertificateChain", "timestampVerificationData", "tlogEntries"):
        if material.get(unused):
            raise VerifyFailed(f"{unused} beside a key is not checked, so it is refused", where=where)
    _closed(
        material,
        {"publicKey"},
        where,
        optional={"tlogEntries", "certificate", "x509CertificateChain", "timestampVerificationData"},
    )
    key = _object(material["publicKey"], "publicKey", where)
    _closed(key, set(), where, optional={"hint"})
    return _text(key.get("hint", ""), "hint", where)


def _certified(material: dict[str, JsonValue], where: str) -> None:
    """The outer form only: what is in certificate, entry and time stamps is for the library to judge."""
    _closed(material, {"certificate", "tlogEntries"}, where, optional={"timestampVerificationData"})
    certificate = _object(material["certificate"], "certificate", where)
    _closed(certificate, {"rawBytes"}, where)
    _base64(certificate["rawBytes"], "certificate", where)
    entries = material["tlogEntries"]
    if not isinstance(entries, list) or len(entries) != 1:
        raise VerifyFailed("not exactly one entry of a transparency log", where=where)
    _object(entries[0], "tlogEntries", where)
    times = _object(material.get("timestampVerificationData") or {}, "timestampVerificationData", where)
    _closed(times, set(), where, optional={"rfc3161Timestamps"})
    stamps = times.get("rfc3161Timestamps") or []
    if not isinstance(stamps, list) or len(stamps) > MAX_STAMPS:
        raise VerifyFailed(f"not a list of at most {MAX_STAMPS} time stamps", where=where)


def _closed(
    document: dict[str, JsonValue], required: set[str], where: str, optional: set[str] | None = None
) -> None:
    missing = required - document.keys()
    unknown = document.keys() - required - (optional or set())
    if missing or unknown:
        wrong = f"lacks {sorted(missing)}" if missing else f"has unknown fields {sorted(unknown)[:5]!r}"
        raise VerifyFailed(f"not the form of a bundle: {wrong[:300]}", where=where)


def _object(value: JsonValue, name: str, where: str) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise VerifyFailed(f"{name} is not an object", where=where)
    return value


def _text(value: JsonValue, name: str, where: str) -> str:
    if not isinstance(value, str) or len(value) > 1000:
        raise VerifyFailed(f"{name} is not a short text", where=where)
    return value


def _base64(value: JsonValue, name: str, where: str) -> bytes:
    """Standard base64 in its one canonical form, so that no two texts are the same bytes."""
    try:
        found = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        found = None
    if found is None or base64.b64encode(found).decode() != value:
        raise VerifyFailed(f"{name} is not canonical base64", where=where)
    return found
