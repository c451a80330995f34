"""Which symbolic links of a tree stay inside it, found by following them in the tree itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

MAX_TARGET: Final = 4095  # bytes, what a symbolic link can hold
_MAX_HOPS: Final = 40  # what Linux follows


def stays_inside(path: bytes, links: Mapping[bytes, bytes]) -> bool:
    """Whether the link at ``path`` never leaves the root. ``links``: every link of the tree and its target.

    Names are not enough: ``a/b/..`` is not ``a`` where ``b`` is a link. A link that is absolute, that loops,
    or that no file system can hold does not stay.
    """
    place = path.split(b"/")[:-1]
    todo: deque[bytes] = deque((path.rpartition(b"/")[2],))
    hops = 0
    while todo:
        part = todo.popleft()
        if part in (b"", b"."):
            continue
        if part == b"..":
            if not place:
                return False
            place.pop()
            continue
        place.append(part)
        target = links.get(b"/".join(place))
        if target is not None:
            hops += 1
            if hops > _MAX_HOPS or not _can_be_followed(target):
                return False
            place.pop()
            todo.extendleft(reversed(target.split(b"/")))
    return True


def _can_be_followed(target: bytes) -> bool:
    return 0 < len(target) <= MAX_TARGET and b"\0" not in target and not target.startswith(b"/")
