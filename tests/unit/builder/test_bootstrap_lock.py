"""bootstrap.lock: what parses, what does not, and that the committed one is whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.bootstrap import lock_in_use
from builder.bootstrap.golang import check_modules
from builder.bootstrap.lock import LOCK_NAME, BootstrapLock, load_lock, parse_lock, render_lock
from builder.resources import resource
from builder.roles import Role
from images.digests import Digest
from images.errors import PinError, StateError

COMMITTED = resource("bootstrap") / LOCK_NAME


@pytest.fixture
def lock() -> BootstrapLock:
    return load_lock(COMMITTED)


def test_the_committed_lock_is_written_as_we_would(lock: BootstrapLock) -> None:
    assert render_lock(lock) == COMMITTED.read_bytes()


def test_the_committed_lock_is_an_original(lock: BootstrapLock) -> None:
    assert lock.refreshed_from == ""


def test_the_committed_modules_are_the_locked_ones(lock: BootstrapLock) -> None:
    check_modules(lock.go, resource("bootstrap"))
    text = (resource("bootstrap") / "go.mod").read_text()
    for program in lock.go.programs:
        assert f"\t{program.package}\n" in text
        assert f"{program.module} {program.version}" in text


def test_every_image_has_its_packages(lock: BootstrapLock) -> None:
    for role in Role:
        names = {deb.name for deb in lock.debs_of(role)}
        assert set(lock.pins(role).asked) <= names
        assert {"libc6", "dpkg", "apt", "coreutils", "dash", "tar"} <= names


def test_the_lock_holds_no_address() -> None:
    assert b"://" not in COMMITTED.read_bytes()


def test_debs_are_named_as_apt_names_them(lock: BootstrapLock) -> None:
    epochs = [deb for deb in lock.debs if ":" in deb.version]
    assert epochs
    assert all("%3a" in deb.file_name and ":" not in deb.file_name for deb in epochs)


Document = dict[str, object]


def _change(change: Callable[[dict[str, object]], None]) -> bytes:
    document = json.loads(COMMITTED.read_bytes())
    change(document)
    return json.dumps(document).encode()


def _at(document: object, *path: str | int) -> dict[str, object]:
    for step in path:
        document = document[step]  # type: ignore[index]
    assert isinstance(document, dict)
    return document


CHANGES: dict[str, Callable[[Document], None]] = {
    "unknown key": lambda d: d.update(extra=1),
    "unknown key in a package": lambda d: _at(d, "debian", "packages", 0).update(url="x"),
    "other schema": lambda d: d.update(schema=2),
    "no schema": lambda d: d.pop("schema") and None,
    "other platform": lambda d: d.update(platform="linux/arm64"),
    "epoch as text": lambda d: d.update(epoch="1"),
    "epoch as truth": lambda d: d.update(epoch=True),
    "no resolver": lambda d: _at(d, "images").pop("resolver") and None,
    "unknown image": lambda d: _at(d, "images").update(other=_at(d, "images", "base")),
    "uppercase hash": lambda d: _at(d, "debian", "packages", 0).update(sha256="A" * 64),
    "no size": lambda d: _at(d, "debian", "packages", 0).pop("size") and None,
    "size zero": lambda d: _at(d, "debian", "packages", 0).update(size=0),
    "a path as name": lambda d: _at(d, "debian", "packages", 0).update(name="../../etc/passwd"),
    "an option as name": lambda d: _at(d, "debian", "packages", 0).update(name="-o=x"),
    "a path as version": lambda d: _at(d, "debian", "packages", 0).update(version="1/../2"),
    "a package for nothing": lambda d: _at(d, "debian", "packages", 0).update(images=[]),
    "a package for an unknown image": lambda d: _at(d, "debian", "packages", 0).update(images=["x"]),
    "wheel with an option": lambda d: _at(d, "wheels", "uv").update(version="1 --index-url=x"),
    "wheel with an epoch": lambda d: _at(d, "wheels", "uv").update(version="1:2"),
    "no node": lambda d: _at(d, "wheels").pop("node") and None,
    "go program elsewhere": lambda d: _at(d, "go", "programs", 0).update(package="./x"),
    "go flags as stamp": lambda d: _at(d, "go", "programs", 0).update(stamp="x -extld=/bin/sh"),
    "init with a space": lambda d: d.update(init="/bin/sh -c"),
    "short digest": lambda d: _at(d, "images", "base").update(manifest="sha256:00"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_not_a_lock_is_a_pin_error(name: str) -> None:
    with pytest.raises(PinError) as caught:
        parse_lock(_change(CHANGES[name]), "some.lock")
    assert caught.value.where == "some.lock"
    assert caught.value.code == 4


def test_a_package_twice_in_an_image_is_named() -> None:
    def double(document: Document) -> None:
        packages = _at(document, "debian")["packages"]
        assert isinstance(packages, list)
        packages.append({**packages[0], "version": "9999"})

    with pytest.raises(PinError, match=r"debian\.packages: adduser twice for base"):
        parse_lock(_change(double), "some.lock")


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"schema": 1, "schema": 1}', b"\xff", b"null"])
def test_what_is_not_json_is_a_pin_error(raw: bytes) -> None:
    with pytest.raises(PinError):
        parse_lock(raw, "some.lock")


def test_a_missing_lock_is_a_state_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No such file"):
        load_lock(tmp_path / "gone.lock")


def test_a_refreshed_copy_counts_while_the_original_is_the_same(tmp_path: Path) -> None:
    copy = tmp_path / LOCK_NAME
    assert lock_in_use(copy) == COMMITTED
    copy.write_bytes(_change(lambda d: d.update(refreshed_from=str(Digest.of(COMMITTED.read_bytes())))))
    assert lock_in_use(copy) == copy
    copy.write_bytes(_change(lambda d: d.update(refreshed_from="sha256:" + "0" * 64)))
    assert lock_in_use(copy) == COMMITTED
