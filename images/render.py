"""Render a lock into what BuildKit is given: Containerfile, lists, generated files; what must come out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from images.accounts import home_of, with_accounts
from images.basefacts import BaseFacts
from images.digests import Digest, canonical_json
from images.errors import UsageError
from images.key import content_key
from images.launchers import (
    NODE,
    launcher_path,
    launcher_script,
    server_path,
    server_script,
    versions_document,
)
from images.lock import Artifact, Lock
from images.oci import Platform
from images.python_launchers import python_root
from images.relay import NETWORK_PLACE, RELAY_PATH, relay_script
from images.rootfs import RootEntry, pack_root
from images.toolchain_plan import FOLDER, ToolchainPlan, deb_file, toolchain_plan
from images.unpacking import Plan, archive_plan, node_plan, npm_plan, skill_plan, wheel_plan

# Grows with any change of what is rendered from a lock: it is part of the content key.
RENDERER_VERSION: Final = 5
# Unpacks and runs install scripts: nobody in any image. COPY gives what it made to root.
BUILD_USER: Final = "59000:59000"
LABEL_KEY: Final = "example.agent-image-builder.key"
IMAGE_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SECTION: Final = re.compile(r"^#% ([a-z-]+)$", re.MULTILINE)
_PLACEHOLDER: Final = re.compile(r"@([A-Z_]+)@")
_SECTIONS: Final = ("head", "toolchain", "node", "directory", "image", "directory-copy", "tail")


@dataclass(frozen=True, slots=True)
class ContextFile:
    """One file of the main build context: relative path and bytes."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class ContextArtifact:
    """One locked artifact that the named context ``artifacts`` holds at ``folder/name``."""

    folder: str
    name: str
    artifact: Artifact


@dataclass(frozen=True, slots=True)
class PlannedImage:
    """What the configuration of the result must say, exactly."""

    platform: Platform
    user: str
    environment: tuple[tuple[str, str], ...]  # sorted
    labels: tuple[tuple[str, str], ...]  # sorted
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    working_dir: str
    new_layers: int


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Everything that one build is made from, as values.

    Our layers, upwards: the toolchain, if there is one; the agent's own working directory alone; one per plan
    (``plans``: how a directory is filled); the generated files (``root``).
    """

    key: Digest
    base: Digest
    epoch: int
    compression: str
    level: int
    files: tuple[ContextFile, ...]
    artifacts: tuple[ContextArtifact, ...]
    plans: tuple[Plan, ...]
    root: tuple[RootEntry, ...]
    image: PlannedImage
    toolchain: ToolchainPlan | None = None


def render(lock: Lock, platform: Platform, template: str, base: BaseFacts) -> BuildContext:
    """The build of one declared platform. ``template`` is the text of Containerfile.in.

    Raises UsageError when the template is not the lock's, or the base cannot carry the plan.
    """
    if Digest.of(template.encode()) != lock.recipe.template:
        raise UsageError(
            "the lock was made with another Containerfile.in", where="builder.lock", hint="builder lock"
        )
    key = content_key(lock, platform)
    plans = (
        node_plan(lock, platform),
        *(npm_plan(lock, one, platform) for one in lock.installed),
        *(skill_plan(lock, skill) for skill in lock.skills),
        *(wheel_plan(lock, one, platform) for one in lock.pypi_installed),
        *(archive_plan(lock, archive) for archive in lock.archives),
    )
    toolchain = toolchain_plan(lock, platform, with_accounts(base.accounts, lock.user, base.shell))
    image = _planned(lock, platform, base, key, len(plans) + (toolchain is not None))
    root = generated_root(lock, platform, base, key)
    if toolchain is not None:  # packages may have made accounts of their own below
        root = tuple(entry for entry in root if entry.path not in ("etc/group", "etc/passwd"))
    containerfile = _containerfile(lock, template, image, plans[1:], toolchain=toolchain is not None)
    files = [
        ContextFile("Containerfile", containerfile.encode()),
        ContextFile("root.tar", pack_root(root, lock.recipe.epoch)),
    ]
    if toolchain is not None:
        files += [ContextFile(f"{FOLDER}/{name}", content) for name, content in toolchain.lists()]
    for plan in plans:
        files += [ContextFile(f"{plan.folder}/{name}", content) for name, content in plan.lists()]
    return BuildContext(
        key=key,
        base=lock.base.image(platform).manifest,
        epoch=lock.recipe.epoch,
        compression=lock.recipe.compression,
        level=lock.recipe.level,
        files=tuple(files),
        artifacts=(
            *(
                ContextArtifact(plan.folder, item.tarball, item.artifact)
                for plan in plans
                for item in plan.unique()
            ),
            *(
                ContextArtifact(FOLDER, deb_file(one), one)
                for one in (toolchain.debs if toolchain is not None else ())
            ),
        ),
        plans=plans,
        root=root,
        image=image,
        toolchain=toolchain,
    )


def generated_root(lock: Lock, platform: Platform, base: BaseFacts, key: Digest) -> tuple[RootEntry, ...]:
    """Every generated file and directory: launchers, accounts, versions, and the places that others fill."""
    user = lock.user
    accounts = with_accounts(base.accounts, user, base.shell)
    versions = canonical_json(versions_document(lock, platform, str(key))) + b"\n"
    directories = ["etc", "home", "opt", "opt/builder", NETWORK_PLACE.lstrip("/"), "source"]
    directories += ["usr", "usr/local", "usr/local/bin"]
    if lock.servers:
        directories += ["opt/mcp", *(server.directory.lstrip("/") for server in lock.mcp)]
    if lock.pypi_tools:
        directories.append("opt/tools")
    return (
        *(RootEntry(path, 0o755) for path in directories),
        RootEntry("etc/agent-image.json", 0o644, content=versions),
        RootEntry("etc/group", 0o644, content=accounts.group),
        RootEntry("etc/passwd", 0o644, content=accounts.passwd),
        RootEntry(RELAY_PATH.lstrip("/"), 0o755, content=relay_script()),
        RootEntry(home_of(user).lstrip("/"), 0o755, user.uid, user.gid),
        RootEntry("usr/local/bin/node", 0o777, link=NODE),
        *(
            RootEntry(launcher_path(agent.name).lstrip("/"), 0o755, content=launcher_script(lock, agent))
            for agent in lock.agents
        ),
        *(
            RootEntry(server_path(server).lstrip("/"), 0o755, content=server_script(lock, server))
            for server in lock.mcp
        ),
        *python_root(lock, platform),
    )


def _planned(lock: Lock, platform: Platform, base: BaseFacts, key: Digest, layers: int) -> PlannedImage:
    environment = dict(entry.split("=", 1) for entry in base.settings.environment)
    environment |= _environment(lock)
    return PlannedImage(
        platform=platform,
        user=f"{lock.user.uid}:{lock.user.gid}",
        environment=tuple(sorted(environment.items())),
        labels=tuple(sorted({**dict(base.settings.labels), LABEL_KEY: str(key)}.items())),
        entrypoint=(base.init, "--"),
        command=(base.shell,),
        working_dir="/workspace",
        new_layers=layers + 2,  # the working directory below them, the generated files above
    )


def _environment(lock: Lock) -> dict[str, str]:
    return {"HOME": home_of(lock.user), "LANG": "C.UTF-8", "PATH": IMAGE_PATH}


def _containerfile(
    lock: Lock, template: str, image: PlannedImage, plans: tuple[Plan, ...], *, toolchain: bool
) -> str:
    """``plans``: the directories that have a stage and a layer each; Node has sections of its own."""
    sections = _split(template)
    values = {
        "BUILD_USER": BUILD_USER,
        "BELOW": FOLDER if toolchain else "base",
        "EPOCH": str(lock.recipe.epoch),
        "ENVIRONMENT": _pairs(_environment(lock)),
        "LABELS": _pairs({name: value for name, value in image.labels if name == LABEL_KEY}),
        "USER": image.user,
        "ENTRYPOINT": json.dumps(image.entrypoint),
        "COMMAND": json.dumps(image.command),
    }

    def write(section: str) -> str:
        if section == "toolchain" and not toolchain:
            return ""
        if not section.startswith("directory"):
            return _substitute(sections[section], values)
        return "".join(
            _substitute(sections[section], values | {"STAGE": plan.folder, "TARGET": plan.target})
            for plan in plans
        )

    return "".join(write(section) for section in _SECTIONS)


def _split(template: str) -> dict[str, str]:
    """The template's sections by name; what precedes the first is a comment for readers of the template."""
    parts = _SECTION.split(template)
    names, bodies = parts[1::2], parts[2::2]
    if tuple(names) != _SECTIONS:
        raise UsageError(f"sections {names}, expected {list(_SECTIONS)}", where="Containerfile.in")
    return {name: body.lstrip("\n") for name, body in zip(names, bodies, strict=True)}


def _substitute(text: str, values: Mapping[str, str]) -> str:
    """Replace each ``@NAME@``, once: a value that looks like a placeholder stays as it is."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise UsageError(f"unknown placeholder {found[0]}", where="Containerfile.in")
        return values[found[1]]

    return _PLACEHOLDER.sub(value, text)


def _pairs(values: Mapping[str, str]) -> str:
    """``NAME="value"`` for ENV and LABEL. Every value here is a digest, a path or a number of ours."""
    for value in values.values():
        if not re.fullmatch(r"[A-Za-z0-9/:._-]+", value):
            raise UsageError(f"{value[:60]!r} cannot be written into a Containerfile")
    return " ".join(f'{name}="{value}"' for name, value in sorted(values.items()))
