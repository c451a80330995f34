"""The content key: one digest over everything in a lock that can change the image of one platform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from images.digests import Digest, canonical_json
from images.lock import Artifact, Installed, Lock, LockSummary
from images.lock_additions import PypiInstalled
from images.lockfile import lock_digest
from images.oci import Platform

if TYPE_CHECKING:
    from images.strictjson import JsonValue

KEY_VERSION: Final = 1  # grows when the same lock must give another key

# Fields of a lock that never change the key: they say where things came from, not what they are.
NOT_IN_KEY: Final = frozenset(
    {
        "config",  # of the operator's words; what they resolved to is in the key
        "tools.resolver",
        "tools.build_container",
        "base.name",
        "base.tag",
        "base.pinned",
        "base.requested",
        "base.index",
        "base.images.config",  # the manifest digest covers these three
        "base.images.layers",
        "base.images.diff_ids",
        "install_scripts",  # the scripts of each artifact that runs them are in the key
        "artifacts.size",  # the integrity covers it
        "artifacts.parents",
        "artifacts.registry",
        "artifacts.authenticated",
        "artifacts.signer",
        "artifacts.signature",
        "artifacts.attestation",
        "artifacts.scripts (not run)",
        "agents.trees.bundled",  # inside a tarball whose integrity is in the key
        "mcp.trees.bundled",
        "toolchain.debian.suite",
        "toolchain.debian.asked",  # what they led to is in the key
        "toolchain.debian.trees.in_base",
        "mcp.wheels.glibc",  # which wheels were chosen for it is in the key
        "pypi_tools.wheels.glibc",
        "skills",  # what each file is: the integrity of the Skill's archive covers it
        "anything of another platform",
    }
)


def content_key(lock: Lock, platform: Platform) -> Digest:
    """The key of one declared platform: SHA-256 over RFC 8785 JSON; nothing of the host enters."""
    recipe, user = lock.recipe, lock.user
    additions: dict[str, object] = {}  # no key where there are none: what keys were, they stay
    if lock.mcp:
        additions["mcp"] = {
            server.name: {
                **_installed(server, platform),
                "args": list(server.args),
                "env": list(server.env),
            }
            for server in lock.mcp
        }
    if lock.pypi_mcp:
        additions["pypi_mcp"] = {
            server.name: {**_wheels(server, platform), "args": list(server.args), "env": list(server.env)}
            for server in lock.pypi_mcp
        }
    if lock.pypi_tools:
        additions["pypi_tools"] = {tool.name: _wheels(tool, platform) for tool in lock.pypi_tools}
    if lock.archives:
        additions["archives"] = [archive.artifact for archive in lock.archives]
    if lock.skills:
        additions["skills"] = [skill.artifact for skill in lock.skills]
    if lock.toolchain is not None:
        steps = lock.toolchain.tree(platform).steps
        additions["toolchain"] = [{str(step.action): list(step.packages)} for step in steps]
    return Digest.of(
        canonical_json(
            {
                **additions,
                "version": KEY_VERSION,
                "platform": str(platform),
                "base": str(lock.base.image(platform).manifest),
                "user": {"name": user.name, "uid": user.uid, "gid": user.gid},
                "epoch": recipe.epoch,
                "compression": {"algorithm": recipe.compression, "level": recipe.level},
                "template": str(recipe.template),
                "renderer": recipe.renderer,
                "buildkit": recipe.buildkit,
                "node": lock.node_id(platform),
                "agents": {str(agent.name): _installed(agent, platform) for agent in lock.agents},
                "artifacts": {artifact.id: _artifact(artifact) for artifact in lock.artifacts_for(platform)},
            }
        )
    )


def summarise(lock: Lock, platform: Platform) -> LockSummary:
    """What statements say of this lock for one declared platform."""
    return LockSummary(
        digest=lock_digest(lock),
        key=content_key(lock, platform),
        platform=platform,
        base_name=lock.base.name,
        base=lock.base.image(platform),
        recipe=lock.recipe,
        agents=tuple((agent.name, agent.version) for agent in lock.agents),
        artifacts=lock.artifacts_for(platform),
    )


def _installed(one: Installed, platform: Platform) -> dict[str, JsonValue]:
    return {
        "root": one.root,
        "tree": {entry.path: entry.artifact for entry in one.tree(platform).entries},
    }


def _wheels(one: PypiInstalled, platform: Platform) -> dict[str, JsonValue]:
    tree = one.tree(platform)
    return {
        "package": one.package,
        "version": one.version,
        "python": tree.python,
        "root": tree.root,
        "wheels": list(tree.wheels),
    }


def _artifact(artifact: Artifact) -> JsonValue:
    scripts: dict[str, JsonValue] = {}
    if artifact.scripts_run:
        scripts = {str(script.event): str(script.digest) for script in artifact.scripts}
    return {
        "integrity": str(artifact.integrity),
        "bins": dict(artifact.bins),
        "scripts": scripts,
    }
