"""DSSE signatures over statements: made with one key, checked with one key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from images.digests import Digest
from images.errors import VerifyFailed
from provenance.bundles import UnverifiedBundle, open_bundle, write_bundle
from provenance.statements import PAYLOAD_TYPE, Statement, parse_statement

if TYPE_CHECKING:
    from provenance.keys import PrivateKey, PublicKey


@dataclass(frozen=True, slots=True)
class Bundle:
    """Permit: a statement whose signature by ``key`` (a fingerprint) was made or checked here."""

    raw: bytes = field(repr=False)
    statement: Statement
    key: Digest


def sign(statement: Statement, signer: PrivateKey) -> Bundle:
    """Sign a statement's exact bytes, and check the result as a stranger would before it is handed out."""
    from securesystemslib.dsse import Envelope  # noqa: PLC0415  (a quarter of a second, only when signing)
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]  # noqa: PLC0415

    envelope = Envelope(statement.raw, PAYLOAD_TYPE, {})
    signature = CryptoSigner(signer.key).sign(envelope.pae())
    raw = write_bundle(
        statement.raw, PAYLOAD_TYPE, bytes.fromhex(signature.signature), hint=signer.public.hint
    )
    return check_signature(open_bundle(raw, "our own bundle"), signer.public, "our own bundle")


def is_signed_by(bundle: UnverifiedBundle, key: PublicKey) -> bool:
    """Whether the signature over payload type and payload holds under ``key``; the payload is not read."""
    from securesystemslib.dsse import Envelope  # noqa: PLC0415
    from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError  # noqa: PLC0415
    from securesystemslib.signer import Signature, SSlibKey  # type: ignore[attr-defined]  # noqa: PLC0415

    try:
        checker = SSlibKey.from_crypto(key.key)
        signed = Envelope(bundle.payload, bundle.payload_type, {}).pae()
        checker.verify_signature(Signature(checker.keyid, bundle.signature.hex()), signed)
    except (UnverifiedSignatureError, VerificationError):
        return False
    return True


def check_signature(bundle: UnverifiedBundle, key: PublicKey, where: str) -> Bundle:
    """Signature, then payload type, then statement. Raises VerifyFailed."""
    if not is_signed_by(bundle, key):
        raise VerifyFailed(f"the signature is not one of key {key.fingerprint}", where=where)
    if bundle.payload_type != PAYLOAD_TYPE:
        raise VerifyFailed(f"the signed payload is not of type {PAYLOAD_TYPE}", where=where)
    statement = parse_statement(bundle.payload, where)
    return Bundle(raw=bundle.raw, statement=statement, key=key.fingerprint)
