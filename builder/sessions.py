"""Sessions: what an agent remembers from run to run, kept in the state; of credentials, nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backend.projection.history import MAX_HISTORY, History, read_history, write_history
from images.config import AgentName
from images.errors import StateError, UsageError
from provenance.small_files import read_small
from provenance.writing import replace_file, state_errors

if TYPE_CHECKING:
    from builder.state import State

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_LOCK: Final = "lock"
_ATTEMPTS: Final = 10
_PAUSE: Final = 0.02  # seconds


@dataclass(frozen=True, slots=True)
class Session:
    """One session of one agent, held by this process. ``history``: as the last run left it."""

    name: str
    history: History
    file: Path

    def keep(self, history: History) -> None:
        """In the place of what was there, whole or not at all."""
        replace_file(self.file, write_history(history), 0o600)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSession:
    """What there is of one session: whose histories, their bytes, when the last was kept."""

    name: str
    agents: tuple[AgentName, ...]
    size: int
    saved: datetime
    in_use: bool


def check_session(name: str) -> None:
    """UsageError for what is no name of a session."""
    if not _NAME.fullmatch(name):
        raise UsageError("not a name for a session", where="--session", hint="a-z, 0-9 and -, at most 40")


@contextlib.contextmanager
def open_session(state: State, name: str, agent: AgentName) -> Iterator[Session]:
    """The session for one run; StateError while another run has it, or when it is damaged."""
    check_session(name)
    with _alone(state.sessions / name):
        file = state.sessions / name / f"{agent}.tar"
        yield Session(name, _read(file, agent), file)


def kept_sessions(state: State) -> tuple[KeptSession, ...]:
    """Every session of this state, by name. None is read: only looked at from outside."""
    with state_errors(state.sessions):
        found = sorted(path for path in state.sessions.iterdir() if _NAME.fullmatch(path.name))
    return tuple(kept for kept in map(_look, found) if kept is not None)


def forget_session(state: State, name: str) -> KeptSession:
    """Remove all that every agent remembers in it; say what it was. Whole or not at all.

    UsageError where there is none of this name; StateError while a run has it.
    """
    check_session(name)
    folder = state.sessions / name
    if (kept := _look(folder)) is None:
        raise UsageError(f"there is no session {name}", where=str(state.sessions), hint="builder sessions")
    with state.staging("session") as staging, _alone(folder), state_errors(folder):
        folder.rename(staging / name)
    return kept


def _look(folder: Path) -> KeptSession | None:
    """None for what is no session, or not one any more."""
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return None
        files = [(agent, folder / f"{agent}.tar") for agent in AgentName]
        found = {agent: path.lstat() for agent, path in files if path.exists()}
        saved = max((one.st_mtime for one in found.values()), default=folder.lstat().st_mtime)
        return KeptSession(
            name=folder.name,
            agents=tuple(sorted(found)),
            size=sum(one.st_size for one in found.values()),
            saved=datetime.fromtimestamp(saved, UTC),
            in_use=_is_in_use(folder),
        )
    except FileNotFoundError:  # forgotten just now
        return None
    except OSError as broken:
        raise StateError(f"a session cannot be read: {broken.strerror}", where=str(folder)) from None


def _is_in_use(folder: Path) -> bool:
    try:
        handle = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:  # no run has begun with it
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """The kernel's lock on a session, which dies with whoever has it."""
    # Who lists sessions has each for an instant, and who forgets one takes the locked file away with it.
    for _ in range(_ATTEMPTS):
        if (handle := _lock(folder)) is not None:
            break
        time.sleep(_PAUSE)
    else:
        raise StateError(
            f"the session {folder.name} is in use by another run",
            where=str(folder),
            hint="wait for it (builder ps), or take another name: builder run --session NAME",
        )
    try:
        yield
    finally:
        os.close(handle)


def _lock(folder: Path) -> int | None:
    """None while another has it, or took it away."""
    handle, path = None, folder / _LOCK
    try:
        with state_errors(folder), contextlib.suppress(FileNotFoundError, BlockingIOError):
            folder.mkdir(mode=0o700, exist_ok=True)
            handle = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.lstat(), os.fstat(handle)):
                kept, handle = handle, None
                return kept
        return None
    finally:
        if handle is not None:
            os.close(handle)


def _read(file: Path, agent: AgentName) -> History:
    hint = f"move {file} away, and the session begins anew"
    try:
        return read_history(agent, read_small(file, 2 * MAX_HISTORY))
    except FileNotFoundError:
        return History(agent)
    except OSError as broken:
        raise StateError(f"a session cannot be read: {broken.strerror}", where=str(file), hint=hint) from None
    except StateError as broken:
        raise StateError(f"a session is damaged: {broken.what}", where=str(file), hint=hint) from None
