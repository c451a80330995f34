"""The one journal of launches: each step is written down, durably, before its effect.

SQLite in WAL mode with ``synchronous = FULL``. The boundaries are a closed list with explicit transitions; a
damaged, foreign or newer file is a StateError and is never repaired by guessing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from images.digests import Digest
from images.errors import BuilderError, LaunchReason, LaunchRefused, StateError

_APPLICATION: Final = 0x41494A31  # "AIJ1"
_VERSION: Final = 1
_BUSY_SECONDS: Final = 10.0

# A text in a damaged file may be none, and so may the library's own words about it.
_SQLITE: Final = (sqlite3.Error, UnicodeDecodeError)
_SCHEMA: Final = """
CREATE TABLE owner (state_id TEXT NOT NULL) STRICT;
CREATE TABLE launches (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, step INTEGER NOT NULL, scope TEXT NOT NULL,
    class TEXT NOT NULL, lease_id TEXT NOT NULL, container_name TEXT NOT NULL UNIQUE,
    container_id TEXT NOT NULL DEFAULT '',
    image_digest TEXT NOT NULL, product TEXT NOT NULL, endpoint TEXT NOT NULL, mode TEXT NOT NULL,
    boundary TEXT NOT NULL, exit_code INTEGER, bundle BLOB, UNIQUE (run_id, step)
) STRICT;
CREATE TABLE transitions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, launch_id TEXT NOT NULL REFERENCES launches (id),
    boundary TEXT NOT NULL, at TEXT NOT NULL, detail TEXT NOT NULL
) STRICT;
CREATE TABLE removals (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, container_id TEXT NOT NULL,
    launch_id TEXT NOT NULL, why TEXT NOT NULL
) STRICT;
"""


class Boundary(StrEnum):
    """How far a launch has come. Each is durable before the effect that follows it."""

    INTENDED = "intended"  # next: volumes are made and /source filled, or the container is created
    PROVIDED = "provided"  # next: the container is created
    CREATED = "created"  # next: it is read back and compared
    CONFIRMED = "confirmed"  # next: /workspace is filled, or it is started
    FILLED = "filled"  # next: it is started
    STARTED = "started"  # next: settings inside are read back and the command is resolved
    COMMANDED = "commanded"  # next: the command runs; of a leased launch, commands, until it is closed
    ENDED = "ended"  # next: commits are exported; the pipe is closed, container and volumes removed
    EXPORTED = "exported"  # next: the pipe is closed, container and volumes removed
    REMOVED = "removed"  # next: what was exported is imported; the launch record is signed
    IMPORTED = "imported"  # next: the candidate is published, the launch record is signed
    RECORDED = "recorded"  # the end
    RECOVERED = "recovered"  # the end: its controller died, and recovery removed what was left


FINAL: Final = frozenset({Boundary.RECORDED, Boundary.RECOVERED})

_NEXT: Final[Mapping[Boundary, frozenset[Boundary]]] = {
    Boundary.INTENDED: frozenset({Boundary.PROVIDED, Boundary.CREATED, Boundary.REMOVED, Boundary.RECOVERED}),
    Boundary.PROVIDED: frozenset({Boundary.CREATED, Boundary.REMOVED, Boundary.RECOVERED}),
    Boundary.CREATED: frozenset({Boundary.CONFIRMED, Boundary.REMOVED, Boundary.RECOVERED}),
    Boundary.CONFIRMED: frozenset({Boundary.FILLED, Boundary.STARTED, Boundary.REMOVED, Boundary.RECOVERED}),
    Boundary.FILLED: frozenset({Boundary.STARTED, Boundary.REMOVED, Boundary.RECOVERED}),
    Boundary.STARTED: frozenset({Boundary.COMMANDED, Boundary.REMOVED, Boundary.RECOVERED}),
    Boundary.COMMANDED: frozenset({Boundary.ENDED, Boundary.REMOVED, Boundary.RECOVERED}),
    Boundary.ENDED: frozenset({Boundary.EXPORTED, Boundary.REMOVED, Boundary.RECOVERED}),
    Boundary.EXPORTED: frozenset({Boundary.REMOVED, Boundary.RECOVERED}),
    Boundary.REMOVED: frozenset({Boundary.IMPORTED, Boundary.RECORDED, Boundary.RECOVERED}),
    Boundary.IMPORTED: frozenset({Boundary.RECORDED, Boundary.RECOVERED}),
    Boundary.RECORDED: frozenset(),
    Boundary.RECOVERED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What is about to be created, written before anything is."""

    launch_id: str
    run_id: str
    step: int
    scope: str
    launch_class: str
    lease_id: str
    container_name: str
    image_digest: Digest
    product: str
    endpoint: str
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One launch as the journal knows it."""

    intent: Intent
    container_id: str  # empty until CREATED
    boundary: Boundary
    exit_code: int | None

    @property
    def final(self) -> bool:
        """Nothing is left to do for it."""
        return self.boundary in FINAL


@dataclass(frozen=True, slots=True)
class Passage:
    """One boundary that a launch crossed, and when."""

    boundary: Boundary
    at: datetime
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """One audit line, what recovery removed and why: a container, ``volume/NAME``, a path of the state."""

    container_id: str
    launch_id: str  # empty when no launch of the journal owned it
    why: str


class Journal:
    """An open journal; a context manager. One per process, used from one thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    def open(cls, path: Path, state_id: str) -> Self:
        """Open, or make when absent. StateError when damaged, foreign, newer, locked or another state's."""
        with _as_state_error(path):
            connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                _prepare(connection, path, state_id)
            except (*_SQLITE, BuilderError):
                connection.close()
                raise
        path.chmod(0o600)
        return cls(connection, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; idempotent."""
        self._connection.close()

    def intend(self, intent: Intent, at: datetime) -> None:
        """Write an intent down. LaunchRefused when this run has this step already: no name is used twice."""
        with self._writing() as write:
            if write.execute(
                "SELECT 1 FROM launches WHERE id = ? OR container_name = ? OR (run_id = ? AND step = ?)",
                (intent.launch_id, intent.container_name, intent.run_id, intent.step),
            ).fetchone():
                raise LaunchRefused(
                    LaunchReason.RUN_TAKEN,
                    f"run {intent.run_id!r} already has a step {intent.step}",
                    where=str(self._path),
                    hint="give the run another id, or the step another number",
                )
            write.execute(
                "INSERT INTO launches (id, run_id, step, scope, class, lease_id, container_name,"
                " image_digest, product, endpoint, mode, boundary)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    intent.launch_id,
                    intent.run_id,
                    intent.step,
                    intent.scope,
                    intent.launch_class,
                    intent.lease_id,
                    intent.container_name,
                    str(intent.image_digest),
                    intent.product,
                    intent.endpoint,
                    intent.mode,
                    Boundary.INTENDED.value,
                ),
            )
            _note(write, intent.launch_id, Boundary.INTENDED, at, "")

    def advance(
        self,
        launch_id: str,
        to: Boundary,
        at: datetime,
        *,
        container_id: str = "",
        exit_code: int | None = None,
        detail: str = "",
        bundle: bytes | None = None,
    ) -> None:
        """Move a launch over one boundary. A transition that is not in the list is a StateError."""
        with self._writing() as write:
            row = write.execute("SELECT boundary FROM launches WHERE id = ?", (launch_id,)).fetchone()
            if row is None:
                raise StateError(f"no launch {launch_id!r}", where=str(self._path))
            now = _boundary(row[0], self._path)
            if to not in _NEXT[now]:
                raise StateError(
                    f"launch {launch_id} cannot go from {now.value} to {to.value}", where=str(self._path)
                )
            write.execute(
                "UPDATE launches SET boundary = ?, container_id = coalesce(nullif(?, ''), container_id),"
                " exit_code = coalesce(?, exit_code), bundle = coalesce(?, bundle) WHERE id = ?",
                (to.value, container_id, exit_code, bundle, launch_id),
            )
            _note(write, launch_id, to, at, detail)

    def adopt(self, launch_id: str, lease_id: str, at: datetime) -> None:
        """Give a launch whose commands run to another controller's lease. StateError at another boundary."""
        with self._writing() as write:
            given = write.execute(
                "UPDATE launches SET lease_id = ? WHERE id = ? AND boundary = ?",
                (lease_id, launch_id, Boundary.COMMANDED.value),
            ).rowcount
            if given != 1:
                raise StateError(f"launch {launch_id!r} cannot be adopted", where=str(self._path))
            _note(write, launch_id, Boundary.COMMANDED, at, f"adopted under lease {lease_id}")

    def audit(self, removal: Removal, at: datetime) -> None:
        """One line for one removal, before it is done; who has to try again does not write another."""
        with self._writing() as write:
            write.execute(
                "INSERT INTO removals (at, container_id, launch_id, why) SELECT ?1, ?2, ?3, ?4"
                " WHERE NOT EXISTS (SELECT 1 FROM removals WHERE container_id = ?2)",
                (at.isoformat(), removal.container_id, removal.launch_id, removal.why),
            )

    def entries(self, run_id: str | None = None) -> tuple[Entry, ...]:
        """Every launch, or those of one run, oldest first."""
        with _as_state_error(self._path):
            rows = self._connection.execute(
                "SELECT id, run_id, step, scope, class, lease_id, container_name, image_digest, product,"
                " endpoint, mode, container_id, boundary, exit_code FROM launches"
                " WHERE ?1 IS NULL OR run_id = ?1 ORDER BY rowid",
                (run_id,),
            ).fetchall()
        return tuple(_entry(row, self._path) for row in rows)

    def passed(self, launch_id: str) -> tuple[Boundary, ...]:
        """The boundaries this launch has crossed, in order."""
        return tuple(one.boundary for one in self.passages(launch_id))

    def passages(self, launch_id: str) -> tuple[Passage, ...]:
        """The same, with their times and what was noted."""
        with _as_state_error(self._path):
            rows = self._connection.execute(
                "SELECT boundary, at, detail FROM transitions WHERE launch_id = ? ORDER BY seq", (launch_id,)
            ).fetchall()
        return tuple(_passage(row, self._path) for row in rows)

    def removals(self) -> tuple[Removal, ...]:
        """The audit lines, oldest first."""
        with _as_state_error(self._path):
            rows = self._connection.execute(
                "SELECT container_id, launch_id, why FROM removals ORDER BY seq"
            ).fetchall()
        return tuple(Removal(container_id=str(a), launch_id=str(b), why=str(c)) for a, b, c in rows)

    def bundle(self, launch_id: str) -> bytes | None:
        """The signed launch record; None when there is none (yet)."""
        with _as_state_error(self._path):
            row = self._connection.execute(
                "SELECT bundle FROM launches WHERE id = ?", (launch_id,)
            ).fetchone()
        if row is None or row[0] is None:
            return None
        if not isinstance(row[0], bytes):
            raise StateError("the journal is damaged: a record that is no bytes", where=str(self._path))
        return row[0]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with _as_state_error(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:  # something raised: leave no half-written step
                    self._connection.execute("ROLLBACK")


def _prepare(connection: sqlite3.Connection, path: Path, state_id: str) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute("INSERT INTO owner VALUES (?)", (state_id,))
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        _check(connection, path, state_id)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _check(connection: sqlite3.Connection, path: Path, state_id: str) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION:
        raise StateError("not a journal of this program", where=str(path))
    if version != _VERSION:
        raise StateError(f"a journal of format {version}, this program reads {_VERSION}", where=str(path))
    problems = connection.execute("PRAGMA quick_check(1)").fetchall()
    if problems != [("ok",)]:
        raise StateError(f"the journal is damaged: {str(problems[0][0])[:200]}", where=str(path))
    owners = connection.execute("SELECT state_id FROM owner").fetchall()
    if owners != [(state_id,)]:
        raise StateError("this journal belongs to another state root", where=str(path))


def _note(write: sqlite3.Connection, launch_id: str, boundary: Boundary, at: datetime, detail: str) -> None:
    write.execute(
        "INSERT INTO transitions (launch_id, boundary, at, detail) VALUES (?, ?, ?, ?)",
        (launch_id, boundary.value, at.isoformat(), detail[:1000]),
    )


def _entry(row: tuple[object, ...], path: Path) -> Entry:
    texts = [value if isinstance(value, str) else "" for value in row]
    step, exit_code = row[2], row[13]
    try:
        digest = Digest(texts[7])
    except BuilderError as broken:
        raise StateError(f"the journal is damaged: {broken.what}", where=str(path)) from None
    return Entry(
        intent=Intent(
            launch_id=texts[0],
            run_id=texts[1],
            step=step if isinstance(step, int) else 0,
            scope=texts[3],
            launch_class=texts[4],
            lease_id=texts[5],
            container_name=texts[6],
            image_digest=digest,
            product=texts[8],
            endpoint=texts[9],
            mode=texts[10],
        ),
        container_id=texts[11],
        boundary=_boundary(texts[12], path),
        exit_code=exit_code if isinstance(exit_code, int) else None,
    )


def _passage(row: tuple[object, ...], path: Path) -> Passage:
    try:
        at = datetime.fromisoformat(str(row[1]))
    except ValueError:
        at = datetime.min
    if at.tzinfo is None:
        raise StateError(f"the journal is damaged: time {str(row[1])[:40]!r}", where=str(path))
    return Passage(_boundary(row[0], path), at, str(row[2]))


def _boundary(value: object, path: Path) -> Boundary:
    try:
        return Boundary(str(value))
    except ValueError:
        raise StateError(f"the journal is damaged: boundary {str(value)[:40]!r}", where=str(path)) from None


@contextlib.contextmanager
def _as_state_error(path: Path) -> Iterator[None]:
    try:
        yield
    except _SQLITE as failed:
        raise StateError(
            f"the journal cannot be used: {failed}",
            where=str(path),
            hint=f"df -h {path.parent} (is the disk full?); move the file away only when nothing is running",
        ) from None
