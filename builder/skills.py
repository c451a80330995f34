"""Read Skills from beside builder.toml, strictly: plain files, no credential, nothing of the checkout."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builder.storage.store import ContentStore
from images.additions import SkillPin
from images.credentials import SHAPES, Shape
from images.digests import Digest, Integrity
from images.errors import CredentialFound, UsageError
from images.lock import Artifact, ArtifactKind, Authentication, SkillFile, SkillLock
from images.oci import Platform
from images.skills import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_SKILL_BYTES,
    REQUIRED,
    SKILL_REGISTRY,
    collision,
    pack_skill,
    path_problem,
)

# What lies about in a checkout and is never part of a Skill: refused, so that nobody wonders where it went.
_STRAY: Final = (
    (re.compile(r"\.(git|hg|svn|jj)(ignore|attributes|modules)?"), "belongs to version control"),
    (re.compile(r".*~|\.#.*|#.*#|.*\.(swp|swo|swx|bak|orig|rej)"), "is a backup of an editor"),
    (re.compile(r"\.env(\..*)?|\.envrc"), "holds settings of whoever works here"),
    (re.compile(r"\.npmrc|\.yarnrc(\.yml)?|\.pypirc|\.netrc|_netrc|\.git-credentials"), "is for credentials"),
    (re.compile(r"settings\.local\.json|\.claude(\.json)?|\.mcp\.json|\.opencode|\.pi"), "is an agent's own"),
    (re.compile(r"\.ssh|\.aws|\.gnupg|\.docker|\.kube|\.config"), "is a place for credentials"),
    (
        re.compile(r"\.DS_Store|Thumbs\.db|desktop\.ini|__pycache__|.*\.pyc|node_modules"),
        "is made by a program",
    ),
)


@dataclass(frozen=True, slots=True)
class ReadSkill:
    """A Skill as it lies on disk now: what the lock says of it, and its archive."""

    lock: SkillLock
    archive: bytes

    @property
    def integrity(self) -> Integrity:
        """The SHA-256 of the archive."""
        return Integrity("sha256", hashlib.sha256(self.archive).hexdigest())

    def artifact(self, platforms: tuple[Platform, ...]) -> Artifact:
        """Its entry in the lock."""
        return Artifact(
            kind=ArtifactKind.SKILL,
            name=self.lock.name,
            version="",
            integrity=self.integrity,
            size=len(self.archive),
            platforms=platforms,
            parents=(self.lock.place,),
            registry=SKILL_REGISTRY,
            authenticated=Authentication.LOCAL,
        )


def read_skills(pins: tuple[SkillPin, ...], folder: Path) -> tuple[ReadSkill, ...]:
    """All Skills of a configuration; ``folder`` is builder.toml's.

    Raises UsageError naming the file that is no part of a Skill, CredentialFound naming file and rule.
    """
    return tuple(_read_skill(pin, folder) for pin in pins)


def store_skills(skills: tuple[ReadSkill, ...], store: ContentStore) -> None:
    """Copy each archive into the store, which is what builds read; the directories are not read again."""
    for skill in skills:
        if not store.intact(skill.integrity):
            store.put(
                io.BytesIO(skill.archive), skill.integrity, what=skill.lock.place, limit=len(skill.archive)
            )


def _read_skill(pin: SkillPin, folder: Path) -> ReadSkill:
    reading = _Reading(f"skills.{pin.name}", pin.directory)
    handle = _open_folder(pin, folder)
    try:
        files = sorted(reading.walk(handle, ""), key=lambda pair: pair[0].path)
    finally:
        os.close(handle)
    paths = [file.path for file, _ in files]
    if REQUIRED not in paths:
        raise _refused(pin.name, pin.directory, f"is no Skill: it has no {REQUIRED}")
    if (pair := collision(paths)) is not None:
        raise _refused(pin.name, f"{pin.directory}/{pair[1]}", f"differs from {pair[0]} in letter case alone")
    return ReadSkill(SkillLock(pin.name, tuple(file for file, _ in files)), pack_skill(files))


@dataclass(slots=True)
class _Reading:
    """One Skill being read; each directory is opened below the one before it, and no link is followed."""

    place: str
    directory: str
    count: int = 0
    size: int = 0

    def walk(self, handle: int, above: str) -> Iterator[tuple[SkillFile, bytes]]:
        for name in sorted(os.listdir(handle)):
            path = f"{above}{name}"
            if (problem := path_problem(path)) is not None:
                raise self.refused(path.encode("utf-8", "backslashreplace").decode(), problem)
            mode = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                raise self.refused(path, "is a link")
            if stat.S_ISDIR(mode):
                self.refuse_stray(name, path)
                below = os.open(name, _OPEN_FOLDER, dir_fd=handle)
                try:
                    yield from self.walk(below, f"{path}/")
                finally:
                    os.close(below)
            elif stat.S_ISREG(mode):
                yield self.read(handle, name, path)
            else:
                raise self.refused(path, "is neither a file nor a directory")

    def read(self, handle: int, name: str, path: str) -> tuple[SkillFile, bytes]:
        with os.fdopen(os.open(name, os.O_RDONLY | _SAFE, dir_fd=handle), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise self.refused(path, "is no file any more")
            content = file.read(MAX_FILE_BYTES + 1)
        self.count += 1
        self.size += len(content)
        if len(content) > MAX_FILE_BYTES:
            raise self.refused(path, f"is larger than {MAX_FILE_BYTES} bytes")
        if self.count > MAX_FILES or self.size > MAX_SKILL_BYTES:
            raise self.refused(path, f"is one too many: {MAX_FILES} files, {MAX_SKILL_BYTES} bytes in all")
        if (rule := _credential(path, content)) is not None:
            raise CredentialFound(
                f"holds what rule {rule} says is a credential",
                where=f"{self.place}: {self.directory}/{path}",
                hint="take it out, and end its validity if it was ever shared; then: builder lock",
            )
        self.refuse_stray(name, path)
        # The owner's bit alone, as git does: group and others are whatever the umask of the checkout was.
        executable = bool(status.st_mode & stat.S_IXUSR)
        return SkillFile(path, executable, len(content), Digest.of(content)), content

    def refuse_stray(self, name: str, path: str) -> None:
        for pattern, why in _STRAY:
            if pattern.fullmatch(name):
                raise self.refused(path, why)

    def refused(self, path: str, why: str) -> UsageError:
        return _refused(self.place.partition(".")[2], f"{self.directory}/{path}", why)


_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _open_folder(pin: SkillPin, folder: Path) -> int:
    """Its directory, reached from builder.toml's without following a link."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in pin.directory.split("/"):
        try:
            below = os.open(part, _OPEN_FOLDER, dir_fd=handle)
        except OSError as broken:
            if isinstance(broken, NotADirectoryError):
                why = "cannot be read: is a link or no directory"
                raise _refused(pin.name, pin.directory, why) from None
            raise UsageError(
                f"{pin.directory} cannot be read: {broken.strerror}",
                where=f"skills.{pin.name}",
                hint="name the Skill's directory in builder.toml, then: builder lock",
            ) from None
        finally:
            os.close(handle)
        handle = below
    return handle


def _refused(name: str, path: str, why: str) -> UsageError:
    return UsageError(
        f"{path} {why}",
        where=f"skills.{name}",
        hint="move it out of the Skill's directory, then: builder lock",
    )


def _credential(path: str, content: bytes) -> str | None:
    """The rule under which a file is a credential: the scanner's own tables, before anything is stored.

    The scan of the built image is what counts; it also knows encodings that this look does not.
    """
    from provenance.scan.engine import Candidate, Encoding, Probe  # noqa: PLC0415
    from provenance.scan.judge import judge  # noqa: PLC0415  (its engine is heavy, and most configs have no Skill)
    from provenance.scan.lookinside import look_inside  # noqa: PLC0415
    from provenance.scan.places import PathTable  # noqa: PLC0415

    for rule in PathTable().rules_for(path):
        if next(look_inside(rule, content), None) is not None:
            return rule.id
    for shape in SHAPES:
        probe = Probe(shape, Encoding.PLAIN, b"", 0)
        for found in re.finditer(_start(shape), content):
            confirmed = judge(content, Candidate(found.start(), probe))
            if confirmed is not None:
                return confirmed.rule
    return None


def _start(shape: Shape) -> bytes:
    return b"|".join(re.escape(prefix) for prefix in shape.prefixes)
