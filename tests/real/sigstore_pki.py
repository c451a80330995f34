"""Keys, certificates and trust files of a private sigstore, written into a folder for its servers."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import jwt
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from provenance.keyless_request import CONFIG_TYPE
from provenance.sigstore_root import ROOT_TYPE

OIDC, CT, FULCIO, REKOR, TSA = 18000, 18001, 18002, 18003, 18004
USERS: Final = f"http://127.0.0.1:{OIDC}/user"
CI: Final = f"http://127.0.0.1:{OIDC}/ci"
REF: Final = "lab/demo/.ci/run@refs/heads/main"
IDENTITY: Final = f"https://ci.lab.example/{REF}"
_YEAR: Final = timedelta(days=365)


def _key() -> EllipticCurvePrivateKey:
    return generate_private_key(SECP256R1())


@dataclass
class Pki:
    """All private keys of one sigstore and of its two issuers of logins."""

    root: EllipticCurvePrivateKey = field(default_factory=_key)
    issuing: EllipticCurvePrivateKey = field(default_factory=_key)
    ct: EllipticCurvePrivateKey = field(default_factory=_key)
    rekor: EllipticCurvePrivateKey = field(default_factory=_key)
    stamps: EllipticCurvePrivateKey = field(default_factory=_key)
    stamping: EllipticCurvePrivateKey = field(default_factory=_key)
    logins: RSAPrivateKey = field(default_factory=lambda: generate_rsa(65537, 2048))

    def __post_init__(self) -> None:
        self.start = datetime.now(UTC) - timedelta(hours=1)
        root, stamps = _name("root"), _name("stamps")
        self.root_certificate = self._certificate(root, self.root, root, self.root, path=1)
        self.issuing_certificate = self._certificate(_name("issuing"), self.issuing, root, self.root, path=0)
        own = self._certificate(stamps, self.stamps, stamps, self.stamps, path=0, usage=None)
        self.stamps_certificate = own
        self.stamping_certificate = self._certificate(_name("stamping"), self.stamping, stamps, self.stamps)

    def _certificate(
        self,
        name: x509.Name,
        key: EllipticCurvePrivateKey,
        issuer: x509.Name,
        by: EllipticCurvePrivateKey,
        *,
        path: int | None = None,
        usage: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.CODE_SIGNING,
    ) -> x509.Certificate:
        authority = path is not None
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.start)
            .not_valid_after(self.start + _YEAR)
            .add_extension(_usage(authority), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False
            )
        )
        if authority:
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=path), critical=True)
        if path == 0 and usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if not authority:
            stamping = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
            builder = builder.add_extension(stamping, critical=True)
        return builder.sign(by, SHA256())

    def write(self, folder: Path) -> None:
        """What the servers read: keys in the form that each takes, chains, the issuers' documents."""
        folder.mkdir(parents=True)
        traditional = PrivateFormat.TraditionalOpenSSL
        for name, key, form in (
            ("ct.key", self.ct, traditional),  # it reads no PKCS 8
            ("issuing.key", self.issuing, PrivateFormat.PKCS8),
            ("rekor.key", self.rekor, PrivateFormat.PKCS8),
            ("stamping.key", self.stamping, PrivateFormat.PKCS8),
        ):
            (folder / name).write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
        public = self.ct.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / "ct.pub").write_bytes(public)
        for name, chain in (
            ("authority.pem", (self.issuing_certificate, self.root_certificate)),
            ("root.pem", (self.root_certificate,)),
            ("stamps.pem", (self.stamping_certificate, self.stamps_certificate)),
        ):
            (folder / name).write_bytes(b"".join(one.public_bytes(Encoding.PEM) for one in chain))
        (folder / "fulcio.yaml").write_text(yaml.safe_dump(_fulcio()))  # in JSON it would be an older form
        numbers = self.logins.public_key().public_numbers()
        jwk = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one"}
        jwk |= {"n": _url64(numbers.n), "e": _url64(numbers.e)}
        for issuer in (USERS, CI):
            place = folder / "issuers" / issuer.rsplit("/", 1)[1]
            (place / ".well-known").mkdir(parents=True)
            (place / ".well-known/openid-configuration").write_text(json.dumps(_discovery(issuer)))
            (place / "keys").write_text(json.dumps({"keys": [jwk]}))

    def token(self, issuer: str = CI, *, key: RSAPrivateKey | None = None, **claims: object) -> str:
        """A login as the issuer gives it out."""
        now = int(datetime.now(UTC).timestamp())
        said: dict[str, object] = {"iss": issuer, "aud": "sigstore", "sub": "lab", "iat": now, "nbf": now}
        said["exp"] = now + 600
        if issuer == CI:
            said |= {"repository": "lab/demo", "ref": "refs/heads/main", "sha": "01" * 20, "run_id": "7"}
            said |= {"job_workflow_ref": REF, "runner_environment": "lab"}
        else:
            said |= {"email": "checker@lab.example", "email_verified": True}
        claims = {name: value for name, value in (said | claims).items() if value is not None}
        return jwt.encode(claims, key or self.logins, algorithm="RS256", headers={"kid": "one"})

    def trusted_root(self, **other: object) -> dict[str, Any]:
        """For who verifies. ``other``: in place of one of its parts."""
        valid = {"start": self.start.isoformat()}

        def log(address: str, key: EllipticCurvePrivateKey) -> dict[str, Any]:
            der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            return {
                "baseUrl": address,
                "hashAlgorithm": "SHA2_256",
                "logId": {"keyId": _b64(hashlib.sha256(der).digest())},
                "publicKey": {
                    "rawBytes": _b64(der),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": valid,
                },
            }

        def authority(uri: str, *chain: x509.Certificate) -> dict[str, Any]:
            raw = [{"rawBytes": _b64(one.public_bytes(Encoding.DER))} for one in chain]
            return {
                "subject": {"organization": "lab", "commonName": "lab"},
                "uri": uri,
                "certChain": {"certificates": raw},
                "validFor": valid,
            }

        return {
            "mediaType": ROOT_TYPE,
            "tlogs": [log("https://rekor.lab.example", self.rekor)],
            "ctlogs": [log("https://ct.lab.example", self.ct)],
            "certificateAuthorities": [
                authority("https://fulcio.lab.example", self.issuing_certificate, self.root_certificate)
            ],
            "timestampAuthorities": [
                authority("https://tsa.lab.example", self.stamping_certificate, self.stamps_certificate)
            ],
        } | other


def signing_config(**other: object) -> bytes:
    """Where to sign."""

    def at(port: int, path: str = "", version: int = 1) -> list[dict[str, object]]:
        valid = {"start": "2025-01-01T00:00:00Z"}
        url = f"http://127.0.0.1:{port}{path}"
        return [{"url": url, "majorApiVersion": version, "operator": "lab", "validFor": valid}]

    document = {
        "mediaType": CONFIG_TYPE,
        "caUrls": at(FULCIO),
        "oidcUrls": at(OIDC, "/ci"),
        "rekorTlogUrls": at(REKOR, version=2),
        "rekorTlogConfig": {"selector": "ANY"},
        "tsaUrls": at(TSA, "/api/v1/timestamp"),
        "tsaConfig": {"selector": "ANY"},
    }
    return json.dumps(document | other).encode()


def _name(text: str) -> x509.Name:
    parts = ((NameOID.ORGANIZATION_NAME, "lab"), (NameOID.COMMON_NAME, text))
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _url64(number: int) -> str:
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _discovery(issuer: str) -> dict[str, object]:
    return {
        "issuer": issuer,
        "jwks_uri": f"{issuer}/keys",
        "authorization_endpoint": f"{issuer}/auth",
        "token_endpoint": f"{issuer}/token",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    }


def _fulcio() -> dict[str, object]:
    common = {"client-id": "sigstore"}
    return {
        "oidc-issuers": {
            USERS: {"issuer-url": USERS, "type": "email", **common},
            CI: {"issuer-url": CI, "type": "ci-provider", "ci-provider": "lab-ci", **common},
        },
        "ci-issuer-metadata": {
            "lab-ci": {
                "default-template-values": {"url": "https://ci.lab.example"},
                "extension-templates": {
                    "build-signer-uri": "{{ .url }}/{{ .job_workflow_ref }}",
                    "build-signer-digest": "sha",
                    "source-repository-uri": "{{ .url }}/{{ .repository }}",
                    "source-repository-digest": "sha",
                    "source-repository-ref": "ref",
                    "run-invocation-uri": "{{ .url }}/{{ .repository }}/runs/{{ .run_id }}",
                    "runner-environment": "runner_environment",
                },
                "subject-alternative-name-template": "{{ .url }}/{{ .job_workflow_ref }}",
            }
        },
    }
