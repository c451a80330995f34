"""The accounts of an image: the base's own passwd and group, with the agent and the watch process added."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from images.config import MAX_UID, TAKEN_NAMES, WATCH_UID, UserAccount
from images.errors import UsageError

WATCH_NAME: Final = "watch"
MAX_ACCOUNT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Accounts:
    """The bytes of /etc/passwd and /etc/group."""

    passwd: bytes
    group: bytes


@dataclass(frozen=True, slots=True)
class _Account:
    """One line: name, number, and for passwd the group and the home directory."""

    name: str
    number: int
    group: int = -1
    home: str = ""


def home_of(user: UserAccount) -> str:
    """The agent's home directory."""
    return f"/home/{user.name}"


def with_accounts(base: Accounts, user: UserAccount, shell: str) -> Accounts:
    """The base's accounts and ours at the end. Raises UsageError naming whose id or name is already taken.

    An account of the base that is exactly the agent's (name, uid, gid, home) is used as it is.
    """
    agent = _Account(user.name, user.uid, user.gid, home_of(user))
    watch = _Account(WATCH_NAME, WATCH_UID, WATCH_UID, "/nonexistent")
    users, groups = _read(base.passwd, "/etc/passwd", 7), _read(base.group, "/etc/group", 4)
    lines, group_lines = [], []
    for wanted, login in ((agent, shell), (watch, "/usr/sbin/nologin")):
        if _missing(users, wanted, "/etc/passwd"):
            lines.append(f"{wanted.name}:x:{wanted.number}:{wanted.group}::{wanted.home}:{login}")
        if _missing(groups, _Account(wanted.name, wanted.group), "/etc/group"):
            group_lines.append(f"{wanted.name}:x:{wanted.group}:")
    return Accounts(_append(base.passwd, lines), _append(base.group, group_lines))


def _missing(found: tuple[_Account, ...], wanted: _Account, file: str) -> bool:
    """Whether the account is still to be added; refuses when its name or number is somebody else's."""
    for account in found:
        if account.name == wanted.name or account.number == wanted.number:
            if account == wanted:
                return False
            raise UsageError(
                f"the base's {file} has {_described(account)}; the image needs {_described(wanted)}",
                where="image.user" if wanted.name != WATCH_NAME else "image.base",
                hint=_way_on(account)
                if wanted.name != WATCH_NAME
                else "choose a base in which this id and name are free",
            )
    return True


def _described(account: _Account) -> str:
    if account.group < 0:
        return f"{account.name!r} with {account.number}"
    return f"{account.name!r} with {account.number}:{account.group} at {account.home}"


def _way_on(account: _Account) -> str:
    """What to write: the base's own account, where an agent can have it, else one that is free."""
    usable = re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", account.name) and account.name not in TAKEN_NAMES
    in_range = 1 <= account.number <= MAX_UID and 1 <= account.group <= MAX_UID
    if usable and in_range and account.home == f"/home/{account.name}" and account.number != WATCH_UID:
        own = f'{{ name = "{account.name}", uid = {account.number}, gid = {account.group} }}'
        return f"to run agents as this account, write in builder.toml: [image] user = {own}"
    return 'choose a free account in builder.toml: [image] user = { name = "…", uid = …, gid = … }'


def _read(raw: bytes, file: str, fields: int) -> tuple[_Account, ...]:
    """The lines that are accounts; what is not one is refused, since tools would disagree about it."""
    found = []
    for number, line in enumerate(raw.decode("utf-8", "replace").split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        parts = line.split(":")
        ids = parts[2:4] if fields == 7 else parts[2:3]
        if len(parts) != fields or not all(
            part.isascii() and part.isdigit() and len(part) < 11 for part in ids
        ):
            raise UsageError(f"line {number} of the base's {file} is not an account", where="image.base")
        if fields == 7:
            found.append(_Account(parts[0], int(parts[2]), int(parts[3]), parts[5]))
        else:
            found.append(_Account(parts[0], int(parts[2])))
    return tuple(found)


def _append(raw: bytes, lines: list[str]) -> bytes:
    if raw and not raw.endswith(b"\n"):
        raw += b"\n"
    return raw + "".join(f"{line}\n" for line in lines).encode()
