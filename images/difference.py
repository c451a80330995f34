"""What differs between two locks, and between two images' manifests and configurations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from images.digests import Digest, canonical_json
from images.lock import Artifact, ArtifactKind, Lock, SkillFile
from images.lock_additions import PypiServerLock
from images.oci import Descriptor, OciImage


class Change(StrEnum):
    """What happened to a thing between before and after."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One value: ``before`` or ``after`` is None where there is none."""

    field: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class PackageChange:
    """A package whose versions, or the facts of one version, differ; equal versions are left out."""

    kind: ArtifactKind
    name: str
    before: tuple[Artifact, ...]
    after: tuple[Artifact, ...]

    @property
    def change(self) -> Change:
        """Several versions of one package can be in a tree; it is changed when both sides have one."""
        if not self.before:
            return Change.ADDED
        return Change.CHANGED if self.after else Change.REMOVED

    @property
    def other_bytes(self) -> tuple[str, ...]:
        """Versions that are on both sides with other bytes: published twice, or one registry lies."""
        old = {_edition(artifact): artifact.integrity for artifact in self.before}
        return tuple(
            _edition(artifact)
            for artifact in self.after
            if _edition(artifact) in old and old[_edition(artifact)] != artifact.integrity
        )


@dataclass(frozen=True, slots=True)
class ScriptChange:
    """An install script: the commands of all locked versions of a package, and whether they run."""

    package: str
    event: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    ran: bool
    runs: bool


@dataclass(frozen=True, slots=True)
class LockDifference:
    """``bytes_before``, ``bytes_after``: of all tarballs. All empty: the locks mean the same."""

    fields: tuple[FieldChange, ...]
    packages: tuple[PackageChange, ...]
    scripts: tuple[ScriptChange, ...]
    bytes_before: int
    bytes_after: int

    @property
    def same(self) -> bool:
        """Nothing differs that a lock decides."""
        return not (self.fields or self.packages or self.scripts)


@dataclass(frozen=True, slots=True)
class ImageDifference:
    """``kept``, ``removed``, ``added``: layers, by digest."""

    fields: tuple[FieldChange, ...]
    environment: tuple[FieldChange, ...]
    labels: tuple[FieldChange, ...]
    kept: tuple[Descriptor, ...]
    removed: tuple[Descriptor, ...]
    added: tuple[Descriptor, ...]

    @property
    def same(self) -> bool:
        """Same settings and layers."""
        return not (self.fields or self.environment or self.labels or self.removed or self.added)


def lock_difference(before: Lock, after: Lock) -> LockDifference:
    """What differs; neither lock is judged. What is for information (``tools``) or follows is left out."""
    packages = tuple(_packages(before, after))
    fields = pairs(_fields(before), _fields(after))
    if not packages:  # else the places differ too, and say nothing new
        fields += pairs(_places(before), _places(after))
    return LockDifference(
        fields=fields,
        packages=packages,
        scripts=tuple(_scripts(before, after)),
        bytes_before=sum(artifact.size for artifact in before.artifacts),
        bytes_after=sum(artifact.size for artifact in after.artifacts),
    )


def image_difference(before: OciImage, after: OciImage) -> ImageDifference:
    """What differs in what an image says of itself, and in its layers."""
    old, new = before.manifest.layers, after.manifest.layers
    common = {layer.digest for layer in old} & {layer.digest for layer in new}
    return ImageDifference(
        fields=pairs(_settings(before), _settings(after)),
        environment=pairs(_environment(before), _environment(after)),
        labels=pairs(dict(before.settings.labels), dict(after.settings.labels)),
        kept=tuple(layer for layer in new if layer.digest in common),
        removed=tuple(layer for layer in old if layer.digest not in common),
        added=tuple(layer for layer in new if layer.digest not in common),
    )


def pairs(before: dict[str, str], after: dict[str, str]) -> tuple[FieldChange, ...]:
    """The names under which two tables differ, in the order of the first, then of the second."""
    return tuple(
        FieldChange(name, before.get(name), after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def _fields(lock: Lock) -> dict[str, str]:
    recipe, user, tag = lock.recipe, lock.user, f":{lock.base.tag}" if lock.base.tag else ""
    pinned = "" if lock.base.pinned else " (not pinned)"
    found = {
        "base": f"{lock.base.name}{tag}@{lock.base.requested}{pinned}",
        "platforms": _listed(lock.platforms),
        "user": f"{user.name} {user.uid}:{user.gid}",
        "node": lock.node_version,
        **{f"agents.{agent.name}": agent.version for agent in lock.agents},
        "install-scripts": _listed(lock.install_scripts),
        "recipe.template": str(recipe.template),
        "recipe.renderer": str(recipe.renderer),
        "recipe.buildkit": recipe.buildkit,
        "recipe.epoch": str(recipe.epoch),
        "recipe.compression": f"{recipe.compression} {recipe.level}",
    }
    for server in lock.servers:
        index = "pypi:" if isinstance(server, PypiServerLock) else ""
        found[server.place] = f"{index}{server.package}@{server.version}"
        found[f"{server.place}.args"] = _listed(server.args)
        found[f"{server.place}.env"] = _listed(server.env)
    for tool in lock.pypi_tools:
        found[tool.place] = tool.version
    for one in lock.pypi_installed:
        for tree in one.trees:
            found[f"python on {tree.platform}"] = f"{tree.python}, glibc {tree.glibc}"
    for archive in lock.archives:
        artifact = lock.artifact(archive.artifact)
        found[archive.place] = str(artifact.integrity)
        found[f"{archive.place}.bins"] = _listed(f"{name} = {file}" for name, file in artifact.bins)
    for skill in lock.skills:
        found[skill.place] = str(lock.artifact(skill.artifact).integrity)
        found |= {f"{skill.place}/{file.path}": _described(file) for file in skill.files}
    for image in lock.base.images:
        found[f"base.{image.platform}"] = str(image.manifest)
    return found


def _described(file: SkillFile) -> str:
    return f"{'0755' if file.executable else '0644'} {file.size} {file.content}"


def _places(lock: Lock) -> dict[str, str]:
    """Where the artifacts lie in each tree, as one digest for each."""
    found: dict[str, str] = {}
    for one in lock.installed:
        for tree in one.trees:
            places = canonical_json([[entry.path, entry.artifact] for entry in tree.entries])
            found[f"{one.place}, places on {tree.platform}"] = Digest.of(places)
    for python in lock.pypi_installed:
        for wheels in python.trees:
            listed = canonical_json(list(wheels.wheels))
            found[f"{python.place}, wheels on {wheels.platform}"] = Digest.of(listed)
    return found


def _packages(before: Lock, after: Lock) -> Iterable[PackageChange]:
    old, new = _by_name(before), _by_name(after)
    for kind, name in sorted({*old, *new}):
        was, now = old.get((kind, name), {}), new.get((kind, name), {})
        same = {version for version in {*was} & {*now} if _facts(was[version]) == _facts(now[version])}
        gone = tuple(artifact for version, artifact in was.items() if version not in same)
        come = tuple(artifact for version, artifact in now.items() if version not in same)
        if gone or come:
            yield PackageChange(kind, name, gone, come)


def _by_name(lock: Lock) -> dict[tuple[ArtifactKind, str], dict[str, Artifact]]:
    found: dict[tuple[ArtifactKind, str], dict[str, Artifact]] = {}
    local = lock.local_artifacts
    for artifact in lock.artifacts:
        if artifact.id in local:
            continue  # has no versions: it is what its hash says
        found.setdefault((artifact.kind, artifact.name), {})[_edition(artifact)] = artifact
    return found


def _edition(artifact: Artifact) -> str:
    """The version; of a wheel its file name: one version can have another for each platform."""
    return artifact.filename or artifact.version


def _facts(artifact: Artifact) -> tuple[object, ...]:
    """What makes one version another one: scripts are compared on their own, parents follow from the rest."""
    return (
        artifact.integrity,
        artifact.platforms,
        artifact.bins,
        artifact.registry,
        artifact.authenticated,
        artifact.signer,
        artifact.signature,
        artifact.attestation,
    )


def _scripts(before: Lock, after: Lock) -> Iterable[ScriptChange]:
    old, new = _script_table(before), _script_table(after)
    for package, event in sorted({*old, *new}):
        was, now = old.get((package, event), ((), False)), new.get((package, event), ((), False))
        if was != now:
            yield ScriptChange(package, event, was[0], now[0], was[1], now[1])


def _script_table(lock: Lock) -> dict[tuple[str, str], tuple[tuple[str, ...], bool]]:
    """Package and event -> the commands of its versions (each once), and whether they run."""
    commands: dict[tuple[str, str], set[str]] = {}
    runs: dict[tuple[str, str], bool] = {}
    for artifact in lock.artifacts:
        for script in artifact.scripts:
            key = (artifact.name, str(script.event))
            commands.setdefault(key, set()).add(script.command)
            runs[key] = runs.get(key, False) or artifact.scripts_run
    return {key: (tuple(sorted(texts)), runs[key]) for key, texts in commands.items()}


def _settings(image: OciImage) -> dict[str, str]:
    settings = image.settings
    return {
        "platform": str(settings.platform),
        "user": settings.user,
        "entrypoint": _listed(settings.entrypoint),
        "command": _listed(settings.command),
        "working directory": settings.working_dir,
        "volumes": _listed(settings.volumes),
        "exposed ports": _listed(settings.exposed_ports),
        "onbuild": _listed(settings.on_build),
        "health check": "yes" if settings.health_check else "",
        "stop signal": settings.stop_signal,
    }


def _environment(image: OciImage) -> dict[str, str]:
    return {name: value for name, _, value in (text.partition("=") for text in image.settings.environment)}


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values)
