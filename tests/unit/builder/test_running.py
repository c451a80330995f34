"""`ps`, `runs`, `show RUN`, `reap`: what they say is what is there, and a reaper touches only the dead's."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.containers import Purpose
from backend.journal import FINAL, Boundary, Intent, Journal, Removal
from backend.launch import Controller, launch
from backend.ownership import LABEL_OWNER, LABEL_PURPOSE, LABEL_STATE, LABEL_SUPERVISION, Owner, hold_lease
from backend.plan import plan_launch
from builder.cli import main_inner
from builder.state import State, open_state
from builder.workshop import Workshop
from images.errors import ExitCode, HostError
from provenance.verify import VerifiedImage
from tests.fakes.admitted import NOW, admitted_of, request
from tests.fakes.engine import FakeEngine, said
from tests.fakes.evidence import key
from tests.fakes.policies import LAUNCHER_ID
from tests.unit.backend.test_journal import walk_to

DEAD = "d" * 32


@dataclass
class Place:
    """A state of this test's own, a scripted engine, and the command line on both."""

    state: State
    engine: FakeEngine
    home: Path
    capture: pytest.CaptureFixture[str]

    def builder(self, *words: str) -> tuple[int, str, str]:
        environment = {"HOME": str(self.home), "PATH": "/usr/bin:/bin"}
        code = main_inner([*words, "--state", str(self.state.root)], environment)
        said = self.capture.readouterr()
        return code, said.out, said.err

    def document(self, *words: str) -> dict[str, Any]:
        code, out, err = self.builder(*words, "--json")
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    def launch(self, verified: VerifiedImage, **asked: Any) -> None:
        with hold_lease(self.state.leases, self.state.id) as owner, self.journal() as journal:
            controller = Controller(
                engine=self.engine,
                journal=journal,
                owner=owner,
                signer=key("launcher"),
                launcher_id=LAUNCHER_ID,
                version="0.1.0",
                staging=self.home,
                now=lambda: NOW,
            )
            self.engine.answers[("true",)] = said(b"done\n")
            launch(controller, admitted_of(verified), request(**asked))

    def journal(self) -> Journal:
        return Journal.open(self.state.journal, self.state.id)

    def leave(
        self, verified: VerifiedImage, boundary: Boundary, *, run: str = "run", lease: str = DEAD
    ) -> str:
        """What a controller that was killed at this boundary leaves."""
        owner = Owner(self.state.id, lease)
        plan = plan_launch(admitted_of(verified), request(run_id=run), owner)
        self.engine.load(plan.container.image.image, self.home)
        container = self.engine.create(plan.container)
        intent = Intent(
            launch_id=plan.launch_id,
            run_id=run,
            step=1,
            scope="issue/7",
            launch_class="execute",
            lease_id=lease,
            container_name=plan.container.name,
            image_digest=verified.image.digest,
            product="docker",
            endpoint=self.engine.told.endpoint,
            mode="required",
        )
        with self.journal() as journal:
            walk_to(journal, boundary, intent)
        return container


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Place]:
    before, handlers = dict(os.environ), [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)]
    (tmp_path / "fake").mkdir()
    engine = FakeEngine(tmp_path / "fake")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Workshop, "connect", lambda _self: engine)
    yield Place(open_state(tmp_path / "state"), engine, tmp_path, capsys)
    os.environ.clear()
    os.environ.update(before)
    for number, handler in zip((signal.SIGTERM, signal.SIGHUP), handlers, strict=True):
        signal.signal(number, handler)


def test_with_nothing_there_is_nothing_to_say(place: Place) -> None:
    assert place.document("ps")["containers"] == []
    assert place.document("runs")["launches"] == []
    assert place.document("reap")["removed"] == []
    for verb in ("ps", "runs", "reap"):
        assert place.builder(verb)[:2] == (0, "")


def test_ps_shows_launches_and_tools_of_the_living_and_the_dead(
    place: Place, verified: VerifiedImage
) -> None:
    dead = place.leave(verified, Boundary.STARTED, run="theirs")
    with hold_lease(place.state.leases, place.state.id) as owner:
        mine = place.leave(verified, Boundary.CREATED, run="mine", lease=owner.lease_id)
        plan = plan_launch(admitted_of(verified), request(), owner).container
        tool = place.engine.create(
            dataclasses.replace(plan, name="tool", labels=tuple(sorted(owner.labels(Purpose.BUILD))))
        )
        place.engine.start(dead)
        found = place.document("ps")
        code, out, err = place.builder("ps")
    rows = {row["container"]: row for row in found["containers"]}
    assert [row["container"] for row in found["containers"]][2] == tool
    assert set(rows) == {dead, mine, tool}
    assert found["engine"]["product"] == "docker"
    assert (rows[dead]["owner"], rows[dead]["status"], rows[dead]["run"]) == ("dead", "running", "theirs")
    assert (rows[mine]["owner"], rows[mine]["status"], rows[mine]["launch"]) == ("alive", "created", "mine.1")
    assert rows[mine]["image"] == str(verified.image.digest)
    assert rows[mine]["supervision"] == "tethered"
    assert rows[mine]["since"] == "2026-01-02T03:04:05Z"
    assert rows[mine]["scope"] == "issue/7"
    assert (rows[tool]["purpose"], rows[tool]["launch"], rows[tool]["image"]) == ("build", None, None)
    assert rows[tool]["since"] is not None
    assert (code, len(out.splitlines())) == (0, 3)
    assert "builder reap" in err


def test_labels_of_somebody_else_reach_no_terminal_as_they_are(place: Place, verified: VerifiedImage) -> None:
    """Whoever may use the engine may give a container this state's label, and any other text."""
    found = place.engine.inspect(place.leave(verified, Boundary.STARTED))
    assert found is not None
    odd = dict.fromkeys((LABEL_PURPOSE, LABEL_SUPERVISION), "build\x1b]0;title\x07\x9b2J\udcff")
    place.engine.tampers["labels"] = tuple(sorted((dict(found.labels) | odd).items()))
    code, out, _ = place.builder("ps")
    assert "title" in out
    assert code == 0
    assert out.isascii()
    assert out.removesuffix("\n").isprintable()


def test_ps_changes_nothing(place: Place, verified: VerifiedImage) -> None:
    place.leave(verified, Boundary.STARTED)
    place.engine.calls.clear()
    place.document("ps")
    assert not {"remove", "create", "start"} & set(place.engine.calls)
    with place.journal() as journal:
        assert journal.removals() == ()
        assert not journal.entries()[0].final


def test_runs_and_show_give_the_record(place: Place, verified: VerifiedImage) -> None:
    place.launch(verified, run_id="first")
    place.launch(verified, run_id="first", step=2)
    place.leave(verified, Boundary.COMMANDED, run="second")
    rows = place.document("runs")["launches"]
    assert [row["launch"] for row in rows] == ["first.1", "first.2", "second.1"]
    assert (rows[0]["ending"], rows[0]["exit_code"], rows[0]["reached"]) == ("completed", 0, "recorded")
    assert (rows[2]["ending"], rows[2]["exit_code"], rows[2]["reached"]) == (None, None, "commanded")
    assert rows[0]["statement"].startswith("sha256:")
    assert (
        place.builder("runs")[1]
        .splitlines()[2]
        .startswith("second.1 execute 2026-01-02T03:04:05Z commanded - ")
    )

    shown = place.document("show", "first")["launches"]
    assert [one["launch"]["launch"] for one in shown] == ["first.1", "first.2"]
    (one,) = place.document("show", "first.2")["launches"]
    assert one["record"]["run"] == {"class": "execute", "id": "first", "scope": "issue/7", "step": 2}
    assert [step["boundary"] for step in one["passed"]][-2:] == ["removed", "recorded"]
    (open_one,) = place.document("show", "second")["launches"]
    assert open_one["record"] is None
    assert '"finishedOn"' in place.builder("show", "first.1")[2]


def test_show_of_a_word_that_is_nothing_says_where_to_look(place: Place) -> None:
    code, _, err = place.builder("show", "nosuchrun")
    assert code == ExitCode.USAGE
    assert "neither an image nor a run" in err
    assert "hint: builder runs" in err


@pytest.mark.parametrize("boundary", [one for one in Boundary if one not in FINAL])
def test_reap_leaves_nothing_but_the_record_and_a_second_changes_nothing(
    place: Place, verified: VerifiedImage, boundary: Boundary
) -> None:
    container = place.leave(verified, boundary)
    staged = place.state.root / "staging" / "launch-0000"
    staged.mkdir(mode=0o700)
    (staged / "file").write_text("x")

    would = place.document("reap", "--dry-run")
    assert would["dry_run"]
    assert place.engine.containers
    assert staged.exists()
    with place.journal() as journal:
        assert journal.removals() == ()
        assert journal.entries()[0].boundary is boundary

    done = place.document("reap")
    assert done["removed"] == would["removed"]
    assert [(one["thing"], one["name"]) for one in done["removed"]] == [
        ("container", container),
        ("launch", "run.1"),
        ("staging", "staging/launch-0000"),
    ]
    assert place.engine.containers == {}
    assert not staged.exists()
    with place.journal() as journal:
        audit = journal.removals()
        assert [one.container_id for one in audit] == [container, "staging/launch-0000"]
        passed = journal.passages("run.1")
    assert place.document("reap")["removed"] == []
    with place.journal() as journal:
        assert journal.removals() == audit
        assert journal.passages("run.1") == passed
    assert place.document("runs")["launches"][0]["reached"] == "recovered"


def test_reap_touches_nothing_of_the_living_nor_of_another_state(
    place: Place, verified: VerifiedImage
) -> None:
    dead = place.leave(verified, Boundary.CREATED, run="theirs")
    with hold_lease(place.state.leases, place.state.id) as owner, place.state.staging("launch") as staging:
        mine = place.leave(verified, Boundary.COMMANDED, run="mine", lease=owner.lease_id)
        labels = dict(place.engine.containers[mine].plan.labels)
        foreign = tuple(sorted((labels | {LABEL_STATE: "6" * 32, LABEL_OWNER: DEAD}).items()))
        other = dataclasses.replace(place.engine.containers[mine].plan, name="other", labels=foreign)
        neighbour = place.engine.create(other)
        done = place.document("reap")
        assert [one["name"] for one in done["removed"]] == [dead, "theirs.1"]
        assert set(place.engine.containers) == {mine, neighbour}
        assert staging.exists()
        assert (place.state.leases / owner.lease_id).exists()


def test_a_launch_on_another_engine_is_said_and_left(place: Place, verified: VerifiedImage) -> None:
    place.leave(verified, Boundary.CREATED)
    first = place.engine.told.endpoint
    place.engine.told = dataclasses.replace(place.engine.told, endpoint="unix:///another.sock")
    place.engine.containers = {}
    done = place.document("reap")
    assert done["removed"] == []
    assert done["elsewhere"] == [f"run.1 on docker at {first}"]
    assert place.document("runs")["launches"][0]["reached"] == "created"


def test_an_engine_that_cannot_remove_is_exit_3_and_what_is_open_stays_so(
    place: Place, verified: VerifiedImage
) -> None:
    place.leave(verified, Boundary.STARTED)
    place.engine.fails["remove"] = HostError("cannot remove")
    assert place.builder("reap")[0] == ExitCode.HOST
    assert place.document("reap")["removed"][1]["name"] == "run.1"


@pytest.mark.parametrize("verb", ["ps", "runs", "reap"])
def test_a_damaged_journal_is_exit_9(place: Place, verb: str) -> None:
    place.state.journal.write_bytes(b"not a journal at all" * 100)
    code, _, err = place.builder(verb)
    assert code == ExitCode.STATE
    assert "Traceback" not in err


def test_a_damaged_record_is_exit_9(place: Place, verified: VerifiedImage) -> None:
    place.leave(verified, Boundary.REMOVED)
    with place.journal() as journal:
        journal.advance("run.1", Boundary.RECORDED, NOW, bundle=b"{}")
    code, _, err = place.builder("runs")
    assert code == ExitCode.STATE
    assert "run.1" in err


def test_the_audit_keeps_what_was_removed(place: Place) -> None:
    with place.journal() as journal:
        journal.audit(Removal(container_id="staging/x", launch_id="", why="its process is dead"), NOW)
        assert journal.removals()[0].container_id == "staging/x"
