"""Whom a trusted root of sigstore lets us believe: values, read without the cryptography that checks them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from images.errors import KeyUnusable
from images.strictjson import read_object

MAX_ROOT_BYTES: Final = 1024 * 1024
ROOT_TYPE: Final = "application/vnd.dev.sigstore.trustedroot+json;version=0.1"
_ROOT_PARTS: Final = ("certificateAuthorities", "ctlogs", "tlogs")
_MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class SigstoreRoot:
    """A trusted root as the operator gave it: authorities and logs. ``where``: its file, for people."""

    raw: bytes = field(repr=False)
    where: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Signer:
    """Whom a certificate is for: its one name as a URI, and what its extensions say; empty: nothing."""

    identity: str
    issuer: str
    repository: str = ""
    ref: str = ""


def read_sigstore_root(raw: bytes, where: str) -> SigstoreRoot:
    """A trusted root from a file of the operator's. KeyUnusable when it cannot be one.

    Its certificates are read when they are first needed: that takes half a second.
    """
    document = read_object(raw, where, max_bytes=MAX_ROOT_BYTES, max_depth=_MAX_DEPTH, error=KeyUnusable)
    if document.get("mediaType") != ROOT_TYPE:
        raise KeyUnusable(f"not a trusted root of type {ROOT_TYPE}", where=where)
    lacking = [name for name in _ROOT_PARTS if not document.get(name)]
    if lacking:
        raise KeyUnusable(f"a trusted root without {lacking[0]} can check nothing", where=where)
    return SigstoreRoot(raw, where)
