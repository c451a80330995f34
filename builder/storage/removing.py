"""Remove a directory tree that somebody else may have filled, and say what that frees; through no link."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> bool:
    """Whether it is gone. What the system does not let us remove stays, and all else goes.

    A container may have made directories in each other by the thousand: their path is longer than a path
    may be, and a recursion into them ends the process. So whatever lies deeper is first moved to the top.
    """
    with contextlib.suppress(OSError):
        path.chmod(0o700, follow_symlinks=True)
    try:
        top = os.open(path, _FOLDER)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        _clear(top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        path.rmdir()
    return not os.path.lexists(path)


def freed_by(path: Path) -> int:
    """Bytes that are free when it is gone: what has another name elsewhere frees nothing.

    Deeper than the system takes a path it is not counted; a container may have made it so.
    """
    total, pending = 0, [path]
    while pending:
        one = pending.pop()
        try:
            status = one.lstat()
            if stat.S_ISDIR(status.st_mode):
                pending += one.iterdir()
            elif status.st_nlink == 1:
                total += status.st_size
        except OSError:  # gone, or not ours to look into
            continue
    return total


def _clear(top: int) -> None:
    stuck: set[str] = set()
    while names := [name for name in os.listdir(top) if name not in stuck]:
        for name in names:
            try:
                if _is_folder(top, name):
                    _lift(top, name)
                    os.rmdir(name, dir_fd=top)
                else:
                    os.unlink(name, dir_fd=top)
            except OSError:  # another user's, or busy, or gone already
                stuck.add(name)


def _lift(top: int, name: str) -> None:
    """Empty one folder of the top: its files go, its folders become folders of the top."""
    os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, _FOLDER, dir_fd=top)
    try:
        for child in os.listdir(folder):  # noqa: PTH208  (a descriptor)
            with contextlib.suppress(OSError):
                if _is_folder(folder, child):
                    os.chmod(child, 0o700, dir_fd=folder)  # who moves a folder writes to it
                    os.rename(child, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=top)
                else:
                    os.unlink(child, dir_fd=folder)
    finally:
        os.close(folder)


def _is_folder(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
