"""The store of logins: one private file for each, written whole or not at all, sealed by a keyring's key."""

from __future__ import annotations

import base64
import functools
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from backend.logins.keyring import Keyring
from backend.projection.credentials import MAX_CREDENTIAL_BYTES, Credential, read_credential
from backend.projection.routes import kept_name
from images.config import AgentName
from images.credentials import Secret
from images.digests import canonical_json
from images.errors import KeyUnusable, StateError, UsageError
from images.strictjson import JsonValue, is_number, read_object
from provenance.small_files import read_small
from provenance.statements import utc
from provenance.writing import replace_file, state_errors

DEFAULT_NAME: Final = "default"
MAX_LOGINS: Final = 1000
_SCHEMA: Final = 1
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SUFFIX: Final = ".login"
_LEASE: Final = ".lease"
_MAX_CREDENTIALS: Final = 16
_MAX_FILE: Final = 8 * MAX_CREDENTIAL_BYTES
_NONCE: Final = 12
_PLAIN, _KEYRING = "none", "keyring"


@dataclass(frozen=True, slots=True, order=True)
class LoginName:
    """Whose login, and which of that agent's. Its own words are in file names and in what people read."""

    agent: AgentName
    name: str = DEFAULT_NAME

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError("not a name for a login", hint="a-z, 0-9 and -, at most 40")

    def __str__(self) -> str:
        return f"{self.agent}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLogin:
    """What is known of one without its key. ``rotates``: a use can renew it, so it is leased."""

    name: LoginName
    saved: str
    credentials: tuple[str, ...]
    rotates: bool
    encrypted: bool


class LoginStore:
    """A private directory of the operator's, outside of every state root.

    ``find``: asked for the keyring when it is needed first; None where there is none.
    """

    def __init__(self, root: Path, find: Callable[[], Keyring | None]) -> None:
        self._root = root
        self._find = find

    @functools.cached_property
    def _keyring(self) -> Keyring | None:
        return self._find()

    @property
    def encrypts(self) -> bool:
        """Whether there is a keyring to encrypt with."""
        return self._keyring is not None

    def prepare(self) -> None:
        """Before somebody logs in for it: the keyring serves, or says why not. Raises KeyUnusable."""
        if self._keyring is not None:
            self._keyring.make_key()

    def path(self, name: LoginName, *, lease: bool = False) -> Path:
        """The file of one login, or the one that is locked by who uses it; neither need be there."""
        return self._root / f"{name}{_LEASE if lease else _SUFFIX}"

    def names(self) -> tuple[LoginName, ...]:
        """Those there are, in order."""
        if not self._is_there():
            return ()
        found = []
        try:
            paths = sorted(self._root.iterdir())
        except OSError as broken:
            raise StateError(f"cannot be listed: {broken.strerror}", where=str(self._root)) from None
        for path in paths:
            agent, _, name = path.name.removesuffix(_SUFFIX).partition(".")
            if path.name.endswith(_SUFFIX) and agent in set(AgentName) and _NAME.fullmatch(name):
                found.append(LoginName(AgentName(agent), name))
        return tuple(found[:MAX_LOGINS])

    def look(self, name: LoginName) -> KeptLogin | None:
        """What is known of it; None when there is none. Needs no keyring."""
        document = self._document(name)
        if document is None:
            return None
        names = document["credentials"]
        named = names if isinstance(names, list) else []
        known = tuple(one for one in named if isinstance(one, str))
        routes = [kept_name(one) for one in known]
        if not known or None in routes or len(known) != len(named):
            raise self._damaged(name, "it names no credential that there is")
        return KeptLogin(
            name=name,
            saved=str(document["saved"])[:40],
            credentials=known,
            rotates=any(one is not None and one.route.rotates for one in routes),
            encrypted=document["sealed"] == _KEYRING,
        )

    def read(self, name: LoginName, now: datetime) -> tuple[Credential, ...]:
        """Its credentials, each judged as strictly as when it came. Raises KeyUnusable for a locked keyring,
        StateError for what is damaged, UsageError where there is none."""
        known, document = self.look(name), self._document(name)
        if known is None or document is None:
            raise UsageError(
                f"there is no login {name}", where="logins", hint=f"builder login {name.agent}{as_name(name)}"
            )
        content = document["content"]
        if not isinstance(content, str):
            raise self._damaged(name, "it has no content")
        texts = read_object(
            self._opened(name, content, encrypted=known.encrypted),
            str(name),
            max_bytes=_MAX_FILE,
            max_depth=2,
            error=StateError,
        )
        if sorted(texts) != sorted(known.credentials):
            raise self._damaged(name, "its content is not what it names")
        found = []
        for key, text in sorted(texts.items()):
            credential = kept_name(key)
            if credential is None or not isinstance(text, str):
                raise self._damaged(name, "its content is no text")
            found.append(read_credential(credential, text.encode(), now))
        return tuple(found)

    def write(
        self, name: LoginName, credentials: tuple[Credential, ...], now: datetime, *, encrypted: bool
    ) -> None:
        """Whole or not at all, in the place of what was. KeyUnusable when the keyring does not serve."""
        if not 1 <= len(credentials) <= _MAX_CREDENTIALS:
            raise UsageError(f"a login of {len(credentials)} credentials", where=str(name))
        self._make()
        texts: dict[str, JsonValue] = {str(one.name): one.content.reveal().decode() for one in credentials}
        raw = canonical_json(texts)
        document: dict[str, JsonValue] = {
            "schema": _SCHEMA,
            "saved": utc(now),
            "credentials": [*sorted(texts)],
            "sealed": _KEYRING if encrypted else _PLAIN,
            "content": self._sealed(name, raw) if encrypted else raw.decode(),
        }
        replace_file(self.path(name), canonical_json(document), 0o600)

    def remove(self, name: LoginName) -> bool:
        """Whether there was one."""
        if not self._is_there():
            return False
        path = self.path(name)
        with state_errors(path):
            there = path.exists()
            path.unlink(missing_ok=True)
        return there

    def lock_path(self, name: LoginName) -> Path:
        """The file whose kernel lock is the lease; its directory is made."""
        self._make()
        return self.path(name, lease=True)

    def _document(self, name: LoginName) -> dict[str, JsonValue] | None:
        if not self._is_there():
            return None
        path = self.path(name)
        try:
            status = path.lstat()
            _need_private(status, path, stat.S_ISREG(status.st_mode))
            raw = read_small(path, _MAX_FILE)
        except FileNotFoundError:
            return None
        except OSError as broken:
            raise StateError(
                f"a login cannot be read: {broken.strerror}",
                where=str(path),
                hint=f"builder login {name.agent}{as_name(name)}",
            ) from None
        try:
            document = read_object(raw, str(path), max_bytes=_MAX_FILE, max_depth=3, error=StateError)
        except StateError as broken:
            raise self._damaged(name, broken.what) from None
        fields = {"schema", "saved", "credentials", "sealed", "content"}
        if set(document) != fields or not is_number(document["schema"], _SCHEMA):
            raise self._damaged(name, "it is of another form")
        if document["sealed"] not in (_PLAIN, _KEYRING):
            raise self._damaged(name, "it is sealed in another way")
        return document

    def _sealed(self, name: LoginName, raw: bytes) -> str:
        if self._keyring is None:
            raise KeyUnusable(
                "there is no keyring to encrypt with",
                where=str(name),
                hint="builder login AGENT --unencrypted",
            )
        nonce = os.urandom(_NONCE)
        sealed = AESGCM(self._keyring.make_key().reveal()).encrypt(nonce, raw, str(name).encode())
        return base64.b64encode(nonce + sealed).decode()

    def _opened(self, name: LoginName, content: str, *, encrypted: bool) -> bytes:
        if not encrypted:
            return content.encode()
        key: Secret | None = self._keyring.key() if self._keyring else None
        if key is None:
            raise KeyUnusable(
                "it is encrypted, and its key is in no keyring that answers here",
                where=str(name),
                hint=f"start your session's keyring, or: builder login {name.agent}{as_name(name)}",
            )
        try:
            raw = base64.b64decode(content, validate=True)
            return AESGCM(key.reveal()).decrypt(raw[:_NONCE], raw[_NONCE:], str(name).encode())
        except (InvalidTag, ValueError):
            raise self._damaged(name, "it does not open with the keyring's key") from None

    def _damaged(self, name: LoginName, why: str) -> StateError:
        return StateError(
            f"a login is damaged: {why}",
            where=str(self.path(name)),
            hint=f"builder login {name.agent}{as_name(name)}",
        )

    def _is_there(self) -> bool:
        try:
            status = self._root.lstat()
        except FileNotFoundError:
            return False
        except OSError as broken:
            raise StateError(f"cannot be looked at: {broken.strerror}", where=str(self._root)) from None
        _need_private(status, self._root, stat.S_ISDIR(status.st_mode))
        return True

    def _make(self) -> None:
        with state_errors(self._root):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._is_there()


def as_name(name: LoginName) -> str:
    """How a command line goes on that means this one."""
    return "" if name.name == DEFAULT_NAME else f" --as {name.name}"


def _need_private(status: os.stat_result, path: Path, is_kind: bool) -> None:
    why = ""
    if not is_kind:
        why = "is a link, or of another kind"
    elif status.st_uid != os.geteuid():
        why = f"belongs to uid {status.st_uid}, not to us (uid {os.geteuid()})"
    elif status.st_mode & 0o077:
        why = f"others may look in (mode {stat.S_IMODE(status.st_mode):04o})"
    if why:
        raise StateError(why, where=str(path), hint=f"chmod go= {path}, if it is yours alone")
