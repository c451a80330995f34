"""What must hold between the parts of a lock: the roots are the named ones, all is used and reached."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from images.authenticity import authenticity_problem
from images.lock import (
    NODE_PACKAGES,
    NODE_PARENT,
    Artifact,
    ArtifactKind,
    Installed,
    Lock,
    SkillLock,
    Tree,
)
from images.lock_addition_laws import ADDITION_LAWS
from images.oci import Platform
from images.skills import MAX_SKILL_BYTES, REQUIRED, SKILL_REGISTRY, collision
from images.toolchain import TOOLCHAIN_PARENT
from images.toolchain_laws import toolchain_law


def broken_law(lock: Lock) -> str | None:
    """A sentence about the first law that does not hold; None when all hold."""
    return next((problem for law in _LAWS if (problem := law(lock)) is not None), None)


def _sorted_once(what: str, values: Sequence[object]) -> str | None:
    texts = [str(value) for value in values]
    if any(one >= two for one, two in pairwise(texts)):
        return f"{what}: not sorted, or one appears twice"
    return None


def _lists_are_sorted(lock: Lock) -> str | None:
    lists: list[tuple[str, Sequence[object]]] = [
        ("platforms", lock.platforms),
        ("install_scripts", lock.install_scripts),
        ("agents", [agent.name for agent in lock.agents]),
        ("mcp", [server.name for server in lock.servers]),
        ("skills", [skill.name for skill in lock.skills]),
        ("pypi_tools", [tool.name for tool in lock.pypi_tools]),
        ("archives", [archive.name for archive in lock.archives]),
        ("artifacts", [artifact.id for artifact in lock.artifacts]),
    ]
    lists += [(f"{server.place} env", server.env) for server in lock.servers]
    lists += [
        (f"{one.place} on {tree.platform}", tree.wheels) for one in lock.pypi_installed for tree in one.trees
    ]
    lists += [(skill.place, [file.path for file in skill.files]) for skill in lock.skills]
    for artifact in lock.artifacts:
        lists.append((f"{artifact.id} platforms", artifact.platforms))
        lists.append((f"{artifact.id} parents", artifact.parents))
    return next((problem for what, values in lists if (problem := _sorted_once(what, values))), None)


def _something_is_asked_for(lock: Lock) -> str | None:
    if not lock.platforms or not lock.agents:
        return "a lock without a platform or without an agent"
    foreign = [str(platform) for platform in lock.platforms if platform not in NODE_PACKAGES]
    return f"platform {foreign[0]} has no Node here" if foreign else None


def _base_covers_the_platforms(lock: Lock) -> str | None:
    base = lock.base
    if tuple(image.platform for image in base.images) != lock.platforms:
        return "base.images: not exactly the declared platforms"
    for image in base.images:
        if len(image.layers) != len(image.diff_ids) or not image.layers:
            return f"base.images.{image.platform}: layers and diff_ids do not pair up"
        if base.index is None and image.manifest != base.requested:
            return f"base.images.{image.platform}: not the requested manifest, and there is no index"
    if base.index is not None and base.index != base.requested:
        return "base.index: not the requested digest"
    return None


def _trees_cover_the_platforms(lock: Lock) -> str | None:
    for one in lock.installed:
        if tuple(tree.platform for tree in one.trees) != lock.platforms:
            return f"{one.place}.trees: not exactly the declared platforms"
    for agent in lock.agents:
        if agent.package != agent.name.package:
            return f"agents.{agent.name}.package: expected {agent.name.package}"
    return None


def _trees_are_whole(lock: Lock) -> str | None:
    known = lock.by_id()
    for one in lock.installed:
        for tree in one.trees:
            if (problem := _tree_is_whole(one, tree, frozenset(known))) is not None:
                return f"{one.place}.trees.{tree.platform}: {problem}"
    for agent in lock.agents:
        if agent.name.command not in dict(known[agent.root].bins):
            return f"{agent.root}: has no command {agent.name.command}"
    for server in lock.mcp:
        if server.entry(known[server.root]) is None:
            return f"{server.root}: has no command that could be the server"
    return None


def _tree_is_whole(one: Installed, tree: Tree, known: frozenset[str]) -> str | None:
    paths = {entry.path: entry.artifact for entry in tree.entries}
    if paths.get(one.root_path) != one.root:
        return f"{one.root_path} is not {one.root}"
    bundled = {item.path for item in tree.bundled}
    if bundled & set(paths):
        return "a path is both unpacked and bundled"
    for entry in tree.entries:
        if entry.artifact not in known or not entry.artifact.startswith(f"{ArtifactKind.NPM}:"):
            return f"{entry.path} names {entry.artifact[:120]!r}, which is no npm artifact of this lock"
    for path in (*paths, *bundled):
        above = path.rpartition("/node_modules/")[0]
        if above and above not in paths and above not in bundled:
            return f"{path} lies in a package that is not there"
        if not above and path in bundled:
            return f"{path} is bundled in nothing"
    return None


def _uses(lock: Lock) -> Iterator[tuple[str, Platform]]:
    """Each id that something on a platform needs."""
    for platform in lock.platforms:
        yield lock.node_id(platform), platform
        yield from ((name, platform) for name in lock.local_artifacts)
    for python in lock.pypi_installed:
        yield from ((wheel, tree.platform) for tree in python.trees for wheel in tree.wheels)
    for one in lock.installed:
        yield from ((entry.artifact, tree.platform) for tree in one.trees for entry in tree.entries)
    for debian in lock.toolchain.trees if lock.toolchain is not None else ():
        yield from ((name, debian.platform) for name in debian.unpacked)


def _every_artifact_is_used_as_said(lock: Lock) -> str | None:
    used: dict[str, set[Platform]] = {}
    for name, platform in _uses(lock):
        used.setdefault(name, set()).add(platform)
    for artifact in lock.artifacts:
        if set(artifact.platforms) != used.pop(artifact.id, set()):
            return f"{artifact.id}: platforms are not those that use it"
    return f"{min(used)} is used and has no entry" if used else None


def _every_artifact_is_reached(lock: Lock) -> str | None:
    asked = {one.place: {one.root} for one in lock.installed}
    asked |= {place: {artifact} for artifact, place in lock.local_artifacts.items()}
    asked |= {one.place: {tree.root for tree in one.trees} for one in lock.pypi_installed}
    roots = {NODE_PARENT, *asked, *((TOOLCHAIN_PARENT,) if lock.toolchain is not None else ())}
    known = {artifact.id for artifact in lock.artifacts}
    for artifact in lock.artifacts:
        for parent in artifact.parents:
            if parent not in known and parent not in roots:
                return f"{artifact.id}: parent {parent[:120]!r} is not in this lock"
            if parent in asked and artifact.id not in asked[parent]:
                return f"{artifact.id}: is not what {parent} asks for"
            if (parent == NODE_PARENT) != (artifact.kind is ArtifactKind.NODE):
                return f"{artifact.id}: Node and only Node has the parent {NODE_PARENT}"
    reached = set(_walk_reachable(lock.artifacts, frozenset(roots)))
    missing = sorted(known - reached)
    return f"{missing[0]}: nothing that builder.toml names leads to it" if missing else None


def _walk_reachable(artifacts: tuple[Artifact, ...], roots: frozenset[str]) -> Iterator[str]:
    """Ids reached from the roots (places in builder.toml) along ``parents``, backwards."""
    children: dict[str, list[str]] = {}
    for artifact in artifacts:
        for parent in artifact.parents:
            children.setdefault(parent, []).append(artifact.id)
    seen: set[str] = set()
    waiting = sorted(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in seen:
                seen.add(child)
                waiting.append(child)
                yield child


def _skills_are_whole(lock: Lock) -> str | None:
    for skill in lock.skills:
        if (problem := _skill_is_whole(skill)) is not None:
            return f"{skill.place}: {problem}"
    return None


def _skill_is_whole(skill: SkillLock) -> str | None:
    paths = [file.path for file in skill.files]
    if REQUIRED not in paths:
        return f"has no {REQUIRED}"
    if (pair := collision(paths)) is not None:
        return f"{pair[0]} and {pair[1]} differ in letter case alone"
    above = {path[: at.start()] for path in paths for at in re.finditer("/", path)}
    if both := above & set(paths):
        return f"{min(both)} is a file and a directory"
    if sum(file.size for file in skill.files) > MAX_SKILL_BYTES:
        return f"larger than {MAX_SKILL_BYTES} bytes"
    return None


def _skill_artifacts_are_plain(lock: Lock) -> str | None:
    places = {skill.artifact: skill.place for skill in lock.skills}
    for artifact in lock.artifacts:
        local = artifact.kind is ArtifactKind.SKILL
        if local and (
            artifact.parents != (places.get(artifact.id, ""),) or artifact.bins or artifact.scripts
        ):
            return f"{artifact.id}: is not just what builder.toml names"
        if local and (artifact.integrity.algorithm != "sha256" or artifact.registry != SKILL_REGISTRY):
            return f"{artifact.id}: expected a sha256 and the registry {SKILL_REGISTRY}"
    return None


def _authenticated_as_its_kind_can_be(lock: Lock) -> str | None:
    problems = ((artifact.id, authenticity_problem(artifact)) for artifact in lock.artifacts)
    return next((f"{name}: {problem}" for name, problem in problems if problem is not None), None)


def _scripts_run_as_named(lock: Lock) -> str | None:
    allowed = set(lock.install_scripts)
    for artifact in lock.artifacts:
        if artifact.scripts_run != (bool(artifact.scripts) and artifact.name in allowed):
            return f"{artifact.id}: scripts.run is not what install_scripts says"
    without = allowed_without_script(lock)
    return f"install_scripts: {without[0]} has no install script here" if without else None


def allowed_without_script(lock: Lock) -> tuple[str, ...]:
    """Names under install_scripts that no artifact with an install script has."""
    having = {artifact.name for artifact in lock.artifacts if artifact.scripts}
    return tuple(name for name in lock.install_scripts if name not in having)


_LAWS: Final[tuple[Callable[[Lock], str | None], ...]] = (
    _lists_are_sorted,
    _something_is_asked_for,
    _base_covers_the_platforms,
    _trees_cover_the_platforms,
    _every_artifact_is_used_as_said,
    _trees_are_whole,
    _every_artifact_is_reached,
    _scripts_run_as_named,
    _skills_are_whole,
    _skill_artifacts_are_plain,
    _authenticated_as_its_kind_can_be,
    toolchain_law,
    *ADDITION_LAWS,
)
