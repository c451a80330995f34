"""A known image is found again and proved again, and what it was hashed for is not hashed twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from builder.building.evidence import find_proved
from builder.state import State, open_state
from images.key import content_key, summarise
from images.oci import Platform
from provenance.layout import blob_path, stamp_layers
from provenance.ledger import LedgerEntry, open_ledger
from provenance.policy import Policy
from tests.fakes.layouts import flip
from tests.fakes.locks import AMD64
from tests.fakes.proved import NAME, World, proved_world


@dataclass(frozen=True)
class Asked:
    policy: Policy
    now: Callable[[], datetime]
    platform: Platform = AMD64
    image_name: str = NAME


@dataclass(frozen=True)
class Known:
    state: State
    world: World

    def find(self, now: datetime | None = None) -> bool:
        asked = Asked(self.world.policy, lambda: now or datetime.now(UTC))
        found = find_proved(self.state, asked, summarise(self.world.lock, AMD64), self.world.raw_lock)
        assert found in (None, self.world.image.digest)
        return found is not None

    def touch_all(self) -> None:
        """As a hard link made elsewhere does: the change time is another, the bytes are the same."""
        for layer in self.world.image.manifest.layers:
            path = blob_path(self.world.layout, layer.digest)
            path.with_suffix(".link").hardlink_to(path)
            path.with_suffix(".link").unlink()

    def stamps_hold(self) -> bool:
        with open_ledger(self.state.ledger) as ledger:
            return ledger.stamps() == stamp_layers(self.world.image)


@pytest.fixture
def known(tmp_path: Path) -> Known:
    state = open_state(tmp_path / "state")
    world = proved_world(state.root)
    assert world.layout == state.layout
    entry = LedgerEntry(
        key=content_key(world.lock, AMD64),
        platform=AMD64,
        digest=world.image.digest,
        image_name=NAME,
        lock=summarise(world.lock, AMD64).digest,
        built="2026-11-29T10:00:00Z",
    )
    with open_ledger(state.ledger) as ledger:
        ledger.record(entry, stamp_layers(world.image))
    return Known(state, world)


def test_what_was_hashed_again_is_stamped_again(known: Known) -> None:
    known.touch_all()
    assert not known.stamps_hold()
    assert known.find(datetime.now(UTC) + timedelta(seconds=1))
    assert known.stamps_hold()


def test_a_file_that_changed_after_the_hashing_began_keeps_its_old_stamp(known: Known) -> None:
    known.touch_all()
    assert known.find(datetime.now(UTC) - timedelta(seconds=5))
    assert not known.stamps_hold()


def test_changed_bytes_are_neither_found_nor_stamped(known: Known) -> None:
    path = blob_path(known.world.layout, known.world.image.manifest.layers[1].digest)
    flip(path)
    os.utime(path, ns=(0, 0))
    assert not known.find(datetime.now(UTC) + timedelta(seconds=1))
    assert not known.stamps_hold()
