"""What a run gets of earlier ones, and who keeps what it leaves: a login, a session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from backend.home import Keepers
from backend.logins.leasing import LeasedLogin, keep_login, lease_login
from backend.logins.store import DEFAULT_NAME, LoginName, LoginStore, as_name
from backend.projection.logins import LOGIN_HOSTS
from builder.sessions import Session, open_session
from images.config import AgentName
from images.errors import UsageError

if TYPE_CHECKING:
    from backend.projection.credentials import Credential
    from backend.projection.history import History
    from builder.report import Reporter
    from builder.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """``login``: whose credentials the run gets; None: those that were named, or none."""

    keepers: Keepers
    login: LeasedLogin | None = field(default=None, repr=False)
    session: Session | None = field(default=None, repr=False)

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """Of the login."""
        return self.login.credentials if self.login else ()

    @property
    def history(self) -> History | None:
        """What the agent remembers; None where no session was asked for."""
        return self.session.history if self.session else None


def login_for(store: LoginStore, agent: str, named: str | None, *, given: bool) -> LoginName | None:
    """Which login a run uses: the one that it names; else the agent's own, where no credential was given.

    ``agent``: empty for a plain command, which gets none. UsageError for one that is named in vain.
    """
    if named is not None and (given or not agent):
        why = (
            "a credential was given as well"
            if given
            else "a plain command has none: which agent's would it be?"
        )
        raise UsageError(why, where="--login", hint="builder run --agent NAME --login NAME")
    if not agent or given or agent not in set(AgentName):
        return None
    name = LoginName(AgentName(agent), named or DEFAULT_NAME)
    if named is None and store.look(name) is None:
        return None
    return name


@contextlib.contextmanager
def keeping_for(
    store: LoginStore,
    state: State,
    *,
    login: LoginName | None,
    session: tuple[str, AgentName] | None,
    now: Callable[[], datetime],
    reporter: Reporter,
) -> Iterator[Keeping]:
    """Held while this lasts. Raises LaunchRefused for a login that another launch has."""
    with contextlib.ExitStack() as held:
        leased = held.enter_context(lease_login(store, login, now)) if login else None
        opened = held.enter_context(open_session(state, *session)) if session else None
        told = _Telling(reporter, leased, opened)
        if leased is not None:
            told.begin(leased)
        keepers = Keepers(
            login=told.renewed,
            session=told.kept,
            login_lost=told.login_lost,
            session_lost=told.session_lost,
        )
        try:
            yield Keeping(keepers=keepers, login=leased, session=opened)
        finally:
            told.end()


def keeper_of_login(
    store: LoginStore, name: LoginName, now: Callable[[], datetime], *, encrypted: bool
) -> Keepers:
    """Who keeps what a CLI's own login leaves."""

    def login(found: tuple[Credential, ...]) -> None:
        keep_login(store, name, found, now(), encrypted=encrypted)

    return Keepers(
        login=login,
        session=lambda _history, _left_out: None,
        login_lost=lambda _why: None,
        session_lost=lambda _why: None,
    )


def tell_hosts(reporter: Reporter, login: LeasedLogin | None, allow: tuple[str, ...]) -> None:
    """Say where a login that renews itself would do so, where the run may not reach that."""
    if login is None or not any(one.name.route.rotates for one in login.credentials):
        return
    missing = [host for host in LOGIN_HOSTS[login.name.agent] if host not in allow]
    if missing:
        reporter.warn(f"the login is renewed at {missing[-1]}, which is not in [run].allow: it may run out")


class _Telling:
    """Keeps, and says so to people."""

    def __init__(self, reporter: Reporter, login: LeasedLogin | None, session: Session | None) -> None:
        self._reporter = reporter
        self._login = login
        self._session = session

    def begin(self, login: LeasedLogin) -> None:
        self._reporter.say(f"login: {login.name}")
        if login.unsure:
            self._reporter.warn(
                f"the login {login.name} did not come back from an earlier launch; if it is refused now:"
                f" builder login {login.name.agent}{as_name(login.name)}"
            )

    def renewed(self, credentials: tuple[Credential, ...]) -> None:
        if self._login is not None:
            self._login.write_back(credentials)

    def kept(self, history: History, left_out: tuple[str, ...]) -> None:
        if self._session is None:
            return
        self._session.keep(history)
        self._reporter.say(f"session {self._session.name}: {len(history.files)} files are kept")
        if left_out:
            self._reporter.warn(
                f"session {self._session.name}: {len(left_out)} files hold a credential, and are not kept"
            )

    def login_lost(self, why: str) -> None:
        if self._login is not None:
            self._login.lose(why)

    def session_lost(self, why: str) -> None:
        if self._session is not None:
            self._reporter.warn(f"session {self._session.name}: this run is not kept in it: {why}")

    def end(self) -> None:
        login = self._login
        if login is not None and login.lost:
            self._reporter.warn(
                f"login {login.name}: {login.lost}; if it is refused next time:"
                f" builder login {login.name.agent}{as_name(login.name)}"
            )
