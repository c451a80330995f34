"""The state root: where everything of ours on this disk lies, and who may read it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builder.storage.removing import remove_tree
from images.errors import StateError, UsageError, VerifyFailed
from provenance.layout_writing import init_layout
from provenance.small_files import read_small
from provenance.writing import replace_file, state_errors

_ID_BYTES: Final = 16
_MAX_ID_BYTES: Final = 256
_USE: Final = "use.lock"
_ID: Final = re.compile(rf"[0-9a-f]{{{2 * _ID_BYTES}}}")
_FOLDERS: Final = (
    *("store", "staging", "leases", "client", "bootstrap", "probe", "turns", "references", "candidates"),
    *("logs", "sessions", "scans"),
)
_ANOTHER: Final = "choose another place for the state: --state DIR, or XDG_STATE_HOME"


@dataclass(frozen=True, slots=True)
class State:
    """A checked state root: 0700, ours, no link in its path. Made by :func:`open_state` only.

    ``id``: 32 hex digits chosen when the root was made; containers of this root carry it.
    """

    root: Path
    id: str

    @property
    def layout(self) -> Path:
        """The one OCI layout: every image, and its bundles as referrers."""
        return self.root / "layout"

    @property
    def store(self) -> Path:
        """The content store of artifacts, by integrity."""
        return self.root / "store"

    @property
    def ledger(self) -> Path:
        """The index from content key to digest; never evidence, rebuildable from the layout."""
        return self.root / "ledger.sqlite"

    @property
    def journal(self) -> Path:
        """The lifecycle journal."""
        return self.root / "journal.sqlite"

    @property
    def marks(self) -> Path:
        """Rollback high-water marks: trust state, never rebuilt."""
        return self.root / "marks.json"

    @property
    def leases(self) -> Path:
        """Lease files that living controllers hold under a kernel lock."""
        return self.root / "leases"

    @property
    def client_home(self) -> Path:
        """The empty, controller-owned configuration of engine clients."""
        return self.root / "client"

    @property
    def bootstrap(self) -> Path:
        """What bootstrap keeps between its runs."""
        return self.root / "bootstrap"

    @property
    def probe(self) -> Path:
        """What was found out about engines, per boot."""
        return self.root / "probe"

    @property
    def references(self) -> Path:
        """What outside of this state needs what is in it: locks of projects, imported locks, added files."""
        return self.root / "references"

    @property
    def candidates(self) -> Path:
        """One repository for each commit that a launch exported: it stays until its owner removes it."""
        return self.root / "candidates"

    @property
    def logs(self) -> Path:
        """What launches said that were asked to keep it: one directory each."""
        return self.root / "logs"

    @property
    def sessions(self) -> Path:
        """What agents remember of earlier runs: one directory for each session."""
        return self.root / "sessions"

    @property
    def scans(self) -> Path:
        """What builds found clean: one file for each layer, under a code of this state's own."""
        return self.root / "scans"

    @property
    def turns(self) -> Path:
        """One file for each key being built, under a kernel lock."""
        return self.root / "turns"

    @property
    def staged(self) -> Path:
        """Where directories of work under way lie, each under a kernel lock."""
        return self.root / "staging"

    @contextmanager
    def in_use(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """Work that puts things into this state, or needs what is there: nothing is collected meanwhile.

        Any number of processes at once; ``on_wait`` is called when one collects just now. It may be nested.
        """
        with _use(self.root / _USE, fcntl.LOCK_SH, on_wait):
            yield

    @contextmanager
    def collecting(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """Nobody else works with what is in this state. ``on_wait`` is called when somebody does just now."""
        with _use(self.root / _USE, fcntl.LOCK_EX, on_wait):
            yield

    def sweep_staging(self, *, remove: bool = True) -> tuple[Path, ...]:
        """The staging directories that dead processes left; gone afterwards, unless only asked for."""
        with state_errors(self.staged), _locked_folder(self.staged):
            return _sweep(self.staged, remove=remove)

    def stale_turns(self) -> tuple[Path, ...]:
        """Files of turns that killed processes left: nobody holds them."""
        with state_errors(self.turns):
            return tuple(path for path in sorted(self.turns.iterdir()) if _is_free(path))

    @contextmanager
    def turn(self, name: str, on_wait: Callable[[], None]) -> Iterator[None]:
        """One process at a time for this name (one path segment), by a kernel lock that dies with its holder.

        ``on_wait`` is called once when another process is at it; a signal ends the waiting.
        """
        path = self.turns / name
        with state_errors(path):
            handle = _take_turn(path, on_wait)
        try:
            yield
        finally:
            # Unlinked while still locked: who waits on it sees that it has no name, and starts over.
            path.unlink(missing_ok=True)
            os.close(handle)

    @contextmanager
    def staging(self, purpose: str) -> Iterator[Path]:
        """A private directory that is gone afterwards; those that dead processes left are swept first."""
        parent = self.staged
        path = parent / f"{purpose}-{secrets.token_hex(8)}"
        handle = None
        try:  # from here on: a signal may come between any two of these lines
            with state_errors(parent), _locked_folder(parent):
                _sweep(parent)
                path.mkdir(mode=0o700)
                handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield path
        finally:
            _remove_even_if_interrupted(path)
            if handle is not None:
                os.close(handle)


def open_state(root: Path) -> State:
    """Make or check the state root. Two processes may do so at once.

    Raises StateError for a link in the path, another owner, an open mode, or a disk that takes nothing;
    UsageError for a path that other programs would misread.
    """
    if not root.is_absolute():
        raise StateError("the state root is not an absolute path", where=str(root))
    if not str(root).isprintable():
        # apt, BuildKit and the engines each make something else of such a name.
        raise UsageError(
            "the state root has a control character, or no valid text, in its path",
            where=ascii(str(root))[1:-1],
            hint="choose another folder: --state DIR",
        )
    _check_parents(root)
    with state_errors(root):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owned(root)
        for name in _FOLDERS:
            (root / name).mkdir(mode=0o700, exist_ok=True)
            _check_owned(root / name)
        (root / "layout").mkdir(mode=0o700, exist_ok=True)
        state_id = _identity(root)
    try:
        init_layout(root / "layout")
    except VerifyFailed as broken:
        raise StateError(
            f"the layout of this state is damaged: {broken.what}",
            where=broken.where,
            hint=f"restore it, or move {root / 'layout'} away, then: builder bootstrap; builder build",
        ) from None
    return State(root, state_id)


def _check_parents(root: Path) -> None:
    """Whoever can rename a parent can put another root in our place, and so can whoever owns a link."""
    for path in (*reversed(root.parents), root):
        try:
            status = path.lstat()
        except FileNotFoundError:
            return
        except OSError as broken:
            raise StateError(f"cannot be looked at: {broken.strerror}", where=str(path)) from None
        if stat.S_ISLNK(status.st_mode):
            raise StateError(
                "a symbolic link in the path of the state root",
                where=str(path),
                hint=f"name the real directory: --state {os.path.realpath(root)}",
            )
        if not stat.S_ISDIR(status.st_mode):
            raise StateError("not a directory", where=str(path), hint=_ANOTHER)
        if path != root and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise StateError(
                "everybody may rename what lies in this directory",
                where=str(path),
                hint=f"chmod o-w {path}, or choose another --state",
            )


def _check_owned(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise StateError("not a directory", where=str(path), hint=_ANOTHER)
    if status.st_uid != os.geteuid():
        why = f"belongs to uid {status.st_uid}, not to us (uid {os.geteuid()})"
        raise StateError(why, where=str(path), hint=_ANOTHER)
    if status.st_mode & 0o077:
        raise StateError(
            f"others may look in (mode {stat.S_IMODE(status.st_mode):04o})",
            where=str(path),
            hint=f"chmod 700 {path}",
        )


def _identity(root: Path) -> str:
    """The id of this root, and of no copy of it.

    Containers are reaped by it. A copied root that kept the id would find no living owner for the containers
    of the original, and remove them; so the file also names the directory that it was made in.
    """
    path = root / "state-id"
    here = str(root.stat().st_ino)
    with _locked_folder(root):
        words = _identity_words(path)
        if words[1:] != [here]:
            new = secrets.token_hex(_ID_BYTES)
            whose = f"of-{words[0][:8]}" if words else f"before-{new[:8]}"
            for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
                with contextlib.suppress(FileNotFoundError):
                    # What the original launched stays on record; it is not ours to recover.
                    (root / name).rename(root / f"{whose}-{name}")
            words = [new, here]
            replace_file(path, f"{words[0]} {here}\n".encode(), 0o600)
    return words[0]


def _identity_words(path: Path) -> list[str]:
    """The id and the root that it was made for; empty when there is no such file."""
    hint = f"rm -r {path} (a new id is made; containers that the old one left are to be removed by hand)"
    try:
        words = read_small(path, _MAX_ID_BYTES).decode("ascii", "replace").split()
    except FileNotFoundError:
        return []
    except OSError as broken:
        why = f"the identity of this state root cannot be read: {broken.strerror}"
        raise StateError(why, where=str(path), hint=hint) from None
    if not words or not _ID.fullmatch(words[0]):
        raise StateError("the identity of this state root is damaged", where=str(path), hint=hint)
    return words


def _remove_even_if_interrupted(path: Path) -> None:
    """A signal that comes in the middle is answered once the rest is gone too."""
    ended = False
    try:
        remove_tree(path)
        ended = True
    finally:
        if not ended:
            remove_tree(path)


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    """The kernel's lock on a directory: freed with the process, whatever ends it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _take_turn(path: Path, on_wait: Callable[[], None]) -> int:
    """A descriptor of the locked file, which is the one that now has this name."""
    waited = False
    while True:
        with contextlib.ExitStack() as opened:
            handle = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
            )
            opened.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waited:
                    on_wait()
                waited = True
                fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:
                opened.pop_all()
                return handle


@contextmanager
def _use(path: Path, how: int, on_wait: Callable[[], None]) -> Iterator[None]:
    """The kernel's lock on one file that stays: shared by those who work, exclusive for who collects."""
    with state_errors(path):
        try:
            handle = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
            )
        except OSError as refused:
            if refused.errno != errno.EROFS or how == fcntl.LOCK_EX:
                raise
            handle = None
    if handle is None:  # verified where nobody can write: nobody can collect there either
        yield
        return
    try:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)


def _is_free(path: Path) -> bool:
    with contextlib.suppress(OSError):  # held, or gone just now
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(handle)
    return False


def _sweep(parent: Path, *, remove: bool = True) -> tuple[Path, ...]:
    """Remove staging directories whose process is gone: nobody holds their lock any more."""
    found = []
    for path in sorted(parent.iterdir()):
        with contextlib.suppress(OSError):  # locked by a living process, or swept by another one just now
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not remove or remove_tree(path):
                    found.append(path)
            finally:
                os.close(handle)
    return tuple(found)
