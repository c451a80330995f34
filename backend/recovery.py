"""Recovery after a controller died: a pure plan over journal and engine listing, then its effects.

Only containers that carry this state root's id are looked at, and of those only the ones whose owner's lease
nobody holds any more. A second recovery finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from backend.engines.protocol import Engine
from backend.journal import Boundary, Entry, Journal, Removal
from backend.ownership import (
    LABEL_LAUNCH,
    LABEL_OWNER,
    LABEL_PURPOSE,
    LABEL_STATE,
    LABEL_SUPERVISION,
    exclusive,
    forget_dead_leases,
    is_alive,
)

LOCK_NAME: Final = "recovery.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A container of this state root, by its labels."""

    container_id: str
    lease_id: str
    launch: str  # the launch label; empty for a tool's container
    purpose: str
    name: str = ""
    status: str = ""  # created, running, exited, …: the engine's word
    image_id: str = ""
    supervision: str = ""  # empty for a tool's container

    @property
    def launch_id(self) -> str:
        """As the journal names it; empty for a tool's container."""
        return self.launch.partition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """What to remove, and which launches (ids) are then over."""

    remove: tuple[Removal, ...]
    close: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        """There is nothing to do."""
        return not self.remove and not self.close


def plan_recovery(
    entries: Iterable[Entry],
    found: Iterable[Leftover],
    alive: frozenset[str],
    *,
    product: str,
    endpoint: str,
) -> RecoveryPlan:
    """Pure. ``alive``: leases that are held. Launches of another engine are left for a recovery there."""
    known = {entry.intent.container_name: entry for entry in entries}
    by_launch = {entry.intent.launch_id: entry for entry in known.values()}
    remove = []
    for item in found:
        if item.lease_id in alive:
            continue
        launch_id = item.launch_id
        entry = by_launch.get(launch_id)
        boundary = entry.boundary.value if entry else "not in the journal"
        remove.append(
            Removal(
                container_id=item.container_id,
                launch_id=launch_id if entry else "",
                why=f"{item.purpose} container of a dead controller ({boundary})",
            )
        )
    close = tuple(
        entry.intent.launch_id
        for entry in known.values()
        if not entry.final
        and entry.intent.lease_id not in alive
        and (entry.intent.product, entry.intent.endpoint) == (product, endpoint)
    )
    return RecoveryPlan(remove=tuple(remove), close=close)


def recover(
    engine: Engine, journal: Journal, leases: Path, state_id: str, now: Callable[[], datetime]
) -> RecoveryPlan:
    """Remove what dead controllers of this state root left on this engine; returns what was done.

    Raises HostError when the engine cannot be asked or cannot remove, StateError for the journal.
    """
    with exclusive(leases / LOCK_NAME):
        plan = survey(engine, journal, leases, state_id)
        for removal in plan.remove:
            journal.audit(removal, now())
            engine.remove(removal.container_id)
        for launch_id in plan.close:
            journal.advance(launch_id, Boundary.RECOVERED, now(), detail="its controller died")
        forget_dead_leases(leases)
        return plan


def survey(engine: Engine, journal: Journal, leases: Path, state_id: str) -> RecoveryPlan:
    """What a recovery would do now; nothing is changed."""
    # In this order: whoever starts meanwhile holds a lease before anything carries its id.
    found = containers_of(engine, state_id)
    entries = journal.entries()
    asked = {item.lease_id for item in found} | {
        entry.intent.lease_id for entry in entries if not entry.final
    }
    alive = frozenset(lease for lease in asked if is_alive(leases, lease))
    facts = engine.facts()
    return plan_recovery(entries, found, alive, product=facts.product, endpoint=facts.endpoint)


def containers_of(engine: Engine, state_id: str) -> tuple[Leftover, ...]:
    """Every container of this state root on this engine, in any state, whoever owns it."""
    found = []
    for container in engine.list_labelled(LABEL_STATE, state_id):
        inspected = engine.inspect(container)
        if inspected is None:  # gone meanwhile
            continue
        labels = dict(inspected.labels)
        if labels.get(LABEL_STATE) == state_id:
            found.append(
                Leftover(
                    container_id=container,
                    lease_id=labels.get(LABEL_OWNER, ""),
                    launch=labels.get(LABEL_LAUNCH, ""),
                    purpose=labels.get(LABEL_PURPOSE, "unknown"),
                    name=inspected.name,
                    status=inspected.status,
                    image_id=str(inspected.image_id),
                    supervision=labels.get(LABEL_SUPERVISION, ""),
                )
            )
    return tuple(found)
