"""How a directory of ours is filled from locked artifacts: what at which path, links, scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from images.errors import UsageError
from images.lock import AgentLock, Artifact, InstallScript, Lock, McpLock, SkillLock
from images.lock_additions import ArchiveLock, PypiInstalled
from images.lock_place import COMMAND_NAME
from images.lock_reader import BIN_FILE, TREE_PATH
from images.oci import Platform
from images.wheels import site_packages


class Unpack(StrEnum):
    """How an artifact is unpacked; for a tar, how many directories are stripped."""

    PACKAGE = "1"  # what lies below its one top directory
    WHOLE = "0"
    WHEEL = "wheel"


@dataclass(frozen=True, slots=True)
class Placed:
    """One artifact and where it is unpacked, relative to the directory (``.`` = the directory itself).

    The place of a wheel is that of packages: images.wheels says where the rest goes.
    """

    place: str
    artifact: Artifact
    how: Unpack = Unpack.PACKAGE

    @property
    def tarball(self) -> str:
        """Its name in the build context: the integrity, so that a name says what the bytes are."""
        suffix = "whl" if self.how is Unpack.WHEEL else "tgz"
        return f"{self.artifact.integrity.algorithm}-{self.artifact.integrity.hex}.{suffix}"


@dataclass(frozen=True, slots=True)
class BinLink:
    """A command of a package: ``link`` points to ``file`` by the relative path ``to``, if that is there."""

    name: str
    file: str
    link: str
    to: str


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """One allowed install script, run in the directory ``place``."""

    place: str
    artifact: Artifact
    script: InstallScript


@dataclass(frozen=True, slots=True)
class Omitted:
    """A locked package that is not unpacked, and why."""

    place: str
    artifact: Artifact
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How one directory is filled. ``target``: its absolute path; ``folder``: its name in the build contexts.

    The rules, for whoever checks the result: files, directories and bin links only; directories 0755; a file
    is 0755 when anybody may execute its tarball member, a bin link points to it or a script made
    it so, else 0644; root:root; one time stamp.
    """

    folder: str
    target: str
    placed: tuple[Placed, ...]
    bins: tuple[BinLink, ...] = ()
    scripts: tuple[ScriptRun, ...] = ()
    omitted: tuple[Omitted, ...] = ()

    def unique(self) -> Iterator[Placed]:
        """Each tarball once, though it may be unpacked at several places."""
        seen: set[str] = set()
        for item in self.placed:
            if item.tarball not in seen:
                seen.add(item.tarball)
                yield item

    def lists(self) -> Iterator[tuple[str, bytes]]:
        """The files that the build's script reads: name and bytes. Fields are separated by one tab."""
        for algorithm in ("sha512", "sha256"):
            sums = sorted(
                f"{item.artifact.integrity.hex}  {item.tarball}"
                for item in self.unique()
                if item.artifact.integrity.algorithm == algorithm
            )
            yield f"{algorithm}sums", _lines(sums)
        yield (
            "tree",
            _lines(
                f"{item.tarball}\t{item.place}\t{item.artifact.label}\t{item.how}" for item in self.placed
            ),
        )
        yield "bins", _lines(f"{item.name}\t{item.file}\t{item.link}\t{item.to}" for item in self.bins)
        yield (
            "scripts",
            _lines(
                "\t".join(
                    (
                        item.place,
                        item.artifact.name,
                        item.artifact.version,
                        item.script.event,
                        item.script.command,
                    )
                )
                for item in self.scripts
            ),
        )


def node_plan(lock: Lock, platform: Platform) -> Plan:
    """Node: its npm package, unpacked as it is."""
    return Plan("node", "/opt/node", (Placed(".", lock.node(platform)),))


def skill_plan(lock: Lock, skill: SkillLock) -> Plan:
    """A Skill: its archive, unpacked as it is."""
    artifact = lock.artifact(skill.artifact)
    return Plan(skill.folder, skill.directory, (Placed(".", artifact),))


def wheel_plan(lock: Lock, one: PypiInstalled, platform: Platform) -> Plan:
    """A server or tool from PyPI: its wheels, as a virtual environment has them."""
    tree, artifacts = one.tree(platform), lock.by_id()
    site = site_packages(tree.python)
    placed = tuple(Placed(site, artifacts[wheel], Unpack.WHEEL) for wheel in tree.wheels)
    return Plan(one.folder, one.directory, placed)


def archive_plan(lock: Lock, archive: ArchiveLock) -> Plan:
    """An archive, unpacked whole."""
    placed = Placed(".", lock.artifact(archive.artifact), Unpack.WHOLE)
    return Plan(archive.folder, archive.directory, (placed,))


def npm_plan(lock: Lock, one: AgentLock | McpLock, platform: Platform) -> Plan:
    """An agent's or MCP server's directory on one platform. UsageError for what we cannot write."""
    artifacts = lock.by_id()
    wanted, omitted = _choose_level(
        [
            Placed(_checked_place(entry.path), artifacts[entry.artifact])
            for entry in one.tree(platform).entries
        ],
        platform,
    )
    return Plan(
        folder=one.folder,
        target=one.directory,
        placed=tuple(wanted),
        bins=tuple(_bins(wanted)),
        scripts=tuple(_scripts(wanted)),
        omitted=tuple(omitted),
    )


def _choose_level(placed: list[Placed], platform: Platform) -> tuple[list[Placed], list[Omitted]]:
    """Of a binary published as ``x`` and as ``x-baseline``, the one for the declared processor level only.

    An install script would choose by the processor of whoever builds; linux/amd64 promises the oldest level.
    """
    names = {(_siblings(item.place), item.artifact.name): item for item in placed}
    modern = platform.variant in ("v3", "v4")
    wanted: list[Placed] = []
    omitted: list[Omitted] = []
    for item in placed:
        here, name = _siblings(item.place), item.artifact.name
        if not modern and (here, f"{name}-baseline") in names:
            omitted.append(Omitted(item.place, item.artifact, f"needs a newer processor than {platform}"))
        elif modern and name.endswith("-baseline") and (here, name.removesuffix("-baseline")) in names:
            omitted.append(Omitted(item.place, item.artifact, f"for an older processor than {platform}"))
        else:
            wanted.append(item)
    return wanted, omitted


def _siblings(place: str) -> str:
    """The node_modules directory that a place is in."""
    return place[: place.rindex("node_modules/") + len("node_modules")]


def _bins(placed: list[Placed]) -> Iterator[BinLink]:
    """The ``.bin`` links that npm would make; of two commands of one name in one place, the first path's."""
    seen: set[str] = set()
    for item in sorted(placed, key=lambda item: item.place):
        home = _siblings(item.place)
        for name, file in item.artifact.bins:
            # Held by whoever reads a lock; held here too, since these become lines of a file.
            if not COMMAND_NAME.fullmatch(name) or not BIN_FILE.fullmatch(file):
                raise UsageError(
                    f"{item.artifact.id} has a command {name[:60]!r} at {file[:60]!r}", where="builder.lock"
                )
            link = f"{home}/.bin/{name}"
            if link not in seen:
                seen.add(link)
                inside = item.place[len(home) + 1 :]
                yield BinLink(name, f"{item.place}/{file}", link, f"../{inside}/{file}")


def _scripts(placed: list[Placed]) -> Iterator[ScriptRun]:
    """The allowed install scripts: deeper packages first, as their parents may need them."""
    for item in sorted(placed, key=lambda item: (-item.place.count("/node_modules/"), item.place)):
        if not item.artifact.scripts_run:
            continue
        for script in item.artifact.scripts:
            if not script.command.isprintable():
                raise UsageError(
                    f"the {script.event} script of {item.artifact.id} is not one line of text",
                    where="builder.lock",
                )
            yield ScriptRun(item.place, item.artifact, script)


def _checked_place(path: str) -> str:
    if not TREE_PATH.fullmatch(path):
        raise UsageError(f"{path[:100]!r} is not a place in node_modules", where="builder.lock")
    return path


def _lines(lines: Iterator[str] | list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
