"""MCP servers and Skills that the policy turns on, as the image's lock has them; and who is told of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from images.config import AgentName
from images.errors import LaunchReason
from images.launchers import server_path
from images.lock import McpLock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from images.lock import Lock
    from images.lock_additions import PypiServerLock
    from images.oci import Platform
    from provenance.policy import Enable

# Pi has no client for MCP: its own documentation says so.
SPEAK_MCP: Final = frozenset({AgentName.CLAUDE_CODE, AgentName.OPENCODE})


@dataclass(frozen=True, slots=True, kw_only=True)
class EnabledServer:
    """One MCP server. ``run``: what starts it inside, with its locked arguments. ``secrets``: the variables
    that get a value. ``integrity``: of its own package, as the lock has it."""

    name: str
    package: str
    version: str
    integrity: str
    run: str
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnabledSkill:
    """One Skill: its directory inside, and the integrity of its files as one archive."""

    name: str
    integrity: str
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Integrations:
    """What is turned on in launches of one image. Without a name, nothing is."""

    servers: tuple[EnabledServer, ...] = ()
    skills: tuple[EnabledSkill, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """As builder.toml places them: ``mcp.NAME``, ``skills.NAME``."""
        return (
            *(f"mcp.{one.name}" for one in self.servers),
            *(f"skills.{one.name}" for one in self.skills),
        )

    @property
    def secret_names(self) -> frozenset[tuple[str, str]]:
        """Server and variable of each value that a launch needs."""
        return frozenset((one.name, variable) for one in self.servers for variable in one.secrets)


NO_INTEGRATIONS: Final = Integrations()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Which agents of a launch are told of what. ``fenced``: those that start no other server than these, as
    far as their settings go: what a repository brings along is not started without a word."""

    integrations: Integrations = NO_INTEGRATIONS
    agents: frozenset[AgentName] = frozenset()
    fenced: frozenset[AgentName] = frozenset()

    @property
    def server_agents(self) -> tuple[AgentName, ...]:
        """Who is told of the servers."""
        return tuple(sorted(self.agents & SPEAK_MCP))

    @property
    def names(self) -> tuple[str, ...]:
        """Of what at least one agent is told."""
        servers = self.integrations.servers if self.server_agents else ()
        skills = self.integrations.skills if self.agents else ()
        return Integrations(servers=servers, skills=skills).names


NO_SETUP: Final = Setup()


def integrations_of(enable: Enable, lock: Lock, platform: Platform) -> Integrations:
    """What of the policy's wish is in this lock; :func:`wishes_unmet` tells of the rest."""
    named: dict[str, list[str]] = {}
    for place in enable.secrets:
        named.setdefault(place.server, []).append(place.variable)
    return Integrations(
        servers=tuple(
            EnabledServer(
                name=server.name,
                package=server.package,
                version=server.version,
                integrity=str(lock.artifact(_root(server, platform)).integrity),
                run=server_path(server),
                secrets=tuple(sorted(named.get(server.name, ()))),
            )
            for server in lock.servers
            if server.name in enable.mcp
        ),
        skills=tuple(
            EnabledSkill(
                name=skill.name,
                integrity=str(lock.artifact(skill.artifact).integrity),
                directory=skill.directory,
            )
            for skill in sorted(lock.skills, key=lambda one: one.name)
            if skill.name in enable.skills
        ),
    )


def wishes_unmet(enable: Enable, lock: Lock) -> Iterator[tuple[LaunchReason, str]]:
    """Each thing that the policy turns on and this lock does not have: never left out in silence."""
    variables = {server.name: server.env for server in lock.servers}
    skills = {skill.name for skill in lock.skills}
    for name in enable.mcp:
        if name not in variables:
            yield LaunchReason.NOT_INSTALLED, f"the policy turns on the MCP server {name}, {_has(variables)}"
    for name in enable.skills:
        if name not in skills:
            yield LaunchReason.NOT_INSTALLED, f"the policy turns on the Skill {name}, {_has(skills)}"
    for place in enable.secrets:
        if place.server in variables and place.variable not in variables[place.server]:
            yield (
                LaunchReason.SERVER_SECRET,
                f"the policy has a secret {place.variable} for the MCP server {place.server}, which reads "
                + (", ".join(variables[place.server]) or "no variable"),
            )


def setup_of(integrations: Integrations, agent: str, installed: Collection[str]) -> Setup:
    """For a launch of ``agent``; empty: of a plain command, which may start any of the installed ones.

    A plain command where nothing is turned on is told nothing at all, and pays for nothing.
    """
    if not agent and not integrations.names:
        return NO_SETUP
    agents = frozenset(one for one in AgentName if one in installed and one == (agent or one))
    return Setup(integrations=integrations, agents=agents, fenced=agents & {AgentName.CLAUDE_CODE})


def _root(server: McpLock | PypiServerLock, platform: Platform) -> str:
    return server.root if isinstance(server, McpLock) else server.tree(platform).root


def _has(names: Collection[str]) -> str:
    return "and the image has " + (", ".join(sorted(names)) or "none")
