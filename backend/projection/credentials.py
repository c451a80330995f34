"""Read one credential strictly: a line, or an agent's own auth file; what is wrong is told, never quoted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from backend.projection.hosting import refuse_hosting, refuse_hosting_login
from backend.projection.routes import CredentialName, Form, Route
from images.credentials import Secret
from images.digests import canonical_json
from images.errors import UsageError
from images.strictjson import JsonValue, read_object

MAX_CREDENTIAL_BYTES: Final = 64 * 1024
_MAX_ENTRIES: Final = 32
_MAX_FIELDS: Final = 32
# No blank, quote or backslash, so that no shell, header or file gives a part of it another meaning; and no
# "!" at its start, behind which Pi runs a command.
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~+/=:@%-]{15,8191}")
# Pi looks a key up among its variables before it uses it.
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FIELD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_LEAST_SECRET: Final = 6  # what the redactor can keep out of a text
_PUBLIC: Final = frozenset(
    {"type", "enterpriseUrl", "clientId", "rateLimitTier", "subscriptionType", "subscriptionTypeSource"}
)
# Claude Code's own file: one table of its login, and others that are none of ours.
CLAUDE_TABLE: Final = "claudeAiOauth"
_SCOPE: Final = re.compile(r"[a-z][a-z0-9_:.-]{0,79}")
_MAX_SCOPES: Final = 32

Entries = dict[str, dict[str, JsonValue]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Permit: one credential that was read, bounded and refused nothing. Constructed only here.

    ``secrets``: each word of it that no output may show. ``content``: the line, or the entries of an auth
    file by provider, as canonical JSON. ``providers``: whose models it opens, as far as it says.
    """

    name: CredentialName
    content: Secret = field(repr=False)
    secrets: tuple[Secret, ...] = field(repr=False)
    providers: tuple[str, ...] = ()


def read_credential(name: CredentialName, raw: bytes, now: datetime) -> Credential:
    """From the operator's file. UsageError says what is wrong; LaunchRefused: it is for Git hosting."""
    where = f"credential {name}"
    if len(raw) > MAX_CREDENTIAL_BYTES:
        raise UsageError(f"more than {MAX_CREDENTIAL_BYTES} bytes", where=where)
    if name.route.form is Form.KEY:
        return _read_key(name, raw, where)
    if name.route is Route.CLAUDE_LOGIN:
        return _read_claude_login(name, raw, where)
    return _read_auth_file(name, raw, where, now)


def _read_key(name: CredentialName, raw: bytes, where: str) -> Credential:
    key = _text(raw, where).removesuffix("\n").removesuffix("\r")
    refuse_hosting(key, where)
    if not _KEY.fullmatch(key) or _VARIABLE.fullmatch(key):
        raise UsageError(
            "not a key: one line of 16 to 8192 letters, digits and ._~+/=:@%-",
            where=where,
            hint="put the key alone into the file, as the provider shows it",
        )
    secret = Secret.of_text(key)
    providers = () if name.provider is None else (name.provider.value,)
    return Credential(name=name, content=secret, secrets=(secret,), providers=providers)


def _read_claude_login(name: CredentialName, raw: bytes, where: str) -> Credential:
    """As Claude Code writes it: the one table, with both tokens and the scopes that it was granted."""
    document = read_object(raw, where, max_bytes=MAX_CREDENTIAL_BYTES, max_depth=4)
    entry = document.get(CLAUDE_TABLE)
    if not isinstance(entry, dict) or len(entry) > _MAX_FIELDS:
        raise UsageError(f"{CLAUDE_TABLE}: expected a table", where=where)
    for token in ("accessToken", "refreshToken"):
        _need_key(entry, token, where)
    _need_number(entry, "expiresAt", where)
    scopes = entry.get("scopes")
    if not isinstance(scopes, list) or len(scopes) > _MAX_SCOPES:
        raise UsageError("scopes: expected a list", where=where)
    if any(not isinstance(scope, str) or not _SCOPE.fullmatch(scope) for scope in scopes):
        raise UsageError("scopes: expected words", where=where)
    texts = {name: value for name, value in entry.items() if name != "scopes"}
    return Credential(
        name=name,
        content=Secret(canonical_json({CLAUDE_TABLE: entry})),
        secrets=tuple(_secrets_of(texts, where)),
        providers=("anthropic",),
    )


def _read_auth_file(name: CredentialName, raw: bytes, where: str, now: datetime) -> Credential:
    document = read_object(raw, where, max_bytes=MAX_CREDENTIAL_BYTES, max_depth=4)
    if not 1 <= len(document) <= _MAX_ENTRIES:
        raise UsageError(f"expected 1 to {_MAX_ENTRIES} providers", where=where)
    entries: Entries = {}
    secrets: list[Secret] = []
    for provider, entry in document.items():
        if not _PROVIDER.fullmatch(provider):
            raise UsageError("a provider's name has other letters than a-z, 0-9, ., _ and -", where=where)
        place = f"{where}: {provider}"
        refuse_hosting_login(provider, where)
        if not isinstance(entry, dict) or len(entry) > _MAX_FIELDS:
            raise UsageError("expected a table", where=place)
        entries[provider] = _entry(name.route, entry, place, now)
        secrets += _secrets_of(entries[provider], place)
    return Credential(
        name=name,
        content=Secret(canonical_json(entries)),
        secrets=tuple(secrets),
        providers=tuple(sorted(entries)),
    )


def _entry(route: Route, entry: dict[str, JsonValue], place: str, now: datetime) -> dict[str, JsonValue]:
    kind = entry.get("type")
    if route in (Route.PI_OAUTH, Route.PI_LOGIN):
        if kind == "oauth":
            return _oauth(entry, place, now) if route is Route.PI_OAUTH else _renewable(entry, place)
        raise UsageError('type: expected "oauth"', where=place, hint="give a key as pi.api-key.PROVIDER")
    if kind != "api":
        # OpenCode's logins are plugins, which are off in an image of ours; "wellknown" has it fetch settings.
        raise UsageError(
            'type: expected "api"; OpenCode uses no other login inside', where=place, hint="leave it out"
        )
    _need_key(entry, "key", place)
    return entry


def _oauth(entry: dict[str, JsonValue], place: str, now: datetime) -> dict[str, JsonValue]:
    """The access token alone. Whoever has the refresh token has the login for good; and to use it inside
    would end the operator's own, since providers take each one once."""
    _need_key(entry, "access", place)
    expires = _need_number(entry, "expires", place)
    if not isinstance(entry.get("refresh"), str):
        raise UsageError("refresh: expected a text", where=place)
    if expires <= now.timestamp() * 1000:
        raise UsageError("the access token has expired", where=place, hint="use the agent once on the host")
    return {**entry, "refresh": ""}


def _renewable(entry: dict[str, JsonValue], place: str) -> dict[str, JsonValue]:
    """Both tokens: whoever has it renews it, so nobody else may have it meanwhile."""
    for token in ("access", "refresh"):
        _need_key(entry, token, place)
    _need_number(entry, "expires", place)
    return entry


def _need_number(entry: dict[str, JsonValue], name: str, place: str) -> int:
    value = entry.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name}: expected a number of milliseconds", where=place)
    return value


def _need_key(entry: dict[str, JsonValue], name: str, place: str) -> None:
    value = entry.get(name)
    if not isinstance(value, str):
        raise UsageError(f"{name}: expected a text", where=place)
    refuse_hosting(value, place)
    if not _KEY.fullmatch(value) or _VARIABLE.fullmatch(value):
        raise UsageError(f"{name}: not a key or token", where=place)


def _secrets_of(entry: dict[str, JsonValue], place: str) -> list[Secret]:
    """Every text of an entry but what is public by its name: a field we do not know may be secret too."""
    found: list[Secret] = []
    rest: list[tuple[str, JsonValue]] = list(entry.items())
    while rest:
        name, value = rest.pop()
        if not _FIELD.fullmatch(name):
            raise UsageError("a field's name has other letters", where=place)
        if isinstance(value, dict):
            rest += value.items()
        elif isinstance(value, list):
            raise UsageError(f"{name}: a list", where=place)
        elif isinstance(value, str) and value:
            refuse_hosting(value, place)
            if not value.isprintable():
                raise UsageError(f"{name}: not a printable text", where=place)
            if name not in _PUBLIC and len(value.strip().encode()) >= _LEAST_SECRET:
                found.append(Secret.of_text(value))
    return found


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError:
        raise UsageError("not a text of ASCII letters", where=where) from None
