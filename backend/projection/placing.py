"""Which files below HOME credentials, servers and Skills become: what each CLI reads by itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from backend.account import WORKSPACE
from backend.projection.integrations import NO_SETUP, Setup
from backend.projection.routes import Form, Route
from images.config import AgentName
from images.credentials import Secret
from images.digests import canonical_json
from images.errors import LaunchReason, LaunchRefused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backend.projection.credentials import Credential
    from backend.projection.server_secrets import ServerSecret
    from images.strictjson import JsonValue

AUTH_FILES: Final = {
    AgentName.OPENCODE: ".local/share/opencode/auth.json",
    AgentName.PI: ".pi/agent/auth.json",
}
CLAUDE_KEY: Final = ".claude/api-key"
CLAUDE_SETTINGS: Final = ".claude/settings.json"
CLAUDE_LOGIN: Final = ".claude/.credentials.json"
CLAUDE_SERVERS: Final = ".claude.json"
OPENCODE_SETTINGS: Final = ".config/opencode/opencode.json"
SKILL_FOLDERS: Final = {
    AgentName.CLAUDE_CODE: ".claude/skills",
    AgentName.OPENCODE: ".config/opencode/skills",
    AgentName.PI: ".pi/agent/skills",
}
# What Claude Code asks a person once: how it is to look, and whether /workspace is to be trusted. Here nobody
# is asked: the container is what keeps a repository's own settings away from everything else.
SEEN_STATE: Final[dict[str, JsonValue]] = {
    "hasCompletedOnboarding": True,
    "theme": "dark",
    "projects": {WORKSPACE: {"hasTrustDialogAccepted": True}},
}
SEEN_SETTINGS: Final[dict[str, JsonValue]] = {"skipDangerousModePermissionPrompt": True}
_TOKENS: Final = ("key", "access", "refresh", "accessToken", "refreshToken")
# Claude Code runs it in a shell when it needs the key, so the key is in no variable that its tools inherit.
_KEY_HELPER: Final = f'cat "$HOME/{CLAUDE_KEY}"'


@dataclass(frozen=True, slots=True)
class PrivateFile:
    """One file, by its path below HOME. It is 0600, and so are all directories on its way 0700."""

    path: str
    content: Secret = field(repr=False)


@dataclass(frozen=True, slots=True)
class SkillLink:
    """One link, by its path below HOME, to the directory of a Skill in the image, which is root's."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Projection:
    """All that one launch puts below HOME, each in its agent's own files. Made by :func:`projection_of`.

    ``setup``: what the policy turns on; only a plan sets it, by :func:`with_setup`. ``greeted``: agents that
    ask nobody who they are and whom they may trust, where a person sits in front of them.
    """

    credentials: tuple[Credential, ...] = ()
    server_secrets: tuple[ServerSecret, ...] = ()
    setup: Setup = NO_SETUP
    greeted: frozenset[AgentName] = frozenset()

    @property
    def agents(self) -> frozenset[AgentName]:
        """Whose credentials there are."""
        return frozenset(one.name.route.agent for one in self.credentials)

    @property
    def rotating(self) -> tuple[Credential, ...]:
        """Those that a use can change, so that they are taken out again."""
        return tuple(one for one in self.credentials if one.name.route.rotates)

    @property
    def names(self) -> tuple[str, ...]:
        """Of everything that is given, as settings and records have it."""
        return (*(str(one.name) for one in self.credentials), *self.setup.names)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What no output may show."""
        return (
            *(secret for one in self.credentials for secret in one.secrets),
            *(one.content for one in self.server_secrets),
        )

    def key_in(self, text: str) -> str:
        """The name of the credential whose very key, token or value stands in ``text``; empty: none does."""
        found = [str(one.name) for one in self.credentials for key in _keys(one) if key in text]
        found += [one.name for one in self.server_secrets if _value(one) in text]
        return next(iter(found), "")

    def files(self) -> tuple[PrivateFile, ...]:
        """What is put in place, in the order of paths."""
        found: list[PrivateFile] = []
        for agent in sorted(self.agents | self.setup.agents | self.greeted):
            own = [one for one in self.credentials if one.name.route.agent is agent]
            if agent is AgentName.CLAUDE_CODE:
                found += self._claude(own)
            elif own:
                found.append(_auth_file(agent, own))
            if agent is AgentName.OPENCODE and self._tells(agent):
                found.append(PrivateFile(OPENCODE_SETTINGS, self._opencode_servers()))
        return tuple(sorted(found, key=lambda file: file.path))

    def links(self) -> tuple[SkillLink, ...]:
        """The same of Skills: linked, so that nobody inside can change what the links lead to."""
        found = [
            SkillLink(f"{SKILL_FOLDERS[agent]}/{skill.name}", skill.directory)
            for agent in self.setup.agents
            for skill in self.setup.integrations.skills
        ]
        return tuple(sorted(found, key=lambda link: link.path))

    def _claude(self, own: list[Credential]) -> list[PrivateFile]:
        greeted = AgentName.CLAUDE_CODE in self.greeted
        settings: dict[str, JsonValue] = {**SEEN_SETTINGS} if greeted else {}
        found: list[PrivateFile] = []
        for one in own:
            if one.name.route is Route.CLAUDE_API_KEY:
                settings["apiKeyHelper"] = _KEY_HELPER
                found.append(PrivateFile(CLAUDE_KEY, one.content))
            elif one.name.route is Route.CLAUDE_LOGIN:
                found.append(PrivateFile(CLAUDE_LOGIN, one.content))
            else:
                found.append(_claude_login(one))
        if AgentName.CLAUDE_CODE in self.setup.fenced:
            # Without a terminal it starts what a repository's .mcp.json names, unasked; but for this list.
            runs: list[JsonValue] = [
                {"serverCommand": [server.run]} for server in self.setup.integrations.servers
            ]
            settings |= {"allowedMcpServers": runs, "disableClaudeAiConnectors": True}
        if settings:
            found.append(PrivateFile(CLAUDE_SETTINGS, Secret(canonical_json(settings))))
        state: dict[str, JsonValue] = {**SEEN_STATE} if greeted else {}
        if self._tells(AgentName.CLAUDE_CODE):
            state["mcpServers"] = self._claude_servers()
        if state:
            found.append(PrivateFile(CLAUDE_SERVERS, Secret(canonical_json(state))))
        return found

    def _tells(self, agent: AgentName) -> bool:
        return agent in self.setup.server_agents and bool(self.setup.integrations.servers)

    def _claude_servers(self) -> dict[str, JsonValue]:
        return {
            one.name: {"type": "stdio", "command": one.run, "args": [], "env": self._variables(one.name)}
            for one in self.setup.integrations.servers
        }

    def _opencode_servers(self) -> Secret:
        servers: dict[str, JsonValue] = {
            one.name: {
                "type": "local",
                "command": [one.run],
                "environment": self._variables(one.name),
                "enabled": True,
            }
            for one in self.setup.integrations.servers
        }
        return Secret(canonical_json({"mcp": servers}))

    def _variables(self, server: str) -> dict[str, JsonValue]:
        """What this server alone gets in its environment, from the agent that starts it."""
        return {one.variable: _value(one) for one in self.server_secrets if one.server == server}


NOTHING: Final = Projection()


def projection_of(
    credentials: Iterable[Credential], server_secrets: Iterable[ServerSecret] = ()
) -> Projection:
    """The projection of these; LaunchRefused when two of them would say the same thing differently."""
    given = tuple(sorted(credentials, key=lambda one: one.name))
    taken: dict[tuple[AgentName, str], Credential] = {}
    for one in given:
        agent = one.name.route.agent
        for provider in one.providers or ("",):
            other = taken.setdefault((agent, provider), one)
            if other is not one:
                raise LaunchRefused(
                    LaunchReason.CREDENTIAL_ROUTE,
                    f"{other.name} and {one.name} are two answers to one question: give one of them",
                    where="credentials",
                    hint="builder run --credential NAME=FILE",
                )
    return Projection(given, tuple(sorted(server_secrets, key=lambda one: one.name)))


def with_setup(
    projection: Projection, setup: Setup, greeted: frozenset[AgentName] = frozenset()
) -> Projection:
    """The same with what the policy turns on for this launch, in the place of anything else."""
    return replace(projection, setup=setup, greeted=greeted)


def _value(one: ServerSecret) -> str:
    return one.content.reveal().decode("ascii")


def _keys(one: Credential) -> tuple[str, ...]:
    """The keys and tokens, without what else stands beside them in an auth file."""
    if one.name.route.form is Form.KEY:
        return (one.content.reveal().decode("ascii"),)
    entries = json.loads(one.content.reveal()).values()
    return tuple(entry[name] for entry in entries for name in _TOKENS if entry.get(name))


def _claude_login(one: Credential) -> PrivateFile:
    token = one.content.reveal().decode("ascii")
    # A token of `claude setup-token`: no refresh token, no end that the CLI would have to know.
    login: dict[str, JsonValue] = {
        "accessToken": token,
        "refreshToken": None,
        "expiresAt": None,
        "scopes": ["user:inference"],
        "subscriptionType": None,
    }
    return PrivateFile(CLAUDE_LOGIN, Secret(canonical_json({"claudeAiOauth": login})))


def _auth_file(agent: AgentName, credentials: list[Credential]) -> PrivateFile:
    entries: dict[str, JsonValue] = {}
    for one in credentials:
        if one.name.route.form is Form.AUTH_FILE:
            entries |= json.loads(one.content.reveal())
        else:
            kind = "api" if agent is AgentName.OPENCODE else "api_key"
            key = one.content.reveal().decode("ascii")
            entries[one.providers[0]] = {"type": kind, "key": key}
    return PrivateFile(AUTH_FILES[agent], Secret(canonical_json(entries)))
