"""The closed table of routes: which credential of which agent may reach a container, and under which name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from images.config import AgentName
from images.errors import UsageError


class Form(StrEnum):
    """What the operator's file holds."""

    KEY = "key"  # one line: the key or token itself
    AUTH_FILE = "auth-file"  # the agent's own auth.json


class Route(StrEnum):
    """One way for one agent. There is no other: no variable, no argument, no mount of the operator's."""

    CLAUDE_API_KEY = "claude-code.api-key"
    CLAUDE_OAUTH_TOKEN = "claude-code.oauth-token"  # noqa: S105  (a name)
    OPENCODE_API_KEY = "opencode.api-key"
    OPENCODE_AUTH_FILE = "opencode.auth-file"
    PI_API_KEY = "pi.api-key"
    PI_OAUTH = "pi.oauth"
    # What `builder login` keeps: with the refresh token, so in one container at a time (docs/adr/0032).
    CLAUDE_LOGIN = "claude-code.login"
    PI_LOGIN = "pi.login"

    @property
    def agent(self) -> AgentName:
        """Whose it is: nobody else inside is told of it."""
        return AgentName(self.value.partition(".")[0])

    @property
    def form(self) -> Form:
        """How the operator's file is read."""
        return Form.AUTH_FILE if self in _AUTH_FILES else Form.KEY

    @property
    def rotates(self) -> bool:
        """Whether a use of it can make another one of it: the next use needs that one."""
        return self in (Route.CLAUDE_LOGIN, Route.PI_LOGIN)

    @property
    def names_provider(self) -> bool:
        """Whether the name goes on with the provider that the key is for."""
        return self in (Route.OPENCODE_API_KEY, Route.PI_API_KEY)


class Provider(StrEnum):
    """Providers that OpenCode and Pi both call by this name, and whose key is one line."""

    ANTHROPIC = "anthropic"
    CEREBRAS = "cerebras"
    DEEPSEEK = "deepseek"
    GOOGLE = "google"
    GROQ = "groq"
    MISTRAL = "mistral"
    OPENAI = "openai"
    OPENROUTER = "openrouter"
    XAI = "xai"


_AUTH_FILES: Final = frozenset({Route.OPENCODE_AUTH_FILE, Route.PI_OAUTH, Route.CLAUDE_LOGIN, Route.PI_LOGIN})
_PLAIN: Final = re.compile(r"[a-z][a-z.-]{0,59}")  # nothing that could be a credential typed in its place


@dataclass(frozen=True, slots=True, order=True)
class CredentialName:
    """What a credential is called: on command lines, in settings, in the launch record. Never its value."""

    route: Route
    provider: Provider | None = None

    def __str__(self) -> str:
        return self.route.value if self.provider is None else f"{self.route}.{self.provider}"


def parse_name(text: str) -> CredentialName:
    """A name as people write it. UsageError lists those there are; what is no plain word is not repeated."""
    found = _NAMES.get(text)
    if found is not None and found.route.rotates:
        raise UsageError(
            f"{found} is not given by name: it is what a login leaves, and is kept and leased",
            where="credentials",
            hint=f"builder login {found.route.agent}",
        )
    if found is None:
        said = repr(text) if _PLAIN.fullmatch(text) else "this"
        raise UsageError(
            f"{said} is not the name of a credential",
            where="credentials",
            hint=f"one of {', '.join(_SHOWN)}; PROVIDER is one of {', '.join(Provider)}",
        )
    return found


def kept_name(text: str) -> CredentialName | None:
    """A name as the store of logins has it; None for what is none."""
    return _NAMES.get(text)


def _all_names() -> tuple[CredentialName, ...]:
    return tuple(
        CredentialName(route, provider)
        for route in Route
        for provider in (tuple(Provider) if route.names_provider else (None,))
    )


_NAMES: Final = {str(name): name for name in _all_names()}
_SHOWN: Final = tuple(
    f"{route}.PROVIDER" if route.names_provider else str(route) for route in Route if not route.rotates
)
