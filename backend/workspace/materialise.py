"""Write exactly the blobs of a commit into a directory of ours; the tree id of what was written proves it.

No checkout: git would obey the attributes in the tree (eol, ident, filters, encodings).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from backend.workspace.git import READ_LIMITS, Git, Repository
from backend.workspace.links import Steps, stays_inside
from backend.workspace.names import quoted
from backend.workspace.objects import Collected, ObjectFormat, Wanted
from backend.workspace.refusals import CandidateReason, CandidateRefused
from backend.workspace.trees import (
    Entry,
    Listing,
    Mode,
    Source,
    TreeLimits,
    list_tree,
    tree_line,
    tree_order,
)
from provenance.writing import state_errors

_CHUNK: Final = 1 << 20
_LFS_BYTES: Final = 1024
_LFS: Final = b"version https://git-lfs.github.com/spec/v1\n"
_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINK_BLOB: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterialisedTree:
    """Permit: a directory whose tree id is that of the commit. Constructed only here.

    ``links_as_files``: links that would leave the directory, written as files that hold their target.
    ``submodules``: empty directories, each with the commit that it stands for. ``lfs_pointers``: files whose
    content lies elsewhere. ``same_but_for_case``: paths that a case-insensitive file system would merge.
    """

    folder: Path
    commit: str
    tree: str
    files: int
    size: int
    links_as_files: tuple[bytes, ...]
    submodules: tuple[tuple[bytes, str], ...]
    lfs_pointers: tuple[bytes, ...]
    same_but_for_case: tuple[bytes, ...]


def materialise(
    git: Git, repository: Repository, commit: str, folder: Path, limits: TreeLimits | None = None
) -> MaterialisedTree:
    """Write the tree of ``commit`` to ``folder``, which must not exist and is gone again when this raises.

    Files are 0644 or 0755, directories 0755, whatever the umask. Raises CandidateRefused for a tree that we
    do not write, StateError when the disk does not take it.
    """
    bounds = limits or TreeLimits()
    source = Source.of(git, repository, READ_LIMITS)
    listing = list_tree(source, commit, bounds)
    links, steps = _targets(source, listing.of(Mode.LINK), bounds), Steps()
    kept = {path for path in links if stays_inside(path, links, steps)}
    as_files = frozenset(links) - kept
    submodules = {entry.path: entry.name for entry in listing.of(Mode.SUBMODULE)}
    with state_errors(folder), contextlib.ExitStack() as undo:
        folder.mkdir(mode=0o700)
        undo.callback(shutil.rmtree, folder)
        writer = _write(source, listing, folder, _Links(links, kept), bounds)
        tree = _Recomputed(source.form, as_files, submodules).tree_of(os.fsencode(folder))
        if tree != listing.commit.tree:
            raise CandidateRefused(
                CandidateReason.DIFFERENT_TREE,
                f"what was written has tree {tree}, the commit {listing.commit.tree}",
                where=commit,
            )
        undo.pop_all()
    return MaterialisedTree(
        folder=folder,
        commit=commit,
        tree=tree,
        files=len(listing.of(Mode.FILE, Mode.EXECUTABLE)),
        size=writer.total,
        links_as_files=tuple(sorted(as_files)),
        submodules=tuple(sorted(submodules.items())),
        lfs_pointers=tuple(writer.lfs_pointers),
        same_but_for_case=_same_but_for_case(listing.entries),
    )


def _targets(source: Source, links: Sequence[Entry], limits: TreeLimits) -> dict[bytes, bytes]:
    """Each object once, however many links have it: a small commit can name one a million times."""
    names = list(dict.fromkeys(item.name for item in links))
    taken = Collected(limits.tree_bytes)
    source.give([Wanted(name=name, kind="blob", max_bytes=_MAX_LINK_BLOB) for name in names], taken)
    targets = dict(zip(names, taken.contents, strict=True))
    return {item.path: targets[item.name] for item in links}


@dataclass(frozen=True, slots=True)
class _Links:
    """The target of each link, and which of them are written as links."""

    targets: Mapping[bytes, bytes]
    kept: set[bytes]


def _write(
    source: Source,
    listing: Listing,
    folder: Path,
    links: _Links,
    limits: TreeLimits,
) -> _Writer:
    """Directories, then files, then links: while anything is written there is no link to write through."""
    root = os.fsencode(folder)
    folder.chmod(0o755)
    for entry in listing.of(Mode.DIRECTORY, Mode.SUBMODULE):
        place = os.path.join(root, entry.path)  # noqa: PTH118  (bytes)
        _once(os.mkdir, entry.path, place)
        os.chmod(place, 0o755)  # noqa: PTH101, S103  (bytes; agents of another uid read it)
    writer = _Writer(root, listing.of(Mode.FILE, Mode.EXECUTABLE), limits)
    try:
        source.give(writer.wanted, writer)
    finally:
        writer.close()
    for path, target in links.targets.items():
        place = os.path.join(root, path)  # noqa: PTH118  (bytes)
        if path in links.kept:
            _once(os.symlink, path, target, place)
        else:
            writer.count(len(target))
            with writer.new_file(path, 0o644) as file:
                file.write(target)
    return writer


def _once(make: Any, path: bytes, *arguments: bytes) -> Any:
    """One entry at one place: on a file system that folds names two paths may be one."""
    try:
        return make(*arguments)
    except FileExistsError:
        raise CandidateRefused(
            CandidateReason.NAME, "two paths are one on this file system", where=quoted(path)
        ) from None


class _Writer:
    """Takes the blobs in order and writes each to its file; counts, and looks for pointers to elsewhere."""

    def __init__(self, root: bytes, entries: Sequence[Entry], limits: TreeLimits) -> None:
        self._root = root
        self._entries = entries
        self._limits = limits
        self._file: BinaryIO | None = None
        self._path = b""
        self._start = b""
        self._size = 0
        self.total = 0
        self.lfs_pointers: list[bytes] = []

    @property
    def wanted(self) -> list[Wanted]:
        return [
            Wanted(name=item.name, kind="blob", max_bytes=self._limits.file_bytes) for item in self._entries
        ]

    def new_file(self, path: bytes, mode: int) -> BinaryIO:
        place = os.path.join(self._root, path)  # noqa: PTH118  (bytes)
        handle: int = _once(lambda name: os.open(name, _FILE, 0o600), path, place)
        os.fchmod(handle, mode)
        return os.fdopen(handle, "wb")

    def count(self, size: int) -> None:
        """So many bytes more."""
        self.total += size
        if self.total > self._limits.total_bytes:
            raise CandidateRefused(
                CandidateReason.TOO_LARGE, f"the files have more than {self._limits.total_bytes} bytes"
            )

    def begin(self, index: int, size: int) -> None:
        entry = self._entries[index]
        self.count(size)
        self._path, self._size, self._start = entry.path, size, b""
        self._file = self.new_file(entry.path, 0o755 if entry.mode is Mode.EXECUTABLE else 0o644)

    def data(self, chunk: bytes) -> None:
        if self._file is not None:
            self._file.write(chunk)
        if self._size <= _LFS_BYTES:
            self._start += chunk

    def end(self) -> None:
        self.close()
        if self._start.startswith(_LFS):
            self.lfs_pointers.append(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True, slots=True)
class _Recomputed:
    """The tree id of what lies on the disk; only links as files and submodules are known beforehand."""

    form: ObjectFormat
    as_files: frozenset[bytes]
    submodules: Mapping[bytes, str]

    def tree_of(self, folder: bytes, prefix: bytes = b"") -> str:
        lines: list[tuple[bytes, bytes]] = []
        with os.scandir(folder) as found:
            for item in found:
                path = prefix + item.name
                mode, name = self._entry(item, path)
                lines.append((tree_order(item.name, mode), tree_line(item.name, mode, name)))
        return self.form.name_of("tree", b"".join(line for _, line in sorted(lines)))

    def _entry(self, item: os.DirEntry[bytes], path: bytes) -> tuple[Mode, str]:
        status = item.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return Mode.LINK, self.form.name_of("blob", os.readlink(item.path))  # noqa: PTH115  (bytes)
        if stat.S_ISDIR(status.st_mode):
            if path in self.submodules and not os.listdir(item.path):  # noqa: PTH208  (bytes)
                return Mode.SUBMODULE, self.submodules[path]
            return Mode.DIRECTORY, self.tree_of(item.path, path + b"/")
        name = self._blob(item.path, status.st_size)
        if path in self.as_files:
            return Mode.LINK, name
        return (Mode.EXECUTABLE if status.st_mode & 0o111 else Mode.FILE), name

    def _blob(self, place: bytes, size: int) -> str:
        hasher = self.form.hasher("blob", size)
        with open(place, "rb") as file:  # noqa: PTH123  (bytes)
            while chunk := file.read(_CHUNK):
                hasher.update(chunk)
        return str(hasher.hexdigest())


def _same_but_for_case(entries: Sequence[Entry]) -> tuple[bytes, ...]:
    first: dict[str, bytes] = {}
    found: list[bytes] = []
    for entry in entries:
        folded = entry.path.decode("utf-8", "surrogateescape").casefold()
        if first.setdefault(folded, entry.path) != entry.path:
            found.append(entry.path)
    return tuple(found)
