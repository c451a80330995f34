"""Recovery: only what dead controllers of this state root left; a second one changes nothing."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from backend.containers import VolumePlan
from backend.journal import FINAL, Boundary, Entry, Intent, Journal
from backend.ownership import LABEL_OWNER, LABEL_STATE
from backend.plan import plan_launch
from backend.recovery import Leftover, plan_recovery, recover
from images.digests import Digest
from images.errors import HostError
from provenance.verify import VerifiedImage
from tests.fakes.admitted import NOW, STATE, Bench, admitted_of, request
from tests.fakes.engine import DOCKER_FACTS
from tests.fakes.kills import KILLS, DyingJournal, When
from tests.unit.backend.test_journal import walk_to

DEAD, ALIVE = "d" * 32, "a" * 32
HERE = {"product": "docker", "endpoint": DOCKER_FACTS.endpoint}


def entry(boundary: Boundary = Boundary.COMMANDED, *, lease: str = DEAD, endpoint: str = "") -> Entry:
    return Entry(
        intent=Intent(
            launch_id="run.1",
            run_id="run",
            step=1,
            scope="issue/7",
            launch_class="execute",
            lease_id=lease,
            container_name="aib-run.1",
            image_digest=Digest.of(b"image"),
            product="docker",
            endpoint=endpoint or DOCKER_FACTS.endpoint,
            mode="required",
        ),
        container_id="f" * 64,
        boundary=boundary,
        exit_code=None,
    )


def leftover(lease: str = DEAD, launch: str = f"{STATE}.run.1", purpose: str = "launch") -> Leftover:
    return Leftover(container_id="f" * 64, lease_id=lease, launch=launch, purpose=purpose)


@pytest.mark.parametrize(
    ("boundary", "lease", "there"), list(itertools.product(Boundary, (DEAD, ALIVE), (True, False)))
)
def test_the_plan_is_a_table(boundary: Boundary, lease: str, there: bool) -> None:
    found = [leftover(lease)] if there else []
    plan = plan_recovery([entry(boundary, lease=lease)], found, frozenset({ALIVE}), **HERE)
    dead = lease == DEAD
    assert len(plan.remove) == (1 if there and dead else 0)
    assert plan.close == (("run.1",) if dead and boundary not in FINAL else ())


@pytest.mark.parametrize("lease", [DEAD, ALIVE])
@pytest.mark.parametrize("boundary", list(Boundary))
def test_a_fresh_leased_container_is_left_and_its_launch_stays_open(boundary: Boundary, lease: str) -> None:
    """Which is fresh, is the survey's to say; see test_leased.py."""
    found = leftover(lease)
    plan = plan_recovery(
        [entry(boundary, lease=lease)],
        [found],
        frozenset({ALIVE}),
        fresh=frozenset({found.container_id}),
        **HERE,
    )
    assert plan.nothing


def test_an_adopted_container_is_its_new_controller_s_whatever_its_label_says() -> None:
    assert plan_recovery([entry(lease=ALIVE)], [leftover(DEAD)], frozenset({ALIVE}), **HERE).nothing
    # And the other way: a label that somebody living had is no protection.
    other = plan_recovery([entry(lease=DEAD)], [leftover(ALIVE)], frozenset({ALIVE}), **HERE)
    assert len(other.remove) == 1


def test_tools_and_unknown_launches_of_the_dead_are_removed() -> None:
    found = [leftover(launch="", purpose="build"), leftover(launch=f"{STATE}.other.9")]
    plan = plan_recovery([], found, frozenset(), **HERE)
    assert [one.why for one in plan.remove] == [
        "build container of a dead controller (not in the journal)",
        "launch container of a dead controller (not in the journal)",
    ]


def test_a_launch_on_another_engine_is_not_closed_here() -> None:
    plan = plan_recovery([entry(endpoint="unix:///other.sock")], [], frozenset(), **HERE)
    assert plan.nothing


def left_by_the_dead(at: Bench, verified: VerifiedImage, boundary: Boundary) -> str:
    """What a controller that was killed at this boundary leaves: a container, a journal entry, no lease."""
    dead = dataclasses.replace(at.owner, lease_id=DEAD)
    plan = plan_launch(admitted_of(verified), request(), dead)
    at.engine.load(plan.container.image.image, Path("/nowhere"))
    container = at.engine.create(plan.container)
    intent = dataclasses.replace(
        entry().intent, container_name=plan.container.name, launch_id=plan.launch_id, lease_id=DEAD
    )
    walk_to(at.journal, boundary, intent)
    return container


@pytest.mark.parametrize("boundary", [one for one in Boundary if one not in FINAL])
def test_after_a_kill_at_every_boundary_one_recovery_is_enough(
    at: Bench, verified: VerifiedImage, boundary: Boundary
) -> None:
    container = left_by_the_dead(at, verified, boundary)
    first = recover(at.engine, at.journal, at.leases, STATE, lambda: NOW)
    assert [one.container_id for one in first.remove] == [container]
    assert first.close == ("run.1",)
    assert at.engine.containers == {}
    assert at.journal.entries()[0].boundary is Boundary.RECOVERED
    assert at.journal.removals() == first.remove
    second = recover(at.engine, at.journal, at.leases, STATE, lambda: NOW)
    assert second.nothing
    assert at.journal.removals() == first.remove
    assert at.journal.passed("run.1")[-1] is Boundary.RECOVERED


def test_the_living_and_the_neighbours_are_left_alone(at: Bench, verified: VerifiedImage) -> None:
    plan = plan_launch(admitted_of(verified), request(run_id="mine"), at.owner)
    at.engine.load(plan.container.image.image, Path("/nowhere"))
    mine = at.engine.create(plan.container)
    labels = dict(plan.container.labels)
    other_state = tuple(sorted((labels | {LABEL_STATE: "6" * 32, LABEL_OWNER: DEAD}).items()))
    neighbour = at.engine.create(dataclasses.replace(plan.container, name="other", labels=other_state))
    unlabelled = at.engine.create(dataclasses.replace(plan.container, name="plain", labels=()))
    assert recover(at.engine, at.journal, at.leases, STATE, lambda: NOW).nothing
    assert set(at.engine.containers) == {mine, neighbour, unlabelled}
    assert (at.leases / at.owner.lease_id).exists()


def test_what_an_engine_lists_wrongly_is_judged_by_its_own_labels(
    at: Bench, verified: VerifiedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that an engine reads otherwise must not cost a neighbour its container or volume."""
    dead = dataclasses.replace(at.owner, lease_id=DEAD)
    plan = plan_launch(admitted_of(verified), request(), dead)
    at.engine.load(plan.container.image.image, Path("/nowhere"))
    labels = tuple(sorted((dict(plan.container.labels) | {LABEL_STATE: "6" * 32}).items()))
    neighbour = at.engine.create(dataclasses.replace(plan.container, name="other", labels=labels))
    at.engine.create_volume(VolumePlan(name="aib-other", labels=labels))
    monkeypatch.setattr(at.engine, "list_labelled", lambda *_: tuple(at.engine.containers))
    monkeypatch.setattr(at.engine, "list_volumes", lambda *_: tuple(at.engine.volumes))
    assert recover(at.engine, at.journal, at.leases, STATE, lambda: NOW).nothing
    assert set(at.engine.containers) == {neighbour}
    assert set(at.engine.volumes) == {"aib-other"}


def test_an_engine_that_cannot_remove_leaves_the_entry_open(at: Bench, verified: VerifiedImage) -> None:
    left_by_the_dead(at, verified, Boundary.STARTED)
    at.engine.fails["remove"] = HostError("cannot remove")
    with pytest.raises(HostError):
        recover(at.engine, at.journal, at.leases, STATE, lambda: NOW)
    assert not at.journal.entries()[0].final
    assert recover(at.engine, at.journal, at.leases, STATE, lambda: NOW).close == ("run.1",)


def test_every_boundary_of_the_journal_has_its_kill_tests() -> None:
    """The real tests are made from this table; a launch that never crosses one of these fails them."""
    assert set(KILLS) == set(itertools.product(Boundary, When))


def test_every_write_of_the_journal_has_its_kill_tests() -> None:
    """Found in the code: a new way to write to it, that no test kills, fails here."""
    writes = {
        name
        for name, act in vars(Journal).items()
        if "_writing" in getattr(getattr(act, "__code__", None), "co_names", ())
    }
    assert writes == {"intend", "advance", "adopt", "audit"}
    assert writes <= set(vars(DyingJournal))


class Killed(BaseException):
    """Nobody handles it, as nobody handles SIGKILL."""


STEPS = ("audit", "remove", "advance")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_a_recovery_that_is_killed_at_any_step_is_finished_by_the_next(
    at: Bench, verified: VerifiedImage, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    container = left_by_the_dead(at, verified, Boundary.COMMANDED)
    target: Any = at.engine if step == "remove" else at.journal
    plain = getattr(target, step)

    def dies(*given: Any, **named: Any) -> None:
        if after:
            plain(*given, **named)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(target, step, dies)
        with pytest.raises(Killed):
            recover(at.engine, at.journal, at.leases, STATE, lambda: NOW)
    recover(at.engine, at.journal, at.leases, STATE, lambda: NOW)
    assert recover(at.engine, at.journal, at.leases, STATE, lambda: NOW).nothing
    assert at.engine.containers == {}
    assert [one.container_id for one in at.journal.removals()] == [container]
    assert at.journal.passed("run.1").count(Boundary.RECOVERED) == 1
