"""What a controller leaves that is killed at each boundary of the journal: the table of the kill tests.

A boundary that is not in it fails a test; so does one that the launch of the real tests never crosses.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from backend.journal import Boundary, Intent, Journal, Removal


class When(StrEnum):
    """Killed just before the boundary is written down, or as soon as it is durable."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Kill:
    """``container``: whether one is there then. ``closes``: whether recovery has a launch to close."""

    container: bool
    closes: bool = True


# RECOVERED is crossed by a recovery, which is killed itself: what it leaves, the next one finds done or does.
KILLS: dict[tuple[Boundary, When], Kill] = {
    (Boundary.INTENDED, When.BEFORE): Kill(container=False, closes=False),
    (Boundary.INTENDED, When.AFTER): Kill(container=False),
    (Boundary.CREATED, When.BEFORE): Kill(container=True),
    (Boundary.CREATED, When.AFTER): Kill(container=True),
    (Boundary.CONFIRMED, When.BEFORE): Kill(container=True),
    (Boundary.CONFIRMED, When.AFTER): Kill(container=True),
    (Boundary.STARTED, When.BEFORE): Kill(container=True),
    (Boundary.STARTED, When.AFTER): Kill(container=True),
    (Boundary.COMMANDED, When.BEFORE): Kill(container=True),
    (Boundary.COMMANDED, When.AFTER): Kill(container=True),
    (Boundary.ENDED, When.BEFORE): Kill(container=True),
    (Boundary.ENDED, When.AFTER): Kill(container=True),
    (Boundary.REMOVED, When.BEFORE): Kill(container=False),
    (Boundary.REMOVED, When.AFTER): Kill(container=False),
    (Boundary.RECORDED, When.BEFORE): Kill(container=False),
    (Boundary.RECORDED, When.AFTER): Kill(container=False, closes=False),
    (Boundary.RECOVERED, When.BEFORE): Kill(container=False),
    (Boundary.RECOVERED, When.AFTER): Kill(container=False, closes=False),
}
OF_A_LAUNCH = [place for place in KILLS if place[0] is not Boundary.RECOVERED]
OF_A_RECOVERY = [place for place in KILLS if place[0] is Boundary.RECOVERED]


class DyingJournal:
    """The journal, in a process that is killed at one boundary, or (``audit``) at a line of the audit."""

    def __init__(self, journal: Journal, boundary: Boundary | None, when: When) -> None:
        self._journal = journal
        self._last = (boundary, when)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def intend(self, intent: Intent, at: datetime) -> None:
        self._die_at(Boundary.INTENDED, When.BEFORE)
        self._journal.intend(intent, at)
        self._die_at(Boundary.INTENDED, When.AFTER)

    def advance(self, launch_id: str, to: Boundary, at: datetime, **given: Any) -> None:
        self._die_at(to, When.BEFORE)
        self._journal.advance(launch_id, to, at, **given)
        self._die_at(to, When.AFTER)

    def audit(self, removal: Removal, at: datetime) -> None:
        self._die_at(None, When.BEFORE)
        self._journal.audit(removal, at)
        self._die_at(None, When.AFTER)

    def _die_at(self, boundary: Boundary | None, when: When) -> None:
        if (boundary, when) == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
