"""A login inside: how each CLI begins its own, where it then keeps it, and what of that is taken."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from backend.account import Account, agent_exec
from backend.projection.credentials import (
    CLAUDE_TABLE,
    MAX_CREDENTIAL_BYTES,
    Credential,
    read_credential,
)
from backend.projection.placing import AUTH_FILES, CLAUDE_LOGIN, CLAUDE_SERVERS
from backend.projection.routes import CredentialName, Provider, Route
from images.config import AgentName
from images.digests import canonical_json
from images.errors import HostError, UsageError
from images.strictjson import read_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from backend.engines.protocol import Engine
    from images.strictjson import JsonValue

# What follows the launcher's name. Pi has no such word: one types /login at its prompt, and leaves.
LOGIN_WORDS: Final = {
    AgentName.CLAUDE_CODE: ("auth", "login"),
    AgentName.OPENCODE: ("auth", "login"),
    AgentName.PI: (),
}
# Where a login is begun and renewed: what an agent's own programs have built in.
LOGIN_HOSTS: Final = {
    AgentName.CLAUDE_CODE: ("api.anthropic.com:443", "platform.claude.com:443"),
    AgentName.OPENCODE: (),
    AgentName.PI: ("platform.claude.com:443",),
}
# Below HOME; no other file is ever asked for.
KEPT_FILES: Final = {
    AgentName.CLAUDE_CODE: (CLAUDE_LOGIN, CLAUDE_SERVERS),
    AgentName.OPENCODE: (AUTH_FILES[AgentName.OPENCODE],),
    AgentName.PI: (AUTH_FILES[AgentName.PI],),
}
LOGIN_FILES: Final = {Route.CLAUDE_LOGIN: CLAUDE_LOGIN, Route.PI_LOGIN: AUTH_FILES[AgentName.PI]}
TAKE_SECONDS: Final = 10.0
_MAX_SETTINGS: Final = 1 << 20  # Claude Code keeps more than its key in one of them
_ABSENT: Final = 3
# A file of the agent's own, and no link, pipe or directory in its place.
TAKE: Final = (
    f'cd "$1" && [ -f "$2" ] && [ ! -L "$2" ] || exit {_ABSENT}; exec head -c {_MAX_SETTINGS + 1} -- "$2"'
)


def take_file(engine: Engine, container: str, account: Account, path: str) -> bytes | None:
    """One of these files as it is now; None where there is none, or it cannot be had. What an agent wrote."""
    plan = agent_exec(account, ("sh", "-c", TAKE, "sh", account.home, path))
    with contextlib.suppress(HostError):  # the container may be gone, or its engine
        outcome = engine.exec(container, plan, deadline=TAKE_SECONDS)
        if outcome.ok and not outcome.stdout_truncated and len(outcome.stdout) <= _MAX_SETTINGS:
            return outcome.stdout
    return None


def logged_in(agent: AgentName, files: Mapping[str, bytes], now: datetime) -> tuple[Credential, ...]:
    """What a CLI's own login left in its files, each judged as any credential is; UsageError when there is
    nothing, or something that no launch would take."""
    if agent is AgentName.CLAUDE_CODE:
        found = _of_claude(files, now)
    elif agent is AgentName.OPENCODE:
        found = _of_opencode(files, now)
    else:
        found = _of_pi(files, now)
    if not found:
        raise UsageError(
            f"{agent} left no login",
            where="inside the container",
            hint=f"builder login {agent}, and finish what it asks",
        )
    return found


def renewed(given: Credential, raw: bytes, now: datetime) -> Credential | None:
    """The same login as an agent's file has it after a use; None where it is no other. Raises BuilderError
    for what is no such login any more.

    Nothing is added to a login by a use: of Pi's file, the providers that were given.
    """
    if given.name.route is Route.PI_LOGIN:
        document = read_object(raw, "auth.json", max_bytes=MAX_CREDENTIAL_BYTES, max_depth=4)
        raw = canonical_json({name: document.get(name) for name in given.providers})
    found = read_credential(given.name, raw, now)
    return None if found.content == given.content else found


def _of_claude(files: Mapping[str, bytes], now: datetime) -> tuple[Credential, ...]:
    raw = files.get(CLAUDE_LOGIN)
    if raw is not None:
        document = read_object(raw, CLAUDE_LOGIN, max_bytes=MAX_CREDENTIAL_BYTES, max_depth=6)
        table = document.get(CLAUDE_TABLE)
        if isinstance(table, dict):
            return (
                read_credential(
                    CredentialName(Route.CLAUDE_LOGIN), canonical_json({CLAUDE_TABLE: table}), now
                ),
            )
    settings = files.get(CLAUDE_SERVERS)
    if settings is not None:
        key = read_object(settings, CLAUDE_SERVERS, max_bytes=_MAX_SETTINGS).get("primaryApiKey")
        if isinstance(key, str):
            return (read_credential(CredentialName(Route.CLAUDE_API_KEY), key.encode(), now),)
    return ()


def _of_opencode(files: Mapping[str, bytes], now: datetime) -> tuple[Credential, ...]:
    raw = files.get(AUTH_FILES[AgentName.OPENCODE])
    return () if raw is None else (read_credential(CredentialName(Route.OPENCODE_AUTH_FILE), raw, now),)


def _of_pi(files: Mapping[str, bytes], now: datetime) -> tuple[Credential, ...]:
    """Its logins as one file; its keys one by one, since it would run some texts that stand for a key."""
    raw = files.get(AUTH_FILES[AgentName.PI])
    if raw is None:
        return ()
    document = read_object(raw, "auth.json", max_bytes=MAX_CREDENTIAL_BYTES, max_depth=4)
    logins: dict[str, JsonValue] = {}
    found: list[Credential] = []
    for provider, entry in document.items():
        key = entry.get("key") if isinstance(entry, dict) and entry.get("type") == "api_key" else None
        if key is None:
            logins[provider] = entry
        elif isinstance(key, str) and provider in set(Provider):
            name = CredentialName(Route.PI_API_KEY, Provider(provider))
            found.append(read_credential(name, key.encode(), now))
        else:
            raise UsageError(
                "a key for a provider that has no route",
                where="auth.json",
                hint=f"one of {', '.join(Provider)}",
            )
    if logins:
        found.append(read_credential(CredentialName(Route.PI_LOGIN), canonical_json(logins), now))
    return tuple(found)
