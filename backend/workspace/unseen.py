"""What lies beside a commit and is not in it: changes, untracked files, repositories in repositories."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_UNSEEN: Final = 1000  # entries that are named; all are counted
MAX_PATH: Final = 4096  # characters, as git quotes it


class UnseenKind(StrEnum):
    """How something is not in a commit."""

    MODIFIED = "modified"  # changed, added, removed or in conflict
    UNTRACKED = "untracked"
    NESTED_REPOSITORY = "nested-repository"
    SUBMODULE = "submodule"
    REFERENCE = "reference"  # a branch or stash with commits that are not in it


@dataclass(frozen=True, slots=True, order=True)
class Unseen:
    """One thing that is not in the commit. ``path`` is quoted as git does it: printable ASCII."""

    kind: UnseenKind
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenReport:
    """At most :data:`MAX_UNSEEN` entries of ``total``. ``complete``: nobody gave up before the end."""

    entries: tuple[Unseen, ...]
    total: int
    complete: bool

    @property
    def nothing(self) -> bool:
        """Everything there was is in the commit."""
        return self.complete and self.total == 0


# The fields before the path: XY, submodule state, modes, object names; a conflict has more of them.
_CHANGED: Final = re.compile(r"1 \S\S (N|S)\S{3} (?:[0-7]{6} ){3}(?:[0-9a-f]+ ){2}(.+)")
_CONFLICT: Final = re.compile(r"u \S\S (N|S)\S{3} (?:[0-7]{6} ){4}(?:[0-9a-f]+ ){3}(.+)")
_UNTRACKED: Final = re.compile(r"\? (.+)")


def read_status(output: bytes, *, complete: bool) -> UnseenReport:
    """What ``git status --porcelain=v2 --no-renames`` says, quoted names and all.

    ``complete`` is false where the output was cut; then its last line is dropped.
    """
    lines = output.decode("ascii", "replace").split("\n")
    if not complete:
        lines = lines[:-1]
    found = [entry for line in lines if (entry := _entry(line)) is not None]
    return UnseenReport(entries=tuple(found[:MAX_UNSEEN]), total=len(found), complete=complete)


def _entry(line: str) -> Unseen | None:
    changed = _CHANGED.fullmatch(line) or _CONFLICT.fullmatch(line)
    if changed:
        kind = UnseenKind.SUBMODULE if changed[1] == "S" else UnseenKind.MODIFIED
        return Unseen(kind, changed[2])
    untracked = _UNTRACKED.fullmatch(line)
    if untracked:
        path = untracked[1]
        # git does not look into another repository: it names the directory, with a slash.
        nested = path.rstrip('"').endswith("/")
        return Unseen(UnseenKind.NESTED_REPOSITORY if nested else UnseenKind.UNTRACKED, path)
    return None
