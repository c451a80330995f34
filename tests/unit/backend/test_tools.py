"""The closed tool plans on the scripted engine: fixed argv, exact hand-over, gone however they end."""

from __future__ import annotations

import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend.containers import ContainerPlan, ContainerStatus, LoadedImage, Network, Purpose
from backend.engines.grammar import HARDENED, check_plan
from backend.runner import Ending, Outcome
from backend.tools import (
    TOOL_LABEL,
    build_container,
    build_plan,
    buildkit_version,
    resolver_plan,
    run_resolver,
    version_plan,
)
from images.errors import HostError, Interrupted, StateError
from provenance.layout import open_image
from tests.fakes.engine import DOCKER_FACTS, FakeEngine, said
from tests.fakes.layouts import make_image

LABELS = (("agent-image-builder.owner", "f" * 32),)
WORKERS = ("buildctl", "debug", "workers")
WORKERS_BY_SOCKET = ("sh", "-c", "buildctl debug workers && chmod 0666 /run/private/s")


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    folder = tmp_path / "fake"
    folder.mkdir()
    return FakeEngine(folder)


@pytest.fixture
def loaded(engine: FakeEngine, tmp_path: Path) -> LoadedImage:
    layout = tmp_path / "layout"
    return engine.load(open_image(layout, make_image(layout)), tmp_path)


@pytest.fixture
def short() -> Iterator[Path]:
    """A private directory whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="b") as name:
        yield Path(name)


def resolve(engine: FakeEngine, loaded: LoadedImage, tmp_path: Path) -> tuple[Outcome, bytes]:
    progress = bytearray()
    outcome = run_resolver(
        engine,
        loaded,
        job=b"job tar",
        stdout_path=tmp_path / "result",
        on_progress=progress.extend,
        deadline=60,
        labels=LABELS,
    )
    return outcome, bytes(progress)


def test_the_resolver_gets_its_job_and_gives_its_result(
    engine: FakeEngine, loaded: LoadedImage, tmp_path: Path
) -> None:
    def main(plan: ContainerPlan, data: bytes) -> Outcome:
        assert plan.purpose is Purpose.RESOLVE
        assert data == b"job tar"
        return said(b"result tar", stderr=b"fetching\n")

    engine.main = main
    outcome, progress = resolve(engine, loaded, tmp_path)
    assert (outcome.ok, progress) == (True, b"fetching\n")
    assert (tmp_path / "result").read_bytes() == b"result tar"
    assert engine.containers == {}


def test_the_resolver_s_own_exit_code_is_told(
    engine: FakeEngine, loaded: LoadedImage, tmp_path: Path
) -> None:
    engine.main = lambda _plan, _data: said(exit_code=4)
    outcome, _ = resolve(engine, loaded, tmp_path)
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 4)


def test_the_resolver_is_gone_when_anything_fails(
    engine: FakeEngine, loaded: LoadedImage, tmp_path: Path
) -> None:
    def interrupted(plan: ContainerPlan, data: bytes) -> Outcome:
        raise Interrupted("interrupted")

    engine.main = interrupted
    with pytest.raises(Interrupted):
        resolve(engine, loaded, tmp_path)
    assert engine.containers == {}
    engine.fails["create"] = HostError("the engine failed after it made the container")
    with pytest.raises(HostError, match="after it made"):
        resolve(engine, loaded, tmp_path)
    assert engine.containers == {}


def test_a_container_that_the_engine_lost_is_an_error(
    engine: FakeEngine, loaded: LoadedImage, tmp_path: Path
) -> None:
    engine.tampers["status"] = ContainerStatus.RUNNING
    engine.tampers["exit_code"] = None
    with pytest.raises(HostError, match="container is running"):
        resolve(engine, loaded, tmp_path)


def test_only_containers_of_this_call_are_removed(
    engine: FakeEngine, loaded: LoadedImage, tmp_path: Path
) -> None:
    other = engine.create(resolver_plan(loaded, token="0" * 16, size=7, deadline=1, labels=LABELS))
    resolve(engine, loaded, tmp_path)
    assert set(engine.containers) == {other}


def test_the_resolver_s_plan_is_fixed(loaded: LoadedImage) -> None:
    plan = resolver_plan(loaded, token="0" * 16, size=7, deadline=59.2, labels=LABELS)
    assert plan.network is Network.ORDINARY
    assert plan.entrypoint == ("/usr/bin/timeout",)
    assert plan.arguments[:4] == ("--kill-after=5", "60", "sh", "-c")
    assert [item.path for item in plan.tmpfs] == ["/run/job"]
    assert (plan.read_only_binds, plan.private_binds, plan.volumes) == ((), (), ())
    assert plan.arguments[-3:] == ("resolve", "7", "0")
    assert plan.environment == ()
    assert dict(plan.labels) == {**dict(LABELS), TOOL_LABEL: "0" * 16}


def test_buildkit_of_another_machine_is_reached_through_the_engine(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path, told=replace(DOCKER_FACTS, remote=True))
    loaded = engine.load(open_image(tmp_path / "l", make_image(tmp_path / "l")), tmp_path)
    engine.answers[WORKERS] = said(b"ID PLATFORMS\n")
    with build_container(engine, loaded, tmp_path, LABELS) as container:
        assert container.endpoint == f"docker-container://{container.name}"
        assert engine.containers[container.container].plan.private_binds == ()
        assert container.is_running()
        assert set(engine.containers) == {container.container}
    assert engine.containers == {}


def listening(place: Path) -> Outcome:
    """BuildKit answers, and its socket is there."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
    return said()


def test_buildkit_is_reached_by_its_socket_on_docker(
    engine: FakeEngine, loaded: LoadedImage, short: Path
) -> None:
    socket_file = short / "b" / "s"
    opened = []

    def listen(*_: object) -> Outcome:
        opened.append((short / "b").stat().st_mode & 0o7777)
        return listening(socket_file)

    engine.answers[WORKERS_BY_SOCKET] = listen
    with build_container(engine, loaded, short, LABELS) as container:
        # Out of the build container's reach: whatever it puts in there is never opened.
        assert container.endpoint == f"unix://{short}/s"
        assert (short / "s").is_socket()
        assert list((short / "b").iterdir()) == []
        plan = engine.containers[container.container].plan
        assert [(bind.source, bind.target) for bind in plan.private_binds] == [(short / "b", "/run/private")]
        assert opened == [0o777]
        # Steps run from here on: nothing can be put there any more.
        assert (short / "b").stat().st_mode & 0o7777 == 0o711
    assert engine.containers == {}


def test_whether_buildkit_answers_is_asked_of_buildkit(
    engine: FakeEngine, loaded: LoadedImage, short: Path
) -> None:
    engine.answers[WORKERS_BY_SOCKET] = lambda *_: listening(short / "b" / "s")
    engine.answers[WORKERS] = said()
    with build_container(engine, loaded, short, LABELS) as container:
        assert container.answers()
        engine.answers[WORKERS] = said(exit_code=1)
        assert container.is_running()
        assert not container.answers()
        engine.fails["exec"] = HostError("the engine is gone")
        assert not container.answers()


def test_a_socket_that_this_process_does_not_see_is_not_used(
    engine: FakeEngine, loaded: LoadedImage, short: Path
) -> None:
    engine.answers[WORKERS_BY_SOCKET] = said()
    with build_container(engine, loaded, short, LABELS) as container:
        assert container.endpoint == f"docker-container://{container.name}"


def test_a_link_is_not_taken_for_the_socket(engine: FakeEngine, loaded: LoadedImage, short: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(short / "other.sock"))

        def link(*_: object) -> Outcome:
            (short / "b" / "s").symlink_to(short / "other.sock")
            return said()

        engine.answers[WORKERS_BY_SOCKET] = link
        with build_container(engine, loaded, short, LABELS) as container:
            assert container.endpoint == f"docker-container://{container.name}"


@pytest.mark.parametrize("linked", [False, True])
def test_on_podman_nothing_else_is_taken_for_the_socket(short: Path, tmp_path: Path, linked: bool) -> None:
    engine = FakeEngine(tmp_path, told=replace(DOCKER_FACTS, product="podman"))
    loaded = engine.load(open_image(tmp_path / "l", make_image(tmp_path / "l")), tmp_path)

    def answer(*_: object) -> Outcome:
        if linked:
            listening(short / "other.sock")
            (short / "b" / "s").symlink_to(short / "other.sock")
        return said()

    engine.answers[WORKERS_BY_SOCKET] = answer
    with pytest.raises(HostError) as caught, build_container(engine, loaded, short, LABELS):
        pass
    assert caught.value.reason == "build-container"
    assert engine.containers == {}


def test_a_directory_that_cannot_be_made_is_told(
    engine: FakeEngine, loaded: LoadedImage, short: Path
) -> None:
    with pytest.raises(StateError), build_container(engine, loaded, short / "gone", LABELS):
        pass


def test_an_engine_that_does_not_know_the_directory_is_asked_without(
    engine: FakeEngine, loaded: LoadedImage, short: Path
) -> None:
    """The engine's files may be elsewhere, though its socket is here."""
    engine.answers[WORKERS] = said()
    engine.fails["create"] = HostError("bind source path does not exist")
    with build_container(engine, loaded, short, LABELS) as container:
        assert container.endpoint == f"docker-container://{container.name}"
        assert engine.containers[container.container].plan.private_binds == ()
    assert engine.containers == {}


def test_buildkit_is_always_reached_by_its_socket_on_podman(short: Path, tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path, told=replace(DOCKER_FACTS, product="podman"))
    loaded = engine.load(open_image(tmp_path / "l", make_image(tmp_path / "l")), tmp_path)
    place = short / "b" / "s"
    engine.answers[WORKERS_BY_SOCKET] = lambda *_: listening(place)
    with build_container(engine, loaded, short, LABELS) as container:
        # What BuildKit's own uid, which is ours there, can still do to the directory changes nothing.
        (short / "b").chmod(0o777)
        place.symlink_to("/run/docker.sock")
        assert container.endpoint == f"unix://{short}/s"
        assert stat.S_ISSOCK((short / "s").lstat().st_mode)
    assert engine.containers == {}
    too_long = Path("/srv") / ("x" * 100)
    with pytest.raises(HostError, match="107 bytes"), build_container(engine, loaded, too_long, LABELS):
        pass


def test_buildkit_is_waited_for(engine: FakeEngine, loaded: LoadedImage, short: Path) -> None:
    asked = threading.Semaphore(3)

    def slow(*_: object) -> Outcome:
        return said(exit_code=1) if asked.acquire(blocking=False) else said()

    engine.answers[WORKERS_BY_SOCKET] = slow
    with build_container(engine, loaded, short, LABELS):
        assert not asked.acquire(blocking=False)


def test_buildkit_that_ends_at_once_is_an_error_and_gone(
    engine: FakeEngine, loaded: LoadedImage, short: Path
) -> None:
    engine.client_script = "echo no user namespaces here >&2; exit 1"
    refused = pytest.raises(HostError, match="no user namespaces here")
    with refused, build_container(engine, loaded, short, LABELS):
        pass
    assert engine.containers == {}


def test_the_build_container_goes_when_the_build_fails(
    engine: FakeEngine, loaded: LoadedImage, short: Path
) -> None:
    engine.answers[WORKERS_BY_SOCKET] = said()
    with pytest.raises(LookupError), build_container(engine, loaded, short, LABELS):
        raise LookupError
    assert engine.containers == {}


def test_the_build_container_s_plan_is_fixed(loaded: LoadedImage) -> None:
    plan = build_plan(loaded, token="0" * 16, deadline=10, labels=LABELS, socket_dir=None)
    assert plan.network is Network.NONE
    assert (plan.private_binds, plan.read_only_binds) == ((), ())
    assert plan.volumes == ("/home/user/.local/share/buildkit",)
    assert plan.tmpfs == ()
    assert plan.entrypoint == ("/bin/sh",)


def test_buildkits_state_can_lie_in_memory(loaded: LoadedImage) -> None:
    plan = build_plan(loaded, token="0" * 16, deadline=10, labels=LABELS, socket_dir=None, state_bytes=9000)
    assert plan.volumes == ()
    assert [(item.path, item.size, item.mode) for item in plan.tmpfs] == [("/run/state", 9000, 0o1777)]
    assert plan.arguments[-1] == "--root=/run/state/buildkit"


def test_a_build_container_is_asked_for_its_buildkit(engine: FakeEngine, loaded: LoadedImage) -> None:
    engine.main = lambda _plan, _data: said(b"buildkitd github.com/moby/buildkit v0.34.2 0123abc\n")
    assert buildkit_version(engine, loaded, LABELS) == "v0.34.2"
    assert engine.containers == {}


@pytest.mark.parametrize(
    "answer",
    [
        said(b""),
        said(b"buildkitd github.com/moby/buildkit v0.34.2\n", exit_code=1),
        said(b"buildkitd github.com/moby/buildkit 0.0.0+unknown\n"),
        said(b"buildkitd x \xff\xfe\n"),
        said(b"buildkitd x v" + b"1" * 100),
        said(exit_code=127, stderr=b"timeout: failed to run command 'buildkitd'"),
        Outcome(ending=Ending.TIMED_OUT, exit_code=None),
    ],
)
def test_one_that_does_not_tell_is_no_build_container(
    engine: FakeEngine, loaded: LoadedImage, answer: Outcome
) -> None:
    engine.main = lambda _plan, _data: answer
    with pytest.raises(HostError, match="does not tell its BuildKit version") as refused:
        buildkit_version(engine, loaded, LABELS)
    assert "settings.toml" in refused.value.hint
    assert engine.containers == {}


def test_the_version_is_asked_under_the_hardening_of_a_launch(loaded: LoadedImage) -> None:
    plan = version_plan(loaded, token="0" * 16, labels=LABELS)
    check_plan(plan)
    assert plan.purpose in HARDENED
    assert plan.network is Network.NONE
    assert (plan.entrypoint, plan.arguments[2:]) == (("/usr/bin/timeout",), ("buildkitd", "--version"))
    assert (plan.private_binds, plan.read_only_binds, plan.volumes, plan.tmpfs) == ((), (), (), ())
    assert plan.environment == ()
