"""Putting credentials in place: what arrives, with which mode; what a launch does when it does not."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from backend.account import Account
from backend.commands import Command, Outcome
from backend.containers import ExecPlan
from backend.journal import Boundary
from backend.launch import Output, launch
from backend.plan import plan_launch
from backend.projection.asking import check_projection
from backend.projection.credentials import Credential, read_credential
from backend.projection.placing import NOTHING, Projection, projection_of
from backend.projection.projecting import project
from backend.projection.routes import CredentialName, Provider, Route
from backend.records import LaunchEnding, LaunchRecord
from backend.requests import LaunchClass
from backend.runner import run
from images.disguises import base64_cores
from images.errors import HostError, LaunchReason, LaunchRefused, UsageError
from provenance.verify import VerifiedImage
from tests.fakes.admitted import NOW, Bench, admitted_of, request
from tests.fakes.engine import said
from tests.fakes.kept_logins import KEEPERS, taking_argv
from tests.fakes.projected import (
    claude,
    credential,
    dummy,
    file_of,
    oauth,
    projecting_argv,
    projection,
    take,
)
from tests.unit.backend.test_launch import HAPPY, predicate_of

INSTALLED = ("claude-code", "pi")  # in the image of these tests
ALL_OF_EACH = (Route.CLAUDE_API_KEY, Route.OPENCODE_AUTH_FILE, Route.PI_OAUTH)


@dataclass
class Shell:
    """An engine whose container is a directory of this machine: the script really runs."""

    running: bool = True
    product: str = "docker"
    seen: list[ExecPlan] = None  # type: ignore[assignment]

    def exec(self, _container: str, plan: ExecPlan, **given: Any) -> Outcome:
        self.seen = [*(self.seen or []), plan]
        return run(
            Command(argv=plan.argv, environment={"PATH": "/usr/bin:/bin"}, deadline=30, stdin=given["stdin"])
        )

    def inspect(self, _container: str) -> object:
        return self if self.running else None


def home(tmp_path: Path) -> Account:
    """Of whoever runs the tests."""
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    return Account(uid=os.getuid(), gid=os.getgid(), home=str(place))


def put(account: Account, *routes: Route, shell: Shell | None = None) -> tuple[str, ...]:
    return project(shell or Shell(), "c" * 64, account, projection(*routes))  # type: ignore[arg-type]


def tree(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.lstat().st_mode) for path in sorted(root.rglob("*"))
    }


FILES = {
    Route.CLAUDE_API_KEY: {
        ".claude/api-key": dummy("key"),
        ".claude/settings.json": {"apiKeyHelper": 'cat "$HOME/.claude/api-key"'},
    },
    Route.CLAUDE_OAUTH_TOKEN: {
        ".claude/.credentials.json": {
            "claudeAiOauth": {
                "accessToken": dummy("token"),
                "refreshToken": None,
                "expiresAt": None,
                "scopes": ["user:inference"],
                "subscriptionType": None,
            }
        }
    },
    Route.OPENCODE_API_KEY: {
        ".local/share/opencode/auth.json": {"anthropic": {"type": "api", "key": dummy("key")}}
    },
    Route.OPENCODE_AUTH_FILE: {
        ".local/share/opencode/auth.json": {
            "anthropic": {"type": "api", "key": dummy("key")},
            "openai": {"type": "api", "key": dummy("other")},
        }
    },
    Route.PI_API_KEY: {".pi/agent/auth.json": {"anthropic": {"type": "api_key", "key": dummy("key")}}},
    Route.PI_OAUTH: {".pi/agent/auth.json": {"anthropic": oauth(refresh="")}},
    Route.CLAUDE_LOGIN: {".claude/.credentials.json": {"claudeAiOauth": claude()}},
    Route.PI_LOGIN: {".pi/agent/auth.json": {"anthropic": oauth()}},
}


@pytest.mark.parametrize("route", Route)
def test_the_files_are_those_of_the_agent_and_private(route: Route, tmp_path: Path) -> None:
    account = home(tmp_path)
    before = os.umask(0)
    try:
        assert put(account, route) == (str(credential(route).name),)
    finally:
        os.umask(before)
    root = Path(account.home)
    for path, wanted in FILES[route].items():
        text = (root / path).read_text()
        assert (text if isinstance(wanted, str) else json.loads(text)) == wanted
    modes = tree(root)
    assert {path for path in modes if (root / path).is_file()} == set(FILES[route])
    assert {mode for path, mode in modes.items() if (root / path).is_file()} == {0o600}
    assert {mode for path, mode in modes.items() if (root / path).is_dir()} == {0o700}


def test_each_agent_gets_its_own(tmp_path: Path) -> None:
    account, shell = home(tmp_path), Shell()
    put(account, *ALL_OF_EACH, shell=shell)
    assert {path for path in tree(Path(account.home)) if (Path(account.home) / path).is_file()} == {
        path for route in ALL_OF_EACH for path in FILES[route]
    }
    assert len(shell.seen) == 1
    assert dummy("key") not in repr(shell.seen)


def test_with_no_credential_nothing_is_asked(tmp_path: Path) -> None:
    shell = Shell()
    assert project(shell, "c" * 64, home(tmp_path), NOTHING) == ()  # type: ignore[arg-type]
    assert not shell.seen


def outside(root: Path) -> Path:
    """A directory that nothing may be written to."""
    place = root.parent / "outside"
    place.mkdir()
    return place


# What could be there before: in a tmpfs that only we had yet, nothing; so nothing of it is used.
BEFORE: dict[str, Callable[[Path], object]] = {
    "a file at the place": lambda root: (
        (root / ".pi/agent").mkdir(parents=True) or (root / ".pi/agent/auth.json").write_text("{}")
    ),
    "a link at the place": lambda root: (
        (root / ".pi/agent").mkdir(parents=True)
        or (root / ".pi/agent/auth.json").symlink_to(outside(root) / "auth.json")
    ),
    "a link on the way": lambda root: (root / ".pi").symlink_to(outside(root)),
    "a file on the way": lambda root: (root / ".pi").write_text(""),
    "no HOME": lambda root: root.rmdir(),
}


@pytest.mark.parametrize("what", BEFORE)
def test_nothing_is_written_over_or_through_what_is_there(what: str, tmp_path: Path) -> None:
    account = home(tmp_path)
    BEFORE[what](Path(account.home))
    with pytest.raises(LaunchRefused) as caught:
        put(account, Route.PI_OAUTH)
    assert caught.value.reason == LaunchReason.PROJECTION
    assert dummy("token") not in str(caught.value)
    assert not [path for path in tmp_path.rglob("outside/**/*") if path.is_file()]


def test_another_owner_is_a_refusal(tmp_path: Path) -> None:
    account = home(tmp_path)
    other = Account(uid=account.uid + 1, gid=account.gid, home=account.home)
    with pytest.raises(LaunchRefused, match="owner, mode, size or target") as caught:
        put(other, Route.CLAUDE_API_KEY)
    assert caught.value.reason == LaunchReason.PROJECTION


def test_a_container_that_ended_is_the_hosts_failure(tmp_path: Path) -> None:
    account = home(tmp_path)
    (Path(account.home)).rmdir()
    with pytest.raises(HostError, match="ended"):
        put(account, Route.PI_OAUTH, shell=Shell(running=False))


def launched(
    at: Bench, verified: VerifiedImage, given: Projection, output: Output | None = None
) -> LaunchRecord:
    take(at.engine, given)
    return launch(at.controller, admitted_of(verified), request(projection=given), output)


def pi_key(provider: Provider, kind: str) -> Credential:
    return read_credential(CredentialName(Route.PI_API_KEY, provider), dummy(kind).encode(), NOW)


PUT = {"inPlace": True, "renewed": False}


def test_a_launch_gives_it_before_the_command_and_records_its_name(
    at: Bench, verified: VerifiedImage
) -> None:
    at.engine.answers[("true",)] = said()
    record = launched(at, verified, projection(Route.CLAUDE_OAUTH_TOKEN, Route.PI_OAUTH))
    assert record.observed.projected == ("claude-code.oauth-token", "pi.oauth")
    assert predicate_of(at)["credentials"] == [
        {"name": "claude-code.oauth-token", "agent": "claude-code", "providers": []} | PUT,
        {"name": "pi.oauth", "agent": "pi", "providers": ["anthropic"]} | PUT,
    ]
    calls = [verb for verb in at.engine.calls if verb not in ("facts", "list")]
    assert calls == ["find_image", "load", "create", "inspect", "attach", "exec", "exec", "exec", "remove"]
    assert list(at.journal.passed("run.1")) == HAPPY


def test_a_launch_without_credentials_says_so(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[("true",)] = said()
    launch(at.controller, admitted_of(verified), request())
    assert predicate_of(at)["credentials"] == []


@pytest.mark.parametrize("stdout", [b"", b".pi|directory|777|1000:1000|60\n", b"\xff\n" * 3])
def test_what_is_not_in_place_starts_no_agent(at: Bench, verified: VerifiedImage, stdout: bytes) -> None:
    given = projection(Route.PI_OAUTH)
    at.engine.answers[projecting_argv(given)] = said(stdout)
    with pytest.raises(LaunchRefused) as caught:
        launch(at.controller, admitted_of(verified), request(projection=given))
    assert caught.value.reason == LaunchReason.PROJECTION
    found = predicate_of(at)
    assert (found["ending"], found["reason"]) == (LaunchEnding.REFUSED, "projection")
    assert [one["inPlace"] for one in found["credentials"]] == [False]
    assert Boundary.COMMANDED not in at.journal.passed("run.1")
    assert at.engine.containers == {}


def test_an_engine_that_repeats_its_input_is_not_repeated(at: Bench, verified: VerifiedImage) -> None:
    given = projection(Route.PI_OAUTH)
    echo = f"tar: {dummy('token')}: not a header".encode()
    at.engine.answers[projecting_argv(given)] = said(stderr=echo, exit_code=2)
    with pytest.raises(LaunchRefused) as caught:
        launch(at.controller, admitted_of(verified), request(projection=given))
    assert dummy("token") not in str(caught.value)
    assert "not a header" in str(caught.value)


def test_another_agents_credential_is_refused(at: Bench, verified: VerifiedImage) -> None:
    for changes in ({"agent": "pi", "command": ()}, {}):
        given = projection(Route.CLAUDE_API_KEY if changes else Route.OPENCODE_API_KEY)
        with pytest.raises(LaunchRefused) as caught:
            plan_launch(admitted_of(verified), request(projection=given, **changes), at.owner)
        assert caught.value.reason == LaunchReason.CREDENTIAL_ROUTE


@pytest.mark.parametrize("launch_class", LaunchClass)
def test_what_is_no_agents_work_gets_no_credential(launch_class: LaunchClass) -> None:
    given = projection(Route.PI_API_KEY)
    if launch_class in (LaunchClass.EXPORT_COMMAND, LaunchClass.LOGIN, LaunchClass.DETECT):
        with pytest.raises(LaunchRefused) as caught:
            check_projection(given, launch_class, "", INSTALLED)
        assert caught.value.reason == LaunchReason.CREDENTIAL_ROUTE
    else:
        check_projection(given, launch_class, "", INSTALLED)
    check_projection(NOTHING, launch_class, "", INSTALLED)


def test_a_plan_refuses_a_secret_in_its_command(at: Bench, verified: VerifiedImage) -> None:
    asked = request(command=("env", f"ANTHROPIC_API_KEY={'zq7' * 8}", "true"))
    with pytest.raises(UsageError, match="looks like a credential"):
        plan_launch(admitted_of(verified), asked, at.owner)


def test_a_plan_refuses_a_secret_in_its_labels(at: Bench, verified: VerifiedImage) -> None:
    """Labels are for everybody who may ask the engine."""
    asked = request(scope=dummy("key"), projection=projection(Route.CLAUDE_API_KEY))
    with pytest.raises(UsageError, match="looks like a credential") as caught:
        plan_launch(admitted_of(verified), asked, at.owner)
    assert dummy("key") not in f"{caught.value} {caught.value.hint}"


CLASHES = (
    (Route.CLAUDE_API_KEY, Route.CLAUDE_OAUTH_TOKEN),
    (Route.OPENCODE_API_KEY, Route.OPENCODE_AUTH_FILE),
    (Route.PI_API_KEY, Route.PI_OAUTH),
)


@pytest.mark.parametrize("routes", CLASHES)
def test_two_answers_for_one_provider_are_refused(routes: tuple[Route, Route]) -> None:
    with pytest.raises(LaunchRefused) as caught:
        projection(*routes)
    assert caught.value.reason == LaunchReason.CREDENTIAL_ROUTE
    assert str(credential(routes[0]).name) in str(caught.value)


def test_keys_of_two_providers_share_a_file() -> None:
    both = projection_of([pi_key(Provider.OPENAI, "other"), credential(Route.PI_API_KEY)])
    (file,) = both.files()
    assert set(json.loads(file.content.reveal())) == {"anthropic", "openai"}


def spelled(value: str) -> dict[str, bytes]:
    """A value as it may turn up in an output."""
    raw = value.encode()
    return {
        "plain": raw,
        "base64": sorted(base64_cores(raw))[0],
        "hexadecimal": raw.hex().encode(),
        "percent": "".join(f"%{byte:02X}" for byte in raw).encode(),
        "JSON escapes": "".join(f"\\u{ord(char):04x}" for char in value).encode(),
        "after a terminal code": b"\x1b[31m" + raw,
        "coloured in the middle": raw[:9] + b"\x1b[1m" + raw[9:],
    }


@pytest.mark.parametrize("form", spelled("x"))
def test_no_output_shows_what_was_projected(at: Bench, verified: VerifiedImage, form: str) -> None:
    value = dummy("other")  # of no provider's shape: only its being known hides it
    said_line = b"key: " + spelled(value)[form] + b" end\n"
    at.engine.answers[("true",)] = said(said_line, stderr=said_line)
    out, err = bytearray(), bytearray()
    shown = Output(on_stdout=out.extend, on_stderr=err.extend)
    record = launched(at, verified, projection_of([pi_key(Provider.OPENAI, "other")]), output=shown)
    for got in (bytes(out), bytes(err)):
        assert spelled(value)[form] not in got
        assert got.startswith(b"key: ")
        assert got.endswith(b" end\n")
        assert b"[redacted]" in got
    assert record.observed.stdout_bytes == len(said_line)


@pytest.mark.parametrize("route", [route for route in Route if route.agent in INSTALLED])
def test_nothing_that_is_kept_or_typed_holds_a_value(
    at: Bench, verified: VerifiedImage, route: Route, capsys: pytest.CaptureFixture[str]
) -> None:
    """Journal, record, plan, arguments of every exec, reprs: by every spelling of every secret."""
    given = projection(route)
    came = take(at.engine, given)
    at.engine.answers[("true",)] = said(b"done")
    at.engine.answers[taking_argv(route)] = said(file_of(route))
    asked = request(projection=given)
    record = launch(replace(at.controller, keepers=KEEPERS), admitted_of(verified), asked)
    assert len(came) == 1
    plan = plan_launch(admitted_of(verified), asked, at.owner)
    kept = b"".join(path.read_bytes() for path in at.leases.parent.rglob("*") if path.is_file())
    texts = [
        record.statement.raw,
        record.bundle.raw,
        kept,
        *(repr(one).encode() for one in (record, plan, asked, given, given.files())),
        *("\0".join(argv).encode() for argv in at.engine.answers),
        capsys.readouterr().out.encode(),
    ]
    for secret in given.secrets:
        assert secret.reveal() in came[0]
        for form in spelled(secret.reveal().decode()).values():
            assert not [text[:80] for text in texts if form in text]


def test_a_value_does_not_change_what_is_signed(at: Bench, verified: VerifiedImage) -> None:
    """A fingerprint of a secret is a way to guess it: the statement is the same for another value."""
    first = plan_launch(admitted_of(verified), request(projection=projection(Route.PI_API_KEY)), at.owner)
    other = projection_of([pi_key(Provider.ANTHROPIC, "another")])
    second = plan_launch(admitted_of(verified), request(projection=other), at.owner)
    assert (first.container, first.command) == (second.container, second.command)
    assert repr(first) == repr(second)
