"""Write a file whole or not at all; what a killed writer left is removed by the next one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from images.errors import StateError

_PREFIX: Final = ".builder-new-"
_TEMPORARY: Final = re.compile(rf"{re.escape(_PREFIX)}[a-z0-9_]{{8}}")


def replace_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all: temporary name in its folder, fsync, rename. Raises StateError."""
    with state_errors(path), temporary_file(path.parent) as (file, temporary):
        file.write(data)
        settle(file, temporary, path, mode)


@contextmanager
def temporary_file(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A file under a temporary name in ``folder`` that is gone afterwards unless it was settled."""
    _sweep(folder)
    handle, temporary = _make(folder)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, temporary
    finally:
        temporary.unlink(missing_ok=True)


def settle(file: BinaryIO, temporary: Path, path: Path, mode: int = 0o644) -> None:
    """Give the temporary file its name; on disk before it has it, and the name on disk too."""
    file.flush()
    os.fchmod(file.fileno(), mode)
    os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def move_into(staged: Path, path: Path, mode: int = 0o644) -> None:
    """Give a whole file of ours, which is on disk already, its name; the name is on disk too then."""
    staged.chmod(mode)
    staged.replace(path)
    _sync_folder(path.parent)


def abandoned(folder: Path) -> tuple[Path, ...]:
    """The temporary files that killed writers left in ``folder``; the next writer there sweeps them."""
    return _sweep(folder, remove=False)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def state_errors(where: Path) -> Iterator[None]:
    """What the operating system refuses, as a StateError whose hint fits the reason."""
    try:
        yield
    except OSError as broken:
        full = broken.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StateError(
            f"cannot be written: {broken.strerror or broken}",
            where=str(where),
            hint=f"df -h {where.parent}; df -i {where.parent}" if full else "builder doctor",
        ) from None


def _make(folder: Path) -> tuple[int, Path]:
    """A new file that we hold locked: so a sweep can tell it from one whose writer was killed."""
    while True:
        handle, name = tempfile.mkstemp(prefix=_PREFIX, dir=folder)
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, handle)
            undo.callback(Path(name).unlink, missing_ok=True)
            _lock(handle, wait=True)
            if os.fstat(handle).st_nlink:  # else swept between its making and our lock
                undo.pop_all()
                return handle, Path(name)


def _sweep(folder: Path, *, remove: bool = True) -> tuple[Path, ...]:
    found: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name) and stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                found += _abandoned(Path(entry), remove=remove)
    return tuple(sorted(found))


def _abandoned(path: Path, *, remove: bool) -> list[Path]:
    """The path, if no living writer holds it; it is gone then if that is asked."""
    with contextlib.suppress(OSError):  # held by a living writer, or renamed or swept just now
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
        try:
            _lock(handle, wait=False)
            if remove:
                path.unlink()
            return [path]
        finally:
            os.close(handle)
    return []


def _lock(handle: int, *, wait: bool) -> None:
    try:
        import fcntl  # noqa: PLC0415  (absent where layouts are only read)
    except ImportError:
        raise OSError(errno.ENOSYS, "this system has no file locks") from None
    fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
