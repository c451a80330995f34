"""`builder gc`: find what nothing holds, say why, and remove it while nobody else is at work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from backend import engine_store
from backend.journal import Boundary, Journal
from backend.journal import Removal as Audited
from backend.ownership import dead_leases, forget_lease
from backend.probe import boot_id
from backend.probe_cache import read_kept
from backend.recovery import CANDIDATE_PREFIX
from backend.workspace.candidates import place_of, published, withdraw
from builder.bootstrap import LOCK_NAME, Host, lock_in_use
from builder.bootstrap.lock import load_lock
from builder.bootstrap.sweeping import leftovers, remove_leftover, unneeded
from builder.sessions import forget_session, kept_sessions
from builder.state import State
from builder.storage.holding import Holdings, Wish, survey
from builder.storage.removing import freed_by, remove_tree
from builder.storage.store import ContentStore
from builder.workshop import Workshop
from images.digests import Digest
from images.errors import BuilderError, StateError, UsageError, VerifyFailed
from provenance.layout import Rehash, blob_path, open_image
from provenance.layout_writing import drop_manifests
from provenance.ledger import open_ledger
from provenance.scan.memory import entries, entry_path
from provenance.writing import abandoned, state_errors

_HEX: Final = re.compile(r"[0-9a-f]{64}")
_BUILDX: Final = re.compile(r"buildx-([0-9a-f]{64})-[0-9a-f]{64}")


class Thing(StrEnum):
    """What is removed. The name says where it lies; ENGINE_IMAGE is a copy in the engine's own store."""

    IMAGE = "image"
    BLOB = "blob"
    ARTIFACT = "artifact"
    LEDGER = "ledger"
    REFERENCE = "reference"
    STAGING = "staging"
    TEMPORARY = "temporary"
    TURN = "turn"
    LEASE = "lease"
    PROBE = "probe"
    BUILDX = "buildx"
    BOOTSTRAP = "bootstrap"
    CANDIDATE = "candidate"
    LOG = "log"
    SESSION = "session"
    SCAN = "scan"
    ENGINE_IMAGE = "engine-image"


@dataclass(frozen=True, slots=True)
class Removal:
    """One line of the audit: what, its name, the bytes that its removal frees on this disk, and why."""

    thing: Thing
    name: str
    size: int
    why: str
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.thing} {self.name} ({self.size} bytes): {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GcRequest:
    """What may go. ``grace``: whatever was written or used later than that ago stays in any case.

    ``candidates``: commits of agents go that were recorded longer ago than that; None: none of them goes,
    since nobody else knows whether they were brought home. ``logs``: kept output goes that is older.
    ``sessions``: what agents remember goes that was kept longer ago; None: none of it.
    """

    wish: Wish
    grace: timedelta
    host: Host
    candidates: timedelta | None = None
    sessions: timedelta | None = None
    logs: timedelta = timedelta(days=30)
    dry_run: bool = False
    engine_images: bool = False


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed (or would be), and what is held: images and how many other things."""

    removals: tuple[Removal, ...]
    held: tuple[tuple[Digest, str], ...]

    @property
    def freed(self) -> int:
        """Bytes, of this state's disk."""
        return sum(one.size for one in self.removals if one.thing is not Thing.ENGINE_IMAGE)


def collect(workshop: Workshop, request: GcRequest) -> Collected:
    """Remove what nothing holds. Waits until nobody builds, locks, imports or exports in this state.

    Raises StateError when something cannot be read: nothing is removed on a guess.
    """
    state, say = workshop.state, workshop.reporter.say
    if request.dry_run:
        with state.in_use(lambda: say("another builder gc is at work here; waiting for it")):
            with workshop.reporter.step("look for what nothing holds"):
                holdings = survey(workshop, request.wish)
                removals = _plan(state, request, holdings)
            return _result(tuple(removals), holdings)
    with state.collecting(lambda: say("somebody works in this state just now; waiting for the end of it")):
        with workshop.reporter.step("look for what nothing holds"):
            holdings = survey(workshop, request.wish)
            removals = _plan(state, request, holdings)
        with workshop.reporter.step(f"remove {len(removals)} things"):
            if request.engine_images:
                removals += _remove_from_engine(workshop, removals)
            removals = _forgotten(workshop, removals)
            _apply(state, request, removals)
    return _result(tuple(removals), holdings)


def _result(removals: tuple[Removal, ...], holdings: Holdings) -> Collected:
    return Collected(removals, tuple(sorted(holdings.held.items())))


def _plan(state: State, request: GcRequest, holdings: Holdings) -> list[Removal]:
    young = _Young(request)
    found = [
        *_images(state, holdings, young),
        *_references(holdings),
        *_under_way(state),
    ]
    going = {Digest(one.name) for one in found if one.thing is Thing.IMAGE}
    # What is loose but young stays whole: its blobs too.
    staying = holdings.loose.keys() - going
    found += _blobs(state, holdings, staying, young)
    found += _scans(state, holdings, staying, young)
    found += _artifacts(state, holdings, young)
    found += _caches(state, holdings)
    found += _bootstrap(state, request.host)
    found += _candidates(state, request, young)
    found += _logs(state, request, young)
    found += _sessions(state, request, young)
    found += _ledger(state, found)
    return found


class _Young:
    """Whether a file was written, linked or renamed within the grace."""

    def __init__(self, request: GcRequest) -> None:
        self._since = (request.wish.now - request.grace).timestamp()

    def __call__(self, path: Path) -> bool:
        try:
            return path.lstat().st_ctime > self._since
        except FileNotFoundError:
            return False


def _images(state: State, holdings: Holdings, young: _Young) -> Iterator[Removal]:
    for digest, why in sorted(holdings.loose.items()):
        # Evidence is as young as its image: what was admitted just now is still to be launched.
        subject = holdings.about.get(digest, digest)
        if not young(blob_path(state.layout, digest)) and not young(blob_path(state.layout, subject)):
            yield Removal(Thing.IMAGE, digest, 0, why)


def _references(holdings: Holdings) -> Iterator[Removal]:
    for reference, why in holdings.dead:
        name = f"{reference.kind} {reference.what}"
        yield Removal(Thing.REFERENCE, name, freed_by(reference.file), why, reference.file)


def _under_way(state: State) -> Iterator[Removal]:
    """What processes that are dead now had under way."""
    dead = "its process is dead"
    for path in state.sweep_staging(remove=False):
        yield Removal(Thing.STAGING, path.name, freed_by(path), dead, path)
    for path in state.stale_turns():
        yield Removal(Thing.TURN, path.name, 0, dead, path)
    for path in dead_leases(state.leases):
        yield Removal(Thing.LEASE, path.name, 0, dead, path)
    for folder in _written_to(state):
        for path in abandoned(folder):
            yield Removal(Thing.TEMPORARY, _shown(path, state), freed_by(path), dead, path)


def _written_to(state: State) -> Iterator[Path]:
    """Every folder in which something is written under a temporary name first."""
    yield from (state.root, state.references, state.probe, state.client_home, state.bootstrap, state.store)
    yield state.scans
    yield from (state.sessions / one.name for one in kept_sessions(state))
    yield from (state.layout, state.layout / "blobs" / "sha256")
    yield from sorted(state.store.glob("sha*/??"))


def _blobs(state: State, holdings: Holdings, staying: Iterable[Digest], young: _Young) -> Iterator[Removal]:
    held = holdings.blobs | _blobs_of(holdings, staying)
    with state_errors(state.layout):
        for path in sorted((state.layout / "blobs" / "sha256").iterdir()):
            if not _HEX.fullmatch(path.name) or path.is_symlink():
                continue
            if Digest.from_hex(path.name) not in held and not young(path):
                yield Removal(
                    Thing.BLOB, f"sha256:{path.name}", freed_by(path), "no image needs it any more", path
                )


def _blobs_of(holdings: Holdings, manifests: Iterable[Digest]) -> set[Digest]:
    found: set[Digest] = set()
    for digest in manifests:
        found |= {digest, *holdings.needs.get(digest, ())}
    return found


def _artifacts(state: State, holdings: Holdings, young: _Young) -> Iterator[Removal]:
    for integrity, path in ContentStore(state.store).entries():
        if str(integrity) not in holdings.named and not young(path):
            yield Removal(Thing.ARTIFACT, str(integrity), freed_by(path), "no lock in use names it", path)


def _caches(state: State, holdings: Holdings) -> Iterator[Removal]:
    for path in sorted(state.probe.glob("*.json")):
        if not _is_of_this_boot(path):
            yield Removal(Thing.PROBE, path.name, freed_by(path), "of another boot, or not readable", path)
    for path in sorted(state.client_home.iterdir()):
        match = _BUILDX.fullmatch(path.name)
        if match and Digest.from_hex(match[1]) not in holdings.held:
            yield Removal(
                Thing.BUILDX, path.name[:20], freed_by(path), "of a build container not in use", path
            )


def _is_of_this_boot(answer: Path) -> bool:
    if answer.name.startswith(engine_store.KEPT):
        return engine_store.is_of_this_boot(answer)
    kept = read_kept(answer)
    return kept is not None and kept.boot_id == boot_id()


def _scans(state: State, holdings: Holdings, staying: Iterable[Digest], young: _Young) -> Iterator[Removal]:
    """What was found of layers that no image has any more."""
    held = {entry_path(state.scans, one) for one in holdings.blobs | _blobs_of(holdings, staying)}
    for path in entries(state.scans):
        if path not in held and not young(path):
            yield Removal(Thing.SCAN, path.name, freed_by(path), "of a layer that no image has", path)


def _bootstrap(state: State, host: Host) -> Iterator[Removal]:
    for path in leftovers(host):
        yield Removal(Thing.BOOTSTRAP, path.name, freed_by(path), "a killed bootstrap left it", path)
    for path in unneeded(state.bootstrap, load_lock(lock_in_use(state.bootstrap / LOCK_NAME))):
        yield Removal(Thing.BOOTSTRAP, _shown(path, state), freed_by(path), "no pin names it", path)


def _candidates(state: State, request: GcRequest, young: _Young) -> Iterator[Removal]:
    """What launches exported, with a record, and whose runs are at their end. Others' and open ones stay."""
    if request.candidates is None or not state.journal.exists():
        return
    with Journal.open(state.journal, state.id) as journal:
        entries = {entry.intent.launch_id: entry for entry in journal.entries()}
        open_runs = {entry.intent.run_id for entry in entries.values() if not entry.final}
        for launch_id in published(state.candidates):
            entry, place = entries.get(launch_id), place_of(state.candidates, launch_id)
            if entry is None or entry.boundary is not Boundary.RECORDED or young(place):
                continue
            age = request.wish.now - journal.passages(launch_id)[-1].at
            if age > request.candidates and entry.intent.run_id not in open_runs:
                why = f"recorded {age.days} days ago"
                yield Removal(Thing.CANDIDATE, launch_id, freed_by(place), why, place)


def _logs(state: State, request: GcRequest, young: _Young) -> Iterator[Removal]:
    """What launches said that are at their end. That of one whose process died is kept as long."""
    folders = sorted(path for path in state.logs.iterdir() if not young(path))
    if not folders or not state.journal.exists():
        return
    with Journal.open(state.journal, state.id) as journal:
        under_way = {entry.intent.launch_id for entry in journal.entries() if not entry.final}
    for folder in folders:
        last = max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))
        age = request.wish.now - datetime.fromtimestamp(last, UTC)
        if folder.name not in under_way and age > request.logs:
            yield Removal(Thing.LOG, folder.name, freed_by(folder), f"kept {age.days} days ago", folder)


def _sessions(state: State, request: GcRequest, young: _Young) -> Iterator[Removal]:
    """What agents remember, where an age was asked for; nothing of a run that goes on now."""
    if request.sessions is None:
        return
    for one in kept_sessions(state):
        place, age = state.sessions / one.name, request.wish.now - one.saved
        if not one.in_use and age > request.sessions and not young(place):
            yield Removal(Thing.SESSION, one.name, freed_by(place), f"kept {age.days} days ago", place)


def _forgotten(workshop: Workshop, removals: list[Removal]) -> list[Removal]:
    """Without the sessions that a run began to use since, which stay; the others are gone."""
    done = []
    for one in removals:
        try:
            if one.thing is Thing.SESSION:
                forget_session(workshop.state, one.name)
            done.append(one)
        except (StateError, UsageError) as stays:
            workshop.reporter.warn(f"stays: {stays}")
    return done


def _withdraw(state: State, one: Removal, now: datetime) -> None:
    """An audit line, then the repository: the journal tells what became of it."""
    with Journal.open(state.journal, state.id) as journal:
        journal.audit(
            Audited(container_id=CANDIDATE_PREFIX + one.name, launch_id=one.name, why=f"gc: {one.why}"), now
        )
    withdraw(state.candidates, one.name)


def _ledger(state: State, found: Iterable[Removal]) -> list[Removal]:
    """Lines of the ledger about images that are not in the layout, after this."""
    going = {one.name for one in found if one.thing is Thing.IMAGE}
    with open_ledger(state.ledger) as ledger:
        entries = ledger.entries()
    return [
        Removal(Thing.LEDGER, entry.digest, 0, "its image is not in the layout")
        for entry in entries
        if entry.digest in going or not blob_path(state.layout, entry.digest).exists()
    ]


def _remove_from_engine(workshop: Workshop, removals: Iterable[Removal]) -> list[Removal]:
    """The engine's copies of the images that go, found by their ids; one in use stays, and is said."""
    images = [Digest(one.name) for one in removals if one.thing is Thing.IMAGE]
    done: list[Removal] = []
    if not images:
        return done
    engine = workshop.connect()
    for digest in images:
        try:
            loaded = engine.find_image(open_image(workshop.state.layout, digest, rehash=Rehash.BYTES))
            if loaded is not None:
                engine.remove_image(loaded)
                done.append(Removal(Thing.ENGINE_IMAGE, str(loaded.id), 0, f"a copy of {digest}"))
        except VerifyFailed:
            continue  # no image, or damaged: nothing of it can be found by its id
        except BuilderError as refused:
            workshop.reporter.warn(f"stays in the engine: {refused}")
    return done


def _apply(state: State, request: GcRequest, removals: Iterable[Removal]) -> None:
    """Names first, then what they named: what ends this in between leaves only what the next one finds."""
    images = frozenset(Digest(one.name) for one in removals if one.thing is Thing.IMAGE)
    if images:
        drop_manifests(state.layout, images)
    forgotten = [Digest(one.name) for one in removals if one.thing is Thing.LEDGER]
    layers = [Digest(one.name) for one in removals if one.thing is Thing.BLOB]
    if forgotten or layers:
        with open_ledger(state.ledger) as ledger:
            ledger.drop(forgotten, layers)
    state.sweep_staging()
    for one in removals:
        if one.path is None or one.thing in (Thing.STAGING, Thing.SESSION):
            continue
        if one.thing is Thing.BOOTSTRAP:
            remove_leftover(request.host, one.path)
        elif one.thing is Thing.LEASE:
            forget_lease(one.path)  # a launch may have made it just now
        elif one.thing is Thing.LOG:
            remove_tree(one.path)
        elif one.thing is Thing.CANDIDATE:
            _withdraw(state, one, request.wish.now)
        else:
            with state_errors(one.path):
                one.path.unlink(missing_ok=True)


def _shown(path: Path, state: State) -> str:
    return str(path.relative_to(state.root)) if path.is_relative_to(state.root) else str(path)
