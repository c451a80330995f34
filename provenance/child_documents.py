"""Bytes and words as they stand in the documents on a child's pipes: written, and read back strictly."""

from __future__ import annotations

import base64
from typing import Final

from images.errors import UsageError
from images.strictjson import JsonValue

MAX_SAID: Final = 300
_WHERE: Final = "signing process"


def to_base64(raw: bytes) -> str:
    """Bytes, for JSON."""
    return base64.b64encode(raw).decode()


def read_words(value: JsonValue) -> str:
    """A short text, safe to show. Raises UsageError."""
    if not isinstance(value, str) or len(value) > MAX_SAID:
        raise UsageError("not a short text", where=_WHERE)
    return "".join(char if char.isprintable() else "?" for char in value)


def read_bytes(value: JsonValue) -> bytes:
    """Bytes out of base64. Raises UsageError."""
    if not isinstance(value, str):
        raise UsageError("not base64", where=_WHERE)
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise UsageError("not base64", where=_WHERE) from None


def read_bytes_list(value: JsonValue) -> tuple[bytes, ...]:
    """A list of them. Raises UsageError."""
    if not isinstance(value, list):
        raise UsageError("not a list", where=_WHERE)
    return tuple(map(read_bytes, value))
