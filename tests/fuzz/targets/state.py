"""What lies in a state root, damaged or forged: journal, ledger, marks, references; credentials."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backend.journal import Boundary, Journal, Removal
from backend.projection.credentials import read_credential
from backend.projection.routes import Route
from backend.projection.server_secrets import read_server_secret
from builder.running import launched
from builder.state import open_state
from builder.storage.references import read_references, refer_to_import, refer_to_project
from images.digests import Digest, Integrity
from images.errors import StateError
from images.lockfile import lock_bytes
from images.oci import Platform
from provenance.ledger import LedgerEntry, open_ledger
from provenance.marks import pin_marks, read_marks
from tests.fakes.admitted import NOW
from tests.fakes.journals import INTENT
from tests.fakes.locks import make_lock
from tests.fakes.policies import policy_for
from tests.fakes.projected import file_of, named
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_json import mutate_json
from tests.fuzz.target import Ready, law, target
from tests.fuzz.targets.evidence import launch_record

STATE = "5" * 32
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _journal(folder: Path) -> Path:
    path = folder / "journal.sqlite"
    with Journal.open(path, STATE) as journal:
        journal.intend(INTENT, AT)
        journal.advance("run-1", Boundary.CREATED, AT, container_id="f" * 64)
        journal.advance("run-1", Boundary.REMOVED, AT)
        journal.audit(Removal(container_id="f" * 64, launch_id="run-1", why="x"), AT)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    return path


def _read_journal(path: Path) -> object:
    with Journal.open(path, STATE) as journal:
        for one in journal.entries():
            law(
                isinstance(one.intent.launch_id, str) and isinstance(one.intent.step, int),
                "a row of other types",
            )
        for removal in journal.removals():
            law(
                isinstance(removal.container_id, str) and isinstance(removal.why, str), "a row of other types"
            )
        found = launched(journal)
        for item in found:
            for passage in item.passages:
                law(passage.at.tzinfo is not None, "a time without its zone")
        return found


@target(mutate_bytes, share=0.3)
def journal_file(folder: Path) -> Ready:
    """The journal's file, damaged."""
    path = _journal(folder)
    seed = path.read_bytes()

    def look(raw: bytes) -> object:
        for beside in folder.glob("journal.sqlite*"):
            beside.unlink()
        path.write_bytes(raw)
        return _read_journal(path)

    return Ready((seed,), look)


@target(mutate_json, share=0.3)
def journal_rows(folder: Path) -> Ready:
    """The journal's rows, written by somebody whose tables check nothing."""
    path = _journal(folder)
    tables = ("owner", "launches", "transitions", "removals")
    with contextlib.closing(sqlite3.connect(path)) as database:
        rows = {name: [list(row) for row in database.execute(f"SELECT * FROM {name}")] for name in tables}  # noqa: S608
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_schema SET sql ="
            " replace(replace(replace(sql, ') STRICT', ')'), ' NOT NULL', ''), 'TEXT', 'BLOB')"
        )
        database.commit()
    plain = path.read_bytes()
    record = launch_record(folder).seeds[0].decode()
    rows["launches"][0][-1] = record

    def look(raw: bytes) -> object:
        tree = _rows(raw)
        for beside in folder.glob("journal.sqlite*"):
            beside.unlink()
        path.write_bytes(plain)
        with contextlib.closing(sqlite3.connect(path)) as database:
            for name in tables:
                database.execute(f"DELETE FROM {name}")  # noqa: S608
                for row in tree.get(name, []):
                    marks = ",".join("?" * len(row))
                    with contextlib.suppress(sqlite3.Error, OverflowError):
                        database.execute(f"INSERT INTO {name} VALUES ({marks})", row)  # noqa: S608
            database.commit()
        return _read_journal(path)

    return Ready((json.dumps(rows).encode(),), look)


def _rows(raw: bytes) -> dict[str, list[list[Any]]]:
    """What a mutated document says of rows, as SQLite takes values; a text that is JSON becomes bytes."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise StateError("no rows") from None
    if not isinstance(document, dict):
        raise StateError("no rows")
    found: dict[str, list[list[Any]]] = {}
    for name, rows in document.items():
        if isinstance(rows, list):
            found[name] = [[_value(cell) for cell in row] for row in rows if isinstance(row, list) and row]
    return found


def _value(cell: object) -> object:
    if isinstance(cell, str):
        if cell.startswith("{"):
            return cell.encode("utf-8", "surrogatepass")
        return cell if cell.isprintable() else cell.encode("utf-8", "surrogatepass")
    return cell if isinstance(cell, int | float | None) else json.dumps(cell)


@target(mutate_bytes, share=0.3)
def ledger_file(folder: Path) -> Ready:
    """The ledger, damaged."""
    path = folder / "ledger.sqlite"
    key_ = Digest.of(b"key")
    with open_ledger(path) as ledger:
        ledger.record(
            LedgerEntry(
                key_,
                Platform("linux", "amd64"),
                Digest.of(b"i"),
                "team/x",
                Digest.of(b"l"),
                "2026-01-01T00:00:00Z",
            ),
            {},
        )
    seed = path.read_bytes()

    def look(raw: bytes) -> object:
        for beside in folder.glob("ledger.sqlite*"):
            beside.unlink()
        path.write_bytes(raw)
        with open_ledger(path) as ledger:
            return ledger.find(key_, Platform("linux", "amd64")), list(ledger.entries()), ledger.stamps()

    return Ready((seed,), look)


@target(mutate_json)
def rollback_marks(folder: Path) -> Ready:
    """The marks: lost or damaged is refused."""
    path = folder / "marks.json"
    pin_marks(path, policy_for(folder / "config"))
    seed = path.read_bytes()

    def look(raw: bytes) -> object:
        path.write_bytes(raw)
        found = read_marks(path)
        law(type(json.loads(raw)["schema"]) is int, "a schema that is no whole number was taken")
        law(type(found.serial) is int, "a serial that is no whole number")
        return found

    return Ready((seed,), look)


@target(mutate_bytes, share=0.3)
def references(folder: Path) -> Ready:
    """What holds things in a state."""
    state = open_state(folder / "state")
    raw = lock_bytes(make_lock())
    refer_to_import(state, raw)
    refer_to_project(state, folder / "project" / "builder.lock", raw)
    added = state.references / f"added-{'a' * 64}"
    added.write_bytes(f"{Integrity('sha256', 'a' * 64)}\n".encode())
    files = sorted(state.references.iterdir())
    before = {file: file.read_bytes() for file in files}

    def look(data: bytes) -> object:
        for file in files:
            file.write_bytes(data if data[:1] != b"p" or file.name.startswith("project") else before[file])
        return read_references(state)

    return Ready(tuple(before[file] for file in files), look)


def _credential(route: Route) -> Callable[[Path], Ready]:
    def make(folder: Path) -> Ready:
        def look(raw: bytes) -> object:
            found = read_credential(named(route), raw, NOW)
            law(found.secrets and all(one.reveal() for one in found.secrets), "a credential without a secret")
            refresh = b'"refresh":""' if route is Route.PI_OAUTH else b""
            law(refresh in found.content.reveal(), "the refresh token went along")
            return found.providers

        return Ready((file_of(route),), look)

    make.__name__ = f"credential_{route.name.lower()}"
    return make


for _route in Route:
    target(mutate_json if "{" in file_of(_route).decode() else mutate_bytes, share=3)(_credential(_route))


@target(mutate_bytes, share=3)
def server_secret(folder: Path) -> Ready:
    """The value of a server's variable."""
    return Ready((b"dummy-value-of-a-server\n",), lambda raw: read_server_secret("files", "FILES_TOKEN", raw))
