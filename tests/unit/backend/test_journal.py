"""The journal: durable, explicit transitions, strict on a damaged, foreign or newer file."""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.journal import FINAL, Boundary, Intent, Journal, Removal
from images.digests import Digest
from images.errors import ExitCode, LaunchReason, LaunchRefused, StateError

STATE = "5" * 32
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
INTENT = Intent(
    launch_id="run-1",
    run_id="run",
    step=1,
    scope="issue/7",
    launch_class="execute",
    lease_id="c" * 32,
    container_name="aib-run-1",
    image_digest=Digest.of(b"image"),
    product="docker",
    endpoint="unix:///run/docker.sock",
    mode="required",
)
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
OPEN = [boundary for boundary in Boundary if boundary not in FINAL]


def walk_to(journal: Journal, boundary: Boundary, intent: Intent = INTENT) -> None:
    journal.intend(intent, NOW)
    if boundary is Boundary.RECOVERED:
        journal.advance(intent.launch_id, boundary, NOW)
        return
    for step in HAPPY[1 : HAPPY.index(boundary) + 1]:
        journal.advance(intent.launch_id, step, NOW)


def test_a_whole_launch_survives_reopening(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal.open(path, STATE) as journal:
        journal.intend(INTENT, NOW)
        journal.advance("run-1", Boundary.CREATED, NOW, container_id="f" * 64)
        for step in HAPPY[2:5]:
            journal.advance("run-1", step, NOW)
        journal.advance("run-1", Boundary.ENDED, NOW, exit_code=3)
        journal.advance("run-1", Boundary.REMOVED, NOW)
        journal.advance("run-1", Boundary.RECORDED, NOW, bundle=b"{}")
    with Journal.open(path, STATE) as journal:
        (entry,) = journal.entries()
        assert entry.intent == INTENT
        assert entry.container_id == "f" * 64
        assert entry.exit_code == 3
        assert entry.final
        assert journal.bundle("run-1") == b"{}"
        assert list(journal.passed("run-1")) == HAPPY
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_is_wal_and_fully_synchronous(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j", STATE) as journal:
        pragma = journal._connection.execute
        assert pragma("PRAGMA journal_mode").fetchone() == ("wal",)
        assert pragma("PRAGMA synchronous").fetchone() == (2,)


ALLOWED = set(itertools.pairwise(HAPPY))
ALLOWED |= {(boundary, Boundary.REMOVED) for boundary in HAPPY[: HAPPY.index(Boundary.REMOVED)]}
ALLOWED |= {(boundary, Boundary.RECOVERED) for boundary in OPEN}


@pytest.mark.parametrize(("now", "to"), list(itertools.product(Boundary, Boundary)))
def test_only_listed_transitions(tmp_path: Path, now: Boundary, to: Boundary) -> None:
    with Journal.open(tmp_path / "j", STATE) as journal:
        walk_to(journal, now)
        if (now, to) in ALLOWED:
            journal.advance("run-1", to, NOW)
            assert journal.entries()[0].boundary is to
            return
        with pytest.raises(StateError, match="cannot go"):
            journal.advance("run-1", to, NOW)
        assert journal.entries()[0].boundary is now


def test_no_step_twice(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j", STATE) as journal:
        journal.intend(INTENT, NOW)
        again = dataclasses.replace(INTENT, launch_id="other", container_name="other")
        with pytest.raises(LaunchRefused, match="already has a step 1") as caught:
            journal.intend(again, NOW)
        assert caught.value.reason == LaunchReason.RUN_TAKEN
        assert len(journal.entries()) == 1


def test_an_unknown_launch_is_an_error(tmp_path: Path) -> None:
    with (
        Journal.open(tmp_path / "j", STATE) as journal,
        pytest.raises(StateError, match="no launch"),
    ):
        journal.advance("nobody", Boundary.CREATED, NOW)


def test_removals_are_audited(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j", STATE) as journal:
        line = Removal(container_id="f" * 64, launch_id="", why="orphan")
        journal.audit(line, NOW)
        assert journal.removals() == (line,)


def broken_bytes(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00" + b"\x01" * 5000)


def not_sqlite(path: Path) -> None:
    path.write_bytes(b"hello" * 1000)


def damaged_page(path: Path) -> None:
    with Journal.open(path, STATE) as journal:
        for n in range(60):
            journal.intend(
                dataclasses.replace(INTENT, launch_id=f"l{n}", run_id=f"r{n}", container_name=f"c{n}"), NOW
            )
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xa5" * (len(data) - 8192)
    path.write_bytes(data)


def other_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE things (x)")
    connection.close()


def newer_format(path: Path) -> None:
    Journal.open(path, STATE).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def other_state(path: Path) -> None:
    Journal.open(path, "6" * 32).close()


def unknown_boundary(path: Path) -> None:
    with Journal.open(path, STATE) as journal:
        journal.intend(INTENT, NOW)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE launches SET boundary = 'somewhere'")
    connection.close()


def bad_digest(path: Path) -> None:
    with Journal.open(path, STATE) as journal:
        journal.intend(INTENT, NOW)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE launches SET image_digest = 'latest'")
    connection.close()


def a_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    "spoil",
    [
        broken_bytes,
        not_sqlite,
        damaged_page,
        other_program,
        newer_format,
        other_state,
        unknown_boundary,
        bad_digest,
        a_directory,
    ],
)
def test_a_spoiled_file_is_a_state_error(tmp_path: Path, spoil) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "journal.sqlite"
    spoil(path)
    with pytest.raises(StateError) as caught, Journal.open(path, STATE) as journal:
        journal.entries()
    assert caught.value.code is ExitCode.STATE
    assert str(path) in caught.value.where


def test_nothing_half_written_when_a_step_fails(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j", STATE) as journal:
        journal.intend(INTENT, NOW)
        with pytest.raises(StateError):
            journal.advance("run-1", Boundary.RECORDED, NOW)
        assert list(journal.passed("run-1")) == [Boundary.INTENDED]
        journal.advance("run-1", Boundary.CREATED, NOW)
