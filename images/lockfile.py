"""builder.lock as bytes: the one canonical form, and the strict reader that accepts nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from images.attestation import Attestation
from images.digests import Digest
from images.errors import BuilderError, UsageError
from images.lock import SCHEMA, Artifact, BaseImage, BaseLock, Installed, Lock, McpLock, SkillLock, Tree
from images.lock_additions import PypiInstalled, PypiServerLock
from images.lock_additions_reader import INDEX
from images.lock_place import HINT
from images.lock_reader import read_lock
from images.strictjson import read_object
from images.toolchain import ToolchainLock

if TYPE_CHECKING:
    from images.strictjson import JsonValue

MAX_LOCK_BYTES: Final = 16 * 1024 * 1024
LOCK_NAME: Final = "builder.lock"


def lock_bytes(lock: Lock) -> bytes:
    """The one form of a lock: keys sorted, one value a line, one space per level, UTF-8, newline at the end.

    Without its white space this is RFC 8785. Its lists are sorted too, so that a diff shows what changed.
    """
    return (json.dumps(_document(lock), sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


def lock_digest(lock: Lock) -> Digest:
    """The digest of the lock: SHA-256 of the file's bytes."""
    return Digest.of(lock_bytes(lock))


def parse_lock(raw: bytes, *, where: str = LOCK_NAME, error: type[BuilderError] = UsageError) -> Lock:
    """Parse a lock from untrusted bytes.

    Holds: closed keys and bounded values; the roots are those named at the top; every artifact is reached
    and used; the bytes are the canonical form. ``error`` is raised, naming file and place.
    """
    try:
        document = read_object(raw, where, max_bytes=MAX_LOCK_BYTES, error=error)
    except error as broken:
        broken.hint = HINT
        raise
    lock = read_lock(document, where, error)
    if lock_bytes(lock) != raw:
        raise error(
            "not in the canonical form, so it was edited by hand",
            where=where,
            hint=HINT,
        )
    return lock


def _document(lock: Lock) -> dict[str, JsonValue]:
    recipe, tools, user = lock.recipe, lock.tools, lock.user
    # Where there are none there is no key: a lock without them is what it was before they existed.
    additions: dict[str, JsonValue] = {}
    if lock.servers:
        additions["mcp"] = {server.name: _server(server) for server in lock.servers}
    if lock.skills:
        additions["skills"] = {skill.name: _skill(skill) for skill in lock.skills}
    if lock.toolchain is not None:
        additions["toolchain"] = {"debian": _debian(lock.toolchain)}
    if lock.pypi_tools:
        additions["pypi_tools"] = {
            tool.name: {"version": tool.version, "wheels": _wheels(tool)} for tool in lock.pypi_tools
        }
    if lock.archives:
        additions["archives"] = {archive.name: {} for archive in lock.archives}
    return {
        **additions,
        "schema": SCHEMA,
        "config": str(lock.config),
        "recipe": {
            "template": str(recipe.template),
            "renderer": recipe.renderer,
            "buildkit": recipe.buildkit,
            "epoch": recipe.epoch,
            "compression": {"algorithm": recipe.compression, "level": recipe.level},
        },
        "tools": {"resolver": str(tools.resolver), "build_container": str(tools.build_container)},
        "user": {"name": user.name, "uid": user.uid, "gid": user.gid},
        "platforms": [str(platform) for platform in lock.platforms],
        "base": _base(lock.base),
        "node": {"version": lock.node_version},
        "install_scripts": list(lock.install_scripts),
        "agents": {str(agent.name): _installed(agent) for agent in lock.agents},
        "artifacts": [_artifact(artifact) for artifact in lock.artifacts],
    }


def _base(base: BaseLock) -> dict[str, JsonValue]:
    return {
        "name": base.name,
        "tag": base.tag,
        "pinned": base.pinned,
        "requested": str(base.requested),
        "index": str(base.index) if base.index else None,
        "images": {str(image.platform): _base_image(image) for image in base.images},
    }


def _base_image(image: BaseImage) -> dict[str, JsonValue]:
    return {
        "manifest": str(image.manifest),
        "config": str(image.config),
        "layers": [
            {"mediaType": layer.media_type, "digest": str(layer.digest), "size": layer.size}
            for layer in image.layers
        ],
        "diff_ids": [str(diff_id) for diff_id in image.diff_ids],
    }


def _installed(one: Installed) -> dict[str, JsonValue]:
    return {
        "package": one.package,
        "version": one.version,
        "trees": {str(tree.platform): _tree(tree) for tree in one.trees},
    }


def _server(server: McpLock | PypiServerLock) -> dict[str, JsonValue]:
    start: dict[str, JsonValue] = {"args": list(server.args), "env": list(server.env)}
    if isinstance(server, McpLock):
        return {**_installed(server), **start}
    named = {"index": INDEX, "package": server.package, "version": server.version}
    return {**named, "wheels": _wheels(server), **start}


def _wheels(one: PypiInstalled) -> dict[str, JsonValue]:
    return {
        str(tree.platform): {
            "python": tree.python,
            "glibc": tree.glibc,
            "root": tree.root,
            "packages": list(tree.wheels),
        }
        for tree in one.trees
    }


def _skill(skill: SkillLock) -> dict[str, JsonValue]:
    return {
        file.path: {"executable": file.executable, "size": file.size, "sha256": file.content.hex}
        for file in skill.files
    }


def _debian(toolchain: ToolchainLock) -> dict[str, JsonValue]:
    return {
        "suite": toolchain.suite,
        "asked": list(toolchain.asked),
        "trees": {
            str(tree.platform): {
                "in_base": list(tree.in_base),
                "steps": [{str(step.action): list(step.packages)} for step in tree.steps],
            }
            for tree in toolchain.trees
        },
    }


def _tree(tree: Tree) -> dict[str, JsonValue]:
    return {
        "packages": {item.path: item.artifact for item in tree.entries},
        "bundled": {item.path: item.version for item in tree.bundled},
    }


def _artifact(artifact: Artifact) -> dict[str, JsonValue]:
    document: dict[str, JsonValue] = {
        "kind": str(artifact.kind),
        "name": artifact.name,
        "version": artifact.version,
        "integrity": str(artifact.integrity),
        "size": artifact.size,
        "platforms": [str(platform) for platform in artifact.platforms],
        "parents": list(artifact.parents),
        "registry": artifact.registry,
        "authenticated": str(artifact.authenticated),
    }
    if artifact.filename:
        document["filename"] = artifact.filename
    if artifact.signer:
        document["signer"] = artifact.signer
    if artifact.signature:
        document["signature"] = artifact.signature
    if artifact.attestation is not None:
        document["attestation"] = _attestation(artifact.attestation)
    if artifact.bins:
        document["bins"] = dict(artifact.bins)
    if artifact.scripts:
        document["scripts"] = {
            "run": artifact.scripts_run,
            "commands": {
                str(script.event): {"command": script.command, "sha256": script.digest.hex}
                for script in artifact.scripts
            },
        }
    return document


def _attestation(one: Attestation) -> dict[str, JsonValue]:
    said: dict[str, JsonValue] = {"publisher": one.publisher, "issuer": one.issuer}
    return said | ({"bundle": one.bundle} if one.bundle else {})
