"""Which symbolic links of a tree stay inside it, found by following them in the tree itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backend.workspace.refusals import CandidateReason, CandidateRefused

MAX_TARGET: Final = 4095  # bytes, what a symbolic link can hold
_MAX_HOPS: Final = 40  # what Linux follows
# What one segment of a path costs: more the deeper it lies. This much takes some ten seconds.
_MOST_STEPS: Final = 50_000_000
_DEPTH_OF_A_STEP: Final = 16


@dataclass(slots=True)
class Steps:
    """How far the links of one tree may still be followed, all of them together."""

    left: int = _MOST_STEPS

    def take(self, depth: int) -> None:
        """One more segment, below ``depth`` others. Raises CandidateRefused when there were too many."""
        self.left -= 1 + depth // _DEPTH_OF_A_STEP
        if self.left < 0:
            raise CandidateRefused(
                CandidateReason.TOO_LARGE, "the links of this commit cannot be followed in a sensible time"
            )


def stays_inside(path: bytes, links: Mapping[bytes, bytes], steps: Steps | None = None) -> bool:
    """Whether the link at ``path`` never leaves the root. ``links``: every link of the tree and its target.

    Names are not enough: ``a/b/..`` is not ``a`` where ``b`` is a link. A link that is absolute, that loops,
    or that no file system can hold does not stay. Raises CandidateRefused when ``steps`` are at their end.
    """
    steps = steps or Steps()
    place = path.split(b"/")[:-1]
    todo: deque[bytes] = deque((path.rpartition(b"/")[2],))
    hops = 0
    while todo:
        part = todo.popleft()
        steps.take(len(place))
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
