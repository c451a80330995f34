"""What a process that talks to a token is asked, and its answer: two documents on its pipes, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from images.credentials import Secret
from images.errors import HostError, KeyUnusable, UsageError
from images.strictjson import JsonValue, read_object
from provenance.child_documents import MAX_SAID, read_bytes, read_bytes_list, read_words, to_base64

MAX_REQUEST: Final = 1024 * 1024
MAX_ANSWER: Final = 1024 * 1024


class TokenTrouble(StrEnum):
    """Why nothing was signed: the reason of the error that a user sees."""

    MODULE = "token-module"  # it cannot be loaded, or broke
    ABSENT = "token-absent"  # no token of this label, or several
    PIN = "token-pin"
    KEY = "token-key"  # none, several, of another kind, or not the one that is trusted
    DEVICE = "token-device"  # it failed, or was taken out
    TIMEOUT = "token-timeout"  # it did not answer in time


class Step(StrEnum):
    """How far it came: the only words of a child's standard error that are shown."""

    LOADING = "loading the module"
    LOGGING_IN = "logging in to the token"
    FINDING = "looking for the key"
    SIGNING = "waiting for a signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """``digests``: SHA-256 of what is to be signed; none: only log in and find the key."""

    module: str
    token: str
    label: str | None
    key_id: bytes | None
    pin: Secret
    digests: tuple[bytes, ...]

    def to_json(self) -> bytes:
        """For standard input."""
        document = {
            "module": self.module,
            "token": self.token,
            "label": self.label,
            "keyId": None if self.key_id is None else to_base64(self.key_id),
            "pin": to_base64(self.pin.reveal()),
            "digests": [to_base64(one) for one in self.digests],
        }
        return json.dumps(document).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAnswer:
    """Either ``trouble`` and its words, or a signature for each digest.

    ``public_key``: the public key beside the private one, as DER; empty where the token keeps none.
    """

    public_key: bytes = b""
    signatures: tuple[bytes, ...] = field(default=(), repr=False)
    trouble: TokenTrouble | None = None
    what: str = ""

    def to_json(self) -> bytes:
        """For standard output."""
        document = {
            "publicKey": to_base64(self.public_key),
            "signatures": [to_base64(one) for one in self.signatures],
            "trouble": self.trouble and self.trouble.value,
            "what": self.what[:MAX_SAID],
        }
        return json.dumps(document).encode()


def read_token_request(raw: bytes) -> TokenRequest:
    """In the process that talks to the token."""
    document = read_object(raw, "request", max_bytes=MAX_REQUEST)
    key_id = document.get("keyId")
    label = document.get("label")
    return TokenRequest(
        module=_text(document.get("module")),
        token=_text(document.get("token")),
        label=None if label is None else _text(label),
        key_id=None if key_id is None else read_bytes(key_id),
        pin=Secret(read_bytes(document.get("pin"))),
        digests=read_bytes_list(document.get("digests")),
    )


def read_token_answer(raw: bytes) -> TokenAnswer:
    """Of a process that loaded somebody's library: KeyUnusable when it is not an answer."""
    where = "signing process"
    try:
        document = read_object(raw, where, max_bytes=MAX_ANSWER, error=HostError)
        trouble = document["trouble"]
        return TokenAnswer(
            public_key=read_bytes(document["publicKey"]),
            signatures=read_bytes_list(document["signatures"]),
            trouble=None if trouble is None else TokenTrouble(read_words(trouble)),
            what=read_words(document["what"]),
        )
    except (HostError, UsageError, ValueError, KeyError):
        what = "what the process that talks to the token said is not an answer"
        raise KeyUnusable(what, where=where, reason=TokenTrouble.MODULE) from None


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise UsageError("not a text", where="request")
    return value
