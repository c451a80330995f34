"""What exists and what was: containers of this state, launches of the journal, and what the dead left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from backend.engines.protocol import Engine
from backend.journal import Entry, Journal, Passage, Removal
from backend.ownership import is_alive
from backend.recovery import (
    Leftover,
    LeftoverVolume,
    RecoveryPlan,
    containers_of,
    owner_of,
    recover,
    survey,
    volumes_of,
)
from builder.state import State
from images.digests import Digest
from images.errors import StateError, UsageError, VerifyFailed
from images.strictjson import JsonValue, read_object
from provenance.bundles import open_bundle
from provenance.statements import MAX_STATEMENT_BYTES, parse_statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One container; ``entry``: its launch, None for a tool's container. ``since``: None if nobody knows."""

    found: Leftover
    entry: Entry | None
    alive: bool
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One volume; ``entry``: its launch, None when the journal does not know it."""

    found: LeftoverVolume
    entry: Entry | None
    alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One launch: how far it came, when, and its record. None: it has none, or not yet.

    ``record``: the predicate of the statement that was signed; whether the signature holds is not looked at.
    """

    entry: Entry
    passages: tuple[Passage, ...]
    statement: Digest | None
    record: dict[str, JsonValue] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """What was removed, or would be. ``elsewhere``: open launches of the dead that another engine has."""

    plan: RecoveryPlan
    staging: tuple[str, ...]
    elsewhere: tuple[Entry, ...]


def running(state: State, engine: Engine, journal: Journal) -> tuple[Running, ...]:
    """Every container of this state on this engine, launches first, each group oldest first."""
    entries = {entry.intent.launch_id: entry for entry in journal.entries()}
    found = []
    for item in containers_of(engine, state.id):
        entry = entries.get(item.launch_id)
        alive = is_alive(state.leases, owner_of(item, entry))
        since = _since(state, journal, item, entry) if alive or entry else None
        found.append(Running(found=item, entry=entry, alive=alive, since=since))
    never = datetime.max.replace(tzinfo=UTC)
    return tuple(sorted(found, key=lambda one: (one.entry is None, one.since or never, one.found.name)))


def volumes_in_use(state: State, engine: Engine, journal: Journal) -> tuple[Kept, ...]:
    """Every volume of this state on this engine, by name."""
    entries = {entry.intent.launch_id: entry for entry in journal.entries()}
    return tuple(
        Kept(found=item, entry=entries.get(item.launch_id), alive=is_alive(state.leases, item.lease_id))
        for item in sorted(volumes_of(engine, state.id), key=lambda one: one.name)
    )


def _since(state: State, journal: Journal, item: Leftover, entry: Entry | None) -> datetime | None:
    """When its launch was intended; of a tool, when its living owner began to work: nothing is older."""
    if entry is not None:
        return journal.passages(entry.intent.launch_id)[0].at
    try:  # a lease that is alive has an id, which is no path
        return datetime.fromtimestamp((state.leases / item.lease_id).stat().st_mtime, UTC)
    except FileNotFoundError:  # it has ended just now
        return None


def launched(journal: Journal, name: str | None = None) -> tuple[Launched, ...]:
    """Every launch, or those of one run, or the one launch of that name; oldest first."""
    return tuple(
        _launched(journal, entry)
        for entry in journal.entries()
        if name is None or name in (entry.intent.run_id, entry.intent.launch_id)
    )


def _launched(journal: Journal, entry: Entry) -> Launched:
    launch = entry.intent.launch_id
    bundle, passages = journal.bundle(launch), journal.passages(launch)
    if bundle is None:
        return Launched(entry=entry, passages=passages, statement=None, record=None)
    where = f"record of {launch}"
    try:
        statement = parse_statement(open_bundle(bundle, where).payload, where)
        record = read_object(
            statement.predicate_json, where, max_bytes=MAX_STATEMENT_BYTES, error=VerifyFailed
        )
    except VerifyFailed as broken:
        raise StateError(f"a launch record is damaged: {broken.what}", where=where) from None
    return Launched(entry=entry, passages=passages, statement=statement.digest, record=record)


def find_launches(journal: Journal, name: str) -> tuple[Launched, ...]:
    """The launches of a run, or one launch; UsageError when there is none of that name."""
    found = launched(journal, name)
    if not found:
        raise UsageError(f"neither an image nor a run: {name[:100]!r}", hint="builder runs")
    return found


def reap(
    state: State, engine: Engine, journal: Journal, now: Callable[[], datetime], *, dry_run: bool
) -> Reaped:
    """Remove what dead processes of this state left on this engine and in staging; an audit line for each.

    Nothing of a living process is touched, nor of another state. A second time there is nothing to do.
    """
    if dry_run:
        plan = survey(engine, journal, state.leases, state.id, candidates=state.candidates)
    else:
        plan = recover(engine, journal, state.leases, state.id, now, candidates=state.candidates)
    staging = tuple(f"staging/{path.name}" for path in state.sweep_staging(remove=False))
    if not dry_run:
        for name in staging:
            journal.audit(Removal(container_id=name, launch_id="", why="staging of a dead process"), now())
        state.sweep_staging()
    facts = engine.facts()
    elsewhere = tuple(
        entry
        for entry in journal.entries()
        if not entry.final
        and (entry.intent.product, entry.intent.endpoint) != (facts.product, facts.endpoint)
        and not is_alive(state.leases, entry.intent.lease_id)
    )
    return Reaped(plan=plan, staging=staging, elsewhere=elsewhere)
