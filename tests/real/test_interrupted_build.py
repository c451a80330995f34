"""Builds that are killed, interrupted or made twice at once: a bounded end, nothing left, the next works."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from builder.bootstrap import Bootstrapped
from builder.state import State
from images.errors import ExitCode
from tests.fakes.tarballs import POSTINSTALL
from tests.real.tiny import Tiny, make_tiny
from tests.results import check

pytestmark = pytest.mark.real

# Long enough that whatever is done to the build is done in this step; short enough to wait for once.
SLOW = f"echo sleeping; sleep 25; {POSTINSTALL}"
ENDS_WITHIN = 60.0  # seconds; a busy machine needs some for the clean-up alone
SCAN, DETECT = "scan every byte for credentials …", "start each agent inside and ask for its version …"


@pytest.fixture(scope="module")
def tiny(
    engine_name: str, kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> Tiny:
    return make_tiny(engine_name, kept_state, bootstrapped, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def slow(tiny: Tiny) -> Path:
    """One project for all that end before its image exists: they must not disturb each other."""
    return tiny.project("slow", script=SLOW)


@dataclass
class Running:
    """A build under way, and what it said so far."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    seen: dict[str, threading.Event] = field(default_factory=dict)

    def wait_for(self, words: str) -> None:
        until = time.monotonic() + 240
        while not any(words in line for line in list(self.lines)):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.02)

    def end(self) -> int:
        """Its exit code, which must come within the bound."""
        return self.process.wait(ENDS_WITHIN)

    @property
    def said(self) -> str:
        return "\n".join(self.lines)


@contextmanager
def build(tiny: Tiny, project: Path) -> Iterator[Running]:
    process = subprocess.Popen(
        tiny.argv("build", "--progress", "plain", "--verbose", "--json"),
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    running = Running(process)
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: running.lines.extend(iter_lines(process)), daemon=True)
    reader.start()
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join(30)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def iter_lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stderr is not None
    for line in process.stderr:
        yield line.rstrip("\n")


def answer(running: Running) -> dict[str, object]:
    assert running.process.stdout is not None
    return check(json.loads(running.process.stdout.read()))


def manifests(tiny: Tiny) -> list[str]:
    index = json.loads((tiny.state / "layout/index.json").read_bytes())
    return sorted(entry["digest"] for entry in index["manifests"])


def nothing_left(tiny: Tiny) -> None:
    assert tiny.containers() == []
    assert tiny.staged() == []


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (signal.SIGINT, ExitCode.INTERRUPTED, "interrupted"),
        (signal.SIGTERM, ExitCode.TERMINATED, "terminated"),
    ],
)
def test_a_signal_in_a_step_of_the_build(
    tiny: Tiny, slow: Path, number: signal.Signals, code: ExitCode, reason: str
) -> None:
    before = manifests(tiny)
    with build(tiny, slow) as running:
        running.wait_for("sleeping")
        running.process.send_signal(number)
        assert running.end() == code, running.said
        assert answer(running)["error"]["reason"] == reason  # type: ignore[index]
    assert "Traceback" not in running.said
    assert manifests(tiny) == before
    nothing_left(tiny)


@pytest.mark.parametrize(
    ("stage", "number", "code"),
    [(SCAN, signal.SIGTERM, ExitCode.TERMINATED), (DETECT, signal.SIGINT, ExitCode.INTERRUPTED)],
)
def test_a_signal_after_the_build_and_before_the_evidence(
    tiny: Tiny, stage: str, number: signal.Signals, code: ExitCode
) -> None:
    project = tiny.project(f"signal-{number.name.lower()}")
    with build(tiny, project) as running:
        running.wait_for(stage)
        running.process.send_signal(number)
        assert running.end() == code, running.said
    nothing_left(tiny)
    found = tiny.builder("verify", "--json", cwd=project)
    assert found.returncode == ExitCode.USAGE, found.stdout  # never was an image of this lock
    assert "no image of this lock was built here" in found.stdout


def test_bld_01_a_killed_build_container_is_noticed_and_the_next_build_works(tiny: Tiny, slow: Path) -> None:
    """buildx #556, buildkit #2894: the client waited for ever."""
    before = manifests(tiny)
    with build(tiny, slow) as running:
        running.wait_for("sleeping")
        (container,) = tiny.containers()
        subprocess.run([tiny.engine, "kill", container], check=True, capture_output=True, timeout=60)
        assert running.end() == ExitCode.BUILD, running.said
        error = answer(running)["error"]
        assert error["reason"] == "builder-lost"  # type: ignore[index]
        assert error["where"]  # type: ignore[index]  # the step that ran
    assert manifests(tiny) == before
    nothing_left(tiny)
    # Killed hard, it cannot clean up: the container ends by itself, the rest goes with the next build.
    with build(tiny, slow) as running:
        running.wait_for("sleeping")
        running.process.send_signal(signal.SIGKILL)
        running.end()
    until = time.monotonic() + 30
    while tiny.containers(running=True) and time.monotonic() < until:
        time.sleep(0.2)
    assert tiny.containers(running=True) == []
    done = tiny.builder("build", cwd=slow)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "removed a container that a dead controller left" in done.stderr
    nothing_left(tiny)


def test_bld_04_two_builds_of_one_key_at_once_and_one_of_another(tiny: Tiny) -> None:
    """buildx #1868: a name conflict, or one run removed the builder of the other."""
    twice, other = tiny.project("twice", script=f"echo one; {POSTINSTALL}"), tiny.project("other")
    with build(tiny, twice) as one, build(tiny, twice) as two, build(tiny, other) as third:
        answers = []
        for running in (one, two, third):
            assert running.process.wait(400) == 0, running.said
            answers.append(answer(running))
    assert answers[0]["digest"] == answers[1]["digest"] != answers[2]["digest"]
    assert sorted(bool(found["reused"]) for found in answers) == [False, False, True]
    assert not answers[2]["reused"]
    waited = [running for running in (one, two) if "another process builds this key already" in running.said]
    assert len(waited) == 1
    assert "build: done" not in waited[0].said
    assert "another process" not in third.said
    nothing_left(tiny)
