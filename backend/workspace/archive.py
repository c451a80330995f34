"""A tree, and the repository of a run, as the tar that an engine copies in: numeric owners, nothing else."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.workspace.git import Repository
from backend.workspace.materialise import MaterialisedTree
from backend.workspace.objects import ObjectFormat
from images.errors import UsageError
from provenance.writing import state_errors

WORK_BRANCH: Final = "work"
_BRANCH: Final = re.compile(r"[a-z0-9]([a-z0-9_-]{0,60}[a-z0-9])?")
_CORE: Final = "[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n"
# Else a commit fails before there is one: inside, nobody has told git who he is.
_IDENTITY: Final = "[user]\n\tname = agent\n\temail = agent@agent-image-builder.example\n"
_EXTENSIONS: Final = "[extensions]\n\tobjectformat = {form}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """The repository that a workspace starts with: ``branch`` at ``commit``, and the objects of the run.

    Its settings are ours, and nothing in it points to the host or to the operator's repository.
    """

    repository: Repository
    commit: str
    branch: str = WORK_BRANCH


def write_archive(
    file: Path, tree: MaterialisedTree, owner: tuple[int, int], seed: Seed | None = None
) -> None:
    """Write the tar for ``/source`` (no seed) or ``/workspace`` to ``file``, which must not exist.

    ``owner``: uid and gid of every member. With a seed, the command of :func:`.producer.prepare_command` runs
    once inside, as the agent, before anything else. Raises StateError.
    """
    if seed is not None and not _BRANCH.fullmatch(seed.branch):
        raise UsageError(
            f"not a branch for a workspace: {seed.branch[:60]!r}", hint="letters, digits, - and _"
        )
    with state_errors(file), file.open("xb") as opened:
        file.chmod(0o600)
        with tarfile.open(fileobj=opened, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, place in _entries(tree.folder):
                _add_file(archive, name, place, owner)
            if seed is not None:
                _add_seed(archive, seed, owner)


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every entry below a folder, directories before what is in them, in one order everywhere."""
    with os.scandir(folder) as found:
        items = sorted(found, key=lambda item: os.fsencode(item.name))
    for item in items:
        yield item.name, Path(item.path)
        if item.is_dir(follow_symlinks=False):
            for name, place in _entries(Path(item.path)):
                yield f"{item.name}/{name}", place


def _add_file(archive: tarfile.TarFile, name: str, place: Path, owner: tuple[int, int]) -> None:
    member = _member(name, owner)
    status = place.lstat()
    if place.is_symlink():
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, os.readlink(place), 0o777  # noqa: PTH115
        archive.addfile(member)
    elif place.is_dir():
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(member)
    else:
        member.size = status.st_size
        member.mode = 0o755 if status.st_mode & 0o100 else 0o644
        with place.open("rb") as content:
            archive.addfile(member, content)


def _add_seed(archive: tarfile.TarFile, seed: Seed, owner: tuple[int, int]) -> None:
    packs = seed.repository.path / "objects/pack"
    for name in ("", "/objects", "/objects/pack", "/refs", "/refs/heads"):
        member = _member(f".git{name}", owner)
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(member)
    sha256 = seed.repository.form is not ObjectFormat.SHA1
    settings = _CORE.format(version=1 if sha256 else 0) + _IDENTITY
    if sha256:
        settings += _EXTENSIONS.format(form=seed.repository.form.value)
    texts = {
        "HEAD": f"ref: refs/heads/{seed.branch}\n",
        "config": settings,
        f"refs/heads/{seed.branch}": f"{seed.commit}\n",
    }
    for name, text in texts.items():
        member = _member(f".git/{name}", owner)
        member.size, member.mode = len(text), 0o644
        archive.addfile(member, io.BytesIO(text.encode()))
    shallow = seed.repository.path / "shallow"
    if shallow.exists():
        _add_file(archive, ".git/shallow", shallow, owner)
    for place in sorted(packs.iterdir()):
        if place.suffix in (".pack", ".idx"):
            _add_file(archive, f".git/objects/pack/{place.name}", place, owner)


def _member(name: str, owner: tuple[int, int]) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.uid, member.gid = owner
    return member
