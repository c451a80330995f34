"""What must hold of wheels and archives in a lock: whole trees, one Python, commands that nobody else has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from images.additions import TAKEN_COMMANDS
from images.lock import ArtifactKind
from images.lock_additions import LOCAL_REGISTRY, PypiInstalled, PypiServerLock, WheelTree
from images.pypi import PYPI_REGISTRY

if TYPE_CHECKING:
    from images.lock import Artifact, Lock


def commands(lock: Lock) -> Iterator[tuple[str, str, str, Artifact]]:
    """Every command of a tool or archive: its name, what it starts, the place that has it, its artifact.

    A tool's root wheel may differ from platform to platform, and with it its commands.
    """
    known = lock.by_id()
    for tool in lock.pypi_tools:
        for root in dict.fromkeys(tree.root for tree in tool.trees):
            for name, start in known[root].bins:
                yield name, start, tool.place, known[root]
    for archive in lock.archives:
        for name, start in known[archive.artifact].bins:
            yield name, start, archive.place, known[archive.artifact]


def _wheel_trees_are_whole(lock: Lock) -> str | None:
    known = lock.by_id()
    for one in lock.pypi_installed:
        if tuple(tree.platform for tree in one.trees) != lock.platforms:
            return f"{one.place}.wheels: not exactly the declared platforms"
        for tree in one.trees:
            if (problem := _tree_is_whole(one, tree, known)) is not None:
                return f"{one.place}.wheels.{tree.platform}: {problem}"
    return None


def _tree_is_whole(one: PypiInstalled, tree: WheelTree, known: dict[str, Artifact]) -> str | None:
    names: set[str] = set()
    for wheel in tree.wheels:
        artifact = known.get(wheel)
        if artifact is None or artifact.kind is not ArtifactKind.WHEEL:
            return f"{wheel[:120]!r} is no wheel of this lock"
        if artifact.name in names:
            return f"{artifact.name} is there twice"
        names.add(artifact.name)
    root = known.get(tree.root)
    if root is None or tree.root not in tree.wheels:
        return f"{tree.root[:120]!r} is not among the packages"
    if (root.name, root.version) != (one.package, one.version):
        return f"{root.id} is not {one.package} {one.version}"
    if isinstance(one, PypiServerLock):
        return None if one.entry(root.bins) else f"{root.id}: has no command that could be the server"
    return None if root.bins else f"{root.id}: has no command"


def _one_python_on_each_platform(lock: Lock) -> str | None:
    found: dict[str, tuple[str, str]] = {}
    for one in lock.pypi_installed:
        for tree in one.trees:
            here = (tree.python, tree.glibc)
            if found.setdefault(str(tree.platform), here) != here:
                return f"{one.place}.wheels.{tree.platform}: another python or glibc than elsewhere"
    return None


def _wheels_are_plain(lock: Lock) -> str | None:
    for artifact in lock.artifacts:
        if artifact.kind is ArtifactKind.WHEEL and (
            artifact.integrity.algorithm != "sha256" or artifact.registry != PYPI_REGISTRY or artifact.scripts
        ):
            return f"{artifact.id}: expected a sha256, the registry {PYPI_REGISTRY} and no install script"
    return None


def _archives_are_plain(lock: Lock) -> str | None:
    places = {archive.artifact: archive.place for archive in lock.archives}
    for artifact in lock.artifacts:
        if artifact.kind is not ArtifactKind.ARCHIVE:
            continue
        if artifact.parents != (places.get(artifact.id, ""),) or artifact.scripts:
            return f"{artifact.id}: is not just what builder.toml names"
        if artifact.integrity.algorithm != "sha256" or artifact.registry != LOCAL_REGISTRY:
            return f"{artifact.id}: expected a sha256 and the registry {LOCAL_REGISTRY}"
    return None


def _every_command_is_of_one_place(lock: Lock) -> str | None:
    owners: dict[str, str] = {}
    for name, _, place, _ in commands(lock):
        if name in TAKEN_COMMANDS:
            return f"{place}: its command {name} is one of every image"
        if owners.setdefault(name, place) != place:
            return f"{place}: its command {name} is one of {owners[name]} too"
    return None


ADDITION_LAWS: Final[tuple[Callable[[Lock], str | None], ...]] = (
    _wheel_trees_are_whole,
    _one_python_on_each_platform,
    _wheels_are_plain,
    _archives_are_plain,
    _every_command_is_of_one_place,
)
