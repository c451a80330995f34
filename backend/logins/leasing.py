"""A login that renews itself is leased to one launch at a time, and written back; others are shared."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from backend.logins.store import KeptLogin, LoginName, LoginStore
from backend.projection.credentials import Credential
from images.errors import BuilderError, LaunchReason, LaunchRefused, StateError, UsageError
from provenance.writing import state_errors

# A container ends within a second of its controller (docs/adr/0010, proved by the host's probe): then nobody
# else has what it was given any more.
_GONE: Final = 2.0  # seconds
# Who lists logins holds each for an instant: that is no launch.
_ATTEMPTS: Final = 10
_PAUSE: Final = 0.02  # seconds
_OPEN: Final = b"a launch has it\n"


@dataclass(slots=True, kw_only=True)
class LeasedLogin:
    """One login for one launch. ``unsure``: an earlier one ended without giving it back."""

    name: LoginName
    credentials: tuple[Credential, ...] = field(repr=False)
    unsure: bool = False
    _store: LoginStore = field(repr=False)
    _encrypted: bool
    _now: Callable[[], datetime] = field(repr=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _lost: str = ""

    def write_back(self, credentials: tuple[Credential, ...]) -> None:
        """What a use made of it, in its place; what was not renewed stays. A failure is kept for the end."""
        with self._turn:
            changed = {one.name: one for one in credentials}
            whole = tuple(changed.get(one.name, one) for one in self.credentials)
            try:
                self._store.write(self.name, whole, self._now(), encrypted=self._encrypted)
            except BuilderError as failed:
                self._lost = f"it was renewed and cannot be written back: {failed.what}"
                return
            self._lost = ""
            self.credentials = whole

    def lose(self, why: str) -> None:
        """Its last state could not be had."""
        self._lost = self._lost or why

    @property
    def lost(self) -> str:
        """Why what is in the store may be spent; empty when it is not."""
        return self._lost


@contextlib.contextmanager
def lease_login(store: LoginStore, name: LoginName, now: Callable[[], datetime]) -> Iterator[LeasedLogin]:
    """The login for one launch. Raises LaunchRefused (``credential-busy``) while another launch has one that
    renews itself; UsageError, StateError, KeyUnusable as :meth:`LoginStore.read`."""
    known = store.look(name)
    if known is None or not known.rotates:
        yield _lent(store, name, now)
        return
    with _exclusive(store, name) as handle:
        leased = _lent(store, name, now)
        leased.unsure = _was_open(handle)
        if leased.unsure:
            time.sleep(_GONE)
        _mark(store.lock_path(name), handle, _OPEN)
        try:
            yield leased
        finally:  # not reached by who is killed: the next one is told
            if not leased.lost:
                _mark(store.lock_path(name), handle, b"")


def _lent(store: LoginStore, name: LoginName, now: Callable[[], datetime]) -> LeasedLogin:
    given, known = store.read(name, now()), store.look(name)
    encrypted = known is not None and known.encrypted
    return LeasedLogin(name=name, credentials=given, _store=store, _encrypted=encrypted, _now=now)


def keep_login(
    store: LoginStore,
    name: LoginName,
    credentials: tuple[Credential, ...],
    now: datetime,
    *,
    encrypted: bool,
) -> None:
    """In the place of what was there, unless a launch has that."""
    with _exclusive(store, name) as handle:
        store.write(name, credentials, now, encrypted=encrypted)
        _mark(store.lock_path(name), handle, b"")


def forget_login(store: LoginStore, name: LoginName) -> None:
    """Gone from the store, unless a launch has it; UsageError when there is none."""
    with _exclusive(store, name) as handle:
        there = store.remove(name)
        _mark(store.lock_path(name), handle, b"")
    if not there:
        raise UsageError(f"there is no login {name}", where="logins", hint="builder login --list")


def require_free(store: LoginStore, name: LoginName) -> None:
    """Before somebody logs in for it: LaunchRefused while a launch has what would be replaced."""
    with _exclusive(store, name):
        pass


def is_leased(store: LoginStore, known: KeptLogin) -> bool:
    """Whether a launch has it now. Only looked at: nothing is made, and two may look at once."""
    if not known.rotates:
        return False
    path = store.path(known.name, lease=True)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:  # no launch has begun with it
        return False
    except OSError as refused:
        raise StateError(f"cannot be locked: {refused.strerror}", where=str(path)) from None
    try:
        return not _locked(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _exclusive(store: LoginStore, name: LoginName) -> Iterator[int]:
    """The kernel's lock, which dies with whoever has it. The file stays: others may be about to lock it."""
    path = store.lock_path(name)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as refused:
        raise StateError(f"cannot be locked: {refused.strerror}", where=str(path)) from None
    try:
        for _ in range(_ATTEMPTS):
            if _locked(handle, fcntl.LOCK_EX):
                break
            time.sleep(_PAUSE)
        else:
            raise _busy(name, path)
        yield handle
    finally:
        os.close(handle)


def _locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _busy(name: LoginName, path: Path) -> LaunchRefused:
    return LaunchRefused(
        LaunchReason.CREDENTIAL_BUSY,
        f"the login {name} is in use: it renews itself, so one launch at a time has it",
        where=str(path),
        hint=f"wait for that launch (builder ps), or keep another: builder login {name.agent} --as NAME",
    )


def _was_open(handle: int) -> bool:
    return os.fstat(handle).st_size > 0


def _mark(path: Path, handle: int, content: bytes) -> None:
    with state_errors(path):
        os.ftruncate(handle, 0)
        os.pwrite(handle, content, 0)
        os.fsync(handle)
