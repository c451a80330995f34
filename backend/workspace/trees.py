"""The tree of a commit, read strictly: every tree hashed again, bounded in count, depth and size."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from backend.commands import ChildLimits, Outcome
from backend.workspace.git import CANDIDATE_LIMITS, Git, Incoming, Repository, explain
from backend.workspace.names import name_fault, quoted
from backend.workspace.objects import Collected, ObjectFormat, Receiver, Wanted
from backend.workspace.refusals import CandidateReason, CandidateRefused

_COMMIT_BYTES: Final = 4 * 1024 * 1024
_MAX_PARENTS: Final = 64


class Mode(StrEnum):
    """What an entry of a tree is, as git writes its mode."""

    DIRECTORY = "40000"
    FILE = "100644"
    EXECUTABLE = "100755"
    LINK = "120000"
    SUBMODULE = "160000"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """Most entries, segments of a path, bytes of a path, of all trees, of one file and of all files.

    ``tree_bytes`` holds for the trees, for all paths, and for the targets of all links, each by itself.
    """

    entries: int = 500_000
    depth: int = 100
    path_bytes: int = 3800  # PATH_MAX is 4096, and the directory that it lies in takes some
    tree_bytes: int = 256 * 1024 * 1024
    file_bytes: int = 2 * 1024 * 1024 * 1024
    total_bytes: int = 16 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: its path from the root in bytes, what it is, and the name of its object."""

    path: bytes
    mode: Mode
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What we read of a commit: its tree and its parents."""

    name: str
    tree: str
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Every entry below a commit's tree, directories before what is in them."""

    commit: Commit
    entries: tuple[Entry, ...]

    def of(self, *modes: Mode) -> tuple[Entry, ...]:
        """The entries of these modes."""
        return tuple(entry for entry in self.entries if entry.mode in modes)


Batch: TypeAlias = Callable[[Sequence[Wanted], Receiver], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where objects are read from: a repository of ours, with or without objects not yet taken."""

    form: ObjectFormat
    batch: Batch

    @classmethod
    def of(cls, git: Git, place: Repository | Incoming, limits: ChildLimits = CANDIDATE_LIMITS) -> Source:
        """The objects of ``place``, read by a git with these limits."""
        if isinstance(place, Incoming):
            incoming = place
            return cls(
                form=place.repository.form,
                batch=lambda wanted, to: git.batch_incoming(incoming, wanted, to, limits=limits),
            )
        repository = place
        return cls(form=place.form, batch=lambda wanted, to: git.batch(repository, wanted, to, limits=limits))

    def give(self, wanted: Sequence[Wanted], receiver: Receiver) -> None:
        """Each object's content to ``receiver``. Raises CandidateRefused, also when git fails."""
        if not wanted:
            return
        outcome = self.batch(wanted, receiver)
        if not outcome.ok:
            raise CandidateRefused(CandidateReason.TREE, f"git cannot read its objects: {explain(outcome)}")


def read_commit(source: Source, name: str) -> Commit:
    """The commit of that name. Raises CandidateRefused, also for an object of another kind."""
    taken = Collected(_COMMIT_BYTES)
    source.give((Wanted(name=name, kind="commit", max_bytes=_COMMIT_BYTES),), taken)
    header = taken.contents[0].partition(b"\n\n")[0].decode("utf-8", "replace").split("\n")
    tree = header[0].removeprefix("tree ")
    parents = []
    for line in header[1:]:
        if not line.startswith("parent "):
            break
        parents.append(line.removeprefix("parent "))
    sound = header[0] == f"tree {tree}" and all(map(source.form.is_name, (tree, *parents)))
    if not sound or len(parents) > _MAX_PARENTS:
        raise CandidateRefused(
            CandidateReason.TREE, "a commit without one tree and sound parents", where=name
        )
    return Commit(name=name, tree=tree, parents=tuple(parents))


def list_tree(source: Source, name: str, limits: TreeLimits) -> Listing:
    """Every entry below the tree of a commit, level by level. Raises CandidateRefused.

    A tree that names another one twice, and that one a third twice, and so on, would unfold without end: what
    counts is each path, and there is a limit on their number.
    """
    commit = read_commit(source, name)
    found: list[Entry] = []
    level: list[tuple[bytes, str]] = [(b"", commit.tree)]
    left = left_of_paths = limits.tree_bytes
    for _ in range(limits.depth):
        names = list(dict.fromkeys(tree for _, tree in level))
        taken = Collected(left)
        source.give([Wanted(name=tree, kind="tree", max_bytes=left) for tree in names], taken)
        left -= sum(map(len, taken.contents))
        entries = {
            tree: _entries(content, source.form, tree)
            for tree, content in zip(names, taken.contents, strict=True)
        }
        below: list[tuple[bytes, str]] = []
        for prefix, tree in level:
            for entry in entries[tree]:
                path = prefix + entry.path
                found.append(Entry(path, entry.mode, entry.name))
                left_of_paths -= len(path)
                _check_bounds(path, len(found), left_of_paths, limits)
                if entry.mode is Mode.DIRECTORY:
                    below.append((path + b"/", entry.name))
        if not below:
            return Listing(commit=commit, entries=tuple(found))
        level = below
    raise CandidateRefused(CandidateReason.TOO_LARGE, f"directories deeper than {limits.depth}", where=name)


def tree_order(name: bytes, mode: Mode) -> bytes:
    """By what git sorts the entries of a tree."""
    return name + b"/" if mode is Mode.DIRECTORY else name


def tree_line(name: bytes, mode: Mode, object_name: str) -> bytes:
    """One entry as a tree object holds it."""
    return mode.value.encode() + b" " + name + b"\0" + bytes.fromhex(object_name)


def _check_bounds(path: bytes, count: int, left: int, limits: TreeLimits) -> None:
    if count > limits.entries:
        raise CandidateRefused(CandidateReason.TOO_LARGE, f"more than {limits.entries} files and directories")
    if left < 0:
        raise CandidateRefused(
            CandidateReason.TOO_LARGE, f"the paths of this commit have more than {limits.tree_bytes} bytes"
        )
    if len(path) > limits.path_bytes:
        raise CandidateRefused(
            CandidateReason.TOO_LARGE,
            f"a path longer than {limits.path_bytes} bytes",
            where=quoted(path)[:200],
        )


def _entries(content: bytes, form: ObjectFormat, tree: str) -> tuple[Entry, ...]:
    """The entries of one tree object, in its own order, which must be git's; each name once."""
    size = form.digits // 2
    found: list[Entry] = []
    seen: set[bytes] = set()
    last = b""
    at = 0
    while at < len(content):
        head = re.compile(rb"([0-7]{5,6}) ([^\0]*)\0", re.DOTALL).match(content, at)
        end = head.end() + size if head else 0
        if not head or end > len(content):
            raise CandidateRefused(CandidateReason.TREE, "not a tree object", where=tree)
        mode, name = _mode(head[1], head[2], tree), head[2]
        fault = name_fault(name)
        if fault:
            raise CandidateRefused(CandidateReason.NAME, f"{fault}: {quoted(name)[:200]}", where=tree)
        order = tree_order(name, mode)
        if order <= last or name in seen:
            raise CandidateRefused(
                CandidateReason.TREE, f"out of order or twice: {quoted(name)[:200]}", where=tree
            )
        seen.add(name)
        last = order
        found.append(Entry(name, mode, content[head.end() : end].hex()))
        at = end
    return tuple(found)


def _mode(text: bytes, name: bytes, tree: str) -> Mode:
    try:
        return Mode(os.fsdecode(text))
    except ValueError:
        raise CandidateRefused(
            CandidateReason.MODE,
            f"mode {os.fsdecode(text)} of {quoted(name)[:200]}; only 100644, 100755, 120000, 40000, 160000",
            where=tree,
        ) from None
