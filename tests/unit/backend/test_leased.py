"""Leased launches on the scripted engine: opened whole or not at all, renewed, adopted, closed, reaped."""

from __future__ import annotations

import dataclasses
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from backend import leased as module
from backend.agent_command import Output
from backend.containers import ExecPlan
from backend.engines.protocol import Engine
from backend.journal import Boundary, Journal
from backend.launch import Controller, launch
from backend.lease import AGE, MAKE, REACH, RENEW, WATCH_LEASE, lease_age
from backend.leased import Leased, adopt_leased, open_leased
from backend.ownership import LABEL_OWNER, hold_lease
from backend.projection.routes import Route
from backend.records import LaunchEnding
from backend.recovery import recover
from backend.requests import LaunchRequest, Supervision
from backend.runner import Ending, Outcome
from backend.supervise import END_AGENT
from images.errors import HostError, LaunchReason, LaunchRefused, StateError, UsageError
from provenance.verify import VerifiedImage
from tests.fakes.admitted import NOW, STATE, Bench, admitted_of, request
from tests.fakes.engine import said
from tests.fakes.kills import ADOPTABLE, LEASED, OF_A_LEASE, OF_AN_ADOPTION, When
from tests.fakes.projected import projection, take
from tests.unit.backend.test_launch import OPEN_PLACES, on_podman, predicate_of

SECONDS = 30


def asked(**changes: Any) -> LaunchRequest:
    return request(**{"command": (), "supervision": Supervision.LEASED, "lease_seconds": SECONDS, **changes})


def opened(at: Bench, verified: VerifiedImage, **changes: Any) -> Leased:
    return open_leased(at.controller, admitted_of(verified), asked(**changes))


@contextmanager
def successor(at: Bench) -> Iterator[Controller]:
    """Another controller of the same state root, with a lease of its own."""
    with hold_lease(at.leases, STATE) as owner:
        yield dataclasses.replace(at.controller, owner=owner)


def die(at: Bench) -> None:
    """What the kernel does to a dead controller's lease."""
    (at.leases / at.owner.lease_id).unlink()


def reap(at: Bench) -> Any:
    return recover(at.engine, at.journal, at.leases, STATE, lambda: NOW)


def test_opened_used_and_closed(at: Bench, verified: VerifiedImage) -> None:
    held = opened(at, verified)
    assert at.journal.passed("run.1")[-1] is Boundary.COMMANDED
    at.engine.answers[("sh", "-c", "work")] = said(b"out", stderr=b"err!")
    out = bytearray()
    end = held.run(("sh", "-c", "work"), 10.0, Output(on_stdout=out.extend))
    assert (end.ending, end.exit_code, bytes(out)) == (LaunchEnding.COMPLETED, 0, b"out")
    record = held.close()
    assert record.observed.ending is LaunchEnding.COMPLETED
    assert record.exit_code is None
    assert at.engine.containers == {}
    found = predicate_of(at)
    assert found["supervision"] == "leased"
    assert found["output"] == {"recorded": False, "stdoutBytes": 3, "stderrBytes": 4}
    assert at.journal.passed("run.1")[-3:] == (Boundary.ENDED, Boundary.REMOVED, Boundary.RECORDED)


def test_who_does_what_to_the_lease(at: Bench, verified: VerifiedImage) -> None:
    """The watch makes and renews it; the agent is asked whether it could."""
    calls = watched(at)
    held = opened(at, verified)
    held.renew()
    watch = (997, 997)
    assert [call for call in calls if call[0] in (MAKE, RENEW, REACH)] == [
        (MAKE, watch),
        (REACH, (1000, 1000)),
        (RENEW, watch),
    ]
    held.close()


def test_on_podman_root_makes_the_place_and_closes_it_again(at: Bench, verified: VerifiedImage) -> None:
    admitted = on_podman(verified, at)
    scripts = ("mkdir -m 1777 /run/lease", "chmod 0755 /run/lease")
    at.engine.answers |= {("sh", "-c", script): said() for script in scripts} | {OPEN_PLACES: said()}
    calls = watched(at)
    open_leased(at.controller, admitted, asked()).close()
    assert [call for call in calls if "/run/lease" in call[0] and "stat" not in call[0]][:4] == [
        (scripts[0], (0, 0)),
        (RENEW, (997, 997)),
        (scripts[1], (0, 0)),
        (REACH, (1000, 1000)),
    ]


def watched(at: Bench) -> list[tuple[str, tuple[int, int]]]:
    calls: list[tuple[str, tuple[int, int]]] = []
    plain = at.engine.exec

    def exec(container: str, plan: ExecPlan, **given: Any) -> Outcome:
        calls.append((plan.argv[2] if len(plan.argv) > 2 else "", plan.user))
        return plain(container, plan, **given)

    at.engine.exec = exec  # type: ignore[method-assign]
    return calls


@pytest.mark.parametrize("script", [MAKE, REACH])
def test_a_lease_that_cannot_be_made_or_that_the_agent_could_reach_ends_the_launch(
    at: Bench, verified: VerifiedImage, script: str
) -> None:
    at.engine.answers[("sh", "-c", script)] = said(exit_code=1)
    with pytest.raises(HostError) as caught:
        opened(at, verified)
    assert caught.value.reason == "lease"
    assert at.engine.containers == {}
    assert predicate_of(at)["ending"] == "failed"


@pytest.mark.parametrize(
    ("tampers", "inside", "reason"),
    [
        ({"read_only_root": False}, {}, LaunchReason.READ_BACK),
        ({"image_id": "sha256:" + "0" * 64}, {}, LaunchReason.IMAGE_ID),
        ({}, {"interfaces": "lo\neth0"}, LaunchReason.READ_BACK),
        ({}, {"init": "/usr/bin/catatonit\0--\0cat\0"}, LaunchReason.READ_BACK),
    ],
)
def test_both_witnesses_are_asked(
    at: Bench, verified: VerifiedImage, tampers: Any, inside: Any, reason: LaunchReason
) -> None:
    at.engine.tampers.update(tampers)
    at.engine.inside.update(inside)
    with pytest.raises(LaunchRefused) as caught:
        opened(at, verified)
    assert caught.value.reason == reason
    assert at.engine.containers == {}
    assert predicate_of(at)["ending"] == "refused"


def test_without_renewal_it_ends_and_says_so(at: Bench, verified: VerifiedImage) -> None:
    held = opened(at, verified)
    at.engine.uptime += SECONDS - 1
    held.renew()
    at.engine.uptime += SECONDS - 1
    assert lease_age(at.engine, held.container) == SECONDS - 1
    at.engine.uptime += 1
    assert lease_age(at.engine, held.container) is None
    with pytest.raises(HostError):
        held.renew()
    record = held.close()
    assert (record.observed.ending, record.observed.reason) == (LaunchEnding.CONTAINER_LOST, "container-lost")


def test_it_is_renewed_while_it_is_kept(
    at: Bench, verified: VerifiedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RENEWALS", SECONDS * 100)
    held, enough, count = opened(at, verified), threading.Event(), 0

    def renew(engine: Engine, container: str) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise HostError("a renewal that fails once")
        if count == 4:
            enough.set()

    monkeypatch.setattr(module, "renew_lease", renew)
    with held.kept():
        assert enough.wait(10)
    after = count
    assert not any(thread.name == "lease" for thread in threading.enumerate())
    assert after >= 4
    held.close()


def test_recovery_leaves_it_while_it_is_fresh_and_reaps_it_when_it_is_old(
    at: Bench, verified: VerifiedImage
) -> None:
    held = opened(at, verified)
    die(at)
    assert reap(at).nothing
    assert held.container in at.engine.containers
    at.engine.uptime += SECONDS
    done = reap(at)
    assert [one.container_id for one in done.remove] == [held.container]
    assert done.close == ("run.1",)
    assert reap(at).nothing
    assert at.engine.containers == {}


@pytest.mark.parametrize("boundary", [Boundary.CREATED, Boundary.CONFIRMED, Boundary.STARTED, Boundary.ENDED])
def test_recovery_reaps_at_once_what_nobody_may_adopt(
    at: Bench, verified: VerifiedImage, boundary: Boundary
) -> None:
    class Dies(BaseException):
        pass

    plain = at.journal.advance

    def advance(launch_id: str, to: Boundary, *given: Any, **named: Any) -> None:
        plain(launch_id, to, *given, **named)
        if to is boundary:
            raise Dies

    dying: Any = dataclasses.replace(at.controller, journal=Wrapped(at.journal, advance))
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:  # a dead process cleans nothing up
        patched.setattr(module, "_end", lambda *_: None)
        with pytest.raises(Dies):
            open_leased(dying, admitted_of(verified), asked()).close()
    die(at)
    assert len(at.engine.containers) == 1
    assert len(reap(at).remove) == 1
    assert reap(at).nothing
    assert at.engine.containers == {}


class Wrapped:
    def __init__(self, journal: Journal, advance: Any) -> None:
        self._journal = journal
        self.advance = advance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def test_what_it_crosses_is_what_the_kill_tests_kill(at: Bench, verified: VerifiedImage) -> None:
    opened(at, verified).close()
    assert list(at.journal.passed("run.1")) == LEASED
    assert {place[0] for place in OF_A_LEASE} == set(LEASED)
    assert set(OF_A_LEASE) >= ADOPTABLE


class Killed(BaseException):
    """Nobody handles it, as nobody handles SIGKILL."""


@pytest.mark.parametrize("when", OF_AN_ADOPTION)
@pytest.mark.parametrize("wanted", [True, False], ids=["adopted-again", "forgotten"])
def test_an_adoption_that_is_killed_leaves_a_launch_of_the_dead(
    at: Bench, verified: VerifiedImage, when: When, wanted: bool
) -> None:
    """Before the journal gave it over it is the first one's, after it the second one's: both are dead."""
    held = opened(at, verified)
    die(at)

    def adopt(*given: Any) -> None:
        if when is When.AFTER:
            at.journal.adopt(*given)
        raise Killed

    with successor(at) as controller:
        dying: Any = Wrapped(at.journal, at.journal.advance)
        dying.adopt = adopt
        with pytest.raises(Killed):
            adopt_leased(
                dataclasses.replace(controller, journal=dying), admitted_of(verified), asked(), at.leases
            )
        mine = controller.owner.lease_id
    owner = at.journal.entries()[0].intent.lease_id
    assert owner == (mine if when is When.AFTER else at.owner.lease_id)
    assert reap(at).nothing
    if wanted:
        with successor(at) as controller:
            again = adopt_leased(controller, admitted_of(verified), asked(), at.leases)
            assert again.container == held.container
            assert again.close().observed.ending is LaunchEnding.COMPLETED
    else:
        at.engine.uptime += SECONDS
        assert [one.container_id for one in reap(at).remove] == [held.container]
    assert reap(at).nothing
    assert at.engine.containers == {}


def test_it_is_adopted_by_one_controller_and_read_back_again(at: Bench, verified: VerifiedImage) -> None:
    held = opened(at, verified)
    die(at)
    at.engine.uptime += SECONDS - 1
    with successor(at) as controller:
        mine = adopt_leased(controller, admitted_of(verified), asked(), at.leases)
        assert mine.container == held.container
        assert at.journal.entries()[0].intent.lease_id == controller.owner.lease_id
        assert dict(at.engine.containers[mine.container].plan.labels)[LABEL_OWNER] == at.owner.lease_id
        assert lease_age(at.engine, mine.container) == 0
        assert reap(at).nothing  # its new controller lives
        with pytest.raises(StateError, match="its controller lives"):
            adopt_leased(controller, admitted_of(verified), asked(), at.leases)
        assert mine.close().observed.ending is LaunchEnding.COMPLETED
    assert at.engine.containers == {}


def test_an_adopted_launch_tells_of_credentials_what_its_opener_saw_in_place(
    at: Bench, verified: VerifiedImage
) -> None:
    """Not what the request asks for: the journal of who read them back says so, in names alone."""
    given = projection(Route.CLAUDE_OAUTH_TOKEN, Route.PI_OAUTH)
    take(at.engine, given)
    opened(at, verified, projection=given)
    noted = [one.detail for one in at.journal.passages("run.1") if one.boundary is Boundary.COMMANDED]
    assert noted == ["in place: claude-code.oauth-token, pi.oauth"]
    die(at)
    with successor(at) as controller:
        for other in (projection(), projection(Route.PI_OAUTH), projection(Route.CLAUDE_API_KEY)):
            with pytest.raises(StateError, match=r"opened with claude-code.oauth-token, pi.oauth"):
                adopt_leased(controller, admitted_of(verified), asked(projection=other), at.leases)
        mine = adopt_leased(controller, admitted_of(verified), asked(projection=given), at.leases)
        mine.close()
    credentials: Any = predicate_of(at)["credentials"]
    assert [(one["name"], one["inPlace"]) for one in credentials] == [
        ("claude-code.oauth-token", True),
        ("pi.oauth", True),
    ]


def test_one_that_was_opened_without_credentials_is_not_adopted_with_some(
    at: Bench, verified: VerifiedImage
) -> None:
    opened(at, verified)
    die(at)
    request = asked(projection=projection(Route.PI_OAUTH))
    with successor(at) as controller, pytest.raises(StateError, match="opened with no credential"):
        adopt_leased(controller, admitted_of(verified), request, at.leases)


def test_very_many_names_are_noted_by_their_digest() -> None:
    """A line of the journal is cut at its bound; a cut one would be another."""
    many = tuple(f"mcp.server-{number}" for number in range(200))
    assert len(module._in_place(many)) < 100
    assert module._in_place(many) != module._in_place(many[1:])
    assert module._in_place(()) == ""


@pytest.mark.parametrize(("age", "asks", "gets"), [(0, 10.0, 10.0), (0, 500.0, 60.0), (45, 20.0, 15.0)])
def test_a_command_gets_no_more_than_the_launch_has_left(
    at: Bench, verified: VerifiedImage, age: int, asks: float, gets: float
) -> None:
    held, deadlines = opened(at, verified), []
    held.log = dataclasses.replace(held.log, now=lambda: NOW + timedelta(seconds=age))
    plain = at.engine.exec

    def exec(container: str, plan: ExecPlan, **given: Any) -> Outcome:
        deadlines.append(given["deadline"])
        return plain(container, plan, **given)

    at.engine.answers[("true",)] = said()
    at.engine.exec = exec  # type: ignore[method-assign]
    assert held.run(("true",), asks).ending is LaunchEnding.COMPLETED
    assert deadlines == [gets]
    held.close()


def test_after_the_launch_s_deadline_no_command_is_started(at: Bench, verified: VerifiedImage) -> None:
    held = opened(at, verified)
    held.log = dataclasses.replace(held.log, now=lambda: NOW + timedelta(seconds=60))
    before = at.engine.calls.count("exec")
    end = held.run(("true",), 10.0)
    assert (end.ending, end.reason, end.exit_code) == (LaunchEnding.TIMED_OUT, "deadline", None)
    assert at.engine.calls.count("exec") == before
    with pytest.raises(UsageError, match="a deadline of 0"):
        held.run(("true",), 0)
    held.close()


def test_what_cannot_be_adopted(at: Bench, verified: VerifiedImage) -> None:
    admitted = admitted_of(verified)
    with successor(at) as controller:

        def refused(why: str, **changes: Any) -> None:
            with pytest.raises(StateError, match=why):
                adopt_leased(controller, admitted, asked(**changes), at.leases)

        refused("never opened")
        held = opened(at, verified)
        refused("its controller lives")
        die(at)
        refused("never opened", step=2)
        at.engine.answers[("sh", "-c", AGE)] = said(str(SECONDS).encode())
        refused("grown old")
        del at.engine.answers[("sh", "-c", AGE)]
        at.engine.uptime += SECONDS
        refused("has ended")
        held.close()
        refused("it is recorded")


@pytest.mark.parametrize(
    "changes", [{"tampers": {"privileged": True}}, {"inside": {"interfaces": "lo\neth0"}}]
)
def test_an_adopted_container_that_is_not_as_planned_is_refused(
    at: Bench, verified: VerifiedImage, changes: dict[str, dict[str, object]]
) -> None:
    opened(at, verified)
    die(at)
    at.engine.tampers.update(changes.get("tampers", {}))
    at.engine.inside.update(changes.get("inside", {}))
    with successor(at) as controller:
        with pytest.raises(LaunchRefused) as caught:
            adopt_leased(controller, admitted_of(verified), asked(), at.leases)
        # It stays the dead one's. Nobody renews it: it ends by itself, and recovery finds it.
        assert at.journal.entries()[0].intent.lease_id == at.owner.lease_id
        at.engine.uptime += SECONDS
        assert len(reap(at).remove) == 1
    assert caught.value.reason == LaunchReason.READ_BACK


@pytest.mark.parametrize(
    "changes", [{"scope": "another"}, {"lease_seconds": 31}, {"deadline": 61.0}], ids=str
)
def test_another_request_than_that_which_opened_it_is_refused(
    at: Bench, verified: VerifiedImage, changes: dict[str, Any]
) -> None:
    opened(at, verified)
    die(at)
    with successor(at) as controller, pytest.raises(LaunchRefused):
        adopt_leased(controller, admitted_of(verified), asked(**changes), at.leases)


def test_each_supervision_has_its_own_way_in(at: Bench, verified: VerifiedImage) -> None:
    with pytest.raises(UsageError):
        launch(at.controller, admitted_of(verified), asked())
    with pytest.raises(UsageError):
        open_leased(at.controller, admitted_of(verified), request())
    with pytest.raises(UsageError):
        adopt_leased(at.controller, admitted_of(verified), request(), at.leases)
    assert at.journal.entries() == ()


def test_a_command_of_a_leased_launch_holds_no_credential(at: Bench, verified: VerifiedImage) -> None:
    held = opened(at, verified)
    with pytest.raises(UsageError, match="looks like a credential"):
        held.run(("env", f"ANTHROPIC_API_KEY={'zq7' * 8}", "true"), 10.0)
    held.close()


@pytest.mark.parametrize("argv", [(), ("",)])
def test_an_empty_command(at: Bench, verified: VerifiedImage, argv: tuple[str, ...]) -> None:
    held = opened(at, verified)
    with pytest.raises(UsageError):
        held.run(argv, 10.0)
    held.close()


@pytest.mark.parametrize(
    "answer",
    [
        said(exit_code=126, stderr=b"cannot fork"),
        said(exit_code=137),
        said(),
        Outcome(ending=Ending.TIMED_OUT, exit_code=-9),
    ],
    ids=["no-process-left", "killed-by-the-agent", "silent", "too-late"],
)
def test_an_agent_that_cannot_be_ended_takes_its_container_along(
    at: Bench, verified: VerifiedImage, answer: Outcome
) -> None:
    """Else what ran out of time would run on, for as long as others renew the lease."""
    held = opened(at, verified)
    at.engine.answers[("sh", "-c", "work")] = Outcome(ending=Ending.TIMED_OUT, exit_code=-15)
    assert held.run(("sh", "-c", "work"), 10.0).ending is LaunchEnding.TIMED_OUT
    assert held.container in at.engine.containers
    at.engine.answers[END_AGENT] = answer
    assert held.run(("sh", "-c", "work"), 10.0).ending is LaunchEnding.TIMED_OUT
    assert at.engine.containers == {}
    assert held.close().observed.ending is LaunchEnding.CONTAINER_LOST


def test_an_engine_that_does_not_start_it(at: Bench, verified: VerifiedImage) -> None:
    at.engine.start = lambda container: setattr(at.engine.containers[container], "started", True)  # type: ignore[method-assign]
    with pytest.raises(HostError, match="did not start"):
        opened(at, verified)
    assert at.engine.containers == {}


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("written", ["", "x", "-1", "4000000000", "12 rm", "4000000000 rm", "$(id)"])
def test_what_pid_1_makes_of_a_lease_that_is_none(tmp_path: Path, shell: str, written: str) -> None:
    """The loop itself, on this machine: a lease that is no number, or of the future, keeps nothing alive."""
    script = WATCH_LEASE.replace("/run/lease", str(tmp_path))
    (tmp_path / "renewed").write_text(f"{written}\n")
    subprocess.run([shell, "-c", script, "lease", "1"], timeout=30, check=True)


def test_without_sleep_it_ends_at_once(tmp_path: Path) -> None:
    script = WATCH_LEASE.replace("/run/lease", str(tmp_path))
    shell = "/bin/sh"
    ended = subprocess.run([shell, "-c", script, "lease", "600"], env={"PATH": ""}, timeout=10, check=False)
    assert ended.returncode == 1
