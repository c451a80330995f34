"""What of an agent's HOME outlives its launch: a login that it made or renewed, the history of a session."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from backend.projection.history import History, take_history, without_credentials
from backend.projection.logins import KEPT_FILES, LOGIN_FILES, logged_in, renewed, take_file
from backend.records import SESSION
from backend.supervise import end_agent
from images.config import AgentName
from images.errors import BuilderError, HostError, StateError

if TYPE_CHECKING:
    from backend.engines.protocol import Engine
    from backend.plan import LaunchPlan
    from backend.projection.credentials import Credential

LOGIN_UNREAD: Final = "the login as the agent left it cannot be read"
SAMPLE_SECONDS: Final = 10.0  # the most that a controller's sudden end can lose of a renewal


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepers:
    """Who keeps it. ``login``: a login that was made, or the whole of one that was renewed; called from
    another thread while the command runs, too. ``session``: the history, and the files left out of it.

    ``login_lost``, ``session_lost``: told why it could not be had; the launch itself goes on.
    """

    login: Callable[[tuple[Credential, ...]], None]
    session: Callable[[History, tuple[str, ...]], None]
    login_lost: Callable[[str], None]
    session_lost: Callable[[str], None]


class Home:
    """The HOME of one launch in progress; where nothing of it is to be kept, nothing is asked."""

    def __init__(
        self, engine: Engine, plan: LaunchPlan, keepers: Keepers | None, now: Callable[[], datetime]
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._keepers = keepers
        self._now = now
        self._current = {one.name: one for one in plan.projection.rotating} if keepers else {}
        self._taken: set[str] = set()
        self._over = threading.Event()

    @property
    def taken(self) -> tuple[str, ...]:
        """The names of what was taken out of it and is now kept."""
        return tuple(sorted(self._taken))

    @contextlib.contextmanager
    def kept(self, container: str) -> Iterator[None]:
        """Look again and again while the command runs, and once more when it has ended, however it ends."""
        if not self._current:
            yield
            return
        thread = threading.Thread(target=self._watch, args=(container,), name="home", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._look_at_last(container)

    def take_login(self, container: str) -> None:
        """What the CLI's own login left; UsageError when it left none that could be used."""
        if self._keepers is None:
            return
        end_agent(self._engine, container, self._plan.account)
        agent = AgentName(self._plan.agent)
        files = {path: self._file(container, path) for path in KEPT_FILES[agent]}
        found = logged_in(agent, {path: raw for path, raw in files.items() if raw is not None}, self._now())
        self._keepers.login(found)
        self._taken |= {str(one.name) for one in found}

    def take_session(self, container: str) -> None:
        """The history, without a credential in it. What an agent made unfit is not kept; its work is."""
        history = self._plan.request.session
        if history is None or self._keepers is None:
            return
        current = (secret for one in self._current.values() for secret in one.secrets)
        try:
            found = take_history(self._engine, container, self._plan.account, history.agent)
            clean, left_out = without_credentials(found, (*self._plan.projection.secrets, *current))
            self._keepers.session(clean, left_out)
        except (HostError, StateError) as failed:
            self._keepers.session_lost(failed.what)
        else:
            self._taken.add(SESSION)

    def _watch(self, container: str) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            with contextlib.suppress(BuilderError):  # another thread is being interrupted, and looks at last
                self._look(container)

    def _look_at_last(self, container: str) -> None:
        """With no process of the agent left, that could renew it once more after it was read."""
        complete = False
        try:
            end_agent(self._engine, container, self._plan.account)
            complete = self._look(container)
        finally:
            if not complete and self._keepers is not None:
                self._keepers.login_lost(LOGIN_UNREAD)

    def _look(self, container: str) -> bool:
        """Keep what is another than before; whether all of it could be read."""
        changed, complete = False, True
        for name, given in self._current.items():
            raw = self._file(container, LOGIN_FILES[name.route])
            try:
                found = None if raw is None else renewed(given, raw, self._now())
            except BuilderError:  # half written, or what an agent made of it
                raw, found = None, None
            complete = complete and raw is not None
            if found is not None:
                self._current[name] = found
                changed = True
                self._taken.add(str(name))
        if changed and self._keepers is not None:
            self._keepers.login(tuple(self._current.values()))
        return complete

    def _file(self, container: str, path: str) -> bytes | None:
        return take_file(self._engine, container, self._plan.account, path)
