"""npm registry signatures: ECDSA P-256 over ``name@version:integrity``, checked against keys pinned here.

The registry also publishes its keys, beside what they sign. A key from there would be trusted on first use
itself, so that is never asked: the keys come with the program, or from the operator.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from images.attestation import Attestation
from images.authenticity import KEY_ID, SIGNATURE
from images.digests import Integrity
from images.errors import KeyUnusable, PinError
from images.lock import Artifact, Authentication
from images.moments import parse_moment
from images.strictjson import JsonValue, read_object
from provenance.keys import PublicKey, load_public_key

SHIPPED: Final = Path(__file__).with_name("npm-keys.json")
_MAX_BYTES: Final = 64 * 1024
_MAX_SIGNATURES: Final = 20


@dataclass(frozen=True, slots=True)
class RegistryKey:
    """A key of a registry. ``expires``: what was published later is not believed to be signed with it."""

    id: str
    key: PublicKey
    expires: datetime | None = None


Keys: TypeAlias = Mapping[str, RegistryKey]  # by id


@dataclass(frozen=True, slots=True)
class Signed:
    """One signature as a registry gives it: which key it says it is of, and base64 of its DER form."""

    key_id: str
    signature: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What an artifact's signatures come to. ``why``: why it is trusted on first use after all.

    ``attestation``: of who published it, if there is one.
    """

    authenticated: Authentication
    signer: str = ""
    signature: str = ""
    why: str = ""
    attestation: Attestation | None = None


@cache
def shipped_keys() -> Keys:
    """The public registry's keys, as its own client carries them."""
    document = read_object(SHIPPED.read_bytes(), SHIPPED.name, max_bytes=_MAX_BYTES, error=KeyUnusable)
    listed = document.get("keys")
    keys = [_shipped(item) for item in listed] if isinstance(listed, list) else []
    return {key.id: key for key in keys}


def read_registry_key(key_id: str, pem: bytes, where: str) -> RegistryKey:
    """An operator's own key. Raises KeyUnusable naming ``where``."""
    if not KEY_ID.fullmatch(key_id):
        raise KeyUnusable(
            f"{key_id[:80]!r} is no key id: expected SHA256: and 43 characters of base64", where=where
        )
    key = load_public_key(pem, where)
    if not isinstance(key.key, EllipticCurvePublicKey):
        raise KeyUnusable("not an ECDSA P-256 key, the only kind that npm registries sign with", where=where)
    return RegistryKey(key_id, key)


def judge_signatures(
    label: str, integrity: Integrity, signatures: Iterable[Signed], published: datetime | None, keys: Keys
) -> Judged:
    """What the signatures of ``name@version`` (``label``) are worth.

    ``published``: when, as the registry says. Raises PinError when a signature of a pinned key is false: then
    somebody changed the package or the signature, and nobody should take it as merely unsigned.
    """
    why, good = "not signed", None
    for one in list(signatures)[:_MAX_SIGNATURES]:
        key = keys.get(one.key_id)
        if key is None:
            named = one.key_id if KEY_ID.fullmatch(one.key_id) else "of another form"
            why = f"signed with a key that is not pinned ({named})"
        elif not signature_holds(label, integrity, one, key):
            raise PinError(
                f"its registry signature ({key.id}) does not hold",
                where=label,
                hint="find out who changed it; nothing of it is taken",
                reason="integrity",
            )
        elif key.expires is not None and (published is None or published >= key.expires):
            why = f"signed with a key that had expired when it was published ({key.id})"
        else:
            good = good or one
    if good is None:
        return Judged(Authentication.TOFU, why=why)
    return Judged(Authentication.NPM_SIGNATURE, good.key_id, good.signature)


def signature_holds(label: str, integrity: Integrity, signed: Signed, key: RegistryKey) -> bool:
    """Whether this signature is the key's, over this name, version and SHA-512."""
    public = key.key.key
    if integrity.algorithm != "sha512" or not isinstance(public, EllipticCurvePublicKey):
        return False
    if not SIGNATURE.fullmatch(signed.signature):
        return False
    try:
        raw = base64.b64decode(signed.signature, validate=True)
        if base64.b64encode(raw).decode() != signed.signature:  # it passes over padding that is not due
            return False
        public.verify(raw, f"{label}:{integrity.sri}".encode(), ECDSA(SHA256()))
    except (binascii.Error, ValueError, InvalidSignature):
        return False
    return True


def problem_with_signature(artifact: Artifact, keys: Keys) -> str | None:
    """Why what a lock says of an npm signature is not so; None when it holds, or says nothing of one."""
    if artifact.authenticated is not Authentication.NPM_SIGNATURE:
        return None
    key = keys.get(artifact.signer)
    if key is None:
        return f"{artifact.id}: signed with a key that is not pinned ({artifact.signer})"
    signed = Signed(artifact.signer, artifact.signature)
    if not signature_holds(artifact.label, artifact.integrity, signed, key):
        return f"{artifact.id}: its registry signature ({artifact.signer}) does not hold"
    return None


def _shipped(item: JsonValue) -> RegistryKey:
    found = item if isinstance(item, dict) else {}
    spki, expires = str(found.get("spki")), found.get("expires")
    body = "\n".join(re.findall(".{1,64}", spki))
    pem = f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n".encode()
    key = read_registry_key(str(found.get("id")), pem, SHIPPED.name)
    return RegistryKey(key.id, key.key, parse_moment(expires) if isinstance(expires, str) else None)
