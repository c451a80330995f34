"""What of HOME outlives a launch, with a scripted engine: logins made and renewed, histories of sessions."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from backend import home
from backend.account import agent_exec
from backend.agent_command import MEMORY_EVENTS
from backend.commands import Ending, Outcome
from backend.home import Keepers
from backend.launch import launch
from backend.plan import plan_launch
from backend.projection.credentials import Credential, read_credential
from backend.projection.history import (
    HISTORY_PATHS,
    PUT,
    TAKE,
    History,
    HistoryFile,
    read_history,
    without_credentials,
    write_history,
)
from backend.projection.logins import KEPT_FILES, logged_in, renewed
from backend.projection.placing import Projection, projection_of
from backend.projection.routes import CredentialName, Route
from backend.records import LaunchEnding, LaunchRecord
from backend.requests import LaunchClass
from images.config import AgentName
from images.errors import HostError, LaunchReason, LaunchRefused, StateError, UsageError
from provenance.verify import VerifiedImage
from tests.fakes.admitted import NOW, Bench, admitted_of, request
from tests.fakes.engine import said
from tests.fakes.kept_logins import taking_argv
from tests.fakes.projected import (
    ACCOUNT,
    LATER,
    api,
    claude,
    credential,
    dummy,
    named,
    oauth,
    projection,
    take,
)

CLAUDE = AgentName.CLAUDE_CODE
FIRST = credential(Route.CLAUDE_LOGIN)


@dataclass
class Kept:
    """What the keepers were told."""

    logins: list[tuple[Credential, ...]] = field(default_factory=list)
    sessions: list[tuple[History, tuple[str, ...]]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def keepers(self) -> Keepers:
        return Keepers(
            login=self.logins.append,
            session=lambda history, left_out: self.sessions.append((history, left_out)),
            login_lost=self.lost.append,
            session_lost=self.lost.append,
        )


def file(number: int = 2) -> bytes:
    """As Claude Code leaves it after it renewed its login."""
    table = claude(accessToken=f"{dummy('token')}{number}", refreshToken=f"{dummy('refresh')}{number}")
    return json.dumps({"claudeAiOauth": table, "mcpOAuth": {"x": {"accessToken": "y" * 40}}}).encode()


def second(number: int = 2) -> Credential:
    return read_credential(named(Route.CLAUDE_LOGIN), file(number), NOW)


def run(at: Bench, verified: VerifiedImage, kept: Kept, **changes: Any) -> LaunchRecord:
    controller = replace(at.controller, keepers=kept.keepers)
    return launch(controller, admitted_of(verified), request(**changes))


def with_login(at: Bench, verified: VerifiedImage, kept: Kept, **changes: Any) -> LaunchRecord:
    given = projection(Route.CLAUDE_LOGIN)
    take(at.engine, given)
    return run(at, verified, kept, projection=given, **changes)


def test_a_login_that_the_command_renewed_is_kept_before_the_container_goes(
    at: Bench, verified: VerifiedImage
) -> None:
    kept = Kept()
    at.engine.answers[("true",)] = said()
    at.engine.answers[taking_argv(Route.CLAUDE_LOGIN)] = said(file())
    record = with_login(at, verified, kept)
    assert kept.logins == [(second(),)]
    assert kept.lost == []
    assert record.observed.taken == ("claude-code.login",)
    calls = at.engine.calls
    assert calls[-1] == "remove"
    assert b"mcpOAuth" not in kept.logins[0][0].content.reveal()


def test_one_that_was_not_renewed_is_not_written(at: Bench, verified: VerifiedImage) -> None:
    kept = Kept()
    at.engine.answers[("true",)] = said()
    at.engine.answers[taking_argv(Route.CLAUDE_LOGIN)] = said(
        json.dumps({"claudeAiOauth": claude()}).encode()
    )
    record = with_login(at, verified, kept)
    assert (kept.logins, kept.lost, record.observed.taken) == ([], [], ())


ENDS: dict[str, Outcome] = {
    "it fails": said(exit_code=3),
    "its deadline": Outcome(ending=Ending.TIMED_OUT, exit_code=None),
    "it is cancelled": Outcome(ending=Ending.CANCELLED, exit_code=None),
}


@pytest.mark.parametrize("how", ENDS)
def test_it_is_kept_however_the_command_ends(at: Bench, verified: VerifiedImage, how: str) -> None:
    kept = Kept()
    at.engine.answers[agent_exec(ACCOUNT, MEMORY_EVENTS).argv] = said()
    at.engine.answers[("true",)] = ENDS[how]
    at.engine.answers[taking_argv(Route.CLAUDE_LOGIN)] = said(file())
    with_login(at, verified, kept)
    assert kept.logins == [(second(),)]


def test_it_is_kept_when_the_engine_fails_under_the_command(at: Bench, verified: VerifiedImage) -> None:
    kept = Kept()
    at.engine.answers[("true",)] = Outcome(ending=Ending.NOT_FOUND, exit_code=None)
    at.engine.answers[taking_argv(Route.CLAUDE_LOGIN)] = said(file())
    with pytest.raises(HostError):
        with_login(at, verified, kept)
    assert kept.logins == [(second(),)]


UNREADABLE: dict[str, Outcome] = {
    "no file": said(exit_code=3),
    "half of one": said(file()[:50]),
    "another": said(b'{"claudeAiOauth": null}'),
    "a command for a token": said(
        json.dumps({"claudeAiOauth": claude(accessToken="!cat /etc/passwd of this machine")}).encode()
    ),
    "a token of Git hosting": said(
        json.dumps({"claudeAiOauth": claude(accessToken="gh" + "p_" + "a1" * 18)}).encode()
    ),
    "no engine": Outcome(ending=Ending.TIMED_OUT, exit_code=None),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_replaces_nothing_and_is_told(
    at: Bench, verified: VerifiedImage, what: str
) -> None:
    kept = Kept()
    at.engine.answers[("true",)] = said()
    at.engine.answers[taking_argv(Route.CLAUDE_LOGIN)] = UNREADABLE[what]
    with_login(at, verified, kept)
    assert kept.logins == []
    assert kept.lost == [home.LOGIN_UNREAD]


def test_it_is_kept_while_the_command_runs_too(
    at: Bench, verified: VerifiedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a controller that is killed has lost no more than the last seconds."""
    monkeypatch.setattr(home, "SAMPLE_SECONDS", 0.01)
    kept = Kept()
    state = {"number": 2}
    at.engine.answers[taking_argv(Route.CLAUDE_LOGIN)] = lambda *_: said(file(state["number"]))

    def work(*_: object) -> Outcome:
        while not kept.logins:
            pass
        assert kept.logins == [(second(2),)]
        state["number"] = 3
        return said()

    at.engine.answers[("true",)] = work
    with_login(at, verified, kept)
    assert kept.logins[-1] == (second(3),)


def test_a_launch_that_leaves_something_needs_somebody_to_keep_it(at: Bench, verified: VerifiedImage) -> None:
    for changes in (
        {"projection": projection(Route.CLAUDE_LOGIN)},
        {"agent": "claude-code", "command": (), "session": History(CLAUDE)},
        {"agent": "claude-code", "command": (), "launch_class": LaunchClass.LOGIN},
    ):
        with pytest.raises(UsageError, match="needs somebody"):
            launch(at.controller, admitted_of(verified), request(**changes))
    assert at.journal.entries() == ()


# -- a login


def test_a_login_runs_the_agents_own_and_keeps_what_it_left(at: Bench, verified: VerifiedImage) -> None:
    kept = Kept()
    plan = plan_launch(
        admitted_of(verified),
        request(agent="claude-code", command=(), launch_class=LaunchClass.LOGIN),
        at.owner,
    )
    assert plan.command.argv == ("/usr/local/bin/claude", "auth", "login")
    assert plan.projection.credentials == ()
    take(at.engine, plan.projection)
    at.engine.answers[plan.command.argv] = said()
    at.engine.answers[taking_argv(".claude/.credentials.json")] = said(file())
    at.engine.answers[taking_argv(".claude.json")] = said(exit_code=3)
    record = run(at, verified, kept, agent="claude-code", command=(), launch_class=LaunchClass.LOGIN)
    assert kept.logins == [(second(),)]
    assert record.observed.taken == ("claude-code.login",)
    assert dummy("token") not in record.statement.raw.decode()


def test_a_login_that_fails_keeps_nothing(at: Bench, verified: VerifiedImage) -> None:
    kept = Kept()
    changes: dict[str, Any] = {"agent": "claude-code", "command": (), "launch_class": LaunchClass.LOGIN}
    plan = plan_launch(admitted_of(verified), request(**changes), at.owner)
    take(at.engine, plan.projection)
    at.engine.answers[agent_exec(ACCOUNT, MEMORY_EVENTS).argv] = said()
    at.engine.answers[plan.command.argv] = said(exit_code=1)
    record = run(at, verified, kept, **changes)
    assert record.exit_code == 1
    at.engine.answers[plan.command.argv] = said()
    for path in KEPT_FILES[CLAUDE]:
        at.engine.answers[taking_argv(path)] = said(exit_code=3)
    with pytest.raises(UsageError, match="left no login"):
        run(at, verified, kept, run_id="other", **changes)
    assert kept.logins == []


@pytest.mark.parametrize(
    "changes",
    [
        {"agent": "", "command": ("true",)},
        {"arguments": ("--help",)},
        {"projection": projection(Route.CLAUDE_API_KEY)},
        {"session": History(CLAUDE)},
    ],
)
def test_a_login_is_of_one_agent_and_begins_with_nothing(
    at: Bench, verified: VerifiedImage, changes: dict[str, Any]
) -> None:
    asked = request(**({"agent": "claude-code", "command": (), "launch_class": LaunchClass.LOGIN} | changes))
    with pytest.raises(UsageError):
        plan_launch(admitted_of(verified), asked, at.owner)


def test_each_agents_files_become_what_a_launch_takes() -> None:
    def names(agent: AgentName, files: dict[str, bytes]) -> set[str]:
        return {str(one.name) for one in logged_in(agent, files, NOW)}

    login, settings = KEPT_FILES[CLAUDE]
    key = json.dumps({"primaryApiKey": dummy("key"), "oauthAccount": {"emailAddress": "a@example.test"}})
    assert names(CLAUDE, {login: file(), settings: key.encode()}) == {"claude-code.login"}
    assert names(CLAUDE, {login: b"{}", settings: key.encode()}) == {"claude-code.api-key"}
    (auth,) = KEPT_FILES[AgentName.OPENCODE]
    keys = json.dumps({"anthropic": api()}).encode()
    assert names(AgentName.OPENCODE, {auth: keys}) == {"opencode.auth-file"}
    (auth,) = KEPT_FILES[AgentName.PI]
    both = json.dumps({"anthropic": oauth(), "openai": {"type": "api_key", "key": dummy("key")}}).encode()
    assert names(AgentName.PI, {auth: both}) == {"pi.login", "pi.api-key.openai"}


@pytest.mark.parametrize(
    ("agent", "document"),
    [
        (AgentName.PI, {"anthropic": {"type": "api_key", "key": "!cat /etc/passwd of this machine"}}),
        (AgentName.PI, {"anthropic": {"type": "api_key", "key": "SOME_VARIABLE_OF_THE_CONTAINER"}}),
        (AgentName.PI, {"nobody": {"type": "api_key", "key": dummy("key")}}),
        (AgentName.PI, {"github-copilot": oauth()}),
        (AgentName.PI, {"anthropic": oauth(refresh="")}),
        (AgentName.PI, {"anthropic": oauth(expires="soon")}),
        (AgentName.PI, {}),
        (AgentName.OPENCODE, {"openai": {"type": "oauth", "access": dummy("token"), "refresh": "x" * 40}}),
        (AgentName.OPENCODE, {"x": {"type": "wellknown", "key": "K", "token": dummy("token")}}),
        (AgentName.CLAUDE_CODE, {"claudeAiOauth": claude(refreshToken=None)}),
        (AgentName.CLAUDE_CODE, {"claudeAiOauth": claude(scopes="user:inference")}),
        (AgentName.CLAUDE_CODE, {"claudeAiOauth": claude(scopes=["a b"])}),
        (AgentName.CLAUDE_CODE, {"claudeAiOauth": claude(expiresAt=None)}),
        (AgentName.CLAUDE_CODE, {"claudeAiOauth": claude(more={"a": ["x"]})}),
        (AgentName.CLAUDE_CODE, {"claudeAiOauth": claude(note="gh" + "p_" + "a1" * 18)}),
        (AgentName.CLAUDE_CODE, {"claudeAiOauth": claude(**{f"f{n}": 1 for n in range(40)})}),
    ],
)
def test_what_a_container_says_is_judged_as_strictly_as_what_is_typed(
    agent: AgentName, document: dict[str, object]
) -> None:
    raw = json.dumps(document).encode()
    with pytest.raises((UsageError, LaunchRefused)) as caught:
        logged_in(agent, {KEPT_FILES[agent][0]: raw}, NOW)
    assert "dummy" not in str(caught.value) + caught.value.hint


def test_a_use_adds_no_provider_and_takes_none_away() -> None:
    given = read_credential(CredentialName(Route.PI_LOGIN), json.dumps({"anthropic": oauth()}).encode(), NOW)
    new = oauth(access=dummy("token") + "2", refresh=dummy("refresh") + "2")
    file = json.dumps({"anthropic": new, "openai-codex": oauth()}).encode()
    found = renewed(given, file, NOW)
    assert found is not None
    assert found.providers == ("anthropic",)
    assert renewed(found, file, NOW) is None
    with pytest.raises(UsageError):
        renewed(given, json.dumps({"openai-codex": oauth()}).encode(), NOW)
    with pytest.raises(UsageError):
        renewed(given, json.dumps({"anthropic": api(type="api_key")}).encode(), NOW)


def test_a_login_may_have_run_out_since_it_renews_itself() -> None:
    old = json.dumps({"anthropic": oauth(expires=1)}).encode()
    assert read_credential(CredentialName(Route.PI_LOGIN), old, NOW).providers == ("anthropic",)
    with pytest.raises(UsageError, match="expired"):
        read_credential(CredentialName(Route.PI_OAUTH), old, NOW)


# -- a session

PLACE = ".claude/projects/-workspace/one.jsonl"
TAKING = agent_exec(ACCOUNT, ("sh", "-c", TAKE, "sh", ACCOUNT.home, *HISTORY_PATHS[CLAUDE])).argv
PUTTING = agent_exec(ACCOUNT, ("sh", "-c", PUT, "sh", ACCOUNT.home)).argv
BEFORE = History(CLAUDE, (HistoryFile(PLACE, b'{"said": "before"}\n', 5),))
AFTER = History(CLAUDE, (HistoryFile(PLACE, b'{"said": "after"}\n', 7),))


def in_session(
    at: Bench, verified: VerifiedImage, kept: Kept, history: History, *, given: Projection | None = None
) -> LaunchRecord:
    changes: dict[str, Any] = {"agent": "claude-code", "command": (), "session": history}
    if given is not None:
        changes["projection"] = given
    plan = plan_launch(admitted_of(verified), request(**changes), at.owner)
    take(at.engine, plan.projection)
    at.engine.answers.setdefault(plan.command.argv, said())
    return run(at, verified, kept, **changes)


def test_a_session_goes_in_before_the_agent_and_comes_out_after_it(
    at: Bench, verified: VerifiedImage
) -> None:
    kept, came = Kept(), []

    def put(_container: object, _plan: object, stdin: bytes) -> Outcome:
        came.append(stdin)
        return said()

    at.engine.answers[PUTTING] = put
    at.engine.answers[TAKING] = said(write_history(AFTER))
    record = in_session(at, verified, kept, BEFORE)
    assert [read_history(CLAUDE, raw) for raw in came] == [BEFORE]
    assert kept.sessions == [(AFTER, ())]
    assert record.observed.taken == ("session",)


def test_the_first_run_of_a_session_begins_with_nothing(at: Bench, verified: VerifiedImage) -> None:
    kept = Kept()
    at.engine.answers[TAKING] = said(b"")
    in_session(at, verified, kept, History(CLAUDE))
    assert kept.sessions == [(History(CLAUDE), ())]


def test_a_session_that_is_not_taken_inside_starts_no_agent(at: Bench, verified: VerifiedImage) -> None:
    kept = Kept()
    at.engine.answers[PUTTING] = said(exit_code=2, stderr=b"tar: no room")
    with pytest.raises(LaunchRefused) as caught:
        in_session(at, verified, kept, BEFORE)
    assert caught.value.reason == LaunchReason.PROJECTION
    assert kept.sessions == []


def test_no_credential_is_kept_in_a_session(at: Bench, verified: VerifiedImage) -> None:
    """Neither one that was given, nor one that came up meanwhile, nor what looks like one."""
    kept = Kept()
    given = projection(Route.CLAUDE_LOGIN)
    other = "-".join(("sk", "ant", "api03", "AnotherDummy" * 6))
    said_words = [dummy("token"), dummy("refresh"), f"{dummy('token')}2", f"{dummy('refresh')}2", other]
    text = "".join(json.dumps({"said": word}) + "\n" for word in (*said_words, "hello")).encode()
    database = ".claude/projects/-workspace/some.db"
    history = History(
        CLAUDE,
        (
            HistoryFile(PLACE, text, 7),
            HistoryFile(database, b"SQLite\0" + dummy("token").encode() + b"\0", 7),
        ),
    )
    at.engine.answers[TAKING] = said(write_history(history))
    at.engine.answers[taking_argv(Route.CLAUDE_LOGIN)] = said(file())
    in_session(at, verified, kept, History(CLAUDE), given=given)
    ((clean, left_out),) = kept.sessions
    assert left_out == (database,)
    (one,) = clean.files
    assert not any(word.encode() in one.content for word in said_words)
    lines = [json.loads(line)["said"] for line in one.content.splitlines()]
    assert lines == ["[redacted]"] * 5 + ["hello"]


def test_what_was_given_is_found_in_a_session_without_its_shape(at: Bench, verified: VerifiedImage) -> None:
    kept, plain = Kept(), dummy("word")
    key = read_credential(named(Route.CLAUDE_API_KEY), f"{plain}\n".encode(), NOW)
    history = History(CLAUDE, (HistoryFile(PLACE, json.dumps({"said": plain}).encode(), 7),))
    assert without_credentials(history, ()) == (history, ())
    at.engine.answers[TAKING] = said(write_history(history))
    in_session(at, verified, kept, History(CLAUDE), given=projection_of([key]))
    (((one,), _),) = ((clean.files, left_out) for clean, left_out in kept.sessions)
    assert json.loads(one.content) == {"said": "[redacted]"}


HOSTILE: dict[str, Callable[[tarfile.TarInfo], None]] = {
    "a way out": lambda member: setattr(member, "name", ".claude/projects/../../x"),
    "an absolute path": lambda member: setattr(member, "name", "/etc/passwd"),
    "another place": lambda member: setattr(member, "name", ".claude/.credentials.json"),
    "settings": lambda member: setattr(member, "name", ".claude/settings.json"),
    "a path with a newline": lambda member: setattr(member, "name", f"{PLACE}\n"),
    "a deep path": lambda member: setattr(member, "name", ".claude/projects" + "/x" * 20),
    "a link": lambda member: (setattr(member, "type", tarfile.SYMTYPE), setattr(member, "linkname", "/etc"))[
        0
    ],
    "a hard link": lambda member: (
        setattr(member, "type", tarfile.LNKTYPE),
        setattr(member, "linkname", "x"),
    )[0],
    "a pipe": lambda member: setattr(member, "type", tarfile.FIFOTYPE),
    "a device": lambda member: setattr(member, "type", tarfile.CHRTYPE),
}


def archive(*members: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as opened:
        for member in members:
            opened.addfile(member, io.BytesIO(b"x" * member.size))
    return out.getvalue()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_is_not_kept_and_the_launch_is_what_it_was(
    at: Bench, verified: VerifiedImage, what: str
) -> None:
    kept, member = Kept(), tarfile.TarInfo(PLACE)
    HOSTILE[what](member)
    at.engine.answers[TAKING] = said(archive(member))
    record = in_session(at, verified, kept, History(CLAUDE))
    assert record.observed.ending is LaunchEnding.COMPLETED
    assert kept.sessions == []
    assert len(kept.lost) == 1
    assert record.observed.taken == ()


def test_other_archives_are_errors_and_never_a_traceback() -> None:
    twice = tarfile.TarInfo(PLACE)
    for raw in (b"x", b"\0" * 511, archive(twice)[:600], archive(twice, twice), b"\xff" * 4096):
        with pytest.raises(StateError):
            read_history(CLAUDE, raw)
    many = [tarfile.TarInfo(f".claude/projects/{number}") for number in range(4100)]
    with pytest.raises(StateError, match="entries"):
        read_history(CLAUDE, archive(*many))


def test_a_history_is_the_same_after_a_way_through_an_archive() -> None:
    for agent, places in HISTORY_PATHS.items():
        history = History(agent, tuple(HistoryFile(f"{place}", b"x" * 9, 3) for place in sorted(places)))
        assert read_history(agent, write_history(history)) == history
    assert without_credentials(AFTER, ()) == (AFTER, ())


@pytest.mark.parametrize("launch_class", [LaunchClass.REVIEW, LaunchClass.EXPORT_COMMAND])
def test_nothing_comes_out_of_a_review_or_a_check(
    at: Bench, verified: VerifiedImage, launch_class: LaunchClass
) -> None:
    asked = request(agent="claude-code", command=(), session=History(CLAUDE), launch_class=launch_class)
    with pytest.raises(UsageError, match="keeps no session"):
        plan_launch(admitted_of(verified), asked, at.owner)


def test_a_session_belongs_to_the_agent_that_runs(at: Bench, verified: VerifiedImage) -> None:
    with pytest.raises(UsageError, match="belongs to the agent"):
        plan_launch(
            admitted_of(verified),
            request(agent="claude-code", command=(), session=History(AgentName.PI)),
            at.owner,
        )


def test_claude_code_is_told_that_its_first_questions_were_answered(
    at: Bench, verified: VerifiedImage
) -> None:
    plan = plan_launch(admitted_of(verified), request(agent="claude-code", command=()), at.owner)
    files = {one.path: json.loads(one.content.reveal()) for one in plan.projection.files()}
    state = files[".claude.json"]
    assert state["hasCompletedOnboarding"] is True
    assert state["projects"] == {"/workspace": {"hasTrustDialogAccepted": True}}
    assert files[".claude/settings.json"]["skipDangerousModePermissionPrompt"] is True
    login = plan_launch(
        admitted_of(verified),
        request(agent="claude-code", command=(), launch_class=LaunchClass.LOGIN),
        at.owner,
    )
    assert login.projection.files() == ()
    assert plan_launch(admitted_of(verified), request(), at.owner).projection.files() == ()


def test_dates_far_away_are_no_trouble() -> None:
    member = tarfile.TarInfo(PLACE)
    member.mtime = LATER * 1000
    (file,) = read_history(CLAUDE, archive(member)).files
    assert file.modified == 1 << 33
