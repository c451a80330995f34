"""Logins and sessions at the command line: what is kept, what wins, what is refused; nothing shows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backend.logins.leasing import lease_login
from backend.logins.store import LoginName
from backend.projection.history import History, HistoryFile
from backend.projection.routes import Route
from builder.cli import main_inner
from builder.cli.options.parser import BadUsage
from builder.keeping import keeping_for, login_for, tell_hosts
from builder.sessions import check_session, open_session
from builder.state import State, open_state
from images.config import AgentName
from images.errors import ExitCode, LaunchRefused, StateError, UsageError
from tests.fakes.admitted import NOW
from tests.fakes.kept_logins import CLAUDE, store_at
from tests.fakes.projected import credential, dummy, file_of, named
from tests.results import check

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


def test_the_help_of_both_teaches() -> None:
    for verb in ("login", "logout"):
        with pytest.raises((SystemExit, BadUsage)):
            main_inner([verb, "--help"], {"HOME": "/"})
