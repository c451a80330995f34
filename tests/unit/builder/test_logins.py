"""Logins and sessions at the command line: what is kept, what wins, what is refused; nothing shows."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from backend.logins.leasing import is_leased, lease_login
from backend.logins.store import LoginName
from backend.projection.history import History, HistoryFile
from backend.projection.routes import Route
from builder.cli import main_inner
from builder.cli.options.parser import BadUsage
from builder.keeping import keeping_for, login_for, tell_hosts
from builder.sessions import check_session, forget_session, kept_sessions, open_session
from builder.state import State, open_state
from images.config import AgentName
from images.errors import ExitCode, LaunchRefused, StateError, UsageError
from tests.fakes.admitted import NOW
from tests.fakes.kept_logins import CLAUDE, store_at
from tests.fakes.projected import credential, dummy, file_of, named
from tests.results import check, check_printed

AGENT = AgentName.CLAUDE_CODE
PLACE = ".claude/projects/-workspace/one.jsonl"


@dataclass
class Told:
    """A reporter that remembers."""

    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.warned.append(text)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state")


def typed(tmp_path: Path, *words: str) -> int:
    given = ("--config-dir", str(tmp_path / "config"), "--state", str(tmp_path / "state"))
    return main_inner([words[0], *given, *words[1:]], {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})


def test_a_credential_is_kept_listed_and_forgotten_and_its_value_shows_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    file.write_bytes(file_of(Route.CLAUDE_OAUTH_TOKEN))
    file.chmod(0o600)
    given = f"{named(Route.CLAUDE_OAUTH_TOKEN)}={file}"
    assert typed(tmp_path, "login", "claude-code", "--as", "work", "--credential", given, "--json") == 0
    first = capsys.readouterr()
    login = check(json.loads(first.out))["login"]
    assert (login["name"], login["credentials"]) == ("work", ["claude-code.oauth-token"])
    assert (login["rotates"], login["encrypted"]) == (False, False)
    assert "it is not encrypted: no keyring answers in this session" in first.err
    assert typed(tmp_path, "login", "--list", "--json") == 0
    listed = capsys.readouterr()
    assert check(json.loads(listed.out))["logins"] == [login]
    assert typed(tmp_path, "login", "--list") == 0
    rows = capsys.readouterr()
    assert rows.out == "claude-code\twork\tclaude-code.oauth-token\tfree\tnot encrypted\n"
    assert typed(tmp_path, "logout", "claude-code", "--as", "work", "--json") == 0
    gone = capsys.readouterr()
    assert check(json.loads(gone.out))["name"] == "work"
    assert typed(tmp_path, "logout", "claude-code", "--as", "work") == ExitCode.USAGE
    for said in (first, listed, rows, gone, capsys.readouterr()):
        assert dummy("token") not in said.out + said.err


def test_a_login_that_a_launch_has_is_refused_before_anybody_logs_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = store_at(tmp_path / "config/logins")
    store.write(CLAUDE, (credential(Route.CLAUDE_LOGIN),), NOW, encrypted=False)
    with lease_login(store, CLAUDE, lambda: NOW):
        assert typed(tmp_path, "login", "claude-code") == ExitCode.REFUSED
    assert "is in use" in capsys.readouterr().err


REFUSED = {
    "no agent": (["login"], "no agent is named"),
    "another agent": (["login", "goose"], "no such agent"),
    "a credential for an agent": (["login", dummy("key")], "no such agent"),
    "an odd name": (["login", "pi", "--as", "../x"], "not a name for a login"),
    "a login that is not typed": (["login", "pi", "--credential", "pi.login=/x"], "is not given by name"),
    "another agent's": (["login", "pi", "--credential", "claude-code.api-key={key}"], "is not for pi"),
    "no terminal": (["login", "claude-code"], "needs a terminal"),
    "none to forget": (["logout", "pi"], "there is no login"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_login_is_told_with_the_way_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    key = tmp_path / "key"
    key.write_text(dummy("key"))
    key.chmod(0o600)
    words, why = REFUSED[what]
    assert typed(tmp_path, *(word.format(key=key) for word in words)) == ExitCode.USAGE
    said = capsys.readouterr()
    assert why in said.err
    assert "hint" in said.err or what == "another agent's"
    assert dummy("key") not in said.err + said.out
    assert not list(tmp_path.rglob("*.login"))


def test_which_login_a_run_uses(tmp_path: Path) -> None:
    store = store_at(tmp_path / "logins")
    assert login_for(store, AGENT, None, given=False) is None
    store.write(CLAUDE, (credential(Route.CLAUDE_LOGIN),), NOW, encrypted=False)
    assert login_for(store, AGENT, None, given=False) == CLAUDE
    assert login_for(store, AGENT, "work", given=False) == LoginName(AGENT, "work")
    assert login_for(store, AGENT, None, given=True) is None  # what is named wins
    assert login_for(store, "", None, given=False) is None  # a plain command
    assert login_for(store, "pi", None, given=False) is None
    for agent, given in ((AGENT, True), ("", False)):
        with pytest.raises(UsageError) as caught:
            login_for(store, agent, "work", given=given)
        assert caught.value.hint


def test_a_run_holds_its_login_and_tells_what_did_not_come_back(tmp_path: Path, state: State) -> None:
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, (credential(Route.CLAUDE_LOGIN),), NOW, encrypted=False)
    told = Told()
    with keeping_for(
        store,
        state,
        login=CLAUDE,
        session=None,
        now=lambda: NOW,
        reporter=told,  # type: ignore[arg-type]
    ) as keeping:
        assert keeping.credentials == (credential(Route.CLAUDE_LOGIN),)
        with pytest.raises(LaunchRefused), lease_login(store, CLAUDE, lambda: NOW):
            pass
        tell_hosts(told, keeping.login, ("api.anthropic.com:443",))  # type: ignore[arg-type]
        keeping.keepers.login_lost("it was gone")
    assert told.said == ["login: claude-code.default"]
    assert "platform.claude.com:443" in told.warned[0]
    assert "it was gone" in told.warned[1]
    assert "builder login claude-code" in told.warned[1]


def test_a_session_is_private_to_its_name_and_agent_and_has_one_run_at_a_time(state: State) -> None:
    history = History(AGENT, (HistoryFile(PLACE, b"{}\n", 5),))
    with open_session(state, "one", AGENT) as opened:
        assert opened.history == History(AGENT)
        opened.keep(history)
        with pytest.raises(StateError, match="in use"), open_session(state, "one", AGENT):
            pass
    with open_session(state, "one", AGENT) as again:
        assert again.history == history
    for name, agent in (("two", AGENT), ("one", AgentName.PI)):
        with open_session(state, name, agent) as other:
            assert other.history == History(agent)
    file = state.sessions / "one" / f"{AGENT}.tar"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("raw", [b"x" * 700, b"\0" * 100])
def test_a_damaged_session_is_told(state: State, raw: bytes) -> None:
    with open_session(state, "one", AGENT) as opened:
        opened.keep(History(AGENT))
    opened.file.write_bytes(raw)
    with pytest.raises(StateError, match="damaged") as caught, open_session(state, "one", AGENT):
        pass
    assert "begins anew" in caught.value.hint


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "x" * 41, "-x"])
def test_a_session_has_a_plain_name(name: str) -> None:
    with pytest.raises(UsageError):
        check_session(name)


def keep_history(state: State, name: str, agent: AgentName = AGENT) -> Path:
    place = {AGENT: PLACE, AgentName.PI: ".pi/agent/sessions/one.jsonl"}[agent]
    with open_session(state, name, agent) as opened:
        opened.keep(History(agent, (HistoryFile(place, b"{}\n", 5),)))
    return opened.file


def test_sessions_are_listed_with_their_sizes_and_one_that_a_run_has_is_told(state: State) -> None:
    files = [keep_history(state, "one"), keep_history(state, "one", AgentName.PI)]
    (state.sessions / "notes.txt").write_text("not a session's name")
    (state.sessions / "link").symlink_to(state.sessions / "one")
    os.utime(files[0], (NOW.timestamp() + 86_400_000,) * 2)
    with open_session(state, "two", AGENT):
        one, two = kept_sessions(state)
    assert (one.name, one.agents) == ("one", (AGENT, AgentName.PI))
    assert one.size == sum(file.stat().st_size for file in files)
    assert one.saved == NOW + timedelta(days=1000)
    assert (two.agents, two.size) == ((), 0)
    assert [kept.in_use for kept in (one, two)] == [False, True]
    assert not any(kept.in_use for kept in kept_sessions(state))


def test_a_session_is_forgotten_when_asked_and_never_under_a_run(state: State) -> None:
    for agent in (AGENT, AgentName.PI):
        keep_history(state, "one", agent)
    other = keep_history(state, "two")
    with open_session(state, "one", AGENT), pytest.raises(StateError, match="in use"):
        forget_session(state, "one")
    assert forget_session(state, "one").agents == (AGENT, AgentName.PI)
    assert [path.name for path in state.sessions.iterdir()] == ["two"]
    assert other.exists()
    assert list(state.staged.iterdir()) == []
    with pytest.raises(UsageError, match="no session") as caught:
        forget_session(state, "one")
    assert caught.value.hint == "builder sessions"
    for wrong in ("", "..", "../sessions/two", "*"):
        with pytest.raises(UsageError):
            forget_session(state, wrong)
    assert other.exists()
    with open_session(state, "one", AGENT) as anew:
        assert anew.history == History(AGENT)


def test_a_run_that_locked_what_was_taken_away_begins_with_what_is_there(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would keep its history in a directory that nobody finds."""
    keep_history(state, "one")
    lock, taken = fcntl.flock, []

    def late(handle: int, how: int) -> None:
        if not taken:
            taken.append(handle)
            forget_session(state, "one")
        lock(handle, how)

    monkeypatch.setattr("builder.sessions.fcntl.flock", late)
    with open_session(state, "one", AGENT) as opened:
        assert opened.history == History(AGENT)
        opened.keep(History(AGENT, (HistoryFile(PLACE, b"{}\n", 5),)))
    assert opened.file.exists()


def test_who_lists_sessions_stops_no_run(state: State) -> None:
    keep_history(state, "one")
    handle = os.open(state.sessions / "one/lock", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    looked = threading.Timer(0.05, os.close, (handle,))
    looked.start()
    with open_session(state, "one", AGENT) as opened:
        assert opened.history.files
    looked.join()


def test_a_pipe_in_the_place_of_a_lock_is_not_waited_for(state: State, tmp_path: Path) -> None:
    keep_history(state, "one")
    lock = state.sessions / "one/lock"
    lock.unlink(missing_ok=True)
    os.mkfifo(lock)
    assert [one.in_use for one in kept_sessions(state)] == [False]
    store = store_at(tmp_path / "logins")
    store.write(CLAUDE, (credential(Route.CLAUDE_LOGIN),), NOW, encrypted=False)
    os.mkfifo(store.lock_path(CLAUDE))
    known = store.look(CLAUDE)
    assert known is not None
    assert not is_leased(store, known)


def test_sessions_at_the_command_line(state: State, capsys: pytest.CaptureFixture[str]) -> None:
    def type_it(*words: str) -> tuple[int, str, str]:
        code = main_inner(["sessions", "--state", str(state.root), *words], {"HOME": str(state.root.parent)})
        told = capsys.readouterr()
        check_printed(("sessions", *words), told.out)
        return code, told.out, told.err

    code, out, err = type_it()
    assert (code, out) == (0, "")
    assert "builder run --session NAME" in err
    size = keep_history(state, "one").stat().st_size
    code, out, _ = type_it()
    assert code == 0
    assert out.startswith(f"one\t{AGENT}\t{size} bytes\t20")
    assert out.endswith("Z\tfree\n")
    (listed,) = json.loads(type_it("--json")[1])["sessions"]
    assert (listed["name"], listed["agents"], listed["bytes"]) == ("one", [AGENT], size)
    with open_session(state, "one", AGENT):
        assert type_it()[1].endswith("\tin use\n")
        code, _, err = type_it("--remove", "one")
    assert code == ExitCode.STATE
    assert "in use" in err
    code, out, _ = type_it("--remove", "one", "--json")
    assert code == 0
    assert json.loads(out)["removed"] == listed
    assert type_it("--remove", "one")[0] == ExitCode.USAGE


def test_the_help_of_both_teaches() -> None:
    for verb in ("login", "logout"):
        with pytest.raises((SystemExit, BadUsage)):
            main_inner([verb, "--help"], {"HOME": "/"})
