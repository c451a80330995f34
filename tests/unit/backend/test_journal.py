"""The journal: durable, explicit transitions, strict on a damaged, foreign or newer file."""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.journal import FINAL, Boundary, Intent, Journal, Removal
from images.errors import ExitCode, LaunchReason, LaunchRefused, StateError
from tests.fakes.journals import INTENT
from tests.fakes.kills import WITH_FILES

STATE = "5" * 32
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
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
    for step in WITH_FILES[1 : WITH_FILES.index(boundary) + 1]:
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
ALLOWED |= set(itertools.pairwise(WITH_FILES))
ALLOWED |= {(boundary, Boundary.REMOVED) for boundary in WITH_FILES[: WITH_FILES.index(Boundary.REMOVED)]}
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


def time_without_a_zone(path: Path) -> None:
    with Journal.open(path, STATE) as journal:
        journal.intend(INTENT, NOW)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE transitions SET at = '2026-01-02T03:04:05'")
    connection.close()


def tables_that_check_nothing(path: Path, column: str, value: object) -> None:
    """As somebody could make them: the same names and version, any type in any place."""
    with Journal.open(path, STATE) as journal:
        journal.intend(INTENT, NOW)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')')")
    connection.close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE launches SET {column} = ?", (value,))  # noqa: S608
    connection.close()


@pytest.mark.parametrize("record", ["a text", 1 << 40, 1.5])
def test_a_record_that_is_no_bytes_is_damage(tmp_path: Path, record: object) -> None:
    path = tmp_path / "journal.sqlite"
    tables_that_check_nothing(path, "bundle", record)
    with pytest.raises(StateError), Journal.open(path, STATE) as journal:
        journal.bundle("run-1")


def test_a_text_that_is_none_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    tables_that_check_nothing(path, "scope", "marker-of-this-test")
    path.write_bytes(path.read_bytes().replace(b"marker-of-this-test", b"\xff\xfe" * 9 + b"x"))
    with pytest.raises(StateError), Journal.open(path, STATE) as journal:
        journal.entries()


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
        time_without_a_zone,
    ],
)
def test_a_spoiled_file_is_a_state_error(tmp_path: Path, spoil) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "journal.sqlite"
    spoil(path)
    with pytest.raises(StateError) as caught, Journal.open(path, STATE) as journal:
        _ = journal.entries(), journal.passages("run-1")
    assert caught.value.code is ExitCode.STATE
    assert str(path) in caught.value.where


def test_nothing_half_written_when_a_step_fails(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j", STATE) as journal:
        journal.intend(INTENT, NOW)
        with pytest.raises(StateError):
            journal.advance("run-1", Boundary.RECORDED, NOW)
        assert list(journal.passed("run-1")) == [Boundary.INTENDED]
        journal.advance("run-1", Boundary.CREATED, NOW)


@pytest.mark.parametrize("boundary", list(Boundary))
def test_a_launch_is_adopted_only_while_its_commands_run(tmp_path: Path, boundary: Boundary) -> None:
    with Journal.open(tmp_path / "journal.sqlite", STATE) as journal:
        walk_to(journal, boundary)
        before = journal.passages("run-1")
        if boundary is not Boundary.COMMANDED:
            with pytest.raises(StateError, match="cannot be adopted"):
                journal.adopt("run-1", "b" * 32, NOW)
            assert journal.passages("run-1") == before
            return
        journal.adopt("run-1", "b" * 32, NOW)
        (entry,) = journal.entries()
        assert (entry.boundary, entry.intent.lease_id) == (boundary, "b" * 32)
        assert journal.passages("run-1")[-1].detail == f"adopted under lease {'b' * 32}"
        with pytest.raises(StateError):
            journal.adopt("nobody", "b" * 32, NOW)


def test_a_damaged_name_in_the_schema_is_a_state_error(tmp_path: Path) -> None:
    """The library's own words about it are then no text."""
    path = tmp_path / "journal.sqlite"
    Journal.open(path, STATE).close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE removals", b"CREATE \xff\xfe\xfdLE removals"))
    with pytest.raises(StateError):
        Journal.open(path, STATE)
