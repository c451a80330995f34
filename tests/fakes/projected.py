"""Dummy credentials of every route, made at run time; and a scripted engine that takes a projection."""

from __future__ import annotations

import json

from backend.account import Account, agent_exec
from backend.projection.credentials import Credential, read_credential
from backend.projection.placing import Projection, projection_of
from backend.projection.projecting import SCRIPT, _planned
from backend.projection.routes import CredentialName, Provider, Route
from tests.fakes.admitted import NOW
from tests.fakes.engine import FakeEngine, said

ACCOUNT = Account(uid=1000, gid=1000, home="/home/agent")
LATER = 4_102_444_800_000  # in the year 2100


def dummy(kind: str) -> str:
    """A value that looks like a provider's and is none."""
    starts = {
        "key": ("sk", "ant", "api03"),
        "token": ("sk", "ant", "oat01"),
        "refresh": ("sk", "ant", "ort01"),
    }
    return "-".join((*starts.get(kind, (kind,)), "dummy" + kind.title() * 9))


def named(route: Route) -> CredentialName:
    """The credential of a route; for Anthropic, where the name says for whom."""
    return CredentialName(route, Provider.ANTHROPIC if route.names_provider else None)


def oauth(**changes: object) -> dict[str, object]:
    """An entry as Pi keeps it."""
    given = {"type": "oauth", "access": dummy("token"), "refresh": dummy("refresh"), "expires": LATER}
    return {key: value for key, value in (given | changes).items() if value is not None}


def claude(**changes: object) -> dict[str, object]:
    """A table as Claude Code keeps it."""
    given = {
        "accessToken": dummy("token"),
        "refreshToken": dummy("refresh"),
        "expiresAt": LATER,
        "refreshTokenExpiresAt": LATER,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": "max",
        "rateLimitTier": None,
    }
    return {key: value for key, value in (given | changes).items() if value is not ...}


def api(**changes: object) -> dict[str, object]:
    """An entry as OpenCode keeps it."""
    given = {"type": "api", "key": dummy("key")}
    return {key: value for key, value in (given | changes).items() if value is not None}


def file_of(route: Route) -> bytes:
    """What the operator's file of this route holds."""
    if route is Route.OPENCODE_AUTH_FILE:
        return json.dumps({"anthropic": api(), "openai": api(key=dummy("other"))}).encode()
    if route in (Route.PI_OAUTH, Route.PI_LOGIN):
        return json.dumps({"anthropic": oauth()}).encode()
    if route is Route.CLAUDE_LOGIN:
        return json.dumps({"claudeAiOauth": claude()}).encode()
    return dummy("token" if route is Route.CLAUDE_OAUTH_TOKEN else "key").encode() + b"\n"


def credential(route: Route) -> Credential:
    """Read from such a file."""
    return read_credential(named(route), file_of(route), NOW)


def projection(*routes: Route) -> Projection:
    """Of one credential for each route."""
    return projection_of([credential(route) for route in routes])


def projecting_argv(given: Projection, account: Account = ACCOUNT) -> tuple[str, ...]:
    """The argv of the exec that puts a projection in place."""
    paths = [row[0] for row in _planned(given, account) if len(row) > len(("path", "target"))]
    return agent_exec(account, ("sh", "-c", SCRIPT, "sh", account.home, *paths)).argv


def take(engine: FakeEngine, given: Projection) -> list[bytes]:
    """Let the engine take this projection as planned; the list fills with what came by standard input."""
    came: list[bytes] = []
    rows = ["|".join(part or "60" for part in row) for row in _planned(given, ACCOUNT)]

    def answer(_container: object, _plan: object, stdin: bytes) -> object:
        came.append(stdin)
        return said("\n".join((*rows, "")).encode())

    engine.answers[projecting_argv(given)] = answer  # type: ignore[assignment]
    return came
