"""A sigstore that a test makes from keys: an authority, a CT log, a transparency log and their trusted root.

Nothing listens anywhere. The bundles are what such services would have led to; the real library takes them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from images.attestation import Attestation
from images.authenticity import BY_PUBLISHER
from images.lock import Artifact, ArtifactKind
from provenance.publishers import Publisher

BUNDLE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
IN_TOTO: Final = "application/vnd.in-toto+json"
PUBLISHED: Final = "https://docs.pypi.org/attestations/publish/v1"
ISSUER: Final = "https://token.ci.example"
REPOSITORY: Final = "https://forge.example/team/tool"
WORKFLOW: Final = ".ci/release.yml"
REF: Final = "refs/tags/v1.0.0"
EXPECTED: Final = Publisher(issuer=ISSUER, repository=REPOSITORY, workflow=WORKFLOW)
_START: Final = datetime(2025, 1, 1, tzinfo=UTC)
_OID: Final = "1.3.6.1.4.1.57264.1."
_SCT_LIST: Final = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")

Document = dict[str, Any]


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def spki(key: EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class Who:
    """Whom a certificate is for. ``repository``, ``ref``: empty, and the certificate says nothing of them."""

    identity: str = f"{REPOSITORY}/{WORKFLOW}@{REF}"
    issuer: str = ISSUER
    repository: str = REPOSITORY
    ref: str = REF


@dataclass(frozen=True)
class Keys:
    """The private keys of one sigstore."""

    root: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP256R1()))
    issuing: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP256R1()))
    ct: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP256R1()))
    log: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP256R1()))


@dataclass
class Sigstore:
    """One of them. ``at``: when it signs; certificates live for ten minutes from there."""

    keys: Keys = field(default_factory=Keys)
    at: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)
    late: timedelta = timedelta(seconds=1)  # between the certificate and the entry in the log

    def __post_init__(self) -> None:
        self.root = _authority("root", self.keys.root, "root", self.keys.root, 1)
        self.issuing = _authority("issuing", self.keys.issuing, "root", self.keys.root, 0)

    def trusted_root(self, **other: Document) -> bytes:
        """The file for who verifies. ``other``: in place of what is said of one part."""
        authority = {
            "subject": {"organization": "test", "commonName": "root"},
            "uri": "https://ca.example",
            "certChain": {
                "certificates": [
                    {"rawBytes": b64(one.public_bytes(Encoding.DER))} for one in (self.issuing, self.root)
                ]
            },
            "validFor": {"start": _START.isoformat()},
        }
        document = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [_log("https://log.example", self.keys.log)],
            "ctlogs": [_log("https://ct.example", self.keys.ct)],
            "certificateAuthorities": [authority],
            **other,
        }
        return json.dumps(document).encode()

    def bundle(self, payload: bytes, who: Who | None = None, *, payload_type: str = IN_TOTO) -> Document:
        """A bundle v0.3 over one in-toto statement, signed by ``who``."""
        key = generate_private_key(SECP256R1())
        certificate = self.certificate(key, who or Who())
        signature = key.sign(pae(payload_type, payload), ECDSA(SHA256()))
        return {
            "mediaType": BUNDLE,
            "verificationMaterial": {
                "certificate": {"rawBytes": b64(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [self.entry(payload, signature, certificate)],
            },
            "dsseEnvelope": {
                "payload": b64(payload),
                "payloadType": payload_type,
                "signatures": [{"sig": b64(signature)}],
            },
        }

    def certificate(self, key: EllipticCurvePrivateKey, who: Who) -> x509.Certificate:
        """As Fulcio issues it: a few minutes long, with the promise of the CT log inside."""
        name = (
            x509.RFC822Name
            if "@" in who.identity and ":" not in who.identity
            else x509.UniformResourceIdentifier
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(_name("issuing"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.at)
            .not_valid_after(self.at + timedelta(minutes=10))
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.keys.issuing.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([name(who.identity)]), critical=True)
        )
        for number, text in ((8, who.issuer), (12, who.repository), (14, who.ref)):
            if text:
                builder = builder.add_extension(_said(number, text), critical=False)
        before = builder.sign(self.keys.issuing, SHA256())
        promise = self._promise(before.tbs_certificate_bytes)
        return builder.add_extension(x509.UnrecognizedExtension(_SCT_LIST, promise), critical=False).sign(
            self.keys.issuing, SHA256()
        )

    def entry(self, payload: bytes, signature: bytes, certificate: x509.Certificate) -> Document:
        """The log's entry, of its first generation: proof, checkpoint, promise and time."""
        body = rfc8785.dumps(
            {
                "apiVersion": "0.0.1",
                "kind": "dsse",
                "spec": {
                    "envelopeHash": {"algorithm": "sha256", "value": "0" * 64},
                    "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
                    "signatures": [
                        {"signature": b64(signature), "verifier": b64(certificate.public_bytes(Encoding.PEM))}
                    ],
                },
            }
        )
        return self.logged(body)

    def logged(self, body: bytes, kind: str = "dsse", version: str = "0.0.1") -> Document:
        """This body as the second entry of a log of two."""
        log_id = hashlib.sha256(spki(self.keys.log)).digest()
        other = hashlib.sha256(b"\0another entry").digest()
        top = hashlib.sha256(b"\1" + other + hashlib.sha256(b"\0" + body).digest()).digest()
        note = f"log.example\n2\n{b64(top)}\n"
        signed = self.keys.log.sign(note.encode(), ECDSA(SHA256()))
        time = int((self.at + self.late).timestamp())
        promise = rfc8785.dumps(
            {"body": b64(body), "integratedTime": time, "logID": log_id.hex(), "logIndex": 1}
        )
        return {
            "logIndex": "1",
            "logId": {"keyId": b64(log_id)},
            "kindVersion": {"kind": kind, "version": version},
            "integratedTime": str(time),
            "inclusionPromise": {"signedEntryTimestamp": b64(self.keys.log.sign(promise, ECDSA(SHA256())))},
            "inclusionProof": {
                "logIndex": "1",
                "rootHash": b64(top),
                "treeSize": "2",
                "hashes": [b64(other)],
                "checkpoint": {"envelope": f"{note}\n\u2014 log.example {b64(log_id[:4] + signed)}\n"},
            },
            "canonicalizedBody": b64(body),
        }

    def _promise(self, before: bytes) -> bytes:
        """The CT log's list of one promise, as the extension holds it."""
        issuer = hashlib.sha256(spki(self.keys.issuing)).digest()
        time = int(self.at.timestamp() * 1000)
        signed = (
            struct.pack(">BBQH", 0, 0, time, 1) + issuer + len(before).to_bytes(3, "big") + before + b"\0\0"
        )
        signature = self.keys.ct.sign(signed, ECDSA(SHA256()))
        log = hashlib.sha256(spki(self.keys.ct)).digest()
        promise = b"\0" + log + struct.pack(">QHBBH", time, 0, 4, 3, len(signature)) + signature
        listed = struct.pack(">HH", len(promise) + 2, len(promise)) + promise
        return b"\4" + (bytes([len(listed)]) if len(listed) < 128 else bytes([0x81, len(listed)])) + listed


def pae(payload_type: str, payload: bytes) -> bytes:
    """What DSSE signs."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def npm_statement(name: str, version: str, sha512: str, **other: object) -> bytes:
    """What a build service says of an npm package. ``other``: in place of parts of it."""
    purl = f"pkg:npm/{name.replace('@', '%40', 1)}@{version}"
    return statement(**{"subject": [{"name": purl, "digest": {"sha512": sha512}}], **other})


def statement(**other: object) -> bytes:
    """An in-toto statement."""
    document = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {"buildDefinition": {"buildType": "https://build.example/v1"}},
        **other,
    }
    return json.dumps(document).encode()


def about(artifact: Artifact, **other: object) -> bytes:
    """A statement about this artifact, as its index's publishers make them."""
    integrity = artifact.integrity
    if artifact.kind is not ArtifactKind.WHEEL:
        return npm_statement(artifact.name, artifact.version, integrity.hex, **other)
    subject = [{"name": artifact.filename, "digest": {integrity.algorithm: integrity.hex}}]
    return statement(**{"subject": subject, "predicateType": PUBLISHED, "predicate": None, **other})


def attested(artifact: Artifact, sigstore: Sigstore, who: Who | None = None) -> Artifact:
    """The artifact as a lock has it whose maker expected this publisher."""
    who = who or Who()
    raw = json.dumps(sigstore.bundle(about(artifact), who)).encode()
    return replace(
        artifact,
        authenticated=BY_PUBLISHER[artifact.kind],
        signer=who.identity,
        signature="",
        attestation=Attestation(who.identity, who.issuer, b64(raw)),
    )


def pep740(bundle: Document) -> Document:
    """One attestation as PyPI gives it: the parts of a bundle under other names."""
    material, envelope = bundle["verificationMaterial"], bundle["dsseEnvelope"]
    return {
        "version": 1,
        "verification_material": {
            "certificate": material["certificate"]["rawBytes"],
            "transparency_entries": material["tlogEntries"],
        },
        "envelope": {"statement": envelope["payload"], "signature": envelope["signatures"][0]["sig"]},
    }


def pypi_document(*bundles: Document) -> Document:
    """What PyPI's integrity API says of one file."""
    publisher = {"kind": "GitHub", "claims": None, "repository": "any/thing", "workflow": "x.yml"}
    attestations = [pep740(bundle) for bundle in bundles]
    return {"version": 1, "attestation_bundles": [{"publisher": publisher, "attestations": attestations}]}


def npm_document(*bundles: Document) -> Document:
    """What npm's registry says of one version; what it says of the predicate is not signed."""
    return {
        "attestations": [{"predicateType": "https://any.example", "bundle": bundle} for bundle in bundles]
    }


def _name(text: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "test"), x509.NameAttribute(NameOID.COMMON_NAME, text)]
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=not signs,
        crl_sign=not signs,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(
    name: str, key: EllipticCurvePrivateKey, issuer: str, signer: EllipticCurvePrivateKey, length: int
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_START)
        .not_valid_after(_START + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=length), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if not length:
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
        )
    return builder.sign(signer, SHA256())


def _said(number: int, text: str) -> x509.UnrecognizedExtension:
    raw = text.encode()
    size = bytes([len(raw)]) if len(raw) < 128 else b"\x82" + struct.pack(">H", len(raw))
    return x509.UnrecognizedExtension(x509.ObjectIdentifier(f"{_OID}{number}"), b"\x0c" + size + raw)


def _log(address: str, key: EllipticCurvePrivateKey) -> Document:
    der = spki(key)
    return {
        "baseUrl": address,
        "hashAlgorithm": "SHA2_256",
        "logId": {"keyId": b64(hashlib.sha256(der).digest())},
        "publicKey": {
            "rawBytes": b64(der),
            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            "validFor": {"start": _START.isoformat()},
        },
    }
