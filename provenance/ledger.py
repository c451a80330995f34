"""The ledger: which digest a content key was built to. An index to find things fast by; never evidence."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.digests import Digest
from images.errors import BuilderError, StateError, UsageError
from images.oci import Platform
from provenance.bundles import open_bundle
from provenance.layout import Stamp, list_images
from provenance.predicates import PROVENANCE_TYPE, ProvenancePredicate, read_predicate
from provenance.referrers import read_referrers
from provenance.statements import parse_statement

VERSION: Final = 1
_WAIT: Final = 10.0  # seconds for another process to finish writing
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS image (
    key TEXT NOT NULL, platform TEXT NOT NULL, digest TEXT NOT NULL, name TEXT NOT NULL, lock TEXT NOT NULL,
    built TEXT NOT NULL, PRIMARY KEY (key, platform)
) STRICT;
CREATE TABLE IF NOT EXISTS stamp (
    digest TEXT PRIMARY KEY, size INTEGER NOT NULL, device INTEGER NOT NULL, inode INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A key, and what was built from it. ``built``: RFC 3339 in UTC, by the builder's clock."""

    key: Digest
    platform: Platform
    digest: Digest
    image_name: str
    lock: Digest
    built: str


class Ledger:
    """An open ledger; made by :func:`open_ledger` only."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._path = path

    def record(self, entry: LedgerEntry, stamps: Mapping[Digest, Stamp]) -> None:
        """Remember a build; a later one of the same key and platform takes its place."""
        with self._database as database:
            database.execute(
                "INSERT OR REPLACE INTO image VALUES (?, ?, ?, ?, ?, ?)",
                (
                    str(entry.key),
                    str(entry.platform),
                    str(entry.digest),
                    entry.image_name,
                    str(entry.lock),
                    entry.built,
                ),
            )
            database.executemany(
                "INSERT OR REPLACE INTO stamp VALUES (?, ?, ?, ?, ?)",
                [
                    (str(digest), stamp.size, stamp.device, stamp.inode, stamp.changed_ns)
                    for digest, stamp in stamps.items()
                ],
            )

    def find(self, key: Digest, platform: Platform) -> LedgerEntry | None:
        """What was built from this key. The caller proves it: the answer is only where to look."""
        rows = self._database.execute(
            "SELECT * FROM image WHERE key = ? AND platform = ?", (str(key), str(platform))
        )
        return next((self._entry(row) for row in rows), None)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Everything, newest build first."""
        rows = self._database.execute("SELECT * FROM image ORDER BY built DESC, key, platform")
        return tuple(self._entry(row) for row in rows)

    def stamps(self) -> dict[Digest, Stamp]:
        """The stamps of all layers that this machine hashed when it built them."""
        rows = self._database.execute("SELECT digest, size, device, inode, changed_ns FROM stamp")
        try:
            return {Digest(digest): Stamp(*numbers) for digest, *numbers in rows}
        except UsageError as broken:
            raise self._damaged(broken) from None

    def drop(self, images: Iterable[Digest], layers: Iterable[Digest]) -> None:
        """Forget images, and the stamps of layers, that are not in the layout any more."""
        with self._database as database:
            database.executemany("DELETE FROM image WHERE digest = ?", [(str(one),) for one in images])
            database.executemany("DELETE FROM stamp WHERE digest = ?", [(str(one),) for one in layers])

    def forget(self) -> None:
        """Empty it, before a rebuild."""
        with self._database as database:
            database.execute("DELETE FROM image")
            database.execute("DELETE FROM stamp")

    def _entry(self, row: tuple[str, str, str, str, str, str]) -> LedgerEntry:
        key, platform, digest, name, lock, built = row
        try:
            return LedgerEntry(
                Digest(key), Platform.parse(platform), Digest(digest), name, Digest(lock), built
            )
        except UsageError as broken:
            raise self._damaged(broken) from None

    def _damaged(self, broken: Exception) -> StateError:
        return StateError(
            f"the ledger is damaged: {broken}", where=str(self._path), hint=_way_out(self._path)
        )


@contextmanager
def open_ledger(path: Path) -> Iterator[Ledger]:
    """Open or make the ledger. Damaged, tampered or locked is a StateError whose hint is the way out."""
    hint = _way_out(path)
    try:
        database = sqlite3.connect(path, timeout=_WAIT)
    except sqlite3.Error as broken:
        raise StateError(f"cannot be opened: {broken}", where=str(path), hint=hint) from None
    try:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, VERSION):
            raise StateError(
                f"ledger version {version}, but this program knows {VERSION}", where=str(path), hint=hint
            )
        if version == 0:
            database.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        yield Ledger(database, path)
    except sqlite3.OperationalError as busy:
        raise StateError(f"the ledger cannot be used: {busy}", where=str(path), hint=hint) from None
    except (sqlite3.Error, UnicodeDecodeError) as broken:  # a text, or the library's own words, that are none
        raise StateError(f"the ledger is damaged: {broken}", where=str(path), hint=hint) from None
    finally:
        database.close()


def rebuild_ledger(ledger: Ledger, layout: Path) -> int:
    """Read the layout's provenance statements into the ledger again; the number of entries made.

    Signatures are not checked: the ledger is no evidence, and whoever finds an image by it verifies it.
    """
    ledger.forget()
    made = 0
    for image in list_images(layout):
        for attached in read_referrers(layout, image.digest).bundles:
            entry = entry_of_bundle(attached.data, image.digest)
            if entry is not None:
                ledger.record(entry, {})
                made += 1
    return made


def entry_of_bundle(raw: bytes, image: Digest) -> LedgerEntry | None:
    """What an attached provenance statement says of its image; None for other bundles. Nothing is proved."""
    try:
        statement = parse_statement(open_bundle(raw, "bundle").payload, "statement")
        if statement.predicate_type != PROVENANCE_TYPE or not statement.is_only_about(image):
            return None
        predicate = read_predicate(ProvenancePredicate, statement.predicate_json, "statement")
        definition = predicate.build_definition
        return LedgerEntry(
            key=Digest(definition.internal_parameters.content_key),
            platform=Platform.parse(definition.external_parameters.platform),
            digest=image,
            image_name=definition.external_parameters.image,
            lock=Digest(definition.external_parameters.lock),
            built=predicate.run_details.metadata.finished_on,
        )
    except BuilderError:
        return None


def _way_out(path: Path) -> str:
    return f"rm {path} (it is an index; the next build makes it again from the layout)"
