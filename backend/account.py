"""Who the agent is inside, who watches it, and a command in the agent's name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from backend.containers import ExecPlan
from backend.terminal_kind import NO_TERMINAL, TerminalKind
from images.config import WATCH_UID
from images.errors import LaunchReason, LaunchRefused
from images.oci import OciImage

WORKSPACE: Final = "/workspace"
WATCH: Final = (WATCH_UID, WATCH_UID)
ROOT: Final = (0, 0)

_USER: Final = re.compile(r"([1-9][0-9]{0,9}):([1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom the agent is inside: from the verified image's own configuration."""

    uid: int
    gid: int
    home: str

    @property
    def ids(self) -> tuple[int, int]:
        """uid and gid."""
        return (self.uid, self.gid)


def agent_exec(account: Account, argv: tuple[str, ...], terminal: TerminalKind = NO_TERMINAL) -> ExecPlan:
    """A command as the agent. The environment is the image's own and these few; nobody else adds to it."""
    name = account.home.rpartition("/")[2]
    return ExecPlan(
        argv=argv,
        user=account.ids,
        environment=(("LOGNAME", name), *terminal.environment, ("USER", name)),
        working_dir=WORKSPACE,
    )


def account_of(image: OciImage) -> Account:
    """The agent's account. Refused: an image whose user is not two numbers, is root, or is the watch."""
    found = _USER.fullmatch(image.settings.user)
    home = dict(entry.partition("=")[::2] for entry in image.settings.environment).get("HOME", "")
    if not found or int(found[1]) == WATCH_UID or int(found[2]) == WATCH_UID:
        raise LaunchRefused(
            LaunchReason.IMAGE_SETTINGS,
            f"the image's user is {image.settings.user[:40]!r}, not the agent's uid:gid",
            where=str(image.digest),
            hint="builder build",
        )
    if not re.fullmatch(r"/home/[A-Za-z0-9_][A-Za-z0-9_-]*", home):
        raise LaunchRefused(
            LaunchReason.IMAGE_SETTINGS,
            f"the image's HOME is {home[:80]!r}",
            where=str(image.digest),
            hint="builder build",
        )
    return Account(uid=int(found[1]), gid=int(found[2]), home=home)
