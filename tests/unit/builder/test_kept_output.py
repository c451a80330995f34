"""`run --keep-log` and `builder logs`: redacted, bounded, private, off by default, gone with gc."""

from __future__ import annotations

import json
import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from backend.agent_command import Output
from backend.journal import Boundary, Journal
from builder.cli import main_inner
from builder.cli.arguments import parse_arguments
from builder.storage import kept_output as module
from builder.storage.collecting import Thing
from builder.storage.kept_output import keeping, kept_output, pieces_of
from images.credentials import Secret
from images.errors import ExitCode, StateError
from tests.fakes.states import Team, make_team
from tests.results import check
from tests.unit.builder.test_gc import LATER, gc, intent_of, names

TOKEN = "ghp_" + "0123456789abcdefghij" * 2


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return make_team(tmp_path)


def say(logs: Path, launch: str, *chunks: bytes, secrets: tuple[Secret, ...] = ()) -> bytes:
    """What the person sees of a command that says this; odd chunks are standard error."""
    seen = bytearray()
    with keeping(Output(on_stdout=seen.extend, on_stderr=seen.extend), logs, launch, secrets) as output:
        assert output.on_stdout is not None
        assert output.on_stderr is not None
        for at, chunk in enumerate(chunks):
            (output.on_stderr if at % 2 else output.on_stdout)(chunk)
    return bytes(seen)


def launched(team: Team, run: str, *, last: Boundary = Boundary.RECOVERED) -> str:
    with Journal.open(team.state.journal, team.state.id) as journal:
        journal.intend(intent_of(team, f"{run}.1", run), LATER - timedelta(days=60))
        if last is Boundary.RECOVERED:
            journal.advance(f"{run}.1", last, LATER - timedelta(days=60))
    return f"{run}.1"


def logs(team: Team, *words: str) -> int:
    places = ("--state", str(team.state.root), "--config-dir", str(team.root / "config"))
    return main_inner(["logs", *words, *places], {"PATH": "/nowhere"})


def test_it_is_off_unless_asked_for() -> None:
    assert parse_arguments(["run", "--", "true"]).keep_log is False
    assert parse_arguments(["run", "--keep-log", "--", "true"]).keep_log is True


def test_both_streams_as_they_came(tmp_path: Path) -> None:
    seen = say(tmp_path, "run.1", b"one\n", b"two\n", b"three\n")
    kept = kept_output(tmp_path, "run.1")
    assert kept is not None
    assert kept.data == seen == b"one\ntwo\nthree\n"
    assert kept.dropped == 0


def test_a_credential_is_redacted_in_it_whatever_the_terminal_shows(tmp_path: Path) -> None:
    known = b"of no known shape"
    seen = say(
        tmp_path, "run.1", b"a " + TOKEN.encode() + b"\n", b"b " + known + b"\n", secrets=(Secret(known),)
    )
    assert TOKEN.encode() in seen
    kept = kept_output(tmp_path, "run.1")
    assert kept is not None
    assert TOKEN.encode() not in kept.data
    assert known not in kept.data
    assert kept.data.startswith(b"a ")


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        say(tmp_path, "run.1", b"x\n")
    finally:
        os.umask(before)
    folder = tmp_path / "run.1"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(piece.stat().st_mode) for piece in pieces_of(folder)] == [0o600]


def test_it_is_bounded_and_says_how_much_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 100)
    text = b"".join(b"%09d\n" % number for number in range(57))
    say(tmp_path, "run.1", text)
    kept = kept_output(tmp_path, "run.1")
    assert kept is not None
    assert kept.data == text[400:]
    assert kept.dropped == 400
    assert len(pieces_of(tmp_path / "run.1")) == module.PIECES


def test_what_says_nothing_leaves_nothing(tmp_path: Path) -> None:
    say(tmp_path, "run.1")
    assert kept_output(tmp_path, "run.1") is None
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_controller_had_written_is_there(tmp_path: Path) -> None:
    with keeping(Output(), tmp_path, "run.1", ()) as output:
        assert output.on_stdout is not None
        output.on_stdout(b"before\n")
        kept = kept_output(tmp_path, "run.1")
        assert kept is not None
        assert kept.data == b"before\n"


def test_a_log_that_cannot_be_written_ends_the_launch(tmp_path: Path) -> None:
    (tmp_path / "run.1").touch()
    with pytest.raises(StateError):
        say(tmp_path, "run.1", b"x\n")


@pytest.mark.parametrize("name", ["../state", "..", "a/b.1", "", "run"])
def test_a_name_that_is_no_launch_leads_nowhere(tmp_path: Path, name: str) -> None:
    logs = tmp_path / "logs"
    for folder in (logs, tmp_path / "state", logs / "a/b.1", logs / "run"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "000000").touch()
    assert kept_output(logs, name) is None


def test_the_verb_prints_what_was_kept(team: Team, capsys: pytest.CaptureFixture[str]) -> None:
    launch = launched(team, "aa")
    say(team.state.logs, launch, b"red \x1b[31mword\n")
    assert logs(team, "aa") == ExitCode.DONE
    assert capsys.readouterr().out == "red \\x1b[31mword\n"
    assert logs(team, launch, "--json") == ExitCode.DONE
    (one,) = check(json.loads(capsys.readouterr().out))["logs"]
    assert one == {"launch": launch, "text": "red \x1b[31mword\n", "dropped": 0}


def test_where_nothing_was_kept_it_says_why(team: Team, capsys: pytest.CaptureFixture[str]) -> None:
    launched(team, "aa")
    assert logs(team, "aa") == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "only run --keep-log keeps it, and a foreground launch has none" in said
    assert "hint: builder show aa" in said
    assert logs(team, "bb") == ExitCode.USAGE
    assert "hint: builder runs" in capsys.readouterr().err


def test_gc_takes_it_by_its_age_and_never_from_under_a_launch(team: Team) -> None:
    old, running = launched(team, "old"), launched(team, "open", last=Boundary.INTENDED)
    for launch in (old, running):
        say(team.state.logs, launch, b"x" * 1000 + b"\n")
        then = (LATER - timedelta(days=40)).timestamp()
        for path in (team.state.logs / launch, *pieces_of(team.state.logs / launch)):
            os.utime(path, (then, then))
    assert names(gc(team, logs=timedelta(days=41)), Thing.LOG) == set()
    assert names(gc(team, dry_run=True), Thing.LOG) == {old}
    done = gc(team)
    (one,) = [one for one in done.removals if one.thing is Thing.LOG]
    assert (one.name, one.size, one.why) == (old, 1001, "kept 40 days ago")
    assert [path.name for path in team.state.logs.iterdir()] == [running]
