"""Is a lock the one of this configuration and this program? If not: what changed, and what to type."""

from __future__ import annotations

from builder.skills import ReadSkill
from images.additions import Index, McpPin
from images.config import ImageConfig
from images.errors import UsageError
from images.lock import Lock, McpLock, Recipe, config_digest
from images.lock_additions import PypiServerLock


def check_lock(
    config: ImageConfig, lock: Lock, recipe: Recipe, skills: tuple[ReadSkill, ...] = ()
) -> tuple[str, ...]:
    """What changed since the lock was made, one sentence each; nothing when it is fresh.

    ``skills``: those of the configuration, as they lie on disk now.
    """
    found = [*_base(config, lock), *_agents(config, lock), *_servers(config, lock), *_skills(skills, lock)]
    found += [*_tools(config, lock), *_archives(config, lock)]
    pairs: tuple[tuple[str, object, object], ...] = (
        ("image.platforms", _listed(lock.platforms), _listed(config.platforms)),
        ("image.user", _account(lock), _account(config)),
        ("node.version", lock.node_version, config.node.version),
        ("node.install-scripts", _listed(lock.install_scripts), _listed(config.node.install_scripts)),
        ("toolchain.debian", _listed(_debian(lock)), _listed(config.debian)),
        ("the template Containerfile.in", lock.recipe.template, recipe.template),
        ("the renderer's version", lock.recipe.renderer, recipe.renderer),
        ("BuildKit's version", lock.recipe.buildkit, recipe.buildkit),
        ("the epoch", lock.recipe.epoch, recipe.epoch),
        (
            "the compression",
            f"{lock.recipe.compression} {lock.recipe.level}",
            f"{recipe.compression} {recipe.level}",
        ),
    )
    found += [f"{what}: {old} is locked, {new} is asked for" for what, old, new in pairs if old != new]
    if not found and lock.config != config_digest(config):
        found.append("the configuration that the lock was made from")
    return tuple(found)


def require_fresh(
    config: ImageConfig, lock: Lock, recipe: Recipe, skills: tuple[ReadSkill, ...] = (), *, where: str
) -> None:
    """Raises UsageError naming what changed and the command to type."""
    changed = check_lock(config, lock, recipe, skills)
    if changed:
        raise UsageError(
            "the lock is stale: " + "; ".join(changed), where=where, hint="builder lock", reason="stale-lock"
        )


def _base(config: ImageConfig, lock: Lock) -> list[str]:
    base = config.base
    if base.digest is not None:
        same = lock.base.pinned and lock.base.requested == base.digest
    else:
        same = not lock.base.pinned and (lock.base.name, lock.base.tag) == (base.name, base.tag)
    tag = f":{lock.base.tag}" if lock.base.tag else ""
    locked = f"{lock.base.name}{tag}@{lock.base.requested}"
    return [] if same else [f"image.base: {locked} is locked, {base} is asked for"]


def _agents(config: ImageConfig, lock: Lock) -> list[str]:
    locked = {agent.place: agent.version for agent in lock.agents}
    return _differences(locked, {f"agents.{pin.name}": pin.version for pin in config.agents})


def _servers(config: ImageConfig, lock: Lock) -> list[str]:
    def facts(of: McpLock | PypiServerLock | McpPin, place: str) -> dict[str, str]:
        pypi = isinstance(of, PypiServerLock) or (isinstance(of, McpPin) and of.index is Index.PYPI)
        found = {place: f"{'pypi:' if pypi else ''}{of.package}@{of.version}"}
        lists = {f"{place}.args": of.args, f"{place}.env": of.env}
        return found | {name: _listed(values) for name, values in lists.items() if values}

    locked: dict[str, str] = {}
    asked: dict[str, str] = {}
    for server in lock.servers:
        locked |= facts(server, server.place)
    for pin in config.mcp:
        asked |= facts(pin, f"mcp.{pin.name}")
    return _differences(locked, asked)


def _tools(config: ImageConfig, lock: Lock) -> list[str]:
    locked = {tool.place: tool.version for tool in lock.pypi_tools}
    return _differences(locked, {f"toolchain.pypi.{pin.name}": pin.version for pin in config.tools})


def _archives(config: ImageConfig, lock: Lock) -> list[str]:
    def told(hash_: object, bins: tuple[tuple[str, str], ...]) -> str:
        return ", ".join([str(hash_), *(f"{name} = {file}" for name, file in bins)])

    known = {archive.place: lock.artifact(archive.artifact) for archive in lock.archives}
    locked = {place: told(one.integrity, one.bins) for place, one in known.items()}
    asked = {f"archives.{pin.name}": told(pin.sha256, pin.bins) for pin in config.archives}
    return _differences(locked, asked)


def _skills(skills: tuple[ReadSkill, ...], lock: Lock) -> list[str]:
    """A Skill that changed is named with its first file that did."""
    locked = {skill.place: skill for skill in lock.skills}
    asked = {skill.lock.place: skill for skill in skills}
    found = []
    for place in sorted({*locked, *asked}):
        if place not in locked or place not in asked:
            found.append(f"{place}: is {'not locked' if place in asked else 'locked, and not asked for'}")
        elif changed := sorted(set(locked[place].files) ^ set(asked[place].lock.files)):
            paths = list(dict.fromkeys(file.path for file in changed))
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            found.append(f"{place}: {paths[0]}{more} changed since it was locked")
        elif lock.artifact(locked[place].artifact).integrity != asked[place].integrity:
            found.append(f"{place}: its archive is another one")
    return found


def _debian(lock: Lock) -> tuple[str, ...]:
    return lock.toolchain.asked if lock.toolchain is not None else ()


def _differences(locked: dict[str, str], asked: dict[str, str]) -> list[str]:
    return [
        f"{name}: {locked.get(name, 'nothing')} is locked, {asked.get(name, 'nothing')} is asked for"
        for name in sorted({*locked, *asked})
        if locked.get(name) != asked.get(name)
    ]


def _listed(values: tuple[object, ...]) -> str:
    return ", ".join(str(value) for value in values) or "nothing"


def _account(of: ImageConfig | Lock) -> str:
    return f"{of.user.name} {of.user.uid}:{of.user.gid}"
