"""What must hold between a lock's toolchain and its artifacts: all is there, signed, in one order."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from images.lock import ArtifactKind
from images.toolchain import (
    ARCHITECTURES,
    DEBIAN_REGISTRY,
    TOOLCHAIN_PARENT,
    DebianTree,
    DpkgAction,
    ToolchainLock,
    split_name,
)

if TYPE_CHECKING:
    from images.lock import Artifact, Lock


def toolchain_law(lock: Lock) -> str | None:
    """A sentence about the first law that does not hold; None when all hold."""
    debs = {artifact.id: artifact for artifact in lock.artifacts if artifact.kind is ArtifactKind.DEB}
    for name, artifact in debs.items():
        if (problem := _is_plain(artifact)) is not None:
            return f"{name}: {problem}"
    if lock.toolchain is None:
        return f"{min(debs)}: there is no toolchain" if debs else None
    return _is_whole(lock.toolchain, lock, debs)


def _is_whole(toolchain: ToolchainLock, lock: Lock, debs: dict[str, Artifact]) -> str | None:
    if not toolchain.asked:
        return "toolchain.debian: asks for nothing"
    if any(one >= two for one, two in pairwise(toolchain.asked)):
        return "toolchain.debian.asked: not sorted, or one appears twice"
    if tuple(tree.platform for tree in toolchain.trees) != lock.platforms:
        return "toolchain.debian.trees: not exactly the declared platforms"
    for tree in toolchain.trees:
        problem = _order(tree, debs) or _asked(toolchain, tree, debs)
        if problem is not None:
            return f"toolchain.debian.trees.{tree.platform}: {problem}"
    return None


def _is_plain(artifact: Artifact) -> str | None:
    if artifact.bins or artifact.scripts:
        return "has commands or scripts of npm"
    if artifact.integrity.algorithm != "sha256" or artifact.registry != DEBIAN_REGISTRY:
        return f"expected a sha256 and the registry {DEBIAN_REGISTRY}"
    return None


def _order(tree: DebianTree, debs: dict[str, Artifact]) -> str | None:
    """Each package is unpacked once, then configured once; of a package there is one version."""
    done: dict[DpkgAction, set[str]] = {action: set() for action in DpkgAction}
    names: set[str] = set()
    for step in tree.steps:
        for name in step.packages:
            if name in done[step.action]:
                return f"{name} is to {step.action} twice"
            done[step.action].add(name)
            if step.action is DpkgAction.CONFIGURE:
                if name not in done[DpkgAction.UNPACK]:
                    return f"{name} is to configure before it is unpacked"
                continue
            artifact = debs.get(name)
            if artifact is None:
                return f"{name} is no artifact of this lock"
            if artifact.name in names:
                return f"{artifact.name} is there in two versions"
            names.add(artifact.name)
            if split_name(artifact.name)[1] not in ("all", ARCHITECTURES.get(tree.platform)):
                return f"{name} is for another architecture"
    missing = done[DpkgAction.UNPACK] - done[DpkgAction.CONFIGURE]
    return f"{min(missing)} is never configured" if missing else None


def _asked(toolchain: ToolchainLock, tree: DebianTree, debs: dict[str, Artifact]) -> str | None:
    if any(one >= two for one, two in pairwise(tree.in_base)):
        return "in_base: not sorted, or one appears twice"
    if set(tree.in_base) - set(toolchain.asked):
        return "in_base names what nobody asked for"
    added = {
        split_name(debs[name].name)[0] for name in tree.unpacked if TOOLCHAIN_PARENT in debs[name].parents
    }
    if added != set(toolchain.asked) - set(tree.in_base):
        return "what was asked for is neither exactly in the base nor exactly among the packages"
    return None
