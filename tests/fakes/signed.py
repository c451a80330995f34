"""Registry signatures that a test makes itself: real keys, real signatures, no registry."""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from images.digests import Integrity
from provenance.npm_signatures import RegistryKey, Signed, read_registry_key

OLD_ID = "SHA256:jl3bwswu80PjjokCgh0o2w5c2U4LhQAE57gj9cz1kzA"
NOW_ID = "SHA256:DhQ8wR5APBvFHLF/+Tc+AYvPOdTpcIDqOhxsBHRwC7U"


def key_pair(key_id: str) -> tuple[EllipticCurvePrivateKey, RegistryKey]:
    """A new key of a registry."""
    private = generate_private_key(SECP256R1())
    return private, read_registry_key(key_id, public_pem(private), "test")


def public_pem(private: EllipticCurvePrivateKey) -> bytes:
    """Its public half, as a file has it."""
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def sign(private: EllipticCurvePrivateKey, key_id: str, label: str, integrity: Integrity) -> Signed:
    """As a registry signs ``name@version``."""
    text = f"{label}:{integrity.sri}".encode()
    return Signed(key_id, base64.b64encode(private.sign(text, ECDSA(SHA256()))).decode())
