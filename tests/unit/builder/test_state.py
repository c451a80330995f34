"""The state root refuses what others could reach, and cleans up after dead processes."""

from __future__ import annotations

import errno
import inspect
import itertools
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from types import CodeType, FrameType

import pytest

from builder.state import State, open_state
from builder.storage.removing import remove_tree
from images.errors import ExitCode, StateError, UsageError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_a_new_root_is_private_and_keeps_its_identity(root: Path) -> None:
    before = os.umask(0o002)
    try:
        state = open_state(root)
    finally:
        os.umask(before)
    assert root.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in root.iterdir() if path.is_dir())
    assert open_state(root) == state
    assert len(state.id) == 32
    assert (state.layout / "index.json").is_file()


def test_a_link_in_the_path_is_refused(tmp_path: Path, root: Path) -> None:
    open_state(root)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(StateError, match="symbolic link") as refused:
        open_state(link / "state")
    assert str(root) in refused.value.hint
    assert refused.value.code is ExitCode.STATE


@pytest.mark.parametrize("name", ["a\x01", "a\nb", "a\x1b[2J", "a\udcff", "a\u202eb"])
def test_a_path_that_other_programs_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_state(tmp_path / name)
    assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777])
def test_an_open_root_is_refused(root: Path, mode: int) -> None:
    open_state(root)
    root.chmod(mode)
    with pytest.raises(StateError, match="others may look in") as refused:
        open_state(root)
    assert refused.value.hint == f"chmod 700 {root}"


def test_a_parent_that_everybody_may_change_is_refused(tmp_path: Path) -> None:
    parent = tmp_path / "open"
    parent.mkdir()
    parent.chmod(0o777)
    with pytest.raises(StateError, match="everybody may rename"):
        open_state(parent / "state")


def test_a_foreign_root_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_state(root)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StateError, match="belongs to uid"):
        open_state(root)


def test_a_file_in_its_place_is_refused(root: Path) -> None:
    root.write_text("")
    with pytest.raises(StateError, match="not a directory"):
        open_state(root)


def test_a_relative_root_is_refused() -> None:
    with pytest.raises(StateError, match="absolute"):
        open_state(Path("state"))


def test_a_copy_is_another_owner_and_leaves_the_journal_of_the_original_alone(root: Path) -> None:
    """Or it would reap the containers of the original, whose leases it does not see."""
    original = open_state(root)
    original.journal.write_bytes(b"launches of the original")
    copy = Path(shutil.copytree(root, root.with_name("copy")))
    copy.chmod(0o700)
    copied = open_state(copy)
    assert copied.id != original.id
    assert not copied.journal.exists()
    assert (copy / f"of-{original.id[:8]}-journal.sqlite").read_bytes() == b"launches of the original"
    assert open_state(copy).id == copied.id
    assert open_state(root).id == original.id
    assert original.journal.exists()


def test_a_root_that_is_moved_stays_itself(root: Path) -> None:
    original = open_state(root)
    assert open_state(root.rename(root.with_name("moved"))).id == original.id


def _make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"x\n"),
        lambda path: path.write_bytes(b"\xff\0" * 50),
        lambda path: os.truncate(path, 1 << 40),
        lambda path: (path.unlink(), path.mkdir()),
        _make_pipe,
        lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
        lambda path: (path.unlink(), path.symlink_to("nowhere")),
        lambda path: (path.unlink(), path.symlink_to(path)),
    ],
)
def test_a_damaged_identity_is_refused_with_a_way_out(damage: Callable[[Path], object], root: Path) -> None:
    open_state(root)
    path = root / "state-id"
    damage(path)
    with pytest.raises(StateError, match="identity") as refused:
        open_state(root)
    assert refused.value.hint.startswith(f"rm -r {path}")


def test_a_lost_identity_is_made_anew_and_the_journal_is_put_aside(root: Path) -> None:
    lost = open_state(root)
    lost.journal.write_bytes(b"launches under the lost identity")
    (root / "state-id").unlink()
    found = open_state(root)
    assert found.id != lost.id
    assert not found.journal.exists()
    aside = root / f"before-{found.id[:8]}-journal.sqlite"
    assert aside.read_bytes() == b"launches under the lost identity"


def test_staging_is_private_and_goes(root: Path) -> None:
    state = open_state(root)
    with state.staging("build") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("x")
        (folder / "deep").chmod(0o500)
    assert list((root / "staging").iterdir()) == []


def interrupt_at(number: int, codes: set[CodeType]) -> None:
    """Raises what Ctrl-C raises before the given line of these functions, counted as they run."""
    seen = itertools.count()

    def trace(frame: FrameType, event: str, _: object) -> object:
        if frame.f_code not in codes:
            return None
        if event == "line" and next(seen) == number:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)


def test_a_signal_while_staging_is_made_leaves_none(root: Path) -> None:
    state = open_state(root)
    made: CodeType = inspect.unwrap(State.staging).__code__
    for line in itertools.count(1):  # the line before it names the folder
        interrupt_at(line, {made})
        try:
            with state.staging("build"):
                sys.settrace(None)
                break  # all lines before it were tried
        except KeyboardInterrupt:
            assert list(state.staged.iterdir()) == []
        finally:
            sys.settrace(None)
    assert line > 6


def test_a_signal_while_staging_is_removed_is_answered_after_that(root: Path) -> None:
    state = open_state(root)

    def stage(line: int) -> None:
        with state.staging("build") as folder:
            (folder / "file").write_text("x")
            interrupt_at(line, {remove_tree.__code__})

    for line in range(4):
        with pytest.raises(KeyboardInterrupt):
            stage(line)
        sys.settrace(None)
        assert list(state.staged.iterdir()) == []


def test_staging_of_the_dead_is_swept_and_of_the_living_is_kept(root: Path) -> None:
    state = open_state(root)
    dead = root / "staging" / "build-0000"
    dead.mkdir()
    (dead / "file").write_text("x")
    with state.staging("one") as living:
        assert not dead.exists()
        with state.staging("two"):
            assert living.is_dir()


def nested(folder: Path, depth: int) -> None:
    """Directories in each other, as a container makes them: no path names the innermost."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)


def test_staging_that_a_container_filled_goes_whatever_lies_in_it(root: Path, tmp_path: Path) -> None:
    """Deeper than a recursion and a path go, closed, and with links to what is not in it."""
    state = open_state(root)
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").write_text("x")
    for dead in (state.staged / "build-0000", state.staged / "build-0001"):
        (dead / "socket" / "b").mkdir(parents=True)
        nested(dead / "socket" / "b", 3000)
        (dead / "socket" / "link").symlink_to(outside)
        (dead / "socket" / "file").write_text("x")
        (dead / "socket").chmod(0o000)
    (state.staged / "build-0002").mkdir()
    (state.staged / "build-0002" / "link").symlink_to(outside)
    assert len(state.sweep_staging(remove=False)) == 3
    with state.staging("build") as folder:
        assert list(state.staged.iterdir()) == [folder]
        nested(folder, 3000)
    assert list(state.staged.iterdir()) == []
    assert (outside / "kept").read_text() == "x"
    assert outside.stat().st_mode & 0o777 == 0o755


def test_what_cannot_be_swept_is_not_said_to_be_gone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's directory, as an engine without root leaves one."""
    state = open_state(root)
    (state.staged / "build-0000" / "theirs").mkdir(parents=True)
    monkeypatch.setattr(os, "rmdir", lambda *_, **__: (_ for _ in ()).throw(PermissionError(1, "theirs")))
    assert state.sweep_staging() == ()
    monkeypatch.undo()
    assert state.sweep_staging() == (state.staged / "build-0000",)


def _open(root: Path) -> str:
    return open_state(root).id


def test_two_processes_make_one_root(root: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        ids = pool.map(_open, [root] * 4)
    assert len(set(ids)) == 1


def take_turn(root: Path, waits: Synchronized[int], log: Path) -> None:
    def waiting() -> None:
        with waits.get_lock():
            waits.value += 1

    with open_state(root).turn("key", waiting), log.open("a") as file:
        for word in ("in", "out"):
            file.write(f"{word} {os.getpid()}\n")
            file.flush()
            time.sleep(0.05)


def test_turns_of_one_name_never_overlap_and_leave_no_file(root: Path, tmp_path: Path) -> None:
    """Many processes: each waits for the one before it, also when the file that it waits on is gone."""
    open_state(root)
    fork = multiprocessing.get_context("fork")
    waits, log = fork.Value("i", 0), tmp_path / "log"
    processes = [fork.Process(target=take_turn, args=(root, waits, log)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    lines = [line.split() for line in log.read_text().splitlines()]
    assert [word for word, _ in lines] == ["in", "out"] * 6
    assert all(one[1] == other[1] for one, other in zip(lines[::2], lines[1::2], strict=True))
    assert 1 <= waits.value <= 5
    assert list((root / "turns").iterdir()) == []


def test_turns_of_other_names_do_not_wait(root: Path) -> None:
    state = open_state(root)
    with state.turn("one", pytest.fail), state.turn("two", pytest.fail):
        pass


def test_a_dead_holder_frees_its_turn(root: Path) -> None:
    state = open_state(root)
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=hold_and_die, args=(root,))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    assert list((root / "turns").iterdir()) != []
    with state.turn("key", pytest.fail):
        pass


def hold_and_die(root: Path) -> None:
    with open_state(root).turn("key", pytest.fail):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("name", ["index.json", "oci-layout"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"manifests":1}'])
def test_a_damaged_layout_is_damaged_state(name: str, content: bytes, root: Path) -> None:
    path = open_state(root).layout / name
    path.write_bytes(content)
    with pytest.raises(StateError, match="layout of this state is damaged") as refused:
        open_state(root)
    assert refused.value.where
    assert "builder bootstrap" in refused.value.hint


def test_a_loop_of_links_in_the_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StateError, match="symbolic link"):
        open_state(tmp_path / "loop")


def test_a_turn_whose_file_is_gone_is_not_the_turn(root: Path) -> None:
    """Who waited on the old file must not hold its turn beside who made a new one."""
    state, fork = open_state(root), multiprocessing.get_context("fork")
    go, waiting, inside, leave = (fork.Event() for _ in range(4))

    def second() -> None:
        assert go.wait(30)
        with state.turn("key", waiting.set):
            inside.set()
            leave.wait(30)

    # Started first: a fork inherits the descriptors of its parent, and with them the turn.
    process = fork.Process(target=second, daemon=True)
    process.start()
    with state.turn("key", pytest.fail):
        go.set()
        assert waiting.wait(30)
    assert inside.wait(30)
    with state.turn("key", leave.set):
        waited = leave.is_set()
    leave.set()
    process.join(30)
    assert waited


def test_a_signal_ends_the_waiting(root: Path) -> None:
    state, fork = open_state(root), multiprocessing.get_context("fork")
    go, waiting = fork.Event(), fork.Event()

    def second() -> None:
        assert go.wait(30)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with state.turn("key", waiting.set):
                os._exit(1)
        except KeyboardInterrupt:
            os._exit(7)

    process = fork.Process(target=second, daemon=True)
    process.start()
    with state.turn("key", pytest.fail):
        go.set()
        assert waiting.wait(30)
        time.sleep(0.3)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGINT)
        process.join(10)
        assert process.exitcode == 7


def test_a_state_that_nobody_can_write_is_worked_with_and_not_collected(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_state(root)
    opened = os.open

    def read_only(path: object, flags: int, *rest: int, **more: int) -> int:
        if str(path).endswith("use.lock"):
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("builder.state.os.open", read_only)
    with state.in_use(lambda: None), state.in_use(lambda: None):
        pass
    with pytest.raises(StateError, match="Read-only"), state.collecting(lambda: None):
        pass
