"""What a signing process is asked and what it answers: the two documents on its pipes, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from images.credentials import Secret
from images.errors import HostError, UsageError
from images.strictjson import read_object
from provenance.child_documents import MAX_SAID, read_bytes, read_bytes_list, read_words, to_base64

MAX_REQUEST: Final = 64 * 1024 * 1024
MAX_ANSWER: Final = 64 * 1024 * 1024
MAX_CONFIG_BYTES: Final = 1024 * 1024
CONFIG_TYPE: Final = "application/vnd.dev.sigstore.signingconfig.v0.2+json"


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
            "signingConfig": to_base64(self.signing_config),
            "trustedRoot": to_base64(self.trusted_root),
            "token": None if self.token is None else to_base64(self.token.reveal()),
            "statements": [to_base64(one) for one in self.statements],
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
            "issuer": self.issuer[:MAX_SAID],
            "bundles": [to_base64(one) for one in self.bundles],
            "trouble": self.trouble and self.trouble.value,
            "what": self.what[:MAX_SAID],
        }
        return json.dumps(document).encode()


def read_request(raw: bytes) -> SigningRequest:
    """In the signing process."""
    document = read_object(raw, "request", max_bytes=MAX_REQUEST)
    token = document.get("token")
    return SigningRequest(
        signing_config=read_bytes(document.get("signingConfig")),
        trusted_root=read_bytes(document.get("trustedRoot")),
        token=None if token is None else Secret(read_bytes(token)),
        statements=read_bytes_list(document.get("statements")),
    )


def read_answer(raw: bytes) -> SigningAnswer:
    """Of a process that talked to the network: HostError when it is not an answer."""
    where = "signing process"
    document = read_object(raw, where, max_bytes=MAX_ANSWER, error=HostError)
    trouble, what, issuer = document.get("trouble"), document.get("what"), document.get("issuer")
    try:
        return SigningAnswer(
            issuer=read_words(issuer),
            bundles=read_bytes_list(document.get("bundles")),
            trouble=None if trouble is None else Trouble(read_words(trouble)),
            what=read_words(what),
        )
    except (UsageError, ValueError):
        raise HostError("not an answer", where=where) from None
