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
from backend.requests import LaunchClass


class When(StrEnum):
    """Killed just before the boundary is written down, or as soon as it is durable."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Kill:
    """``container``: whether one is there then. ``closes``: whether recovery has a launch to close.

    ``files``: only a launch with a source crosses it; ``volumes``: whether its volumes are there then.
    """

    container: bool
    closes: bool = True
    files: bool = False
    volumes: bool = False


# RECOVERED is crossed by a recovery, which is killed itself: what it leaves, the next one finds done or does.
KILLS: dict[tuple[Boundary, When], Kill] = {
    (Boundary.INTENDED, When.BEFORE): Kill(container=False, closes=False),
    (Boundary.INTENDED, When.AFTER): Kill(container=False),
    (Boundary.PROVIDED, When.BEFORE): Kill(container=False, files=True, volumes=True),
    (Boundary.PROVIDED, When.AFTER): Kill(container=False, files=True, volumes=True),
    (Boundary.CREATED, When.BEFORE): Kill(container=True),
    (Boundary.CREATED, When.AFTER): Kill(container=True),
    (Boundary.CONFIRMED, When.BEFORE): Kill(container=True),
    (Boundary.CONFIRMED, When.AFTER): Kill(container=True),
    (Boundary.FILLED, When.BEFORE): Kill(container=True, files=True, volumes=True),
    (Boundary.FILLED, When.AFTER): Kill(container=True, files=True, volumes=True),
    (Boundary.STARTED, When.BEFORE): Kill(container=True),
    (Boundary.STARTED, When.AFTER): Kill(container=True),
    (Boundary.COMMANDED, When.BEFORE): Kill(container=True),
    (Boundary.COMMANDED, When.AFTER): Kill(container=True),
    (Boundary.ENDED, When.BEFORE): Kill(container=True),
    (Boundary.ENDED, When.AFTER): Kill(container=True),
    (Boundary.EXPORTED, When.BEFORE): Kill(container=True, files=True, volumes=True),
    (Boundary.EXPORTED, When.AFTER): Kill(container=True, files=True, volumes=True),
    (Boundary.REMOVED, When.BEFORE): Kill(container=False),
    (Boundary.REMOVED, When.AFTER): Kill(container=False),
    (Boundary.IMPORTED, When.BEFORE): Kill(container=False, files=True),
    (Boundary.IMPORTED, When.AFTER): Kill(container=False, files=True),
    (Boundary.RECORDED, When.BEFORE): Kill(container=False),
    (Boundary.RECORDED, When.AFTER): Kill(container=False, closes=False),
    (Boundary.RECOVERED, When.BEFORE): Kill(container=False),
    (Boundary.RECOVERED, When.AFTER): Kill(container=False, closes=False),
}
# What a leased launch crosses, from opening to its record: the fake's own test holds this against a real one.
LEASED = [
    Boundary.INTENDED,
    Boundary.CREATED,
    Boundary.CONFIRMED,
    Boundary.STARTED,
    Boundary.COMMANDED,
    Boundary.ENDED,
    Boundary.REMOVED,
    Boundary.RECORDED,
]
# As soon as it is commanded, until it is known to have ended, whoever holds it next may adopt it.
ADOPTABLE = {(Boundary.COMMANDED, When.AFTER), (Boundary.ENDED, When.BEFORE)}
OF_A_LEASE = [(boundary, when) for boundary in LEASED for when in When]
OF_AN_ADOPTION = list(When)
# What a launch of each class with files crosses. A review and a check take nothing home.
WITH_FILES = [
    Boundary.INTENDED,
    Boundary.PROVIDED,
    Boundary.CREATED,
    Boundary.CONFIRMED,
    Boundary.FILLED,
    Boundary.STARTED,
    Boundary.COMMANDED,
    Boundary.ENDED,
    Boundary.EXPORTED,
    Boundary.REMOVED,
    Boundary.IMPORTED,
    Boundary.RECORDED,
]
TAKING_HOME = (LaunchClass.EXECUTE, LaunchClass.FIX)
CROSSED = {
    kind: WITH_FILES
    if kind in TAKING_HOME
    else [one for one in WITH_FILES if one not in (Boundary.EXPORTED, Boundary.IMPORTED)]
    for kind in (*TAKING_HOME, LaunchClass.REVIEW, LaunchClass.EXPORT_COMMAND)
}
# Volumes are there from when they are made until the launch is removed, whatever its class.
HOLDING_VOLUMES = WITH_FILES[1 : WITH_FILES.index(Boundary.REMOVED)]
OF_A_CONTINUATION = [
    (kind, boundary, when)
    for kind, crossed in CROSSED.items()
    if kind is not LaunchClass.EXECUTE
    for boundary in crossed
    for when in When
]
OF_A_LAUNCH = [
    place for place, kill in KILLS.items() if place[0] is not Boundary.RECOVERED and not kill.files
]
OF_FILES = [place for place, kill in KILLS.items() if kill.files]
OF_A_RECOVERY = [place for place in KILLS if place[0] is Boundary.RECOVERED]


class DyingJournal:
    """The journal, in a process that is killed at one write of it: a boundary, an adoption, an audit line."""

    def __init__(self, journal: Journal, at: Boundary | str, when: When) -> None:
        """``at``: a boundary, or the name of the journal's own act (``adopt``, ``audit``)."""
        self._journal = journal
        self._last = (at, when)

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

    def adopt(self, launch_id: str, lease_id: str, at: datetime) -> None:
        self._die_at("adopt", When.BEFORE)
        self._journal.adopt(launch_id, lease_id, at)
        self._die_at("adopt", When.AFTER)

    def audit(self, removal: Removal, at: datetime) -> None:
        self._die_at("audit", When.BEFORE)
        self._journal.audit(removal, at)
        self._die_at("audit", When.AFTER)

    def _die_at(self, at: Boundary | str, when: When) -> None:
        if (at, when) == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
