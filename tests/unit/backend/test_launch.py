"""A launch against the scripted engine: every boundary, every way to fail, and nothing is ever left."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from backend import supervise
from backend.admission import AdmittedImage
from backend.agent_command import Output
from backend.commands import Ending, Outcome
from backend.containers import ImageIdKind
from backend.journal import Boundary
from backend.launch import launch
from backend.plan import plan_launch
from backend.records import LaunchEnding
from backend.recovery import recover
from backend.supervise import END_AGENT
from images.errors import HostError, Interrupted, LaunchReason, LaunchRefused, StateError, Terminated
from provenance.bundles import open_bundle
from provenance.layout import open_image
from provenance.policy import Mode
from provenance.signing import check_signature
from provenance.verify import VerifiedImage
from tests.fakes.admitted import ENVIRONMENT, NOW, Bench, admitted_of, request
from tests.fakes.engine import DOCKER_FACTS, said
from tests.fakes.evidence import key
from tests.fakes.layouts import make_image
from tests.fakes.proved import CONFIG

HAPPY = [
    Boundary.INTENDED,
    Boundary.CREATED,
    Boundary.CONFIRMED,
    Boundary.STARTED,
    Boundary.COMMANDED,
    Boundary.ENDED,
    Boundary.REMOVED,
    Boundary.RECORDED,
]


def predicate_of(at: Bench, launch_id: str = "run.1") -> dict[str, Any]:
    """The signed record as the journal keeps it, its signature checked."""
    raw = at.journal.bundle(launch_id)
    assert raw is not None
    bundle = check_signature(open_bundle(raw, "record"), key("launcher").public, "record")
    found: dict[str, Any] = json.loads(bundle.statement.raw)
    assert found["predicateType"].endswith("launch/v1")
    predicate: dict[str, Any] = found["predicate"]
    return predicate


def test_a_command_runs_and_is_recorded(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[("sh", "-c", "work")] = said(b"out\xff\n", stderr=b"err\n")
    out, err = bytearray(), bytearray()
    record = launch(
        at.controller,
        admitted_of(verified),
        request(command=("sh", "-c", "work")),
        Output(on_stdout=out.extend, on_stderr=err.extend),
    )
    assert record.exit_code == 0
    assert record.observed.ending is LaunchEnding.COMPLETED
    assert bytes(out) == b"out\xff\n"
    assert bytes(err) == b"err\n"
    assert list(at.journal.passed("run.1")) == HAPPY
    assert at.engine.containers == {}
    assert record.statement.is_only_about(verified.image.digest)
    found = predicate_of(at)
    assert found["exitCode"] == 0
    assert found["output"] == {"recorded": False, "stdoutBytes": 5, "stderrBytes": 4}
    assert found["image"]["manifest"] == verified.image.digest
    assert found["image"]["versions"] == {"claude-code": "2.1.328", "pi": "0.73.1"}
    assert found["limits"]["status"] == "enforced"
    assert found["limits"]["effective"] == {"cpus": 1.5, "memory": 536870912, "pids": 64}
    assert found["settings"]["watch"] == "997:997"
    assert found["settings"]["inside"]["idMapping"] == [[0, 100000, 65536]]
    assert found["command"]["program"] == "/usr/bin/sh"
    assert found["engine"]["imageIdKind"] == "config"


def test_the_text_of_a_command_is_not_in_the_record(at: Bench, verified: VerifiedImage) -> None:
    argv = ("sh", "-c", "echo dummy-private-text")
    at.engine.answers[argv] = said(b"dummy-private-output")
    record = launch(at.controller, admitted_of(verified), request(command=argv))
    assert b"dummy-private" not in record.statement.raw
    assert "dummy-private" not in repr(record)


def test_the_order_is_that_of_the_design(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[("true",)] = said()
    launch(at.controller, admitted_of(verified), request())
    calls = [verb for verb in at.engine.calls if verb not in ("facts", "list")]
    assert calls == ["find_image", "load", "create", "inspect", "attach", "exec", "exec", "remove"]


@pytest.mark.parametrize("code", [1, 42, 126, 127, 255])
def test_the_exit_code_is_the_commands(at: Bench, verified: VerifiedImage, code: int) -> None:
    at.engine.answers[("true",)] = said(exit_code=code)
    at.engine.answers[memory_question(at, verified)] = said(b"oom_kill 0\n")
    record = launch(at.controller, admitted_of(verified), request())
    assert record.exit_code == code
    assert record.observed.out_of_memory is False


def test_out_of_memory_is_read_from_the_counter(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[("true",)] = said(exit_code=137)
    at.engine.answers[memory_question(at, verified)] = said(b"oom_kill 2\n")
    record = launch(at.controller, admitted_of(verified), request())
    assert record.observed.out_of_memory is True
    assert predicate_of(at)["outOfMemory"] is True


def memory_question(at: Bench, verified: VerifiedImage) -> tuple[str, ...]:
    from backend.agent_command import MEMORY_EVENTS  # noqa: PLC0415

    assert plan_launch(admitted_of(verified), request(), at.owner)
    return MEMORY_EVENTS


def test_a_deadline_kills_the_work_and_not_only_the_client(at: Bench, verified: VerifiedImage) -> None:
    killed: list[int] = []
    at.engine.answers[("true",)] = Outcome(ending=Ending.TIMED_OUT, exit_code=-15)
    kill = at.engine.exec

    def watching(container: str, plan: Any, **given: Any) -> Outcome:
        if plan.argv == END_AGENT:
            assert plan.user == (1000, 1000)
            killed.append(1)
        return kill(container, plan, **given)

    at.engine.exec = watching  # type: ignore[method-assign]
    record = launch(at.controller, admitted_of(verified), request())
    assert killed == [1]
    assert record.exit_code is None
    assert record.observed.ending is LaunchEnding.TIMED_OUT
    assert predicate_of(at)["reason"] == "deadline"
    assert at.engine.containers == {}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted("Ctrl-C"), Terminated("SIGTERM")])
def test_an_interrupted_command_is_killed_removed_and_recorded(
    at: Bench, verified: VerifiedImage, error: BaseException
) -> None:
    def interrupt(*_: object) -> Outcome:
        raise error

    at.engine.answers[("true",)] = interrupt
    with pytest.raises(type(error)):
        launch(at.controller, admitted_of(verified), request())
    assert at.engine.containers == {}
    assert at.engine.calls.count("exec") == 3  # look, command, kill
    assert predicate_of(at)["ending"] == "interrupted"
    assert at.journal.passed("run.1")[-2:] == (Boundary.REMOVED, Boundary.RECORDED)


def test_a_cancelled_command_is_killed_removed_and_recorded(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[("true",)] = said()
    record = launch(at.controller, admitted_of(verified), request(), Output(cancelled=lambda: True))
    assert record.exit_code is None
    assert record.observed.ending is LaunchEnding.INTERRUPTED
    assert predicate_of(at)["reason"] == "cancelled"
    assert at.engine.calls.count("exec") == 3  # look, command, kill
    assert at.engine.containers == {}


def test_a_consumer_that_fails_ends_the_launch(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[("true",)] = said(b"out")

    def broken(_: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        launch(at.controller, admitted_of(verified), request(), Output(on_stdout=broken))
    assert at.engine.containers == {}
    assert predicate_of(at)["ending"] == "interrupted"


def test_a_container_that_ends_under_the_command(at: Bench, verified: VerifiedImage) -> None:
    def vanish(*_: object) -> Outcome:
        for row in at.engine.containers.values():
            row.running_file.unlink()
        return said(exit_code=137)

    at.engine.answers[("true",)] = vanish
    record = launch(at.controller, admitted_of(verified), request())
    assert record.observed.ending is LaunchEnding.CONTAINER_LOST
    assert record.exit_code is None
    assert at.engine.containers == {}


def test_an_engine_client_that_dies_is_the_engines_failure(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[("true",)] = Outcome(ending=Ending.EXITED, exit_code=-9)
    with pytest.raises(HostError):
        launch(at.controller, admitted_of(verified), request())
    assert at.engine.containers == {}
    assert predicate_of(at)["ending"] == "failed"


@pytest.mark.parametrize("verb", ["create", "inspect", "attach", "exec"])
def test_an_engine_that_fails_half_way_leaves_nothing(at: Bench, verified: VerifiedImage, verb: str) -> None:
    at.engine.answers[("true",)] = said()
    at.engine.fails[verb] = HostError(f"{verb} failed", reason="engine")
    with pytest.raises(HostError, match=f"{verb} failed"):
        launch(at.controller, admitted_of(verified), request())
    assert at.engine.containers == {}
    assert list(at.journal.passed("run.1"))[-1] is Boundary.RECORDED
    assert predicate_of(at)["reason"] == "engine"


def test_a_container_that_cannot_be_removed_stays_open_in_the_journal(
    at: Bench, verified: VerifiedImage
) -> None:
    at.engine.answers[("true",)] = said()
    at.engine.fails["remove"] = HostError("cannot remove")
    with pytest.raises(HostError, match="cannot remove"):
        launch(at.controller, admitted_of(verified), request())
    (entry,) = at.journal.entries()
    assert entry.boundary is Boundary.ENDED
    assert not entry.final
    assert at.journal.bundle("run.1") is None


@pytest.mark.parametrize("verb", ["facts", "find_image", "load"])
def test_an_engine_that_may_not_be_asked_is_told_before_anything_is_saved(
    at: Bench, verified: VerifiedImage, verb: str
) -> None:
    """R2: its socket belongs to others, or it went away: no run was begun."""
    admitted = admitted_of(verified)
    at.engine.fails[verb] = HostError("permission denied", reason="engine")
    with pytest.raises(HostError, match="permission denied"):
        launch(at.controller, admitted, request())
    assert at.journal.entries() == ()
    assert at.engine.containers == {}


def test_an_engine_that_restarts_under_a_command_leaves_an_open_line_that_recovery_closes(
    at: Bench, verified: VerifiedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be asked or removed then; its containers have ended when it is back."""
    admitted, plain = admitted_of(verified), at.engine._called

    def down(verb: str) -> None:
        raise HostError("no engine answers", reason="engine")

    def restart(*_: object) -> Outcome:
        monkeypatch.setattr(at.engine, "_called", down)
        return Outcome(ending=Ending.EXITED, exit_code=1, stderr=b"connection reset")

    at.engine.answers[("true",)] = restart
    with pytest.raises(HostError, match="no engine answers"):
        launch(at.controller, admitted, request())
    (entry,) = at.journal.entries()
    assert (entry.boundary, entry.final) == (Boundary.COMMANDED, False)
    assert at.journal.bundle("run.1") is None
    monkeypatch.setattr(at.engine, "_called", plain)
    (at.leases / at.owner.lease_id).unlink()  # what the kernel does to a controller that ended
    found = recover(at.engine, at.journal, at.leases, at.owner.state_id, lambda: NOW)
    assert (len(found.remove), found.close) == (1, ("run.1",))
    assert recover(at.engine, at.journal, at.leases, at.owner.state_id, lambda: NOW).nothing
    assert at.engine.containers == {}


def test_the_engine_must_be_the_one_that_was_admitted(at: Bench, verified: VerifiedImage) -> None:
    at.engine.told = dataclasses.replace(DOCKER_FACTS, version="29.0.0")
    with pytest.raises(LaunchRefused) as caught:
        launch(at.controller, admitted_of(verified), request())
    assert caught.value.reason == LaunchReason.ENGINE_IDENTITY
    assert at.journal.entries() == ()
    assert set(at.engine.calls) == {"facts", "find_image"}  # questions, and nothing else


def test_an_id_of_another_kind_is_refused(at: Bench, verified: VerifiedImage) -> None:
    at.engine.id_kind = ImageIdKind.MANIFEST
    with pytest.raises(LaunchRefused) as caught:
        launch(at.controller, admitted_of(verified), request())
    assert caught.value.reason == LaunchReason.IMAGE_ID
    assert at.engine.containers == {}


def test_another_image_under_the_container_is_refused_before_it_starts(
    at: Bench, verified: VerifiedImage
) -> None:
    at.engine.tampers["image_id"] = "sha256:" + "0" * 64
    with pytest.raises(LaunchRefused) as caught:
        launch(at.controller, admitted_of(verified), request())
    assert caught.value.reason == LaunchReason.IMAGE_ID
    assert "attach" not in at.engine.calls
    assert at.engine.containers == {}
    assert predicate_of(at)["reason"] == "image-id"


def test_a_setting_that_differs_inside_is_refused_before_the_command(
    at: Bench, verified: VerifiedImage
) -> None:
    at.engine.inside["interfaces"] = "eth0\nlo"
    with pytest.raises(LaunchRefused, match="eth0") as caught:
        launch(at.controller, admitted_of(verified), request())
    assert caught.value.reason == LaunchReason.READ_BACK
    assert at.engine.calls.count("exec") == 1
    assert Boundary.COMMANDED not in at.journal.passed("run.1")


def test_limits_that_do_not_bind_inside_are_refused(at: Bench, verified: VerifiedImage) -> None:
    at.engine.inside["limits"] = "memory.max max\npids.max 64\ncpu.max 150000 100000"
    with pytest.raises(LaunchRefused, match="memory limit inside") as caught:
        launch(at.controller, admitted_of(verified), request())
    assert caught.value.reason == LaunchReason.LIMITS_NOT_ENFORCED


def test_limits_accepted_as_not_enforced_are_not_asked_for_and_said(
    at: Bench, verified: VerifiedImage
) -> None:
    at.engine.answers[("true",)] = said()
    launch(at.controller, admitted_of(verified, limits_enforced=False), request())
    found = predicate_of(at)["limits"]
    assert found["status"] == "accepted, not enforced"
    assert found["effective"] == {"cpus": None, "memory": None, "pids": None}


def test_a_missing_program_is_refused_before_the_exec(at: Bench, verified: VerifiedImage) -> None:
    at.engine.inside["command"] = ""
    with pytest.raises(LaunchRefused, match="no program 'true'") as caught:
        launch(at.controller, admitted_of(verified), request())
    assert caught.value.reason == LaunchReason.COMMAND_MISSING
    assert at.engine.containers == {}


def test_a_run_and_step_is_used_once(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[("true",)] = said()
    launch(at.controller, admitted_of(verified), request())
    with pytest.raises(LaunchRefused) as caught:
        launch(at.controller, admitted_of(verified), request())
    assert caught.value.reason == LaunchReason.RUN_TAKEN
    launch(at.controller, admitted_of(verified), request(step=2))
    assert [entry.intent.step for entry in at.journal.entries()] == [1, 2]


@pytest.mark.parametrize("what", ["image", "engine", "endpoint", "mode"])
def test_a_later_step_keeps_image_engine_and_mode(
    at: Bench, verified: VerifiedImage, tmp_path: Path, what: str
) -> None:
    at.engine.answers[("true",)] = said()
    launch(at.controller, admitted_of(verified), request())
    admitted = admitted_of(verified)
    if what == "image":
        rebuilt = open_image(tmp_path / "l", make_image(tmp_path / "l", config=dict(CONFIG, Env=ENVIRONMENT)))
        admitted = admitted_of(dataclasses.replace(verified, image=rebuilt))
    elif what == "mode":
        admitted = admitted_of(verified, mode=Mode.DEVELOPMENT)
    else:
        changed = {"engine": {"product": "podman"}, "endpoint": {"endpoint": "unix:///other.sock"}}[what]
        at.engine.told = dataclasses.replace(DOCKER_FACTS, **changed)
        admitted = admitted_of(verified, facts=at.engine.told)
    at.engine.calls.clear()
    with pytest.raises(LaunchRefused) as caught:
        launch(at.controller, admitted, request(step=2))
    assert caught.value.reason == LaunchReason.RUN_PINNED
    assert len(at.journal.entries()) == 1
    assert set(at.engine.calls) == {"facts", "find_image"}  # questions, and nothing else


def test_a_neighbour_with_the_same_name_is_left_alone(at: Bench, verified: VerifiedImage) -> None:
    plan = plan_launch(admitted_of(verified), request(), at.owner)
    at.engine.load(plan.container.image.image, Path("/nowhere"))
    foreign = tuple((name, "x") for name, _ in plan.container.labels)
    neighbour = at.engine.create(dataclasses.replace(plan.container, labels=foreign))
    with pytest.raises(HostError, match="in use"):
        launch(at.controller, admitted_of(verified), request())
    assert list(at.engine.containers) == [neighbour]


def test_a_journal_that_cannot_be_written_creates_nothing(at: Bench, verified: VerifiedImage) -> None:
    at.journal.close()
    with pytest.raises(StateError):
        launch(at.controller, admitted_of(verified), request())
    assert at.engine.containers == {}
    assert "create" not in at.engine.calls


def test_a_container_that_does_not_start(at: Bench, verified: VerifiedImage) -> None:
    at.engine.attach_argv = lambda _: (("sh", "-c", "echo no runtime >&2; exit 1"), {})  # type: ignore[method-assign]
    with pytest.raises(HostError, match="did not start the container: no runtime"):
        launch(at.controller, admitted_of(verified), request())
    assert at.engine.containers == {}
    assert predicate_of(at)["reason"] == "start"


PODMAN_FACTS = dataclasses.replace(DOCKER_FACTS, product="podman", version="4.3.1", endpoint="store:/x")
OPEN_PLACES = ("sh", "-c", supervise.OPEN_PLACES, "sh", "/run", "/home/agent", "/workspace")


def on_podman(verified: VerifiedImage, at: Bench) -> AdmittedImage:
    at.engine.told = PODMAN_FACTS
    return admitted_of(verified, facts=PODMAN_FACTS)


def test_podman_is_given_the_agents_places_before_the_look(at: Bench, verified: VerifiedImage) -> None:
    asked: list[tuple[tuple[str, ...], tuple[int, int]]] = []
    plain = at.engine.exec

    def watching(container: str, plan: Any, **given: Any) -> Outcome:
        asked.append((plan.argv[:2], plan.user))
        return plain(container, plan, **given)

    at.engine.exec = watching  # type: ignore[method-assign]
    at.engine.answers[OPEN_PLACES] = said()
    at.engine.answers[("true",)] = said()
    record = launch(at.controller, on_podman(verified, at), request())
    assert record.exit_code == 0
    assert asked == [(("sh", "-c"), (0, 0)), (("sh", "-c"), (1000, 1000)), (("true",), (1000, 1000))]


def test_podman_that_cannot_give_them_fails(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[OPEN_PLACES] = said(exit_code=1, stderr=b"chmod: not permitted")
    with pytest.raises(HostError, match="cannot be given /home/agent, /workspace: chmod: not permitted"):
        launch(at.controller, on_podman(verified, at), request())
    assert at.engine.containers == {}
