"""DSSE signatures over statements: made and checked with one key, or checked with a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from images.errors import VerifyFailed
from provenance.bundles import MAX_BUNDLE_BYTES, UnverifiedBundle, open_bundle, write_bundle
from provenance.signers import Identity, Who
from provenance.statements import PAYLOAD_TYPE, Statement, parse_statement

if TYPE_CHECKING:
    from provenance.keys import PrivateKey, PublicKey
    from provenance.sigstore_root import SigstoreRoot


@dataclass(frozen=True, slots=True)
class Bundle:
    """Permit: a statement whose signature by ``signer`` was made or checked here."""

    raw: bytes = field(repr=False)
    statement: Statement
    signer: Who


@dataclass(frozen=True, slots=True)
class Certified:
    """Permit: a bundle whose certificate, log entry and signature hold. What it says is not read yet."""

    bundle: UnverifiedBundle
    identity: Identity


class StatementSigner(Protocol):
    """Whoever can sign statements in a role: with a key, or with certificates for an identity."""

    @property
    def who(self) -> Who:
        """As whom: it must be one that the policy trusts."""
        ...

    def sign(self, statements: Sequence[Statement]) -> tuple[Bundle, ...]:
        """A bundle for each, or an error and none at all."""
        ...


@dataclass(frozen=True, slots=True)
class KeySigner:
    """Signs with a key at hand."""

    key: PrivateKey

    @property
    def who(self) -> Who:
        """Its fingerprint."""
        return self.key.public.fingerprint

    def sign(self, statements: Sequence[Statement]) -> tuple[Bundle, ...]:
        """With nothing but the key."""
        return tuple(sign(one, self.key) for one in statements)


def sign(statement: Statement, signer: PrivateKey) -> Bundle:
    """Sign a statement's exact bytes, and check the result as a stranger would before it is handed out."""
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]  # noqa: PLC0415

    signature = CryptoSigner(signer.key).sign(bytes_to_sign(statement))
    return signed(statement, bytes.fromhex(signature.signature), signer.public)


def bytes_to_sign(statement: Statement) -> bytes:
    """What a signature over a statement is made over: DSSE's encoding of its type and its bytes."""
    from securesystemslib.dsse import Envelope  # noqa: PLC0415  (a quarter of a second, only when signing)

    pae: bytes = Envelope(statement.raw, PAYLOAD_TYPE, {}).pae()
    return pae


def signed(statement: Statement, signature: bytes, by: PublicKey, where: str = "our own bundle") -> Bundle:
    """A bundle of both, if the signature holds under this key. Raises VerifyFailed."""
    raw = write_bundle(statement.raw, PAYLOAD_TYPE, signature, hint=by.hint)
    return check_signature(open_bundle(raw, where), by, where)


def library_signer(signer: PrivateKey) -> Any:
    """A key as the library signs with it, for a form that is not ours."""
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]  # noqa: PLC0415

    return CryptoSigner(signer.key)


def library_key(public: PublicKey) -> dict[str, Any]:
    """A key as in-toto's layouts have it: its parts, and the id that signatures name."""
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # noqa: PLC0415

    key = SSlibKey.from_crypto(public.key)
    return {"keyid": key.keyid, **key.to_dict()}


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
    return _read(bundle, key.fingerprint, where)


def check_certificate(bundle: UnverifiedBundle, root: SigstoreRoot, where: str) -> Certified:
    """Whom a bundle's certificate is for, under this trusted root; offline. Raises VerifyFailed.

    KeyUnusable when the root is none, HostError without the library that checks certificates.
    """
    from provenance.keyless import open_keyless  # noqa: PLC0415  (X.509: only for bundles that have some)

    opened = open_keyless(bundle.raw, root, where, max_bytes=MAX_BUNDLE_BYTES)
    # Two readers of one document: what was signed is what we go on with.
    if (opened.payload, opened.payload_type) != (bundle.payload, bundle.payload_type):
        raise VerifyFailed("the signed payload is another one than the bundle's", where=where)
    return Certified(bundle, Identity(opened.signer.identity, opened.signer.issuer))


def read_certified(certified: Certified, where: str) -> Bundle:
    """Payload type, then statement, of a bundle whose certificate was checked. Raises VerifyFailed."""
    return _read(certified.bundle, certified.identity, where)


def _read(bundle: UnverifiedBundle, signer: Who, where: str) -> Bundle:
    if bundle.payload_type != PAYLOAD_TYPE:
        raise VerifyFailed(f"the signed payload is not of type {PAYLOAD_TYPE}", where=where)
    statement = parse_statement(bundle.payload, where)
    return Bundle(raw=bundle.raw, statement=statement, signer=signer)
