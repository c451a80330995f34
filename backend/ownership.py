"""Who owns a container: the state root's id, a lease that the kernel keeps, and the labels that say both.

A lease is a file under an exclusive ``flock`` held by the living controller. The kernel drops the lock when
the process dies, however it dies, so nobody has to guess from process ids. What the file says is for people.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.containers import Purpose
from images.errors import StateError

LABEL_PREFIX: Final = "agent-image-builder."
LABEL_STATE: Final = LABEL_PREFIX + "state"
LABEL_OWNER: Final = LABEL_PREFIX + "owner"
LABEL_PURPOSE: Final = LABEL_PREFIX + "purpose"
LABEL_LAUNCH: Final = LABEL_PREFIX + "launch"
LABEL_RUN: Final = LABEL_PREFIX + "run"
LABEL_STEP: Final = LABEL_PREFIX + "step"
LABEL_SCOPE: Final = LABEL_PREFIX + "scope"
LABEL_SUPERVISION: Final = LABEL_PREFIX + "supervision"
LABEL_LEASE: Final = LABEL_PREFIX + "lease-seconds"  # of a leased launch alone

_ID: Final = re.compile(r"[0-9a-f]{32}")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Owner:
    """A living controller: the id of its state root and of the lease it holds (32 hex digits each)."""

    state_id: str
    lease_id: str

    def __post_init__(self) -> None:
        for name, value in (("state id", self.state_id), ("lease id", self.lease_id)):
            if not _ID.fullmatch(value):
                raise StateError(f"not a {name}: {value[:60]!r}", hint="builder doctor")

    def labels(self, purpose: Purpose) -> tuple[tuple[str, str], ...]:
        """What every container of ours carries, so that it can be found and its owner judged."""
        return (
            (LABEL_OWNER, self.lease_id),
            (LABEL_PURPOSE, purpose.value),
            (LABEL_STATE, self.state_id),
        )


@contextlib.contextmanager
def hold_lease(leases: Path, state_id: str) -> Iterator[Owner]:
    """Own containers while this process lives. ``leases``: a private directory, made if absent."""
    _make_private(leases)
    lease_id = secrets.token_hex(16)
    path = leases / lease_id
    held = _lock_new(path)
    try:
        yield Owner(state_id, lease_id)
    finally:
        # Unlinked while still locked: nobody can find the file and mistake it for a dead owner's.
        path.unlink(missing_ok=True)
        os.close(held)


def is_alive(leases: Path, lease_id: str) -> bool:
    """Whether the process that took this lease still lives. A malformed id has no owner."""
    if not _ID.fullmatch(lease_id):
        return False
    try:
        handle = os.open(leases / lease_id, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as refused:
        raise StateError(f"a lease cannot be read: {refused.strerror}", where=str(leases)) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def forget_dead_leases(leases: Path) -> None:
    """Remove lease files that nobody holds."""
    for path in dead_leases(leases):
        forget_lease(path)


def forget_lease(path: Path) -> None:
    """Remove a lease file, unless somebody holds it by now.

    Under its own lock: whoever made it a moment ago then either has it, or finds that it has no name.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as refused:
        raise StateError(f"a lease cannot be read: {refused.strerror}", where=str(path)) from None
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def dead_leases(leases: Path) -> tuple[Path, ...]:
    """Lease files that nobody holds."""
    if not leases.is_dir():
        return ()
    return tuple(
        path
        for path in sorted(leases.iterdir())
        if _ID.fullmatch(path.name) and not is_alive(leases, path.name)
    )


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold an exclusive kernel lock on this file, waiting for it; released when the process dies."""
    _make_private(lock.parent)
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as refused:
        raise StateError(f"cannot be locked: {refused.strerror}", where=str(lock)) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _lock_new(path: Path) -> int:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, _for_people())
        os.fsync(handle)
    except OSError as refused:
        raise StateError(f"a lease cannot be taken: {refused.strerror}", where=str(path.parent)) from None
    if os.fstat(handle).st_nlink == 0:  # swept between open and lock, before anything carried this id
        os.close(handle)
        return _lock_new(path)
    return handle


def _for_people() -> bytes:
    boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"
    started = "unknown"
    with contextlib.suppress(OSError):
        # Field 22 of stat, counted after the parenthesised command name.
        started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    return f"boot {boot}\npid {os.getpid()}\nstart {started}\n".encode()


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as refused:
        raise StateError(f"cannot be made: {refused.strerror}", where=str(directory)) from None
