"""The ledger finds; it never proves. Damaged it is refused or rebuilt, and a wrong answer is found out."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from images.digests import Digest
from images.errors import StateError, VerifyFailed
from images.key import content_key
from images.lockfile import lock_digest
from images.oci import Platform
from provenance.layout import blob_path, open_image, stamp_layers
from provenance.ledger import LedgerEntry, open_ledger, rebuild_ledger
from tests.fakes.evidence import attach_raw
from tests.fakes.layouts import flip
from tests.fakes.locks import AMD64
from tests.fakes.proved import NAME, World, proved_world

KEY = Digest.of(b"key")
ENTRY = LedgerEntry(KEY, AMD64, Digest.of(b"image"), NAME, Digest.of(b"lock"), "2026-11-29T10:00:00Z")


@pytest.fixture
def proved(tmp_path: Path) -> World:
    return proved_world(tmp_path)


def test_a_build_is_found_by_key_and_platform(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with open_ledger(path) as ledger:
        assert ledger.find(KEY, AMD64) is None
        ledger.record(ENTRY, {})
    with open_ledger(path) as ledger:
        assert ledger.find(KEY, AMD64) == ENTRY
        assert ledger.find(KEY, Platform("linux", "arm64")) is None
        assert ledger.find(Digest.of(b"other"), AMD64) is None
        newer = LedgerEntry(KEY, AMD64, Digest.of(b"again"), NAME, ENTRY.lock, "2026-11-30T10:00:00Z")
        ledger.record(newer, {})
        assert ledger.find(KEY, AMD64) == newer
        assert ledger.entries() == (newer,)


def test_it_is_rebuilt_from_the_layout(proved: World) -> None:
    attach_raw(proved.layout, proved.image.digest, b"not a bundle")
    with open_ledger(proved.root / "ledger.sqlite") as ledger:
        ledger.record(ENTRY, {})
        assert rebuild_ledger(ledger, proved.layout) == 1
        assert ledger.entries() == (
            LedgerEntry(
                content_key(proved.lock, AMD64),
                AMD64,
                proved.image.digest,
                NAME,
                lock_digest(proved.lock),
                "2026-11-29T10:00:00Z",
            ),
        )


def test_damage_of_any_kind_is_a_state_error_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with open_ledger(path) as ledger:
        ledger.record(ENTRY, {})
    good = path.read_bytes()
    for damaged in (b"not a database at all" * 100, good[:5000], good[:100] + b"\xff" * 4000 + good[4100:]):
        path.write_bytes(damaged)
        with pytest.raises(StateError) as caught, open_ledger(path) as ledger:
            ledger.entries()
        assert caught.value.where == str(path)
        assert caught.value.hint.startswith(f"rm {path}")


@pytest.mark.parametrize("column", ["digest", "platform", "lock"])
def test_a_tampered_value_is_a_state_error(tmp_path: Path, column: str) -> None:
    path = tmp_path / "ledger.sqlite"
    with open_ledger(path) as ledger:
        ledger.record(ENTRY, {})
    database = sqlite3.connect(path)
    with database:
        database.execute(f"UPDATE image SET {column} = '../../etc'")  # noqa: S608  (names from the list above)
    database.close()
    with pytest.raises(StateError, match="damaged"), open_ledger(path) as ledger:
        ledger.entries()


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(StateError, match="version 9"), open_ledger(path):
        pass


def test_a_folder_or_missing_parent_is_a_state_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent" / "ledger.sqlite"):
        with pytest.raises(StateError), open_ledger(path):
            pass


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"

    def work(number: int) -> None:
        for n in range(20):
            with open_ledger(path) as ledger:
                key = Digest.of(f"{number} {n}".encode())
                ledger.record(LedgerEntry(key, AMD64, key, NAME, key, "2026-11-29T10:00:00Z"), {})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_ledger(path) as ledger:
        assert len(ledger.entries()) == 60


def test_a_ledger_that_points_elsewhere_proves_nothing(proved: World) -> None:
    with open_ledger(proved.root / "ledger.sqlite") as ledger:
        key = content_key(proved.lock, AMD64)
        ledger.record(LedgerEntry(key, AMD64, proved.base.digest, NAME, lock_digest(proved.lock), "x"), {})
        found = ledger.find(key, AMD64)
    assert found is not None
    assert not proved.verify(digest=found.digest).ok


def test_stamps_spare_the_hashing_until_the_file_changes(proved: World) -> None:
    layer = proved.image.manifest.layers[1]
    path = blob_path(proved.layout, layer.digest)
    with open_ledger(proved.root / "ledger.sqlite") as ledger:
        ledger.record(ENTRY, stamp_layers(proved.image))
        known = ledger.stamps()
    assert open_image(proved.layout, proved.image.digest, known=known) == proved.image
    original = path.read_bytes()
    flip(path)
    with pytest.raises(VerifyFailed):
        open_image(proved.layout, proved.image.digest, known=known)
    path.write_bytes(original)
    assert open_image(proved.layout, proved.image.digest, known=known) == proved.image
    path.rename(path.with_suffix(".old"))
    path.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    os.utime(path, ns=(0, 0))
    with pytest.raises(VerifyFailed):
        open_image(proved.layout, proved.image.digest, known=known)


def test_a_stamp_of_another_size_never_counts(proved: World) -> None:
    known = stamp_layers(proved.image)
    path = blob_path(proved.layout, proved.image.manifest.layers[0].digest)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(VerifyFailed, match="of its descriptor"):
        open_image(proved.layout, proved.image.digest, known=known)
