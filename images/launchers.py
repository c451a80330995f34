"""The generated shell scripts of an image: a command per agent, updaters off; a starter per MCP server."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from images.config import AgentName
from images.errors import UsageError
from images.lock import AgentLock, Lock, McpLock
from images.lock_additions import PypiServerLock
from images.oci import Platform

NODE: Final = "/opt/node/bin/node"


@dataclass(frozen=True, slots=True)
class Launcher:
    """How an agent is started: ``interpreter`` (empty = the file itself), and settings that are always on."""

    interpreter: str
    environment: tuple[tuple[str, str], ...]


# Whatever fetches, updates, installs or reports at start is off: what runs is what was verified, and starts
# with no network. The settings are a courtesy: the files belong to root, and the agent cannot write them.
LAUNCHERS: Final = {
    AgentName.CLAUDE_CODE: Launcher(
        interpreter="",
        environment=(
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_IDE_SKIP_AUTO_INSTALL", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("DISABLE_INSTALLATION_CHECKS", "1"),
            ("DISABLE_UPDATES", "1"),
        ),
    ),
    AgentName.OPENCODE: Launcher(
        interpreter="",
        environment=(
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            # Its default plugins are fetched from a package registry at the first start.
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            # The list of models that came with the binary is used instead of today's.
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_SHARE", "1"),
        ),
    ),
    AgentName.PI: Launcher(
        interpreter=NODE,
        environment=(
            ("PI_OFFLINE", "1"),
            ("PI_SKIP_VERSION_CHECK", "1"),
            ("PI_TELEMETRY", "0"),
        ),
    ),
}


def launcher_path(agent: AgentName) -> str:
    """Where an agent's launcher lies in the image."""
    return f"/usr/local/bin/{agent.command}"


def entry_path(lock: Lock, agent: AgentLock) -> str:
    """The file that an agent's launcher starts: its package's own command. UsageError when it has none."""
    for name, file in lock.artifact(agent.root).bins:
        if name == agent.name.command:
            return f"{agent.directory}/{agent.root_path}/{file.removeprefix('./')}"
    raise UsageError(
        f"{agent.package}@{agent.version} has no command {agent.name.command!r}",
        where=f"agents.{agent.name}",
        hint="choose a version of it that has",
    )


def launcher_script(lock: Lock, agent: AgentLock) -> bytes:
    """The text of an agent's launcher."""
    launcher = LAUNCHERS[agent.name]
    settings = [f"export {name}={value}" for name, value in launcher.environment]
    start = " ".join(part for part in (launcher.interpreter, entry_path(lock, agent)) if part)
    return "\n".join(["#!/bin/sh", *settings, f'exec {start} "$@"', ""]).encode()


def server_path(server: McpLock | PypiServerLock) -> str:
    """Where an MCP server's starter lies: on no PATH, and in no agent's configuration."""
    return f"{server.directory}/run"


def server_script(lock: Lock, server: McpLock) -> bytes:
    """The text of an MCP server's starter: Node, the installed file, the locked arguments; nothing else."""
    file = server.entry(lock.artifact(server.root))
    if file is None:
        raise UsageError(
            f"{server.package}@{server.version} has no command that could be the server",
            where=server.place,
            hint="choose a version of it that has",
        )
    entry = f"{server.directory}/{server.root_path}/{file}"
    words = " ".join(shlex.quote(word) for word in (NODE, entry, *server.args))
    return f'#!/bin/sh\nexec {words} "$@"\n'.encode()


def versions_document(lock: Lock, platform: Platform, key: str) -> dict[str, object]:
    """What ``/etc/agent-image.json`` says: versions and key, nothing of the clock or the host."""
    more: dict[str, object] = {}  # where there are none the file is what it was before they existed
    if lock.pypi_tools:
        more["tools"] = {tool.name: tool.version for tool in lock.pypi_tools}
    if lock.archives:
        more["archives"] = {
            archive.name: {
                "path": archive.directory,
                "integrity": str(lock.artifact(archive.artifact).integrity),
            }
            for archive in lock.archives
        }
    return {
        **more,
        "schema": 1,
        "key": key,
        "platform": str(platform),
        "base": str(lock.base.image(platform).manifest),
        "node": lock.node_version,
        "agents": {str(agent.name): agent.version for agent in lock.agents},
        "mcp": {
            server.name: {
                "package": server.package,
                "version": server.version,
                "run": f"{server.directory}/run",
                "env": list(server.env),
            }
            for server in lock.servers
        },
        "skills": {
            skill.name: {
                "path": skill.directory,
                "integrity": str(lock.artifact(skill.artifact).integrity),
            }
            for skill in lock.skills
        },
    }
