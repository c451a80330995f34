"""Files are whole or absent; a full disk has its code and hint; what killed writers left goes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.engines.select import private_directory, write_setting
from images.errors import ExitCode, StateError
from provenance.layout_writing import init_layout, write_blob
from provenance.small_files import read_small
from provenance.writing import replace_file, temporary_file

KILLED = """
import os, signal, sys
from pathlib import Path
from provenance.writing import temporary_file
with temporary_file(Path(sys.argv[1])) as (file, _):
    file.write(b"half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_one(folder: Path) -> None:
    """What a writer leaves that is killed in the middle."""
    ended = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert [path.read_bytes() for path in folder.iterdir() if path.name.startswith(".")] == [b"half of it"]


def test_a_killed_writers_file_goes_with_the_next_write(tmp_path: Path) -> None:
    leave_one(tmp_path)
    replace_file(tmp_path / "it", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_a_killed_writers_blob_goes_with_the_next_blob(tmp_path: Path) -> None:
    init_layout(tmp_path)
    leave_one(tmp_path / "blobs/sha256")
    blob = write_blob(tmp_path, b"x", "text/plain")
    assert [path.name for path in (tmp_path / "blobs/sha256").iterdir()] == [blob.digest.hex]


def test_a_living_writers_file_and_other_peoples_stay(tmp_path: Path) -> None:
    others = [
        ".builder-new-",
        ".builder-new-short",
        ".builder-new-12345678x",
        ".new-12345678",
        "builder-new-12345678",
    ]
    for name in others:
        (tmp_path / name).write_bytes(b"theirs")
    (tmp_path / ".builder-new-folder00").mkdir()
    (tmp_path / ".builder-new-link0000").symlink_to(tmp_path / others[0])
    with temporary_file(tmp_path) as (file, temporary):
        replace_file(tmp_path / "another", b"whole")
        file.write(b"still here")
        file.flush()
        assert temporary.read_bytes() == b"still here"
    kept = {*others, ".builder-new-folder00", ".builder-new-link0000", "another"}
    assert {path.name for path in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize(
    "write",
    [
        lambda path: replace_file(path / "it", b"x"),
        lambda path: write_setting(path / "it", "x"),
        lambda path: write_blob(path, b"x", "text/plain"),
    ],
)
def test_a_disk_that_takes_nothing_is_damaged_state_and_nothing_is_left(
    write: Callable[[Path], object], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blobs/sha256").mkdir(parents=True)

    def full(_handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match=os.strerror(number)) as refused:
        write(tmp_path)
    assert refused.value.code is ExitCode.STATE
    assert refused.value.where.startswith(str(tmp_path))
    assert refused.value.hint.startswith("df -h" if number in (errno.ENOSPC, errno.EDQUOT) else "builder")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_that_cannot_be_made_is_damaged_state(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StateError, match="cannot be written"):
        private_directory(tmp_path / "file/below")


def test_a_small_file_is_small_regular_and_no_link(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"four")
    large.write_bytes(b"five!")
    assert read_small(small, 4) == b"four"
    (tmp_path / "link").symlink_to(small)
    os.mkfifo(tmp_path / "pipe")
    for path in (large, tmp_path / "link", tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError):
            read_small(path, 4)
