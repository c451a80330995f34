"""The account that a container gives of itself: the real script in a real shell, and a strict reader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backend.commands import Command
from backend.inside import inside_argv, read_inside
from backend.runner import run
from images.errors import HostError

NONCE = "c0ffee"


def answer(command: str, *places: str, path: str = "/usr/bin:/bin", cwd: Path = Path("/")) -> bytes:
    outcome = run(
        Command(
            argv=inside_argv(NONCE, command, places),
            environment={"PATH": path, "ODD": "a\nb", "EMPTY": ""},
            deadline=30,
            working_dir=cwd,
        )
    )
    assert outcome.ok, outcome
    return outcome.stdout


def test_this_very_process(tmp_path: Path) -> None:
    found = read_inside(answer("cat", str(tmp_path), "/proc/1"), NONCE)
    environment = dict(found.environment)
    assert environment["EMPTY"] == ""
    assert environment["ODD"] == "a\nb"
    assert environment["PATH"] == "/usr/bin:/bin"
    assert found.process.uids == {os.getuid()}
    assert found.process.gids == {os.getgid()}
    assert any(mount.target == "/" for mount in found.mounts)
    assert "lo" in found.interfaces
    assert found.uid_map
    assert dict(found.writable)[str(tmp_path)] is True
    assert found.command == "/usr/bin/cat"


def test_another_nonce_is_another_answer() -> None:
    """It is fresh in each look, so nothing in an image's environment can forge a section."""
    with pytest.raises(HostError):
        read_inside(answer("cat"), "another")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("tool", "{here}/tool"),
        ("{here}/tool", "{here}/tool"),
        ("./tool", "{here}/./tool"),
        ("data", ""),  # not executable
        ("folder", ""),
        ("{here}/folder", ""),
        ("cd", ""),  # a builtin of the shell is no program
        ("nosuch", ""),
        ("-n", ""),
        ("$(touch x)", ""),
        ("a b", "{here}/a b"),
        ("*", ""),
    ],
)
def test_commands_are_found_as_execvp_finds_them(tmp_path: Path, wanted: str, found: str) -> None:
    for name in ("tool", "a b"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "data").write_text("x")
    (tmp_path / "data").chmod(0o644)
    (tmp_path / "folder").mkdir()
    for name in ("sh", "cat"):  # the script's own
        (tmp_path / name).symlink_to(f"/bin/{name}")
    said = answer(wanted.format(here=tmp_path), path=f"{tmp_path}:/nowhere", cwd=tmp_path)
    assert read_inside(said, NONCE).command == found.format(here=tmp_path)
    assert not (tmp_path / "x").exists()


def whole() -> bytes:
    return answer("cat")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:0],
        lambda text: text[: len(text) // 2],
        lambda text: b"hello" + text,
        lambda text: text + text,
        lambda text: text.replace(b"c0ffee mounts", b"c0ffee limits"),
        lambda text: text.replace(b"Uid:", b"Vid:"),
        lambda text: text.replace(b"CapEff:\t", b"CapEff:\txyz"),
        lambda text: text.replace(b" - proc proc ", b" proc proc "),
        lambda text: text.replace(b"\nc0ffee uid-map\n", b"\nc0ffee uid-map\n1 2\n"),
        lambda text: text.replace(b"\nc0ffee limits\n", b"\nc0ffee limits\nmemory.max lots\n"),
        lambda text: text.replace(b"\nc0ffee limits\n", b"\nc0ffee limits\ncpu.max 100000 0\n"),
        lambda text: text.replace(b"\nc0ffee limits\n", b"\nc0ffee limits\ncpu.max 1%s 1\n" % (b"0" * 400)),
    ],
)
def test_a_malformed_account_is_the_hosts_failure(spoil) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(HostError):
        read_inside(spoil(whole()), NONCE)
