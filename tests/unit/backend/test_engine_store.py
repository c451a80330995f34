"""The engine's store under a policy that does not trust it: what is found, named, remembered, forgotten."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend import engine_store
from backend.admission import AdmittedImage
from backend.journal import Boundary
from backend.launch import launch
from images.errors import HostError, LaunchReason, LaunchRefused, StateError
from provenance.verify import VerifiedImage
from tests.attacks import Position, attack
from tests.fakes.admitted import Bench, admitted_of, request
from tests.fakes.engine import DOCKER_FACTS, said
from tests.unit.backend.test_launch import predicate_of
from tests.unit.provenance.test_file_tree import entry, tar

BOOT = "3b7c4e0e-0000-4000-8000-000000000001"


@pytest.fixture
def admitted(verified: VerifiedImage) -> AdmittedImage:
    policy = dataclasses.replace(verified.policy, rehash_store=True)
    found = admitted_of(dataclasses.replace(verified, policy=policy))
    assert found.rehash_store
    return found


@pytest.fixture(autouse=True)
def stores(at: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "probe"
    folder.mkdir(mode=0o700)
    at.controller = dataclasses.replace(at.controller, stores=folder)
    at.engine.answers["true",] = said()
    monkeypatch.setattr(engine_store, "boot_id", lambda: BOOT)
    return folder


def run(at: Bench, admitted: AdmittedImage, step: int = 1) -> Any:
    launch(at.controller, admitted, request(step=step))
    return predicate_of(at, f"run.{step}")["settings"]["store"]


def test_a_store_that_holds_the_image_is_hashed_once(at: Bench, admitted: AdmittedImage) -> None:
    assert [run(at, admitted, step) for step in (1, 2, 3)] == ["hashed", "hashed-before", "hashed-before"]
    assert at.engine.calls.count("pack") == 1


def test_a_policy_that_trusts_it_asks_nothing(at: Bench, verified: VerifiedImage) -> None:
    assert run(at, admitted_of(verified)) == "trusted"
    assert "pack" not in at.engine.calls


def test_nothing_has_started_when_it_is_looked_at(at: Bench, admitted: AdmittedImage) -> None:
    run(at, admitted)
    calls = [call for call in at.engine.calls if call in ("create", "inspect", "pack", "attach", "exec")]
    assert calls.index("pack") < min(calls.index("attach"), calls.index("exec"))


def members_of(packed: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    found = []
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            found.append((member, file.read() if file else b""))
    return found


def with_first(**more: object) -> Callable[[bytes], bytes]:
    """The same tar, with other fields in its first file."""

    def change(packed: bytes) -> bytes:
        members = members_of(packed)
        first = next(member for member, content in members if content)
        for key, value in more.items():
            setattr(first, key, value)
        return tar(*members)

    return change


def with_another_byte(packed: bytes) -> bytes:
    members = members_of(packed)
    number = next(number for number, (_, content) in enumerate(members) if content)
    member, content = members[number]
    members[number] = member, bytes([content[0] ^ 1]) + content[1:]
    return tar(*members)


CHANGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a byte of a file": (with_another_byte, r"\(content\)"),
    "a file more": (
        lambda packed: tar(*members_of(packed), entry("opt/more")),
        r"/opt/more \(not in the image",
    ),
    "a mode": (with_first(mode=0o4755), r"\(mode\)"),
    "an owner": (with_first(uid=1000), r"\(uid\)"),
    "a link": (with_first(type=tarfile.SYMTYPE, size=0, linkname="/x"), r"\(kind, size, content, link\)"),
    "nothing left": (lambda _: tar(), r"\(missing\)"),
    "more than all of it": (lambda _: tar(entry("etc/x", content=bytes(4 << 20))), "more bytes than"),
}


@attack(by=Position.STORE_WRITER)
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_differs_refuses_and_is_recorded(
    at: Bench, admitted: AdmittedImage, stores: Path, change: str
) -> None:
    at.engine.packs, said = CHANGES[change]
    with pytest.raises(LaunchRefused, match=said) as caught:
        run(at, admitted)
    assert caught.value.reason == LaunchReason.ENGINE_STORE
    assert "docker image rm" in caught.value.hint
    assert at.engine.containers == {}
    assert Boundary.STARTED not in at.journal.passed("run.1")
    found = predicate_of(at)
    assert (found["ending"], found["reason"]) == ("refused", "engine-store")
    assert list(stores.iterdir()) == []
    at.engine.packs = lambda packed: packed
    assert run(at, admitted, 2) == "hashed"


def test_what_is_no_tar_is_the_engines_failure(at: Bench, admitted: AdmittedImage) -> None:
    at.engine.packs = lambda packed: packed[:700]
    with pytest.raises(HostError, match="no tar that can be read"):
        run(at, admitted)


def test_a_full_disk_is_said_and_is_no_interruption(
    at: Bench, admitted: AdmittedImage, stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(at.engine, "pack", full)
    with pytest.raises(StateError, match="No space left") as caught:
        run(at, admitted)
    assert "df -h" in caught.value.hint
    assert (predicate_of(at)["ending"], predicate_of(at)["settings"]["store"]) == ("failed", None)
    assert (at.engine.containers, list(stores.iterdir())) == ({}, [])


def test_a_good_answer_is_of_its_boot_engine_and_image(
    at: Bench, admitted: AdmittedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(at, admitted) == "hashed"
    monkeypatch.setattr(engine_store, "boot_id", lambda: BOOT.replace("1", "2"))
    assert run(at, admitted, 2) == "hashed"
    other = dataclasses.replace(DOCKER_FACTS, storage_root="/elsewhere")
    at.engine.told = other
    assert run(at, dataclasses.replace(admitted, facts=other), 3) == "hashed"
    assert run(at, dataclasses.replace(admitted, facts=other), 4) == "hashed-before"


def test_who_sweeps_is_told_which_answers_are_of_this_boot(
    at: Bench, admitted: AdmittedImage, stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(at, admitted)
    (kept,) = stores.iterdir()
    assert engine_store.is_of_this_boot(kept)
    monkeypatch.setattr(engine_store, "boot_id", lambda: BOOT.replace("1", "2"))
    assert not engine_store.is_of_this_boot(kept)


@pytest.mark.parametrize("how", ["open to others", "a link", "two names", "changed", "cut", "longer"])
def test_an_answer_that_is_not_exactly_ours_counts_for_nothing(
    at: Bench, admitted: AdmittedImage, stores: Path, how: str
) -> None:
    run(at, admitted)
    (kept,) = stores.iterdir()
    raw = kept.read_bytes()
    if how == "open to others":
        kept.chmod(0o640)
    elif how == "a link":
        kept.rename(stores / "other")
        kept.symlink_to(stores / "other")
    elif how == "two names":
        os.link(kept, stores / "other")
    else:
        others = {"changed": raw.replace(b"docker", b"dockeR"), "cut": raw[:-1], "longer": raw + b" "}
        kept.write_bytes(others[how])
    assert run(at, admitted, 2) == "hashed"


@pytest.mark.parametrize("length", [700, 1 << 20])
def test_the_file_of_the_tar_is_gone_afterwards(at: Bench, admitted: AdmittedImage, length: int) -> None:
    at.engine.packs = lambda packed: packed[:length]
    with contextlib.suppress(HostError):
        run(at, admitted)
    assert "pack" in at.engine.calls
    assert [path.name for path in at.controller.staging.rglob("*.tar")] == []
