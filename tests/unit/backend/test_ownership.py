"""Leases: alive while the process lives, dead at once when it is killed; labels; exclusive locks."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from pathlib import Path

import pytest

from backend import ownership
from backend.containers import Purpose
from images.errors import StateError

STATE = "5" * 32


def test_a_held_lease_is_alive_and_a_returned_one_is_gone(tmp_path: Path) -> None:
    leases = tmp_path / "leases"
    with ownership.hold_lease(leases, STATE) as owner:
        assert ownership.is_alive(leases, owner.lease_id)
        assert (leases / owner.lease_id).stat().st_mode & 0o777 == 0o600
        assert f"pid {os.getpid()}" in (leases / owner.lease_id).read_text()
    assert not ownership.is_alive(leases, owner.lease_id)
    assert list(leases.iterdir()) == []


def test_a_killed_holder_is_dead(tmp_path: Path) -> None:
    leases = tmp_path / "leases"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with ownership.hold_lease(leases, STATE) as owner:
            os.write(writer, owner.lease_id.encode())
            signal.pause()
    lease_id = os.read(reader, 64).decode()
    assert ownership.is_alive(leases, lease_id)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not ownership.is_alive(leases, lease_id)
    ownership.forget_dead_leases(leases)
    assert list(leases.iterdir()) == []
    os.close(reader)
    os.close(writer)


def test_forgetting_leaves_the_living_and_the_foreign_alone(tmp_path: Path) -> None:
    leases = tmp_path / "leases"
    with ownership.hold_lease(leases, STATE) as owner:
        (leases / "notes.txt").write_text("not a lease")
        ownership.forget_dead_leases(leases)
        assert sorted(path.name for path in leases.iterdir()) == sorted([owner.lease_id, "notes.txt"])


def test_a_lease_that_looked_dead_before_it_was_taken_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is there a moment before its lock: who sweeps in between must look again."""
    leases = tmp_path / "leases"
    with ownership.hold_lease(leases, STATE) as owner:
        monkeypatch.setattr(ownership, "dead_leases", lambda at: (at / owner.lease_id, at / ("0" * 32)))
        ownership.forget_dead_leases(leases)
        assert ownership.is_alive(leases, owner.lease_id)


def test_a_lease_that_is_swept_before_it_is_locked_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases, lock, swept = tmp_path / "leases", fcntl.flock, []

    def late(handle: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not swept:
            swept.append(next(leases.iterdir()))
            ownership.forget_lease(swept[0])
            assert not swept[0].exists()
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with ownership.hold_lease(leases, STATE) as owner:
        assert ownership.is_alive(leases, owner.lease_id)
    assert swept


@pytest.mark.parametrize("lease_id", ["", "../../etc/passwd", "x" * 32, "A" * 32])
def test_a_malformed_id_has_no_owner(tmp_path: Path, lease_id: str) -> None:
    assert not ownership.is_alive(tmp_path, lease_id)


def test_a_link_in_place_of_a_lease_is_refused(tmp_path: Path) -> None:
    (tmp_path / ("a" * 32)).symlink_to("/etc/passwd")
    with pytest.raises(StateError):
        ownership.is_alive(tmp_path, "a" * 32)


@pytest.mark.parametrize(("state", "lease"), [("short", "a" * 32), ("a" * 32, "/etc")])
def test_an_owner_needs_two_ids(state: str, lease: str) -> None:
    with pytest.raises(StateError):
        ownership.Owner(state, lease)


def test_labels_name_state_owner_and_purpose() -> None:
    labels = dict(ownership.Owner("a" * 32, "b" * 32).labels(Purpose.BUILD))
    assert labels == {
        "agent-image-builder.state": "a" * 32,
        "agent-image-builder.owner": "b" * 32,
        "agent-image-builder.purpose": "build",
    }


def test_exclusive_is_exclusive(tmp_path: Path) -> None:
    lock = tmp_path / "recovery.lock"
    order: list[str] = []

    def second() -> None:
        with ownership.exclusive(lock):
            order.append("second")

    with ownership.exclusive(lock):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.1)
        order.append("first")
    waiting.join(5)
    assert order == ["first", "second"]
