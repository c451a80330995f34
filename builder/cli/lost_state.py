"""Tell a state that somebody removes or that its disk takes away, while a command works in it, from a bug."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from images.errors import StateError

# What a disk says of itself, wherever in the state it is asked.
_OF_THE_DISK: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE}
)
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


def lost_state(failure: Exception, root: Path) -> StateError | None:
    """The failure as the state's own, where it names a file below ``root`` whose folder is no longer there,
    or that the disk refuses; None for any other, which is a bug."""
    if not isinstance(failure, OSError):
        return None
    for name in (failure.filename, failure.filename2):
        if not isinstance(name, str | bytes):
            continue
        path = Path(os.fsdecode(name))
        if not path.is_relative_to(root):
            continue
        if failure.errno in _GONE and not path.parent.is_dir():
            return StateError(
                "the state was removed or moved away while this command worked in it",
                where=str(path),
                hint=f"ls {root}; then type the command again",
            )
        if failure.errno in _OF_THE_DISK:
            return StateError(f"cannot be used: {failure.strerror}", where=str(path))
    return None
