"""Keys on a token, as settings.toml names them: module, token, key, and the public key that it must be."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from images.errors import KeyUnusable
from provenance.keys import MAX_KEY_BYTES, PublicKey, load_public_key
from provenance.pkcs11_request import TokenTrouble
from provenance.policy_model import Role

_LABEL: Final = r"^[^\x00-\x1f\x7f]{1,255}$"
_TOKEN_LABEL: Final = 32  # bytes: the length of the field in PKCS#11


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenKey:
    """Where a role's private key is. ``environment``: all that the module is told besides."""

    module: Path
    token: str
    label: str | None
    key_id: bytes | None
    public_key: Path
    environment: tuple[tuple[str, str], ...] = ()


def _absolute(text: str) -> str:
    if not text.startswith("/") or "\0" in text or len(text) > 4000:
        raise ValueError("expected an absolute path")
    return text


def _token(text: str) -> str:
    if len(text.encode()) > _TOKEN_LABEL:
        raise ValueError(f"expected a token's label: at most {_TOKEN_LABEL} bytes")
    return text


def _variable(text: str) -> str:
    if text in {"PATH", "HOME"} or text.startswith(("LD_", "PYTHON")):
        raise ValueError("not a variable of a PKCS#11 module")
    return text


_Path = Annotated[str, AfterValidator(_absolute)]
_Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"), AfterValidator(_variable)]


class _TokenKeyToml(BaseModel):
    """One key."""

    model_config = ConfigDict(extra="forbid", strict=True)
    module: _Path
    token: Annotated[str, Field(pattern=_LABEL), AfterValidator(_token)]
    label: Annotated[str, Field(pattern=_LABEL)] | None = None
    id: Annotated[str, Field(pattern=r"^(?:[0-9a-f]{2}){1,64}$")] | None = None
    public_key: _Path
    environment: Annotated[dict[_Variable, Annotated[str, Field(pattern=_LABEL)]], Field(max_length=20)] = {}

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.label is None and self.id is None:
            raise ValueError("name the key by label, by id, or by both")
        return self

    def key(self) -> TokenKey:
        """As a value."""
        return TokenKey(
            module=Path(self.module),
            token=self.token,
            label=self.label,
            key_id=None if self.id is None else bytes.fromhex(self.id),
            public_key=Path(self.public_key),
            environment=tuple(sorted(self.environment.items())),
        )


class Pkcs11Toml(BaseModel):
    """A key for each role whose statements a token may sign. Launches are recorded with a key file."""

    model_config = ConfigDict(extra="forbid", strict=True)
    builder: _TokenKeyToml | None = None
    verifier: _TokenKeyToml | None = None
    rebuilder: _TokenKeyToml | None = None

    def keys(self) -> tuple[tuple[Role, TokenKey], ...]:
        """Those that are named."""
        named = ((role, getattr(self, role, None)) for role in Role)
        return tuple((role, one.key()) for role, one in named if one is not None)


def require_module(path: Path) -> None:
    """The library that the PIN is given to: there, and nobody else can change it. Raises KeyUnusable."""
    try:
        status = path.stat()
    except OSError as broken:
        why = f"the PKCS#11 module cannot be used: {broken.strerror}"
    else:
        if stat.S_ISREG(status.st_mode) and not status.st_mode & 0o022:
            if status.st_uid in (0, os.geteuid()):
                return
            why = f"the PKCS#11 module belongs to uid {status.st_uid}, neither to us nor to root"
        elif stat.S_ISREG(status.st_mode):
            why = "others can change the PKCS#11 module"
        else:
            why = "the PKCS#11 module is not a regular file"
    hint = "correct module in settings.toml, or install the token's library"
    raise KeyUnusable(why, where=str(path), hint=hint, reason=TokenTrouble.MODULE)


def read_public_key(path: Path) -> PublicKey:
    """The key that a token's signatures must be of. Raises KeyUnusable."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_KEY_BYTES + 1)
    except OSError as broken:
        raise KeyUnusable(
            f"the token's public key cannot be read: {broken.strerror}",
            where=str(path),
            hint="docs/how-to/sign-with-a-token.md: read it out of the token",
            reason=TokenTrouble.KEY,
        ) from None
    key = load_public_key(raw, str(path))
    if not isinstance(key.key, EllipticCurvePublicKey):
        what = "not an ECDSA P-256 key, the only kind that we sign with"
        raise KeyUnusable(what, where=str(path), reason=TokenTrouble.KEY)
    return key
