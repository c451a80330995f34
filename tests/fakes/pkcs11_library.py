"""A token of python, under the library's own names: what a real one does, and what none can be asked to do.

Run in place of the signing process (``child``), it replaces only ``pkcs11.lib``: all above is the product's.
The module that settings name is a JSON file here: tokens, keys, faults.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pkcs11
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from pkcs11 import exceptions

ROOT = Path(__file__).resolve().parents[2]
P256 = "06082a8648ce3d030107"
P384 = "06052b81040022"


def child(folder: Path) -> str:
    """What stands for the interpreter."""
    path = folder / "python"
    start = "from tests.fakes.pkcs11_library import main; main()"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {start}"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
    path.chmod(0o755)
    return str(path)


def main() -> None:
    from provenance import pkcs11_signing  # noqa: PLC0415

    pkcs11.lib = Library  # type: ignore[assignment,misc]
    raise SystemExit(pkcs11_signing.main())


class Library:
    def __init__(self, path: str) -> None:
        self.path = Path(path)
        try:
            self.known = json.loads(self.path.read_text())
        except ValueError:
            raise exceptions.PKCS11Error("not a module") from None

    def get_tokens(self, *, token_label: str, token_flags: object) -> list[Token]:
        assert token_flags is pkcs11.TokenFlag.TOKEN_INITIALIZED
        return [Token(self, one) for one in self.known["tokens"] if one["label"] == token_label]


class Token:
    def __init__(self, library: Library, known: dict[str, Any]) -> None:
        self.library, self.known = library, known

    def fault(self, step: str) -> None:
        """What is asked of this token at this step."""
        fault = self.known["faults"].get(step)
        if fault == "block":
            time.sleep(60)
        elif fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif fault == "print":
            os.write(1, b'{"publicKey": "", "signatures": []}\n')
        elif fault:
            raise getattr(exceptions, fault)()

    @property
    def flags(self) -> pkcs11.TokenFlag:
        return pkcs11.TokenFlag(self.known.get("flags", 0))

    def open(self, *, user_pin: str) -> Session:
        with self.library.path.with_suffix(".logins").open("a") as log:
            log.write("one\n")
        self.fault("login")
        if user_pin != self.known["pin"]:
            raise exceptions.PinIncorrect
        return Session(self)


class Session:
    def __init__(self, token: Token) -> None:
        self.token = token

    def close(self) -> None:
        self.token.fault("close")

    def get_objects(self, asked: dict[pkcs11.Attribute, Any]) -> list[Key]:
        self.token.fault("find")
        made = [Key(self.token, one, asked[pkcs11.Attribute.CLASS]) for one in self.token.known["keys"]]
        if asked[pkcs11.Attribute.CLASS] is pkcs11.ObjectClass.PUBLIC_KEY:
            made = [one for one in made if not one.known.get("no_public")]
        return [one for one in made if all(one[name] == value for name, value in asked.items())]


class Key:
    def __init__(self, token: Token, known: dict[str, Any], kind: pkcs11.ObjectClass) -> None:
        self.token, self.known, self.kind = token, known, kind
        self.key_type = {"rsa": pkcs11.KeyType.RSA, "ed25519": pkcs11.KeyType.EC_EDWARDS}.get(
            known["kind"], pkcs11.KeyType.EC
        )

    def __getitem__(self, name: pkcs11.Attribute) -> Any:
        raw = load_pem_private_key(self.known["pem"].encode(), None)
        if name is pkcs11.Attribute.EC_POINT:
            point = raw.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
            return bytes([4, len(point)]) + point
        return {
            pkcs11.Attribute.CLASS: self.kind,
            pkcs11.Attribute.LABEL: self.known["label"],
            pkcs11.Attribute.ID: bytes.fromhex(self.known["id"]),
            pkcs11.Attribute.EC_PARAMS: bytes.fromhex(P384 if self.known["kind"] == "p384" else P256),
            pkcs11.Attribute.ALWAYS_AUTHENTICATE: self.known.get("again", False),
        }[name]

    def sign(self, digest: bytes, *, mechanism: pkcs11.Mechanism, pin: str | None = None) -> bytes:
        assert mechanism is pkcs11.Mechanism.ECDSA
        self.token.fault("sign")
        if self.known.get("again") and pin != self.token.known["pin"]:
            raise exceptions.UserNotLoggedIn
        raw = load_pem_private_key(self.known["pem"].encode(), None)
        assert isinstance(raw, ec.EllipticCurvePrivateKey)
        if self.known.get("lies"):
            digest = bytes(32)
        r, s = decode_dss_signature(raw.sign(digest, ec.ECDSA(Prehashed(SHA256()))))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
