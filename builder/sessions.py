"""Sessions: what an agent remembers from run to run, kept in the state; of credentials, nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Session:
    """One session of one agent, held by this process. ``history``: as the last run left it."""

    name: str
    history: History
    file: Path

    def keep(self, history: History) -> None:
        """In the place of what was there, whole or not at all."""
        replace_file(self.file, write_history(history), 0o600)


def check_session(name: str) -> None:
    """UsageError for what is no name of a session."""
    if not _NAME.fullmatch(name):
        raise UsageError("not a name for a session", where="--session", hint="a-z, 0-9 and -, at most 40")


@contextlib.contextmanager
def open_session(state: State, name: str, agent: AgentName) -> Iterator[Session]:
    """The session for one run; StateError while another run has it, or when it is damaged."""
    check_session(name)
    folder = state.sessions / name
    with state_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(
                f"the session {name} is in use by another run",
                where=str(folder),
                hint="wait for it (builder ps), or take another name: builder run --session NAME",
            ) from None
        file = folder / f"{agent}.tar"
        yield Session(name, _read(file, agent), file)
    finally:
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
