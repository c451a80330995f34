"""Key files: made, encrypted, checked for mode and owner, loaded; and the fingerprint that names a key."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from images.credentials import Secret
from images.digests import Digest
from images.errors import KeyUnusable
from provenance.writing import replace_file

MAX_KEY_BYTES: Final = 64 * 1024
_PUBLIC_BEGIN: Final = b"-----BEGIN PUBLIC KEY-----"
_ANEW: Final = "name the right key with --key, or move this one away and make another: builder init"


class Protection(Enum):
    """The explicit wish to write a private key without a passphrase."""

    UNENCRYPTED = "unencrypted"


VerifyingKey: TypeAlias = EllipticCurvePublicKey | Ed25519PublicKey


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that signatures are checked with: ECDSA P-256, or Ed25519 (checked, never made here).

    ``fingerprint``: SHA-256 of its DER SubjectPublicKeyInfo; two PEM files of one key have the same.
    """

    fingerprint: Digest
    key: VerifyingKey = field(repr=False, compare=False)

    @property
    def hint(self) -> str:
        """The fingerprint as a sigstore bundle writes it."""
        return base64.b64encode(bytes.fromhex(self.fingerprint.hex)).decode()

    @property
    def pem(self) -> bytes:
        """As ``BEGIN PUBLIC KEY``, the form that cosign reads too."""
        return self.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A signing key in memory; ``encrypted`` says whether its file is, so that it can be shown."""

    public: PublicKey
    encrypted: bool
    key: EllipticCurvePrivateKey = field(repr=False, compare=False)


def create_key_pair(private: Path, public: Path, passphrase: Secret | Protection) -> PublicKey:
    """Make an ECDSA P-256 pair: ``private`` as PKCS8 PEM (0600), ``public`` as PKIX PEM. Never overwrites."""
    for path in (private, public):
        if path.exists() or path.is_symlink():
            raise KeyUnusable("there is a key already; it is not overwritten", where=str(path))
    encryption: KeySerializationEncryption = NoEncryption()
    if isinstance(passphrase, Secret):
        if not passphrase:
            raise KeyUnusable("an empty passphrase encrypts nothing", where=str(private))
        encryption = BestAvailableEncryption(passphrase.reveal())
    key = generate_private_key(SECP256R1())
    made = _named(key.public_key())
    replace_file(private, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption), 0o600)
    replace_file(public, made.pem, 0o644)
    return made


def load_private_key(path: Path, passphrase: Secret | None) -> PrivateKey:
    """The signing key in ``path``: a regular file of ours that nobody else can read. Raises KeyUnusable."""
    pem = _read_private(path)
    encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in pem
    if encrypted and passphrase is None:
        raise KeyUnusable(
            "the key is encrypted and no passphrase was given",
            where=str(path),
            hint="add --passphrase-file FILE",
        )
    if not encrypted and passphrase is not None:
        raise KeyUnusable("a passphrase was given, but the key is not encrypted", where=str(path))
    try:
        key = load_pem_private_key(pem, passphrase.reveal() if passphrase else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        why = (
            "the passphrase is wrong, or the file is damaged" if encrypted else "not a PKCS8 PEM private key"
        )
        raise KeyUnusable(why, where=str(path), hint=_ANEW) from None
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        what = "not an ECDSA P-256 key, the only kind that we sign with"
        raise KeyUnusable(what, where=str(path), hint=_ANEW)
    return PrivateKey(public=_named(key.public_key()), encrypted=encrypted, key=key)


def load_public_key(pem: bytes, where: str) -> PublicKey:
    """A public key from one PKIX PEM block. Raises KeyUnusable naming ``where``."""
    if len(pem) > MAX_KEY_BYTES or pem.count(b"-----BEGIN") != 1 or not pem.startswith(_PUBLIC_BEGIN):
        raise KeyUnusable("not one PEM block of a public key (BEGIN PUBLIC KEY)", where=where)
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyUnusable("not a PEM public key", where=where) from None
    if isinstance(key, Ed25519PublicKey):
        return _named(key)
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return _named(key)
    raise KeyUnusable("neither an ECDSA P-256 nor an Ed25519 key", where=where)


def _named(key: VerifyingKey) -> PublicKey:
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(fingerprint=Digest.from_hex(hashlib.sha256(der).hexdigest()), key=key)


def _read_private(path: Path) -> bytes:
    flags = os.O_RDONLY
    for wanted in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
        flags |= getattr(os, wanted, 0)
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError) as broken:
        why = broken.strerror if isinstance(broken, OSError) else "not a path"
        raise KeyUnusable(f"cannot be read: {why}", where=str(path), hint="builder init") from None
    try:
        why = _unfit(os.fstat(handle))
        if why:
            raise KeyUnusable(why, where=str(path), hint=f"chmod 600 {path}")
        # A key file is a few hundred bytes: one read takes it whole, or it is no key.
        return os.read(handle, MAX_KEY_BYTES)
    finally:
        os.close(handle)


def _unfit(status: os.stat_result) -> str:
    """Why this file must not hold a private key; empty when it may."""
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        return f"the key belongs to uid {status.st_uid}, not to us (uid {os.geteuid()})"
    if status.st_mode & 0o077:
        return f"the key can be read or changed by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""
