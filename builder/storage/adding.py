"""`builder store add`: put files of the operator's into the content store, under their SHA-256."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from builder.state import State
from builder.storage.references import refer_to_added
from builder.storage.store import ContentStore
from images.additions import MAX_ADDITION_NAME
from images.digests import Integrity
from images.errors import UsageError
from images.lock_reader import MAX_ARTIFACT_BYTES

MAX_ADDED_BYTES: Final = MAX_ARTIFACT_BYTES
_ENDINGS: Final = re.compile(r"(\.(tar|tgz|gz|xz|zst|bz2|zip|tbz2|txz|bin))+$", re.IGNORECASE)
# Where a version begins: the name in builder.toml is a directory in the image, and stays when versions move.
_VERSION: Final = re.compile(r"[-. ]v?[0-9]+(?:[._][0-9]|[-_ ]|$)|_v?[0-9]+\.[0-9]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Added:
    """A file that is in the store now."""

    path: Path
    integrity: Integrity
    size: int
    name: str

    @property
    def line(self) -> str:
        """The line for ``[archives]`` in builder.toml."""
        return f'{self.name} = {{ sha256 = "{self.integrity.hex}" }}'


def add_files(state: State, paths: Sequence[Path]) -> tuple[Added, ...]:
    """Store them all, or nothing when one of them is no regular file. UsageError names it."""
    store = ContentStore(state.store)
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(_open(path)) for path in paths]
        added: list[Added] = []
        for path, file in zip(paths, files, strict=True):
            integrity, size = store.add(file, what=str(path), limit=MAX_ADDED_BYTES)
            refer_to_added(state, integrity)
            added.append(Added(path, integrity, size, _other_than([one.name for one in added], path)))
    return tuple(added)


def _open(path: Path) -> BinaryIO:
    """A regular file; never through a link in its place, and never waiting for a pipe's other end."""
    hint = "name a regular file; a directory must be packed first"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as broken:
        why = "a symbolic link" if path.is_symlink() else f"cannot be read: {broken.strerror}"
        raise UsageError(why, where=str(path), hint=hint) from None
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, handle)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("not a regular file", where=str(path), hint=hint)
        if not 0 < status.st_size <= MAX_ADDED_BYTES:
            what = f"more than {MAX_ADDED_BYTES} bytes" if status.st_size else "an empty file"
            raise UsageError(what, where=str(path))
        undo.pop_all()
    return os.fdopen(handle, "rb")


def _other_than(taken: Sequence[str], path: Path) -> str:
    """Lines of one command can be pasted together: no two have the same name."""
    name = archive_name(path)
    numbered = (f"{name[: MAX_ADDITION_NAME - 3]}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (name, *numbered) if one not in taken)


def archive_name(path: Path) -> str:
    """A name that builder.toml takes, made from the file's: lower case letters, digits and hyphens.

    Without ending, version, and what follows the version: ``ripgrep-14.1.0-x86_64.tar.gz`` is ``ripgrep``.
    """
    stem = _ENDINGS.sub("", path.name)
    plain = unicodedata.normalize("NFKD", _VERSION.split(stem, maxsplit=1)[0].casefold())
    letters = "".join(char for char in plain if not unicodedata.combining(char))
    words = re.sub(r"[^a-z0-9]+", "-", letters).strip("-")
    return words[:MAX_ADDITION_NAME].strip("-") or "archive"
