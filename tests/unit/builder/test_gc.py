"""What nothing holds goes, and says why; what anything holds stays; twice is once; a build loses nothing."""

from __future__ import annotations

import fcntl
import io
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.journal import Boundary, Intent, Journal
from backend.ownership import hold_lease, is_alive
from backend.probe import boot_id
from backend.projection.history import History, HistoryFile
from builder.bootstrap import Host
from builder.cli import main_inner
from builder.sessions import open_session
from builder.state import State
from builder.storage.collecting import Collected, GcRequest, Thing, collect
from builder.storage.exporting import export
from builder.storage.holding import Wish
from builder.storage.importing import import_archive
from builder.storage.references import refer_to_added, refer_to_project
from images.config import AgentName
from images.digests import Digest, Integrity
from images.errors import ExitCode, StateError
from images.lockfile import lock_bytes
from images.oci import MEDIA_EMPTY, MEDIA_MANIFEST
from provenance.layout import list_images, open_image, read_index
from provenance.layout_writing import write_blob
from provenance.ledger import open_ledger
from provenance.referrers import add_lock, read_referrers
from provenance.scan.memory import entry_path
from tests.fakes.engine import FakeEngine
from tests.fakes.layouts import flip, put_manifest
from tests.fakes.states import (
    NOW,
    Team,
    another_image,
    digests_of,
    files_of,
    make_team,
    prove,
    said,
    workshop_at,
)
from tests.unit.backend.test_journal import WITH_FILES
from tests.unit.builder.test_state import nested

ROOT = Path(__file__).resolve().parents[3]
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return make_team(tmp_path)


def gc(
    team: Team, *, now: datetime = LATER, grace: timedelta = timedelta(hours=1), **changes: object
) -> Collected:
    """Tomorrow: everything that the test made is older than the grace."""
    wish = {name: changes.pop(name) for name in ("keep", "older_than") if name in changes}
    request = GcRequest(
        wish=Wish(now=now, **wish),  # type: ignore[arg-type]
        grace=grace,
        host=Host(environment={}, cache=team.state.bootstrap, work=team.root / "work"),
    )
    return collect(team.workshop, replace(request, **changes))  # type: ignore[arg-type]


def names(done: Collected, thing: Thing) -> set[str]:
    return {one.name for one in done.removals if one.thing is thing}


def put(team: Team, data: bytes) -> Integrity:
    integrity, _ = team.workshop.store.add(io.BytesIO(data), what="x", limit=1 << 20)
    return integrity


def images(team: Team) -> set[Digest]:
    return {one.digest for one in list_images(team.state.layout)}


def test_nothing_is_loose_in_a_state_that_was_just_built(team: Team) -> None:
    before = files_of(team.state)
    done = gc(team, grace=timedelta())
    assert done.removals == ()
    assert done.freed == 0
    assert files_of(team.state) == before
    assert {digest for digest, _ in done.held} >= images(team)


def test_what_nothing_holds_goes_and_twice_is_once(team: Team) -> None:
    loose = another_image(team, "loose")
    artifact = put(team, b"nobody's")
    blob = write_blob(team.state.layout, b"of nothing", MEDIA_EMPTY).digest
    size = len(b"nobody's") + len(b"of nothing")
    before = files_of(team.state)
    planned = gc(team, dry_run=True)
    assert files_of(team.state) == before
    done = gc(team)
    assert done.removals == planned.removals
    assert names(done, Thing.IMAGE) == {loose.digest}
    assert names(done, Thing.ARTIFACT) == {str(artifact)}
    assert {str(blob), loose.digest, loose.settings.digest} <= names(done, Thing.BLOB)
    assert done.freed >= size
    assert loose.digest not in images(team)
    assert not team.workshop.store.holds(artifact)
    assert digests_of(team.state) & {Digest(name) for name in names(done, Thing.BLOB)} == set()
    # A layer that a held image shares stays.
    assert open_image(team.state.layout, team.image.digest)
    assert team.world.verify(expectation=replace(team.world.expectation, lock=team.raw_lock)).ok
    assert all(team.workshop.store.intact(one.integrity) for one in team.lock.artifacts)
    again = gc(team)
    assert again.removals == ()


def test_what_is_young_stays_whole(team: Team) -> None:
    loose = another_image(team, "loose")
    artifact = put(team, b"nobody's")
    done = gc(team, now=datetime.now(UTC))
    assert done.removals == ()
    assert open_image(team.state.layout, loose.digest)
    assert team.workshop.store.holds(artifact)


def test_a_layer_of_a_young_image_stays_although_it_is_old(team: Team) -> None:
    loose = another_image(team, "loose")
    gone = put(team, b"nobody's")
    manifest = team.state.layout / "blobs/sha256" / loose.digest.hex
    time.sleep(0.05)
    before = datetime.now(UTC)
    time.sleep(0.05)  # the kernel's clock for files is a coarse one
    manifest.chmod(0o640)
    done = gc(team, now=before, grace=timedelta())
    assert names(done, Thing.BLOB) == set()
    assert names(done, Thing.ARTIFACT) == {str(gone)}
    assert open_image(team.state.layout, loose.digest)


def test_what_was_admitted_just_now_stays_with_its_evidence(team: Team) -> None:
    """As the launch leaves it, before its intent is in the journal."""
    time.sleep(0.05)
    before = datetime.now(UTC)
    time.sleep(0.05)
    os.utime(team.state.layout / "blobs/sha256" / team.image.digest.hex)
    gc(team, keep=0, now=before, grace=timedelta())
    assert open_image(team.state.layout, team.image.digest)
    attached = read_referrers(team.state.layout, team.image.digest)
    assert len(attached.bundles) == 3
    assert len(attached.locks) == 1
    done = gc(team, keep=0)
    assert team.image.digest in names(done, Thing.IMAGE)


def test_the_newest_of_each_name_are_kept(team: Team) -> None:
    old = [another_image(team, f"old-{number}") for number in range(3)]
    for number, image in enumerate(old):
        # Each from a lock of its own: the ledger has one line for each key.
        user = replace(team.lock.user, uid=2000 + number, gid=2000 + number)
        prove(team, image, replace(team.lock, user=user), built=NOW - timedelta(days=10 * (number + 1)))
    other = another_image(team, "other")
    lock = replace(team.lock, user=replace(team.lock.user, uid=3000, gid=3000))
    prove(team, other, lock, name="team/other", built=NOW - timedelta(days=90))
    assert gc(team).removals == ()
    assert names(gc(team, keep=9, dry_run=True), Thing.IMAGE) == set()
    for wish, gone in (
        ({"keep": 3}, {old[2]}),
        ({"keep": 1}, {*old}),
        ({"older_than": LATER - NOW + timedelta(days=15)}, {old[1], old[2], other}),
        ({"keep": 1, "older_than": LATER - NOW + timedelta(days=25)}, {old[2]}),
        ({"keep": 3, "older_than": LATER - NOW + timedelta(days=15)}, {old[2]}),
    ):
        done = gc(team, dry_run=True, **wish)
        assert names(done, Thing.IMAGE) & {one.digest for one in (*old, other)} == {
            one.digest for one in gone
        }, wish
    done = gc(team, keep=3)
    (why,) = (one.why for one in done.removals if one.name == old[2].digest and one.thing is Thing.IMAGE)
    assert why == "team/agents, built 2026-11-01, number 4 of its name"
    assert names(done, Thing.LEDGER) == {old[2].digest}
    # The statements about it go with it, and so does nothing else.
    entries = {one.digest for one in read_index(team.state.layout).manifests}
    assert entries == {Digest(digest) for digest, _ in done.held}
    with open_ledger(team.state.ledger) as ledger:
        assert {entry.digest for entry in ledger.entries()} == {
            one.digest for one in (team.image, old[0], old[1], other)
        }
        assert old[2].manifest.layers[1].digest not in ledger.stamps()
    assert gc(team, keep=3).removals == ()


def intent_of(team: Team, name: str = "l1", run: str = "r", step: int = 1) -> Intent:
    return Intent(
        launch_id=name,
        run_id=run,
        step=step,
        scope="s",
        launch_class="execute",
        lease_id="0" * 32,
        container_name=f"c-{name}",
        image_digest=team.image.digest,
        product="docker",
        endpoint="e",
        mode="required",
    )


def test_a_launch_that_is_not_at_its_end_holds_its_image(team: Team) -> None:
    with Journal.open(team.state.journal, team.state.id) as journal:
        intent = intent_of(team)
        journal.intend(intent, NOW)
        assert gc(team, keep=0).removals == ()
        journal.advance("l1", Boundary.RECOVERED, NOW)
        assert team.image.digest in names(gc(team, keep=0), Thing.IMAGE)


def export_at(team: Team, name: str, at: datetime, reached: Boundary = Boundary.RECORDED) -> Path:
    """A candidate, and a launch that came this far at that time; as a first step of a run of its own."""
    with Journal.open(team.state.journal, team.state.id) as journal:
        journal.intend(intent_of(team, f"{name}.1", name), at)
        for boundary in WITH_FILES[1 : WITH_FILES.index(reached) + 1]:
            journal.advance(f"{name}.1", boundary, at)
    return put_candidate(team, f"{name}.1")


def put_candidate(team: Team, launch_id: str) -> Path:
    place = team.state.candidates / f"{launch_id}.git"
    place.mkdir()
    (place / "pack").write_bytes(b"x" * 1000)
    return place


def test_a_candidate_goes_when_its_age_was_asked_for_and_no_other(team: Team) -> None:
    old, new = LATER - timedelta(days=40), LATER - timedelta(days=20)
    going, open_run = export_at(team, "old", old), export_at(team, "open", old)
    staying = [
        export_at(team, "new", new),
        export_at(team, "half", old, Boundary.IMPORTED),
        put_candidate(team, "of-another-state.1"),
        open_run,
    ]
    with Journal.open(team.state.journal, team.state.id) as journal:
        journal.intend(intent_of(team, "open.2", "open", 2), new)
        journal.intend(intent_of(team, "lost.1", "lost"), old)
        journal.advance("lost.1", Boundary.RECOVERED, old)
    staying.append(put_candidate(team, "lost.1"))  # recovery's, and no record tells its age
    for without in ({}, {"older_than": timedelta()}, {"keep": 0, "older_than": timedelta()}):
        assert names(gc(team, **without), Thing.CANDIDATE) == set()
    age = timedelta(days=30)
    assert names(gc(team, candidates=age, now=LATER - timedelta(days=1)), Thing.CANDIDATE) == set()  # grace
    assert names(gc(team, candidates=age, dry_run=True), Thing.CANDIDATE) == {"old.1"}
    assert going.exists()
    done = gc(team, candidates=age)
    (one,) = [one for one in done.removals if one.thing is Thing.CANDIDATE]
    assert (one.name, one.size, one.why) == ("old.1", 1000, "recorded 40 days ago")
    assert not going.exists()
    assert all((place / "pack").exists() for place in staying)
    with Journal.open(team.state.journal, team.state.id) as journal:
        (audited,) = journal.removals()
        assert audited.container_id == "candidates/old.1"
        assert Boundary.RECORDED in journal.passed("old.1")
        journal.advance("open.2", Boundary.RECOVERED, LATER)
    assert names(gc(team, candidates=age), Thing.CANDIDATE) == {"open.1"}
    assert names(gc(team, candidates=age), Thing.CANDIDATE) == set()


def session_at(team: Team, name: str, at: datetime) -> Path:
    with open_session(team.state, name, AgentName.PI) as opened:
        opened.keep(History(AgentName.PI, (HistoryFile(".pi/agent/sessions/a.jsonl", b"{}\n", 5),)))
    os.utime(opened.file, (at.timestamp(), at.timestamp()))
    return opened.file


def test_a_session_goes_when_its_age_was_asked_for_and_never_under_a_run(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, age = LATER - timedelta(days=40), timedelta(days=30)
    going, held = session_at(team, "old", old), session_at(team, "held", old)
    new = session_at(team, "new", LATER - timedelta(days=20))
    for without in ({}, {"older_than": timedelta()}, {"keep": 0, "candidates": timedelta()}):
        assert names(gc(team, **without), Thing.SESSION) == set()
    assert names(gc(team, sessions=age, now=LATER - timedelta(days=1)), Thing.SESSION) == set()  # grace
    with open_session(team.state, "held", AgentName.PI):
        assert names(gc(team, sessions=age, dry_run=True), Thing.SESSION) == {"old"}
        assert going.exists()
        size = going.stat().st_size
        done = gc(team, sessions=age)
        # A run that begins between the look and the removal: nobody looks, and it stays as well.
        monkeypatch.setattr("builder.sessions._is_in_use", lambda _: False)
        assert names(gc(team, sessions=age), Thing.SESSION) == set()
    (one,) = [one for one in done.removals if one.thing is Thing.SESSION]
    assert (one.name, one.size, one.why) == ("old", size, "kept 40 days ago")
    assert not going.parent.exists()
    assert held.exists()
    assert new.exists()
    assert names(gc(team, sessions=age), Thing.SESSION) == {"held"}


def test_what_a_killed_run_was_writing_into_its_session_goes(team: Team) -> None:
    kept = session_at(team, "one", LATER)
    half = kept.with_name(".builder-new-abcdefgh")
    half.write_bytes(b"half")
    assert names(gc(team), Thing.TEMPORARY) == {f"sessions/one/{half.name}"}
    assert kept.exists()


def test_a_projects_lock_holds_its_image_artifacts_base_and_tools(team: Team) -> None:
    path = team.lock_path
    refer_to_project(team.state, path, team.raw_lock)
    assert gc(team, keep=0).removals == ()
    newer = replace(team.lock, user=replace(team.lock.user, uid=4000, gid=4000))
    path.write_bytes(lock_bytes(newer))
    # Another lock lies there now: the image is not of it, what it is made of is.
    done = gc(team, keep=0)
    assert names(done, Thing.IMAGE) >= {team.image.digest}
    assert names(done, Thing.ARTIFACT) == set()
    assert open_image(team.state.layout, team.base.digest)
    path.unlink()
    bare = replace(
        team.workshop, settings=replace(team.workshop.settings, build_container=None, resolver=None)
    )
    done = gc(replace(team, workshop=bare), keep=0)
    assert {one.thing for one in done.removals} >= {Thing.REFERENCE, Thing.IMAGE, Thing.ARTIFACT}
    assert images(team) == set()
    assert not list(team.workshop.store.entries())
    assert not digests_of(team.state)
    assert gc(replace(team, workshop=bare), keep=0).removals == ()


def test_a_lock_that_cannot_be_read_now_holds_what_it_last_named(team: Team) -> None:
    path = team.lock_path
    refer_to_project(team.state, path, team.raw_lock)
    path.unlink()
    path.mkdir()
    assert gc(team, keep=0).removals == ()


def test_an_added_file_stays_for_thirty_days_or_as_long_as_a_lock_names_it(team: Team) -> None:
    added, locked = put(team, b"added"), put(team, b"locked")
    for one in (added, locked):
        refer_to_added(team.state, one)
    path = team.lock_path
    path.write_bytes(path.read_bytes() + f"{locked}".encode())
    refer_to_project(team.state, path, path.read_bytes())
    assert gc(team).removals == ()
    done = gc(team, now=LATER + timedelta(days=31))
    assert names(done, Thing.ARTIFACT) == {str(added)}
    assert len(names(done, Thing.REFERENCE)) == 2
    assert team.workshop.store.holds(locked)


def test_what_was_imported_stays_until_it_is_old(team: Team, tmp_path: Path) -> None:
    bare = make_team(tmp_path / "bare", proved=False)
    export(bare.workshop, tmp_path / "a.tar", lock_path=bare.lock_path, image=None)
    mate = replace(team, root=tmp_path, workshop=workshop_at(tmp_path / "mate"))
    import_archive(mate.workshop, tmp_path / "a.tar")
    before = files_of(mate.state)
    assert gc(mate, keep=0).removals == ()
    assert files_of(mate.state) == before
    done = gc(mate, older_than=timedelta(hours=1))
    assert names(done, Thing.REFERENCE)
    assert files_of(mate.state).keys() == {"layout/index.json", "layout/oci-layout"}


def test_ended_in_the_middle_the_next_one_finishes(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(_state: State, *, remove: bool = True) -> tuple[Path, ...]:
        if remove:  # after the names, before the files
            raise Killed
        return ()

    loose = another_image(team, "loose")
    put(team, b"nobody's")
    with monkeypatch.context() as patched:
        patched.setattr(State, "sweep_staging", die)
        with pytest.raises(Killed):
            gc(team)
    assert loose.digest not in images(team)  # no name leads to half of something
    done = gc(team)
    assert loose.digest in names(done, Thing.BLOB)
    assert names(done, Thing.ARTIFACT)
    assert gc(team).removals == ()
    assert open_image(team.state.layout, team.image.digest)


def test_what_others_put_into_the_layout_is_not_judged(team: Team) -> None:
    config = write_blob(team.state.layout, b"{}", MEDIA_EMPTY)
    body = write_blob(team.state.layout, b"a bill of materials", "text/plain")
    document = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "artifactType": "text/plain",
        "config": config.to_json(),
        "layers": [body.to_json()],
    }
    alone = put_manifest(team.state.layout, document)
    loose = another_image(team, "loose")
    subject = {"mediaType": MEDIA_MANIFEST, "digest": str(loose.digest), "size": len(loose.manifest.raw)}
    about = put_manifest(team.state.layout, {**document, "subject": subject})
    done = gc(team)
    assert names(done, Thing.IMAGE) == {loose.digest, about}
    assert {alone, body.digest} <= digests_of(team.state)


def test_an_entry_without_its_manifest_goes(team: Team) -> None:
    loose = another_image(team, "loose")
    add_lock(loose, team.raw_lock)
    (team.state.layout / "blobs/sha256" / loose.digest.hex).unlink()
    done = gc(team)
    assert loose.digest in names(done, Thing.IMAGE)
    assert gc(team).removals == ()


@pytest.mark.parametrize("what", ["manifest", "bundle", "reference", "ledger"])
def test_nothing_is_removed_on_a_guess(team: Team, what: str) -> None:
    put(team, b"nobody's")
    if what == "manifest":
        flip(team.state.layout / "blobs/sha256" / team.base.digest.hex)
    elif what == "bundle":
        manifests = read_index(team.state.layout).manifests
        flip(team.state.layout / "blobs/sha256" / manifests[-1].digest.hex)
    elif what == "reference":
        (team.state.references / ("imported-" + "0" * 64)).mkdir()
    else:
        team.state.ledger.write_bytes(b"no database" * 100)
    before = files_of(team.state)
    with pytest.raises(StateError) as refused:
        gc(team)
    assert refused.value.code is ExitCode.STATE
    assert refused.value.hint
    assert files_of(team.state) == before


def test_what_is_known_of_the_engines_store_stays_until_the_boot_ends(team: Team) -> None:
    for name, boot in (("store-now.json", boot_id()), ("store-before.json", "another")):
        (team.state.probe / name).write_text(f'{{"boot":"{boot}"}}')
        (team.state.probe / name).chmod(0o600)
    assert names(gc(team), Thing.PROBE) == {"store-before.json"}
    assert [path.name for path in team.state.probe.iterdir()] == ["store-now.json"]


def test_what_dead_processes_left_goes_and_what_the_living_hold_stays(team: Team) -> None:
    state = team.state
    (state.staged / "build-dead").mkdir()
    (state.staged / "build-dead" / "file").write_bytes(b"12345")
    (state.turns / "dead").touch()
    (state.leases / ("0" * 32)).touch()
    (state.layout / "blobs/sha256/.builder-new-abcdefgh").write_bytes(b"half")
    (state.store / ".builder-new-abcdefgh").write_bytes(b"half")
    (state.probe / "docker.json").write_text("{}")
    known = entry_path(state.scans, open_image(state.layout, team.image.digest).manifest.layers[0].digest)
    for path in (known, entry_path(state.scans, Digest.of(b"gone"))):
        path.write_bytes(b"123")
    buildx = f"buildx-{'0' * 64}-{'1' * 64}"
    mine = f"buildx-{team.lock.tools.build_container.hex}-{'1' * 64}"
    for name in (buildx, mine):
        (state.client_home / name).touch()
    with (
        state.staging("alive") as alive,
        state.turn("alive", lambda: None),
        hold_lease(state.leases, state.id) as owner,
        (state.root / ".builder-new-alive123").open("wb") as writing,
    ):
        fcntl.flock(writing, fcntl.LOCK_EX)
        # Staging sweeps its dead neighbours itself; so this one is made after it.
        (state.staged / "build-dead").mkdir()
        (state.staged / "build-dead" / "file").write_bytes(b"12345")
        nested(state.staged / "build-dead", 3000)
        done = gc(team)
        assert alive.is_dir()
        assert (state.turns / "alive").exists()
        assert (state.leases / owner.lease_id).exists()
        assert (state.root / ".builder-new-alive123").exists()
    assert names(done, Thing.STAGING) == {"build-dead"}
    assert names(done, Thing.TURN) == {"dead"}
    assert names(done, Thing.LEASE) == {"0" * 32}
    assert len(names(done, Thing.TEMPORARY)) == 2
    assert names(done, Thing.PROBE) == {"docker.json"}
    assert names(done, Thing.BUILDX) == {buildx[:20]}
    assert (state.client_home / mine).exists()
    assert names(done, Thing.SCAN) == {f"{Digest.of(b'gone').hex}.scan"}
    assert list(state.scans.iterdir()) == [known]
    assert done.freed == 5 + 4 + 4 + 2 + 3
    for folder in (state.staged, state.turns, state.probe):
        assert not list(folder.iterdir())


def test_a_launch_that_took_its_lease_meanwhile_keeps_it(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches do not wait for a collection: what looked dead when it was planned is looked at again."""
    state = team.state
    with hold_lease(state.leases, state.id) as owner:
        monkeypatch.setattr("builder.storage.collecting.dead_leases", lambda at: (at / owner.lease_id,))
        gc(team)
        assert is_alive(state.leases, owner.lease_id)


def test_leftovers_of_a_killed_bootstrap_and_downloads_of_older_pins(team: Team) -> None:
    cache = team.state.bootstrap
    for left in (
        "go-toolchain/.new-x/bin",
        "go/" + "0" * 64,
        "image-x",
        "wheels/newest-x",
        "wheels/" + "1" * 64,
    ):
        (cache / left).mkdir(parents=True)
        (cache / left / "file").write_bytes(b"x")
    (cache / "go-toolchain/.new-x/bin").chmod(0o500)
    (cache / "debs").mkdir()
    (cache / "debs/old_1.0_amd64.deb").write_bytes(b"x")
    (cache / "apt").mkdir()
    gc(team)
    left = {path.name for path in cache.rglob("*")}
    assert left == {"go-toolchain", "go", "wheels", "debs", "apt"}
    assert gc(team).removals == ()


def test_the_engines_copies_go_too_when_asked(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine").mkdir()
    engine = FakeEngine(tmp_path / "engine")
    monkeypatch.setattr("backend.engines.select.connect", lambda *_: engine)
    loose = another_image(team, "loose")
    kept = engine.load(open_image(team.state.layout, team.image.digest), tmp_path)
    gone = engine.load(loose, tmp_path)
    assert engine.find_image(loose)
    done = gc(team, engine_images=True)
    assert names(done, Thing.ENGINE_IMAGE) == {str(gone.id)}
    assert engine.find_image(loose) is None
    assert engine.find_image(kept.image)


@pytest.fixture
def held_for_work(team: Team) -> Iterator[threading.Event]:
    """Somebody builds: until the event."""
    ended, begun = threading.Event(), threading.Event()

    def work() -> None:
        with team.workshop.at_work():
            begun.set()
            ended.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(30)
    yield ended
    ended.set()
    thread.join()


def test_it_waits_for_those_who_work_and_they_for_it(team: Team, held_for_work: threading.Event) -> None:
    """A file that is loose while somebody works, and held when he is done, must be there then."""
    artifact = put(team, b"just fetched")
    collected = threading.Thread(target=lambda: gc(team, grace=timedelta()))
    collected.start()
    until = time.monotonic() + 30
    while "somebody works in this state" not in said(team.workshop) and time.monotonic() < until:
        time.sleep(0.01)
    assert "somebody works in this state" in said(team.workshop)
    with team.workshop.at_work():  # another one, and one within another: both go on
        assert team.workshop.store.intact(artifact)
        refer_to_added(team.state, artifact)
    assert collected.is_alive()
    assert team.workshop.store.intact(artifact)
    held_for_work.set()
    collected.join(30)
    assert team.workshop.store.intact(artifact)


def test_work_waits_for_the_end_of_a_collection(team: Team) -> None:
    waited: list[str] = []
    entered = threading.Event()

    def work() -> None:
        with team.state.in_use(lambda: waited.append("waited")):
            entered.set()

    with team.state.collecting(lambda: None):
        thread = threading.Thread(target=work)
        thread.start()
        assert not entered.wait(0.3)
    assert entered.wait(30)
    thread.join()
    assert waited == ["waited"]


def type_gc(team: Team, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    environment = {"HOME": str(team.root), "PATH": os.environ["PATH"]}
    code = main_inner(
        ["gc", "--state", str(team.state.root), "--config-dir", str(team.root / "c"), *words], environment
    )
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_command(team: Team, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.storage.collecting.leftovers", lambda _: ())
    put(team, b"nobody's")
    code, out, err = type_gc(team, capsys, "--grace", "0", "--dry-run")
    assert code == 0
    assert "would remove artifact sha256:" in err
    code, out, err = type_gc(team, capsys, "--grace", "0", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["gc"]["freed"] >= len(b"nobody's")
    assert "removed artifact sha256:" in err
    assert "no lock in use names it" in err
    code, out, err = type_gc(team, capsys, "--grace", "0")
    assert (code, out) == (0, "0\n")
    assert "sessions" not in err
    session_at(team, "one", datetime.now(UTC) - timedelta(days=2))
    assert "sessions: 1, " in type_gc(team, capsys, "--dry-run")[2]
    code, _, err = type_gc(team, capsys, "--sessions", "0", "--grace", "0")
    assert code == 0
    assert "removed session one (" in err
    for wrong in (("--keep", "-1"), ("--older-than", "soon"), ("--grace", "1w"), ("--sessions", "1y")):
        code, _, err = type_gc(team, capsys, *wrong)
        assert code == ExitCode.USAGE
        assert "hint: " in err
