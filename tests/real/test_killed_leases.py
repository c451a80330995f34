"""SIGKILL of who opens, adopts or closes a leased launch, at each write of the journal, on real engines.

A neighbour of the same state root lives through all of them.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable
from typing import Any

import pytest

from backend.agent_command import Output
from backend.journal import Boundary
from backend.leased import adopt_leased
from backend.records import LaunchEnding
from backend.requests import LaunchRequest
from tests.fakes.kills import ADOPTABLE, KILLS, OF_A_LEASE, OF_AN_ADOPTION, DyingJournal, When
from tests.real.ground import Ground, ground, open_journal, world
from tests.real.test_hostile import ended, in_child, killed, leased, left, neighbour, recovered

__all__ = ["ground", "left", "neighbour", "world"]

pytestmark = pytest.mark.real

CLOSING = [
    (boundary, when)
    for boundary, when in OF_A_LEASE
    if boundary in (Boundary.ENDED, Boundary.REMOVED, Boundary.RECORDED)
]


def adopted_and_closed(ground: Ground, request: LaunchRequest, container: str) -> None:
    """What whoever comes next does: take it over, use it, end it."""
    said = bytearray()
    with ground.control() as controller:
        held = adopt_leased(controller, ground.admitted, request, ground.root / "leases")
        assert held.container == container
        assert held.run(("id", "-u"), 30.0, Output(on_stdout=said.extend)).exit_code == 0
        assert said == b"1000\n"
        assert held.close().observed.ending is LaunchEnding.COMPLETED


def killed_adopting(ground: Ground, request: LaunchRequest, at: Boundary | str, when: When) -> None:
    """An adopter in a process that is killed there: it takes over, and closes."""

    def work() -> None:
        with ground.control() as controller:
            dying: Any = DyingJournal(controller.journal, at, when)
            mine = dataclasses.replace(controller, journal=dying)
            adopt_leased(mine, ground.admitted, request, ground.root / "leases").close()

    assert ended(in_child(work)) == -signal.SIGKILL


def recovered_once(ground: Ground, request: LaunchRequest, place: tuple[Boundary, When]) -> None:
    """One recovery removes what is left and closes the launch; a second has nothing to do."""
    launch_id, expected = f"{request.run_id}.1", KILLS[place]
    first = recovered(ground)
    assert len(first.remove) == expected.container
    assert first.close == ((launch_id,) if expected.closes else ())
    assert recovered(ground).nothing
    with open_journal(ground) as journal:
        assert (journal.bundle(launch_id) is not None) is (place == (Boundary.RECORDED, When.AFTER))


@pytest.mark.parametrize("place", OF_A_LEASE)
def test_sigkill_of_a_leased_launch_at_every_boundary(
    ground: Ground, left: Callable[[], tuple[str, ...]], place: tuple[Boundary, When]
) -> None:
    """What may be adopted is left alone and can be; of anything else one recovery leaves nothing."""
    request = leased(ground, lease_seconds=120)
    killed(ground, request, *place)
    found = left()
    assert len(found) == KILLS[place].container
    if place in ADOPTABLE:
        assert recovered(ground).nothing
        adopted_and_closed(ground, request, *found)
        assert recovered(ground).nothing
    else:
        recovered_once(ground, request, place)
    assert left() == ()


@pytest.mark.parametrize("when", OF_AN_ADOPTION)
def test_sigkill_of_an_adoption_leaves_it_to_the_next(
    ground: Ground, left: Callable[[], tuple[str, ...]], when: When
) -> None:
    request = leased(ground, lease_seconds=120)
    killed(ground, request, Boundary.COMMANDED)
    (container,) = left()
    killed_adopting(ground, request, "adopt", when)
    with open_journal(ground) as journal:
        details = [one.detail for one in journal.passages(f"{request.run_id}.1")]
    assert any(detail.startswith("adopted under lease") for detail in details) is (when is When.AFTER)
    assert recovered(ground).nothing
    assert left() == (container,)
    adopted_and_closed(ground, request, container)
    assert recovered(ground).nothing
    assert left() == ()


@pytest.mark.parametrize("place", CLOSING)
def test_sigkill_of_an_adopter_that_closes(
    ground: Ground, left: Callable[[], tuple[str, ...]], place: tuple[Boundary, When]
) -> None:
    """The container's label names who opened it, the journal who adopted it: both are dead."""
    request = leased(ground, lease_seconds=120)
    killed(ground, request, Boundary.COMMANDED)
    killed_adopting(ground, request, *place)
    if place in ADOPTABLE:
        adopted_and_closed(ground, request, *left())
    else:
        recovered_once(ground, request, place)
    assert recovered(ground).nothing
    assert left() == ()
