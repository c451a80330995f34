"""Recovery after a controller died: a pure plan over journal and engine listing, then its effects.

Only containers that carry this state root's id are looked at, and of those only the ones whose owner's lease
nobody holds any more. A second recovery finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from backend.containers import ContainerStatus
from backend.engines.protocol import Engine
from backend.journal import Boundary, Entry, Journal, Removal
from backend.lease import lease_age
from backend.ownership import (
    LABEL_LAUNCH,
    LABEL_LEASE,
    LABEL_OWNER,
    LABEL_PURPOSE,
    LABEL_STATE,
    LABEL_SUPERVISION,
    exclusive,
    forget_dead_leases,
    is_alive,
)
from backend.requests import Supervision
from backend.together import both
from backend.workspace.candidates import finish_withdrawals, published, withdraw

LOCK_NAME: Final = "recovery.lock"
VOLUME_PREFIX: Final = "volume/"
CANDIDATE_PREFIX: Final = "candidates/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A container of this state root, by its labels."""

    container_id: str
    lease_id: str
    launch: str  # the launch label; empty for a tool's container
    purpose: str
    name: str = ""
    status: ContainerStatus = ContainerStatus.OTHER
    image_id: str = ""
    supervision: str = ""  # empty for a tool's container
    lease_seconds: int = 0  # how old the lease inside may grow; 0 for what is not leased

    @property
    def launch_id(self) -> str:
        """As the journal names it; empty for a tool's container."""
        return self.launch.partition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverVolume:
    """A volume of this state root, by its labels."""

    name: str
    lease_id: str
    launch: str

    @property
    def launch_id(self) -> str:
        """As the journal names it."""
        return self.launch.partition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """What to remove, in this order: containers, volumes, candidates; which launches (ids) are then over."""

    remove: tuple[Removal, ...]
    close: tuple[str, ...]
    volumes: tuple[Removal, ...] = ()
    candidates: tuple[Removal, ...] = ()

    @property
    def nothing(self) -> bool:
        """There is nothing to do."""
        return not self.remove and not self.close and not self.volumes and not self.candidates


def plan_recovery(
    entries: Iterable[Entry],
    found: Iterable[Leftover],
    alive: frozenset[str],
    *,
    fresh: frozenset[str] = frozenset(),
    product: str,
    endpoint: str,
    volumes: Iterable[LeftoverVolume] = (),
    candidates: Iterable[str] = (),
) -> RecoveryPlan:
    """Pure. ``alive``: leases that are held. Launches of another engine are left for a recovery there.

    ``fresh``: ids of leased containers of the dead that may still be adopted; their own lease ends them.
    """
    known = {entry.intent.container_name: entry for entry in entries}
    by_launch = {entry.intent.launch_id: entry for entry in known.values()}
    remove, waiting = [], set()
    for item in found:
        launch_id = item.launch_id
        entry = by_launch.get(launch_id)
        if owner_of(item, entry) in alive:
            continue
        if item.container_id in fresh:
            waiting.add(launch_id)
            continue
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
        and entry.intent.launch_id not in waiting
        and entry.intent.lease_id not in alive
        and (entry.intent.product, entry.intent.endpoint) == (product, endpoint)
    )
    return RecoveryPlan(
        remove=tuple(remove),
        close=close,
        volumes=_ownerless(by_launch, volumes, alive),
        candidates=_unrecorded(by_launch, candidates, alive),
    )


def _ownerless(
    by_launch: Mapping[str, Entry], volumes: Iterable[LeftoverVolume], alive: frozenset[str]
) -> tuple[Removal, ...]:
    found = []
    for volume in volumes:
        if volume.lease_id in alive:
            continue
        entry = by_launch.get(volume.launch_id)
        boundary = entry.boundary.value if entry else "not in the journal"
        found.append(
            Removal(
                container_id=VOLUME_PREFIX + volume.name,
                launch_id=volume.launch_id if entry else "",
                why=f"volume of a dead controller ({boundary})",
            )
        )
    return tuple(found)


def _unrecorded(
    by_launch: Mapping[str, Entry], candidates: Iterable[str], alive: frozenset[str]
) -> tuple[Removal, ...]:
    """Candidates of launches that died before their record was kept: nothing says where they come from.

    One that the journal does not know is left alone: it is the owner's since another state.
    """
    found = []
    for launch_id in candidates:
        entry = by_launch.get(launch_id)
        if entry is None or entry.boundary is Boundary.RECORDED or entry.intent.lease_id in alive:
            continue
        found.append(
            Removal(
                container_id=CANDIDATE_PREFIX + launch_id,
                launch_id=launch_id,
                why=f"candidate without a record ({entry.boundary.value})",
            )
        )
    return tuple(found)


def recover(
    engine: Engine,
    journal: Journal,
    leases: Path,
    state_id: str,
    now: Callable[[], datetime],
    *,
    candidates: Path | None = None,
) -> RecoveryPlan:
    """Remove what dead controllers of this state root left on this engine; returns what was done.

    Raises HostError when the engine cannot be asked or cannot remove, StateError for the journal.
    """
    with exclusive(leases / LOCK_NAME):
        plan = survey(engine, journal, leases, state_id, candidates=candidates)
        for removal in plan.remove:
            journal.audit(removal, now())
            engine.remove(removal.container_id)
        for removal in plan.volumes:
            journal.audit(removal, now())
            engine.remove_volume(removal.container_id.removeprefix(VOLUME_PREFIX))
        for removal in plan.candidates:
            journal.audit(removal, now())
            if candidates is not None:
                withdraw(candidates, removal.container_id.removeprefix(CANDIDATE_PREFIX))
        if candidates is not None:
            finish_withdrawals(candidates)  # each has its line already, of who began it
        for launch_id in plan.close:
            journal.advance(launch_id, Boundary.RECOVERED, now(), detail="its controller died")
        forget_dead_leases(leases)
        return plan


def survey(
    engine: Engine, journal: Journal, leases: Path, state_id: str, *, candidates: Path | None = None
) -> RecoveryPlan:
    """What a recovery would do now; nothing is changed."""
    # In this order: whoever starts meanwhile holds a lease before anything carries its id.
    found, volumes = both(partial(containers_of, engine, state_id), partial(volumes_of, engine, state_id))
    entries = journal.entries()
    asked = {
        *(item.lease_id for item in found),
        *(item.lease_id for item in volumes),
        *(entry.intent.lease_id for entry in entries if not entry.final),
    }
    alive = frozenset(lease for lease in asked if is_alive(leases, lease))
    by_launch = {entry.intent.launch_id: entry for entry in entries}
    fresh = frozenset(
        item.container_id
        for item in found
        if (entry := by_launch.get(item.launch_id)) is not None
        and owner_of(item, entry) not in alive
        and entry.boundary is Boundary.COMMANDED
        and _is_fresh(engine, item)
    )
    # Only what the journal holds open is looked for by engine, and usually nothing is.
    endpoint = engine.facts().endpoint if any(not entry.final for entry in entries) else ""
    return plan_recovery(
        entries,
        found,
        alive,
        fresh=fresh,
        product=engine.product,
        endpoint=endpoint,
        volumes=volumes,
        candidates=published(candidates) if candidates else (),
    )


def owner_of(item: Leftover, entry: Entry | None) -> str:
    """The kernel lease of whoever owns a container: its label's, unless another controller adopted it."""
    return item.lease_id if entry is None else entry.intent.lease_id


def _is_fresh(engine: Engine, item: Leftover) -> bool:
    """Whether the lease inside a leased container says that somebody renewed it lately."""
    if item.supervision != Supervision.LEASED.value or item.status is not ContainerStatus.RUNNING:
        return False
    age = lease_age(engine, item.container_id)
    return age is not None and age < item.lease_seconds


def _seconds(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


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
                    lease_seconds=_seconds(labels.get(LABEL_LEASE, "")),
                )
            )
    return tuple(found)


def volumes_of(engine: Engine, state_id: str) -> tuple[LeftoverVolume, ...]:
    """Every volume of this state root on this engine, whoever owns it."""
    found = []
    for name in engine.list_volumes(LABEL_STATE, state_id):
        inspected = engine.inspect_volume(name)
        if inspected is None:  # gone meanwhile
            continue
        labels = dict(inspected.labels)
        if labels.get(LABEL_STATE) == state_id:
            found.append(
                LeftoverVolume(
                    name=name, lease_id=labels.get(LABEL_OWNER, ""), launch=labels.get(LABEL_LAUNCH, "")
                )
            )
    return tuple(found)
