"""A store of logins in a directory of the test's own, and a keyring in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backend.account import agent_exec
from backend.home import Keepers
from backend.logins.store import LoginName, LoginStore
from backend.projection.logins import LOGIN_FILES, TAKE
from backend.projection.routes import Route
from images.config import AgentName
from images.credentials import Secret
from images.errors import KeyUnusable
from tests.fakes.projected import ACCOUNT

KEEPERS = Keepers(
    login=lambda _found: None,
    session=lambda _history, _left_out: None,
    login_lost=lambda _why: None,
    session_lost=lambda _why: None,
)
CLAUDE = LoginName(AgentName.CLAUDE_CODE)
PI = LoginName(AgentName.PI, "work")


def taking_argv(route: Route | str) -> tuple[str, ...]:
    """The argv of the exec that looks at a file below HOME: of a route's login, or by its path."""
    path = LOGIN_FILES.get(route, "") if isinstance(route, Route) else route
    return agent_exec(ACCOUNT, ("sh", "-c", TAKE, "sh", ACCOUNT.home, path)).argv


@dataclass
class FakeKeyring:
    """Holds a key once one was made; ``locked``: serves nobody."""

    value: bytes | None = None
    locked: bool = False

    def key(self) -> Secret | None:
        if self.locked:
            raise KeyUnusable("the keyring is locked", where="keyring", hint="unlock it")
        return None if self.value is None else Secret(self.value)

    def make_key(self) -> Secret:
        found = self.key()
        if found is not None:
            return found
        self.value = b"k" * 32
        return Secret(self.value)


def store_at(root: Path, keyring: FakeKeyring | None = None) -> LoginStore:
    """Without a keyring, unless one is given."""
    return LoginStore(root, lambda: keyring)
