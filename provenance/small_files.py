"""Small files: read whole, regular, bounded, through no link, waiting for no writer; and links to nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path


def read_small(path: Path, limit: int) -> bytes:
    """The bytes of a file of at most ``limit`` bytes. Raises OSError, also for what is not such a file."""
    flags = os.O_RDONLY
    for wanted in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
        flags |= getattr(os, wanted, 0)
    handle = os.open(path, flags)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"more than {limit} bytes", str(path))
    return data


def read_private(path: Path, limit: int) -> bytes:
    """The bytes of a file that is ours alone and has one name; of anything else nothing.

    For what may be forgotten: whatever is not exactly as it was written counts as not there.
    """
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            alone = found.st_uid == os.geteuid() and not found.st_mode & 0o077 and found.st_nlink == 1
            if stat.S_ISREG(found.st_mode) and alone and found.st_size <= limit:
                return file.read(limit)
    return b""


def dangling_link(path: Path) -> Path | None:
    """The link on the way to ``path`` that names nothing; None when there is none.

    Where a missing file means something (a default, the next place to look), a link to nothing does not:
    somebody meant a file to be there.
    """
    return next((one for one in (path, *path.parents) if one.is_symlink() and not one.exists()), None)
