"""Logins on a real engine: the CLIs' own, at their own addresses, which lead to scripted accounts.

Needs a network of its own: ``unshare --net --mount -- python -m tests.real.private_network pytest …``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from backend.logins.leasing import lease_login
from backend.logins.store import LoginName, LoginStore
from backend.projection.credentials import read_credential
from backend.projection.routes import CredentialName, Route
from images.config import AgentName
from tests.fakes.projected import file_of, named
from tests.fakes.sources import operator_of
from tests.real.agents_at_work import Sweep, within
from tests.real.network_desk import ACCOUNT_HOSTS, NetworkDesk
from tests.real.private_network import ADDRESS
from tests.real.scripted_oauth import CODE, MODEL_HOST, TOKEN_HOST, Accounts
from tests.real.windows import window

pytestmark = pytest.mark.real

CLAUDE = LoginName(AgentName.CLAUDE_CODE)
PI = LoginName(AgentName.PI)


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def accounts(network_desk: NetworkDesk) -> Iterator[Accounts]:
    """One account, at the addresses that the programs have built in."""
    world = network_desk.world
    world.accounts = Accounts()
    world.names |= {host: lambda: (ADDRESS,) for host in (TOKEN_HOST, MODEL_HOST)}
    world.bodies.clear()
    network_desk.allow(ACCOUNT_HOSTS)
    yield world.accounts
    world.accounts = None


def store_of(desk: NetworkDesk) -> LoginStore:
    return LoginStore(desk.tiny.config / "logins", lambda: None)


def keep(desk: NetworkDesk, accounts: Accounts) -> None:
    """What a login of Claude Code's leaves."""
    accounts.begin()
    table = {
        "accessToken": accounts.access,
        "refreshToken": accounts.refresh,
        "expiresAt": 1,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": "max",
    }
    raw = json.dumps({"claudeAiOauth": table}).encode()
    login = read_credential(CredentialName(Route.CLAUDE_LOGIN), raw, now())
    store_of(desk).write(CLAUDE, (login,), now(), encrypted=False)


def ask(desk: NetworkDesk, *words: str, tail: tuple[str, ...] = ("-p", "hello")) -> tuple[str, str]:
    done = desk.run("--no-source", *words, "--agent", "claude-code", "--", *tail, allow=ACCOUNT_HOSTS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout, done.stderr


def test_a_person_logs_in_once_and_every_run_after_it_is_logged_in(
    network_desk: NetworkDesk, accounts: Accounts
) -> None:
    """The CLI's own login in its own container, and a run that it serves, unchanged."""
    desk = network_desk
    with window(desk.project) as own:
        own.run(desk.tiny.argv("login", "claude-code"))
        state = own.wait(r"state=([A-Za-z0-9_-]{20,})")
        own.type(f"{CODE}#{state}")
        own.wait("kept: claude-code.default")
        own.wait("code 0")
        assert own.is_as_before()
        own.leave()
    assert (accounts.signed_in, accounts.refused) == (1, [])
    (kept,) = store_of(desk).read(CLAUDE, now())
    assert accounts.refresh.encode() in kept.content.reveal()
    out, told = ask(desk)
    assert "scripted answer" in out
    assert "login: claude-code.default" in told
    (one,) = desk.record(told)["credentials"]
    assert (one["name"], one["inPlace"], one["renewed"]) == ("claude-code.login", True, False)
    assert (accounts.refreshed, accounts.refused) == (0, [])
    nothing_is_left(desk, accounts)


def nothing_is_left(desk: NetworkDesk, accounts: Accounts) -> None:
    """No token that was ever issued is anywhere but in the store of logins."""
    after = Sweep(tuple(token.encode() for token in accounts.issued), desk.engine, desk.tiny.state_id)
    layout = desk.tiny.state / "layout"
    after.files("state", (path for path in desk.tiny.state.rglob("*") if layout not in path.parents))
    after.files("project", desk.project.rglob("*"))
    after.files("log", within(Path("/var/log/agent-image-builder")))
    after.once()
    assert after.looked["state"] > 0
    assert after.found == set()


def expire(desk: NetworkDesk, name: LoginName, route: Route) -> None:
    """As it is when an access token has run out: the next use renews the login."""
    (kept,) = store_of(desk).read(name, now())
    old = re.sub(rb'("expires(?:At)?":)[0-9]+', rb"\g<1>1", kept.content.reveal())
    store_of(desk).write(name, (read_credential(CredentialName(route), old, now()),), now(), encrypted=False)


def test_each_run_renews_its_login_and_shows_no_token_of_before_or_after(
    network_desk: NetworkDesk, accounts: Accounts
) -> None:
    """Those that it had and those that it gets: arguments, variables, the engine's word, while it runs. The
    next run begins with what this one got."""
    keep(network_desk, accounts)
    coming = Accounts(number=accounts.number + 1)
    tokens = (accounts.access, accounts.refresh, coming.access, coming.refresh)
    sweep = Sweep(tuple(token.encode() for token in tokens), network_desk.engine, network_desk.tiny.state_id)
    with sweep.watching():
        out, told = ask(network_desk)
    assert (accounts.access, accounts.refresh) == (coming.access, coming.refresh)
    (one,) = network_desk.record(told)["credentials"]
    assert (one["inPlace"], one["renewed"]) == (True, True)
    sweep.look("output", (out + told).encode())
    sweep.look("record", json.dumps(network_desk.record(told)).encode())
    assert {"argv", "variables", "inspect", "output", "record"} <= set(sweep.looked)
    assert sweep.found == set()
    expire(network_desk, CLAUDE, Route.CLAUDE_LOGIN)
    again, _ = ask(network_desk)
    assert "scripted answer" in again
    assert (accounts.refreshed, accounts.refused) == (2, [])
    (kept,) = store_of(network_desk).read(CLAUDE, now())
    assert accounts.refresh.encode() in kept.content.reveal()
    nothing_is_left(network_desk, accounts)


@pytest.mark.long  # a screen of the CLI's own; what a login does is shown by the others
def test_claude_code_opens_at_its_prompt(network_desk: NetworkDesk, accounts: Accounts) -> None:
    keep(network_desk, accounts)
    with window(network_desk.project) as own:
        own.run(network_desk.tiny.argv("run", "--no-source", "--agent", "claude-code"))
        own.wait("Claude Code v[0-9]")
        own.wait("/workspace")
        shown = own.screen()
        assert not re.search(
            "(?i)text style|do you trust|safety check|select login method|get started", shown
        )
        for key in ("C-c", "C-c"):
            own.press(key)
        own.wait("code [0-9]+")
        own.leave()


def test_a_login_in_use_is_refused_to_the_next_launch(network_desk: NetworkDesk, accounts: Accounts) -> None:
    desk = network_desk
    keep(desk, accounts)
    words = ("--no-source", "--dry-run", "--agent", "claude-code")
    with lease_login(store_of(desk), CLAUDE, now):
        refused = desk.run(*words, "--json", allow=ACCOUNT_HOSTS)
        assert refused.returncode == 8
        assert json.loads(refused.stdout)["error"]["reason"] == "credential-busy"
    free = desk.run(*words, allow=ACCOUNT_HOSTS)
    assert free.returncode == 0, free.stderr
    assert accounts.refreshed == 0


def test_an_agent_remembers_its_session_and_no_credential_is_in_it(
    network_desk: NetworkDesk, accounts: Accounts
) -> None:
    desk = network_desk
    keep(desk, accounts)
    word = "marmalade-of-the-first-run"
    _, told = ask(desk, "--session", "one", tail=("-p", f"say {word}"))
    assert "session one:" in told
    assert desk.record(told)["kept"]["session"] is True
    desk.world.bodies.clear()
    out, _ = ask(desk, "--session", "one", tail=("--continue", "-p", "again"))
    assert "scripted answer" in out
    assert any(word.encode() in body for body in desk.world.bodies)
    desk.world.bodies.clear()
    ask(desk, "--session", "other")
    assert not any(word.encode() in body for body in desk.world.bodies)
    archive = (desk.tiny.state / "sessions/one/claude-code.tar").read_bytes()
    assert word.encode() in archive
    assert not any(token.encode() in archive for token in accounts.issued)


# Each goes on with what it calls the last conversation; which model, it is told as a person would tell it.
ASKS: Final = {
    Route.OPENCODE_API_KEY: (("run", "-m", "anthropic/claude-sonnet-4-5"), "--continue"),
    Route.PI_API_KEY: (("--provider", "anthropic", "-p"), "--continue"),
}


@pytest.mark.long  # one agent goes on in the test above
@pytest.mark.parametrize("route", ASKS, ids=lambda route: route.agent.value)
def test_the_next_run_of_a_session_goes_on_where_the_last_one_ended(
    network_desk: NetworkDesk, accounts: Accounts, route: Route, tmp_path: Path
) -> None:
    """On a repository, with a key: the model is sent the earlier words too, by runs of this session alone."""
    desk, agent = network_desk, route.agent.value
    desk.world.accounts = None  # whoever has a key may ask
    key = tmp_path / "key"
    key.write_bytes(file_of(route))
    key.chmod(0o600)
    source = operator_of(tmp_path / "source").path
    (words, go_on), word = ASKS[route], f"marmalade-of-{agent}"

    def said_to_the_model(session: str, *tail: str) -> bytes:
        desk.world.bodies.clear()
        done = desk.run(
            *("--source", str(source), "--session", session, "--agent", agent),
            *("--credential", f"{named(route)}={key}", "--", *words, *tail),
            allow=ACCOUNT_HOSTS,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        assert "scripted answer" in done.stdout
        assert f"session {session}: " in done.stderr
        assert "hold a credential" not in done.stderr
        assert desk.record(done.stderr)["kept"]["session"] is True
        return b"\0".join(desk.world.bodies)

    assert word.encode() in said_to_the_model("first", f"say {word}")
    assert word.encode() in said_to_the_model("first", go_on, "and again")
    third = said_to_the_model("first", go_on, "a third time")
    assert all(text in third for text in (word.encode(), b"and again", b"a third time"))
    assert word.encode() not in said_to_the_model("second", "hello")
    archive = (desk.tiny.state / "sessions/first" / f"{agent}.tar").read_bytes()
    assert word.encode() in archive
    assert file_of(route).strip() not in archive


def test_pi_renews_its_login_and_it_comes_back(network_desk: NetworkDesk, accounts: Accounts) -> None:
    desk = network_desk
    accounts.begin()
    entry = {"type": "oauth", "access": accounts.access, "refresh": accounts.refresh, "expires": 1}
    raw = json.dumps({"anthropic": entry}).encode()
    login = read_credential(CredentialName(Route.PI_LOGIN), raw, now())
    store_of(desk).write(PI, (login,), now(), encrypted=False)
    for number in (1, 2):
        done = desk.run(
            *("--no-source", "--agent", "pi", "--", "--provider", "anthropic", "-p", "hello"),
            allow=ACCOUNT_HOSTS,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        assert "scripted answer" in done.stdout
        (kept,) = store_of(desk).read(PI, now())
        assert accounts.refresh.encode() in kept.content.reveal()
        assert accounts.refreshed == number
        expire(desk, PI, Route.PI_LOGIN)
    assert accounts.refused == []


@pytest.mark.long  # a screen of the CLI's own; what a login does is shown by the others
def test_pi_logs_in_at_its_own_prompt(network_desk: NetworkDesk, accounts: Accounts) -> None:
    desk = network_desk
    with window(desk.project) as own:
        own.run(desk.tiny.argv("login", "pi", "--as", "prompted"))
        own.wait("at its prompt type /login")
        own.wait("pi v[0-9]")
        own.type("/login")
        own.wait("Use a subscription")
        own.press("Enter")
        own.wait("Anthropic")
        own.press("Enter")
        own.wait("Paste redirect URL")
        own.type(CODE)
        own.wait("(?i)logged in|saved|credentials")
        own.press("C-d")
        own.wait("kept: pi.prompted")
        own.wait("code 0")
        own.leave()
    assert (accounts.signed_in, accounts.refused) == (1, [])
    (kept,) = store_of(desk).read(LoginName(AgentName.PI, "prompted"), now())
    assert str(kept.name) == "pi.login"
    assert accounts.refresh.encode() in kept.content.reveal()


@pytest.mark.long  # a screen of the CLI's own; what a login does is shown by the others
def test_opencode_asks_for_a_key_and_it_is_kept(network_desk: NetworkDesk, accounts: Accounts) -> None:
    desk, key = network_desk, "-".join(("sk", "ant", "api03", "DummyKey" * 9))
    with window(desk.project) as own:
        own.run(desk.tiny.argv("login", "opencode"))
        own.wait("Select provider")
        own.type("anthropic")
        own.wait("(?i)api key")
        own.type(key)
        own.wait("kept: opencode.default")
        own.wait("code 0")
        own.leave()
    assert accounts.issued == []
    (kept,) = store_of(desk).read(LoginName(AgentName.OPENCODE), now())
    assert str(kept.name) == "opencode.auth-file"
    assert key.encode() in kept.content.reveal()
