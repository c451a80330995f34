"""The content store takes only bytes that hash to their name, and leaves nothing half-written."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builder.storage.store import ContentStore
from images.digests import Integrity
from images.errors import ExitCode, PinError, StateError


def sha512(data: bytes) -> Integrity:
    return Integrity("sha512", hashlib.sha512(data).hexdigest())


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path)


def files(store: ContentStore) -> list[Path]:
    return [path for path in store.root.rglob("*") if path.is_file()]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_what_goes_in_comes_out(store: ContentStore, data: bytes) -> None:
    assert store.put(io.BytesIO(data), sha512(data), what="x", limit=1000) == len(data)
    assert store.intact(sha512(data))
    with store.open(sha512(data), "x") as file:
        assert file.read() == data


def test_sha256_works_too(store: ContentStore) -> None:
    name = Integrity("sha256", hashlib.sha256(b"a").hexdigest())
    store.put(io.BytesIO(b"a"), name, what="x", limit=9)
    assert store.holds(name)
    assert store.path_of(name).stat().st_mode & 0o777 == 0o444


def test_other_bytes_are_refused_and_leave_nothing(store: ContentStore) -> None:
    with pytest.raises(PinError, match="pkg@1: the bytes hash to sha512:") as refused:
        store.put(io.BytesIO(b"evil"), sha512(b"good"), what="pkg@1", limit=100)
    assert refused.value.code is ExitCode.PIN
    assert files(store) == []


def test_too_many_bytes_are_refused_and_leave_nothing(store: ContentStore) -> None:
    with pytest.raises(PinError, match="more than 3 bytes"):
        store.put(io.BytesIO(b"1234"), sha512(b"1234"), what="pkg@1", limit=3)
    assert files(store) == []


def test_a_disk_that_refuses_is_a_state_error(tmp_path: Path) -> None:
    (tmp_path / "sha512").write_text("in the way")
    with pytest.raises(StateError):
        ContentStore(tmp_path).put(io.BytesIO(b"a"), sha512(b"a"), what="x", limit=9)


def test_damage_is_found_when_read(store: ContentStore, tmp_path: Path) -> None:
    store.put(io.BytesIO(b"good"), sha512(b"good"), what="x", limit=9)
    path = store.path_of(sha512(b"good"))
    path.chmod(0o644)
    path.write_bytes(b"gone")
    assert not store.intact(sha512(b"good"))
    with pytest.raises(StateError, match="damaged in the store: x"), store.open(sha512(b"good"), "x"):
        pass
    with pytest.raises(StateError, match="damaged"):
        store.link_into(tmp_path, "a.tgz", sha512(b"good"), "x")
    store.put(io.BytesIO(b"good"), sha512(b"good"), what="x", limit=9)
    assert store.intact(sha512(b"good"))


def test_missing_is_named(store: ContentStore) -> None:
    assert not store.holds(sha512(b"a"))
    assert not store.intact(sha512(b"a"))
    with pytest.raises(StateError, match="not in the store: pkg@1"), store.open(sha512(b"a"), "pkg@1"):
        pass


def test_link_into(store: ContentStore, tmp_path: Path) -> None:
    store.put(io.BytesIO(b"good"), sha512(b"good"), what="x", limit=9)
    target = store.link_into(tmp_path, "a.tgz", sha512(b"good"), "x")
    assert target.read_bytes() == b"good"
    assert target.samefile(store.path_of(sha512(b"good")))
