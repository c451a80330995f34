"""What a signing process is asked and what it answers: the two documents on its pipes, as values."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from images.credentials import Secret
from images.errors import HostError, UsageError
from images.strictjson import JsonValue, read_object

MAX_REQUEST: Final = 64 * 1024 * 1024
MAX_ANSWER: Final = 64 * 1024 * 1024
MAX_CONFIG_BYTES: Final = 1024 * 1024
CONFIG_TYPE: Final = "application/vnd.dev.sigstore.signingconfig.v0.2+json"
_SAID: Final = 300


class Trouble(StrEnum):
    """Why nothing was signed."""

    IDENTITY = "identity"  # no token, or none that can be used
    CONFIG = "config"  # the signing configuration or the trusted root is none
    UNREACHABLE = "unreachable"
    REFUSED = "refused"  # by a service, which was reached: an HTTP status of 400 to 499
    SERVER = "server"
    UNTRUSTED = "untrusted"  # what a service answered does not hold under the trusted root


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningRequest:
    """``token``: given; None: the one that the CI system hands out. No statements: only try to have one."""

    signing_config: bytes = field(repr=False)
    trusted_root: bytes = field(repr=False)
    token: Secret | None
    statements: tuple[bytes, ...] = field(repr=False)

    def to_json(self) -> bytes:
        """For standard input."""
        document = {
            "signingConfig": _b64(self.signing_config),
            "trustedRoot": _b64(self.trusted_root),
            "token": None if self.token is None else _b64(self.token.reveal()),
            "statements": [_b64(one) for one in self.statements],
        }
        return json.dumps(document).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningAnswer:
    """Either ``trouble`` and its words, or a bundle for each statement. ``issuer``: what the token claims."""

    issuer: str = ""
    bundles: tuple[bytes, ...] = field(default=(), repr=False)
    trouble: Trouble | None = None
    what: str = ""

    def to_json(self) -> bytes:
        """For standard output."""
        document = {
            "issuer": self.issuer[:_SAID],
            "bundles": [_b64(one) for one in self.bundles],
            "trouble": self.trouble and self.trouble.value,
            "what": self.what[:_SAID],
        }
        return json.dumps(document).encode()


def read_request(raw: bytes) -> SigningRequest:
    """In the signing process."""
    document = read_object(raw, "request", max_bytes=MAX_REQUEST)
    token = document.get("token")
    return SigningRequest(
        signing_config=_bytes(document.get("signingConfig")),
        trusted_root=_bytes(document.get("trustedRoot")),
        token=None if token is None else Secret(_bytes(token)),
        statements=_list(document.get("statements")),
    )


def read_answer(raw: bytes) -> SigningAnswer:
    """Of a process that talked to the network: HostError when it is not an answer."""
    where = "signing process"
    document = read_object(raw, where, max_bytes=MAX_ANSWER, error=HostError)
    trouble, what, issuer = document.get("trouble"), document.get("what"), document.get("issuer")
    try:
        return SigningAnswer(
            issuer=_text(issuer),
            bundles=_list(document.get("bundles")),
            trouble=None if trouble is None else Trouble(_text(trouble)),
            what=_text(what),
        )
    except (UsageError, ValueError):
        raise HostError("not an answer", where=where) from None


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _text(value: JsonValue) -> str:
    if not isinstance(value, str) or len(value) > _SAID:
        raise UsageError("not a short text", where="signing process")
    return "".join(char if char.isprintable() else "?" for char in value)


def _bytes(value: JsonValue) -> bytes:
    if not isinstance(value, str):
        raise UsageError("not base64", where="signing process")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise UsageError("not base64", where="signing process") from None


def _list(value: JsonValue) -> tuple[bytes, ...]:
    if not isinstance(value, list):
        raise UsageError("not a list", where="signing process")
    return tuple(map(_bytes, value))
