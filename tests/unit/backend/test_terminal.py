"""The caller's terminal is given back after an end, a crash and a SIGKILL, and taken from no successor."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from backend import terminal
from backend.terminal import caller_terminal, make_raw
from backend.terminal_guard import give_back, pack, unpack
from backend.terminal_kind import OTHERWISE, TERMS, TerminalKind, kind_of
from images.errors import HostError, UsageError
from tests.fakes.person import PATIENCE, Person, until

# A controller of its own process, in a session whose terminal it is. It says who its guard is, then waits.
CONTROLLER = textwrap.dedent(
    """
    import fcntl, os, signal, sys, termios, time
    from backend.terminal import caller_terminal
    def work():
        with caller_terminal(0, 1) as found, found.held() as held:
            held.shown(sys.argv[1].encode().decode("unicode_escape").encode("latin-1"))
            print(held.guard.pid, os.getpid(), file=sys.stderr, flush=True)
            while True:
                time.sleep(0.01)
                if os.path.exists(sys.argv[2]):
                    break
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if len(sys.argv) == 3:
        work()
        os._exit(0)
    # With a third argument: as a job of a shell, that comes to the front while the job holds the terminal.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if not job:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        work()
        os._exit(0)
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.01)
    os.tcsetpgrp(0, os.getpid())
    print("in front", file=sys.stderr, flush=True)
    _, status = os.waitpid(job, os.WUNTRACED)
    print("job", os.WIFSTOPPED(status), file=sys.stderr, flush=True)
    """
)


class Controller:
    """One that runs. ``guard``, ``pid``: of its guard, and of whoever holds the terminal."""

    def __init__(self, person: Person, folder: Path, shows: str, *, as_job: bool) -> None:
        self.over, self.front = folder / "over", folder / "front"
        words = [shows, str(self.over), *([str(self.front)] if as_job else [])]
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLER, *words],
            stdin=person.terminal,
            stdout=person.terminal,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=Path(__file__).parents[3],
        )
        assert self._process.stderr is not None
        self._told = self._process.stderr
        self.guard, self.pid = map(int, self.said().split())

    def said(self) -> bytes:
        return self._told.readline()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        self.over.touch()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._told.close()


@contextlib.contextmanager
def controller(
    person: Person, folder: Path, shows: str = "", *, as_job: bool = False
) -> Iterator[Controller]:
    found = Controller(person, folder, shows, as_job=as_job)
    try:
        yield found
    finally:
        found.close()
        until(lambda: not runs(found.guard), "the guard stays")


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def ignores(pid: int, number: signal.Signals) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@pytest.fixture
def person() -> Iterator[Person]:
    with Person() as found:
        yield found


def sane(person: Person) -> None:
    """What a shell does that comes back to its prompt; other than the mode of before."""
    settings = termios.tcgetattr(person.terminal)
    settings[3] |= termios.ICANON | termios.ECHO | termios.ISIG | termios.ECHOCTL
    settings[6][termios.VINTR] = b"\x07"
    settings[6][termios.VKILL] = b"\x15"
    termios.tcsetattr(person.terminal, termios.TCSANOW, settings)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_controller_that_dies_leaves_the_terminal_as_it_was(
    person: Person, tmp_path: Path, number: signal.Signals
) -> None:
    before = person.settings
    with controller(person, tmp_path, r"\x1b[?1049h\x1b[?1000h") as held:
        assert person.raw
        os.kill(held.pid, number)
        until(lambda: person.settings == before, "not given back")
        person.wait_for(b"\x1b[?1049l")
        assert b"\x1b[?1000l" in person.seen


def test_a_command_that_changed_no_mode_leaves_no_code(person: Person, tmp_path: Path) -> None:
    before = person.settings
    with controller(person, tmp_path, "words\n") as held:
        held.kill()
        until(lambda: person.settings == before, "not given back")
    assert not person.seen


def test_a_guard_survives_what_ends_jobs_and_ends_itself(person: Person, tmp_path: Path) -> None:
    before = person.settings
    with controller(person, tmp_path) as held:
        assert ignores(held.guard, signal.SIGTERM), "the terminal was made raw before its guard was ready"
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGTTOU, signal.SIGPIPE):
            os.kill(held.guard, number)
        held.kill()
        until(lambda: person.settings == before, "not given back")


def test_a_controller_whose_guard_was_killed_gives_the_terminal_back_itself(
    person: Person, tmp_path: Path
) -> None:
    before = person.settings
    with controller(person, tmp_path) as held:
        os.kill(held.guard, signal.SIGKILL)
        held.end()
        until(lambda: person.settings == before, "not given back")


def test_what_a_shell_set_meanwhile_stays(person: Person, tmp_path: Path) -> None:
    with controller(person, tmp_path) as held:
        os.kill(held.guard, signal.SIGSTOP)
        held.kill()
        sane(person)
        after = person.settings
        os.kill(held.guard, signal.SIGCONT)
        until(lambda: not runs(held.guard), "the guard stays")
    assert person.settings == after


def test_a_newer_controller_waits_for_the_guard_of_a_dead_one(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would take the dead one's raw mode for the shell's, and leave that behind."""
    before = person.settings
    found = caller_terminal(person.terminal, person.terminal)
    assert found is not None
    waits: list[float] = []
    with controller(person, tmp_path) as held, found:
        # The guard goes on when, and only when, somebody waits for it: no other order of the two is possible.
        def wait(seconds: float) -> None:
            waits.append(seconds)
            os.kill(held.guard, signal.SIGCONT)
            time.sleep(seconds)

        monkeypatch.setattr(terminal, "OLDER_SECONDS", PATIENCE)
        monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
        os.kill(held.guard, signal.SIGSTOP)
        until(lambda: stopped(held.guard), "it runs")
        held.kill()
        until(lambda: not runs(held.pid), "it lives")
        try:
            with found.held():
                assert person.raw
            assert person.settings == before
        finally:
            os.kill(held.guard, signal.SIGCONT)
    assert waits


def test_a_guard_never_takes_the_terminal_from_a_newer_controller(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "OLDER_SECONDS", 0.1)
    found = caller_terminal(person.terminal, person.terminal)
    assert found is not None
    with controller(person, tmp_path) as held, found:
        os.kill(held.guard, signal.SIGSTOP)
        held.kill()
        sane(person)
        after = person.settings
        with found.held():
            mine = person.settings
            os.kill(held.guard, signal.SIGCONT)
            until(lambda: not runs(held.guard), "the guard stays")
            assert person.settings == mine
        assert person.settings == after


def test_a_job_in_the_background_is_killed_and_gives_the_terminal_back(
    person: Person, tmp_path: Path
) -> None:
    """Another session's process may set a terminal whoever is in front; it is not stopped by SIGTTOU."""
    before = person.settings
    with controller(person, tmp_path, as_job=True) as held:
        held.front.touch()
        assert held.said() == b"in front\n"
        held.kill()
        assert held.said() == b"job False\n"
        until(lambda: person.settings == before, "not given back")


def test_a_job_that_ends_in_the_background_is_not_stopped_by_giving_back(
    person: Person, tmp_path: Path
) -> None:
    before = person.settings
    with controller(person, tmp_path, as_job=True) as held:
        held.front.touch()
        assert held.said() == b"in front\n"
        held.end()
        assert held.said() == b"job False\n"
        assert person.settings == before


def test_a_job_that_was_stopped_takes_the_terminal_again(person: Person) -> None:
    found = caller_terminal(person.terminal, person.terminal)
    assert found is not None
    before = person.settings
    with found, found.held() as held:
        sane(person)
        assert held.claim()
        assert person.raw
    assert person.settings == before


def test_a_background_job_gets_no_terminal(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
    assert caller_terminal(person.terminal, person.terminal) is None


def test_two_terminals_and_what_is_none_are_not_one_terminal(person: Person, tmp_path: Path) -> None:
    with Person() as other, (tmp_path / "file").open("w") as file:
        assert caller_terminal(person.terminal, other.terminal) is None
        assert caller_terminal(person.terminal, file.fileno()) is None
        assert caller_terminal(file.fileno(), person.terminal) is None


def test_our_descriptor_does_not_block_and_the_callers_still_does(person: Person) -> None:
    with_own = caller_terminal(person.terminal, person.terminal)
    assert with_own is not None
    with with_own:
        assert not os.get_blocking(with_own.descriptor)
        assert os.get_blocking(person.terminal)


@pytest.mark.parametrize("says", ["", "exit 1", "echo read; exec sleep 60", "exec sleep 60"])
def test_without_a_guard_that_is_ready_there_is_no_raw_mode(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    before = person.settings
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755 if says else 0o644)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(terminal, "READY_SECONDS", 0.5)
    found = caller_terminal(person.terminal, person.terminal)
    assert found is not None
    with found, pytest.raises(HostError, match="guard"), found.held():
        pytest.fail("held without a guard")
    assert person.settings == before


def test_what_nobody_has_read_is_not_typed_for_the_shell(person: Person) -> None:
    """An answer that the command provoked, and that came after it had ended."""
    before = termios.tcgetattr(person.terminal)
    raw = termios.tcgetattr(person.terminal)
    make_raw(raw)
    termios.tcsetattr(person.terminal, termios.TCSANOW, raw)
    person.type(b"\x1b[?62;22c")
    assert select.select([person.terminal], [], [], 30)[0]
    give_back(person.terminal, before, b"")
    raw[6][termios.VMIN] = 0
    termios.tcsetattr(person.terminal, termios.TCSANOW, raw)
    assert os.read(person.terminal, 100) == b""


def test_settings_survive_the_way_to_the_guard(person: Person) -> None:
    settings = termios.tcgetattr(person.terminal)
    termios.tcsetattr(person.terminal, termios.TCSANOW, unpack(pack(settings)))
    assert termios.tcgetattr(person.terminal) == settings


def test_of_the_callers_environment_only_closed_values_come_in() -> None:
    assert kind_of({"TERM": "tmux-256color", "COLORTERM": "truecolor", "NO_COLOR": "x"}).environment == (
        ("COLORTERM", "truecolor"),
        ("NO_COLOR", "1"),
        ("TERM", "tmux-256color"),
    )
    assert kind_of({"TERM": "dumb; rm -rf", "COLORTERM": "evil"}).environment == (("TERM", OTHERWISE),)
    assert kind_of({}).environment == (("TERM", OTHERWISE),)
    assert {kind_of({"TERM": name}).term for name in TERMS} == TERMS
    with pytest.raises(UsageError):
        TerminalKind(term="xterm-of-my-own")
