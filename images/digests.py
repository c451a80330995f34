"""Digests, integrities and canonical JSON: how a thing is named by its bytes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Self

import rfc8785

from images.errors import UsageError

_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_INTEGRITY_SIZES = {"sha256": 32, "sha512": 64}


class Digest(str):
    """``sha256:`` and 64 lowercase hex digits; nothing else can become one."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        if not _SHA256.fullmatch(value):
            raise UsageError(
                f"not a digest: {value[:100]!r}",
                hint="a digest is sha256: followed by 64 lowercase hexadecimal digits",
            )
        return super().__new__(cls, value)

    @property
    def hex(self) -> str:
        """The 64 hex digits."""
        return self[7:]

    @classmethod
    def of(cls, data: bytes | memoryview) -> Self:
        """The digest of these bytes."""
        return cls("sha256:" + hashlib.sha256(data).hexdigest())

    @classmethod
    def from_hex(cls, hexdigits: str) -> Self:
        """From 64 hex digits without the algorithm."""
        return cls("sha256:" + hexdigits)


@dataclass(frozen=True, slots=True, order=True)
class Integrity:
    """The hash that names an artifact: algorithm (sha256 or sha512) and lowercase hex.

    npm writes ``sha512-<base64>`` (Subresource Integrity); everybody else writes hex.
    """

    algorithm: str
    hex: str

    def __post_init__(self) -> None:
        size = _INTEGRITY_SIZES.get(self.algorithm)
        if size is None or not re.fullmatch(rf"[0-9a-f]{{{2 * size}}}", self.hex):
            raise UsageError(f"not an integrity: {self.algorithm[:20]!r}, {self.hex[:140]!r}")

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``algorithm:hex``."""
        algorithm, _, hexdigits = text.partition(":")
        return cls(algorithm, hexdigits)

    @classmethod
    def from_sri(cls, text: str) -> Self:
        """From one Subresource Integrity hash, ``sha512-<base64>``. Weaker algorithms are refused."""
        algorithm, _, encoded = text.partition("-")
        try:
            raw = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise UsageError(f"not an integrity: {text[:140]!r}") from None
        return cls(algorithm, raw.hex())

    @property
    def sri(self) -> str:
        """As npm writes it."""
        return f"{self.algorithm}-{base64.b64encode(bytes.fromhex(self.hex)).decode()}"


def canonical_json(value: object) -> bytes:
    """RFC 8785 bytes of a JSON value (no float surprises: integers of 2**53 and beyond raise)."""
    return rfc8785.dumps(value)  # type: ignore[arg-type]
