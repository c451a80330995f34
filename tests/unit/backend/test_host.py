"""What the host gives an engine, read from trees of files that hosts of that kind have."""

from __future__ import annotations

import dataclasses
import os
import pwd
from pathlib import Path

import pytest

from backend import host as module
from backend.containers import EngineFacts
from backend.host import NEEDED_IDS, Host, look_at_host
from backend.probe import HostCheck, ProbeLine, ProbeState
from images.errors import LaunchReason
from tests.fakes.engine import DOCKER_FACTS

ME = pwd.getpwuid(os.geteuid()).pw_name
# A rootless engine of whoever runs this: its endpoint is no file, so its user is ours.
ROOTLESS = dataclasses.replace(DOCKER_FACTS, endpoint="store:/x")
ROOTFUL = dataclasses.replace(DOCKER_FACTS, rootless=False)
LABELLING = dataclasses.replace(ROOTLESS, security_options=("name=seccomp,profile=default", "name=selinux"))
WHOLE_MAP = ((0, 100_000, NEEDED_IDS),)


def line(root: Path, name: HostCheck, facts: EngineFacts | None = ROOTLESS, **given: object) -> ProbeLine:
    options: dict[str, object] = {"facts": facts, "uid_map": (), "state": root, "keys": (), "root": root}
    lines = look_at_host(Host(**(options | given)))  # type: ignore[arg-type]
    assert tuple(one.name for one in lines) == tuple(HostCheck)
    return next(one for one in lines if one.name is name)


def write(root: Path, name: str, text: str = "") -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("enforce", "facts", "state"),
    [
        (None, ROOTLESS, ProbeState.HELD),
        (None, None, ProbeState.HELD),
        ("1", ROOTLESS, ProbeState.NOT_HELD),
        ("0", ROOTLESS, ProbeState.NOT_HELD),
        ("1", LABELLING, ProbeState.HELD),
        ("1", None, ProbeState.UNKNOWN),
    ],
)
def test_selinux(tmp_path: Path, enforce: str | None, facts: EngineFacts | None, state: ProbeState) -> None:
    if enforce is not None:
        write(tmp_path, "sys/fs/selinux/enforce", enforce)
    found = line(tmp_path, HostCheck.SELINUX, facts)
    assert found.state is state
    assert bool(found.remedy) is (state is ProbeState.NOT_HELD)
    assert state is not ProbeState.NOT_HELD or found.reason is LaunchReason.SELINUX


@pytest.mark.parametrize(
    ("subuid", "subgid", "uid_map", "state"),
    [
        ("", "", (), ProbeState.NOT_HELD),
        ("", "", WHOLE_MAP, ProbeState.HELD),  # the name service granted them: files say nothing
        (f"{ME}:100000:65536", f"{ME}:100000:65536", (), ProbeState.HELD),
        (f"{os.geteuid()}:100000:65536\n", f"{ME}:1:40000\n{ME}:50000:25536", (), ProbeState.HELD),
        (f"{ME}:100000:65536", "", (), ProbeState.NOT_HELD),
        (f"{ME}:100000:65535", f"{ME}:100000:65536", (), ProbeState.NOT_HELD),
        ("somebody:100000:65536", "somebody:100000:65536", (), ProbeState.NOT_HELD),
        (f"{ME}:100000:many", f"{ME}:100000:65536:1", (), ProbeState.NOT_HELD),
        # The files promise what is not seen inside.
        (f"{ME}:100000:65536", f"{ME}:100000:65536", ((0, 1000, 1),), ProbeState.NOT_HELD),
    ],
)
def test_subordinate_ids(
    tmp_path: Path, subuid: str, subgid: str, uid_map: tuple[tuple[int, int, int], ...], state: ProbeState
) -> None:
    write(tmp_path, "etc/subuid", subuid)
    write(tmp_path, "etc/subgid", subgid)
    found = line(tmp_path, HostCheck.SUBORDINATE_IDS, uid_map=uid_map)
    assert found.state is state
    if state is ProbeState.NOT_HELD:
        assert found.reason is LaunchReason.SUBORDINATE_IDS
        assert f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {ME}" in found.remedy


def test_a_rootful_engine_needs_neither_ids_nor_a_stay(tmp_path: Path) -> None:
    write(tmp_path, "run/systemd/system/x")
    for name in (HostCheck.SUBORDINATE_IDS, HostCheck.LINGER):
        assert line(tmp_path, name, ROOTFUL).state is ProbeState.HELD


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ((), ProbeState.HELD),  # no systemd
        (("run/systemd/system/x",), ProbeState.NOTED),
        (("run/systemd/system/x", "var/lib/systemd/linger/somebody"), ProbeState.NOTED),
        (("run/systemd/system/x", f"var/lib/systemd/linger/{ME}"), ProbeState.HELD),
    ],
)
def test_s_14_whether_a_rootless_engine_outlives_its_user_s_login(
    tmp_path: Path, files: tuple[str, ...], state: ProbeState
) -> None:
    """podman #12001, #13240: rootless containers die at logout. As systemd keeps it in its own files."""
    for file in files:
        write(tmp_path, file)
    found = line(tmp_path, HostCheck.LINGER)
    assert found.state is state
    assert found.remedy == ("" if state is ProbeState.HELD else f"loginctl enable-linger {ME}")


@pytest.mark.parametrize(
    ("blocks", "nodes", "states"),
    [
        (module.LOW_BYTES, module.LOW_INODES, (ProbeState.HELD, ProbeState.HELD)),
        (module.LOW_BYTES - 1, module.LOW_INODES - 1, (ProbeState.NOTED, ProbeState.NOTED)),
        (module.LEAST_BYTES, module.LEAST_INODES, (ProbeState.NOTED, ProbeState.NOTED)),
        (module.LEAST_BYTES - 1, module.LOW_INODES, (ProbeState.NOT_HELD, ProbeState.HELD)),
        (module.LOW_BYTES, module.LEAST_INODES - 1, (ProbeState.HELD, ProbeState.NOT_HELD)),
        (module.LOW_BYTES, None, (ProbeState.HELD, ProbeState.HELD)),  # inodes made as needed
    ],
)
def test_room(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    blocks: int,
    nodes: int | None,
    states: tuple[ProbeState, ProbeState],
) -> None:
    """The least of both places counts, wherever it is."""
    store = tmp_path / "store"
    plenty = 1 << 50

    def statvfs(path: Path) -> os.statvfs_result:
        small = path == store
        free, left = (blocks, nodes) if small else (plenty, plenty)
        return os.statvfs_result(
            (4096, 1, plenty, free, free, 0 if left is None else plenty, 0, left or 0, 0, 255)
        )

    monkeypatch.setattr(module.os, "statvfs", statvfs)
    facts = dataclasses.replace(ROOTLESS, storage_root=str(store))
    for name, state in zip((HostCheck.DISK, HostCheck.INODES), states, strict=True):
        found = line(tmp_path, name, facts)
        assert found.state is state, found
        assert state is not ProbeState.NOT_HELD or found.reason is LaunchReason.HOST_ROOM


def test_room_that_cannot_be_asked_is_unknown_and_no_pass(tmp_path: Path) -> None:
    facts = dataclasses.replace(ROOTLESS, storage_root=str(tmp_path / "gone"))
    for name in (HostCheck.DISK, HostCheck.INODES):
        found = line(tmp_path, name, facts)
        assert (found.state, found.reason) == (ProbeState.UNKNOWN, LaunchReason.HOST_ROOM)
    # Another machine's paths are not this machine's.
    assert (
        line(tmp_path, HostCheck.DISK, dataclasses.replace(facts, remote=True)).state
        is not ProbeState.UNKNOWN
    )


def test_keys(tmp_path: Path) -> None:
    write(tmp_path, "builder.key", "dummy")
    (tmp_path / "builder.key").chmod(0o600)
    found = line(tmp_path, HostCheck.KEYS, ROOTFUL, keys=(tmp_path / "builder.key",))
    assert (found.state, found.reason) == (ProbeState.ACCEPTABLE, LaunchReason.KEYS_READABLE)
    assert "builder.key" in found.detail
    assert line(tmp_path, HostCheck.KEYS, ROOTFUL, keys=(tmp_path / "absent.key",)).state is ProbeState.HELD


def test_a_host_without_an_engine_is_judged_by_what_it_would_be(tmp_path: Path) -> None:
    found = {
        one.name: one.state for one in look_at_host(Host(facts=None, uid_map=(), state=tmp_path, keys=()))
    }
    assert set(found) == set(HostCheck)
    assert found[HostCheck.DISK] is not ProbeState.UNKNOWN


def test_a_file_that_is_no_text_or_endless_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/subuid").write_bytes(b"\xff\0:1:65536\n" * 100_000)
    (tmp_path / "etc/subgid").symlink_to("/dev/zero")
    assert line(tmp_path, HostCheck.SUBORDINATE_IDS).state is ProbeState.NOT_HELD
