"""The operator's repository as it lies on the disk: judged by reading small files, never by git in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from backend.workspace.git import Git, explain
from backend.workspace.objects import ObjectFormat
from backend.workspace.refusals import SourceReason, SourceRefused
from provenance.small_files import read_small

_POINTER_BYTES: Final = 8192
_MAX_PACKS: Final = 100_000
_MAX_LENDERS: Final = 1000
_YES: Final = frozenset({"", "true", "yes", "on", "1"})  # "" is a key without a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A repository that is not ours. ``git_dir``: what is fetched from, and the one path that is trusted.

    ``worktree`` is None for a bare one. In a linked worktree ``common_dir`` is the main repository's.
    """

    worktree: Path | None
    git_dir: Path
    common_dir: Path
    form: ObjectFormat
    shallow: bool
    borrows: bool  # objects of another repository, by objects/info/alternates


def find_origin(git: Git, path: Path) -> Origin:
    """The repository whose top directory is ``path``; nothing above it is looked at.

    Raises SourceRefused for what is no repository, cannot be read, or has promised objects elsewhere.
    """
    try:
        top = path.resolve(strict=True)
        worktree, git_dir = _git_dir(top)
        common_dir = _common_dir(git_dir)
        settings = _settings(git, common_dir)
        for promisor in sorted(_promises(settings, common_dir)):
            raise SourceRefused(
                SourceReason.PARTIAL_CLONE,
                f"a partial clone ({promisor}): some of its objects are on another machine",
                where=str(top),
                hint=f"git -C {top} fetch --refetch --no-filter, or clone it whole",
            )
        return Origin(
            worktree=worktree,
            git_dir=git_dir,
            common_dir=common_dir,
            form=_format(settings, top),
            shallow=(common_dir / "shallow").exists(),
            borrows=_borrows(common_dir),
        )
    except (OSError, RuntimeError) as broken:  # RuntimeError: links in a circle
        reason = broken.strerror if isinstance(broken, OSError) else "links in a circle"
        raise SourceRefused(
            SourceReason.UNREADABLE, f"cannot be read: {reason}", where=str(path), hint=f"ls -la {path}"
        ) from None


def _git_dir(top: Path) -> tuple[Path | None, Path]:
    entry = top / ".git"
    if entry.is_dir():
        return top, _checked(_followed(entry, entry), top)
    if entry.is_file():  # a linked worktree, or a submodule
        text = read_small(entry, _POINTER_BYTES)
        if not text.startswith(b"gitdir: "):
            _no_repository(top)
        target = os.fsdecode(text.removeprefix(b"gitdir: ").rstrip(b"\r\n"))
        return top, _checked(_followed(entry, top / target), top)
    return None, _checked(top, top)


def _checked(git_dir: Path, top: Path) -> Path:
    if not (git_dir / "HEAD").exists() and not (git_dir / "HEAD").is_symlink():
        _no_repository(top)
    if not (_common_dir(git_dir) / "objects").is_dir():
        _no_repository(top)
    return git_dir


def _common_dir(git_dir: Path) -> Path:
    pointer = git_dir / "commondir"
    if not pointer.exists():
        return git_dir
    target = os.fsdecode(read_small(pointer, _POINTER_BYTES).rstrip(b"\r\n"))
    return _followed(pointer, git_dir / target)


def _followed(pointer: Path, target: Path) -> Path:
    """Where a pointer leads. Somebody else's pointer must not have us read what its writer may not read."""
    found = target.resolve(strict=True)
    if _owner(pointer) not in (os.geteuid(), 0, _owner(found)):
        raise SourceRefused(
            SourceReason.FOREIGN_POINTER,
            f"a pointer of uid {_owner(pointer)} to what belongs to uid {_owner(found)}: {found}",
            where=str(pointer),
            hint=f"name {found} itself, if that is what you mean",
        )
    return found


def _owner(path: Path) -> int:
    return path.lstat().st_uid


def _borrows(common_dir: Path) -> bool:
    """Whether it reads another's objects. Git follows the other's own pointers too, so each is looked at."""
    first = common_dir / "objects"
    pending, seen = [first], {first}
    while pending:
        objects = pending.pop()
        pointer = objects / "info/alternates"
        if not pointer.exists():
            continue
        for line in read_small(pointer, _POINTER_BYTES).split(b"\n"):
            if line and not line.startswith(b"#"):
                found = _followed(pointer, objects / os.fsdecode(line))
                if found not in seen:
                    seen.add(found)
                    pending.append(found)
        if len(seen) > _MAX_LENDERS:
            raise SourceRefused(
                SourceReason.UNREADABLE,
                f"it borrows from more than {_MAX_LENDERS} others",
                where=str(common_dir),
                hint="git repack -a -d, and remove objects/info/alternates",
            )
    return len(seen) > 1


def _no_repository(top: Path) -> NoReturn:
    raise SourceRefused(
        SourceReason.NOT_A_REPOSITORY,
        "not the top directory of a git repository",
        where=str(top),
        hint="name the directory that holds .git",
    )


def _settings(git: Git, common_dir: Path) -> Mapping[str, str]:
    """The repository's own settings, to be judged only; the last value of a key counts."""
    file = common_dir / "config"
    if not file.exists():
        return {}
    with file.open("rb"):  # an error of ours, not git's, when it cannot be read
        pass
    outcome = git.settings_in(file)
    if not outcome.ok:
        raise SourceRefused(SourceReason.UNREADABLE, explain(outcome), where=str(file))
    found = {}
    for item in outcome.stdout.decode("utf-8", "replace").split("\0"):
        key, _, value = item.partition("\n")
        found[key] = value
    return found


def _promises(settings: Mapping[str, str], common_dir: Path) -> set[str]:
    """What says that objects are elsewhere: the settings, or packs that a server filtered."""
    found = set()
    for key, value in settings.items():
        last = key.rpartition(".")[2]
        named = key == "extensions.partialclone" or last == "partialclonefilter"
        if named or (key.startswith("remote.") and last == "promisor" and value.lower() in _YES):
            found.add(key)
    packs = common_dir / "objects/pack"
    if packs.is_dir():
        with os.scandir(packs) as entries:
            for _, entry in zip(range(_MAX_PACKS), entries, strict=False):
                if entry.name.endswith(".promisor"):
                    found.add(f"objects/pack/{entry.name}")
    return found


def _format(settings: Mapping[str, str], top: Path) -> ObjectFormat:
    name = settings.get("extensions.objectformat", ObjectFormat.SHA1.value)
    storage = settings.get("extensions.refstorage", "files")
    if name not in set(ObjectFormat) or storage != "files":
        raise SourceRefused(
            SourceReason.UNSUPPORTED_FORMAT,
            f"objects named by {name[:40]!r}, references in {storage[:40]!r}",
            where=str(top),
            hint="sha1 and sha256 repositories with references in files are read",
        )
    return ObjectFormat(name)
