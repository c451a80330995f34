"""Keys, statements and bundles for tests: right ones, and every wrong one an attacker could attach."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from images.digests import Digest
from images.oci import MEDIA_EMPTY, MEDIA_MANIFEST
from provenance.bundles import BUNDLE_TYPE, open_bundle, write_bundle
from provenance.keys import PrivateKey, load_public_key
from provenance.layout import read_manifest
from provenance.layout_writing import add_manifest, write_blob
from provenance.signing import Bundle, check_signature
from provenance.statements import PAYLOAD_TYPE, STATEMENT_TYPE, Statement, parse_statement


@cache
def key(name: str) -> PrivateKey:
    """One P-256 key for each name, the same within a test run."""
    del name
    private = generate_private_key(SECP256R1())
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return PrivateKey(public=load_public_key(pem, "test key"), encrypted=False, key=private)


def pkcs8(name: str) -> bytes:
    """The private key as unencrypted PEM, for tools of others."""
    return key(name).key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def statement_bytes(image: Digest, predicate_type: str, predicate: object, /, **change: object) -> bytes:
    """A Statement v1 as JSON; ``change`` replaces top-level fields."""
    document = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": "_", "digest": {"sha256": image.hex}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }
    return json.dumps(document | change).encode()


def statement(image: Digest, predicate_type: str, predicate: object) -> Statement:
    """As a parsed statement."""
    return parse_statement(statement_bytes(image, predicate_type, predicate), "test statement")


def forge(payload: bytes, signer: PrivateKey, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """A bundle with a right signature over any payload: what a careless or stolen key can make."""
    kind = payload_type.encode()
    pae = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    signature = signer.key.sign(pae, ECDSA(SHA256()))
    return write_bundle(payload, payload_type, signature, signer.public.hint)


def signed(raw: bytes, signer: PrivateKey) -> Bundle:
    """A bundle over a statement's bytes."""
    return check_signature(open_bundle(forge(raw, signer), "test"), signer.public, "test")


def attach_raw(
    layout: Path,
    image: Digest,
    data: bytes,
    *,
    artifact_type: str = BUNDLE_TYPE,
    annotations: tuple[tuple[str, str], ...] = (),
) -> Digest:
    """Attach any bytes to any image, as someone with write access to the layout can."""
    subject = read_manifest(layout, image)
    document = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "artifactType": artifact_type,
        "config": write_blob(layout, b"{}", MEDIA_EMPTY).to_json(),
        "layers": [write_blob(layout, data, artifact_type).to_json()],
        "subject": {"mediaType": subject.media_type, "digest": str(image), "size": len(subject.raw)},
        "annotations": dict(annotations),
    }
    return add_manifest(layout, json.dumps(document).encode()).digest


def edit_bundle(raw: bytes, **changes: object) -> bytes:
    """The bundle with fields replaced by dotted path (``__`` for a dot); None removes a field."""
    document = json.loads(raw)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = document
        for parent in parents:
            place = place[int(parent) if isinstance(place, list) else parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return json.dumps(document).encode()


def b64(data: bytes) -> str:
    """Standard base64 text."""
    return base64.b64encode(data).decode()
