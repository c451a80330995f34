"""A command on the caller's terminal: every byte, the size, floods, and hostile ends; with real terminals."""

from __future__ import annotations

import os
import resource
import sys
import termios
from collections.abc import Iterator

import pytest

from backend.commands import Ending, Outcome
from backend.foreground import Foreground, run_foreground, sized
from backend.terminal import CallerTerminal, caller_terminal
from tests.fakes.person import Person, beside, until

ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}


@pytest.fixture
def person() -> Iterator[Person]:
    with Person() as found:
        yield found


def terminal_of(person: Person) -> CallerTerminal:
    found = caller_terminal(person.terminal, person.terminal)
    assert found is not None
    return found


def shown(person: Person, *argv: str, deadline: float = 60.0, **more: object) -> Outcome:
    taken = bytearray()
    what = Foreground(
        argv=argv,
        environment=ENVIRONMENT,
        deadline=deadline,
        on_chunk=taken.extend,
        **more,  # type: ignore[arg-type]
    )
    with terminal_of(person) as terminal:
        return run_foreground(terminal, what)


def test_the_exit_code_is_the_commands_and_all_that_it_wrote_is_shown(person: Person) -> None:
    outcome = shown(person, "sh", "-c", "echo out; echo err >&2; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && exit 7")
    assert (outcome.ending, outcome.exit_code, outcome.stdout) == (Ending.EXITED, 7, b"")
    person.wait_for(b"out\nerr\n")


def test_nothing_is_lost_of_a_flood_and_it_waits_for_who_looks_away(person: Person) -> None:
    person.looks_away = True
    with beside(lambda: (until(lambda: person.raw, "raw"), setattr(person, "looks_away", False))[0]):
        outcome = shown(person, "sh", "-c", "seq 1 300000; printf end")
    assert outcome.ok
    person.wait_for(b"end")
    assert bytes(person.seen).split() == [*(b"%d" % n for n in range(1, 300001)), b"end"]


def test_a_flood_that_nobody_reads_costs_no_memory_and_ends_at_its_deadline(person: Person) -> None:
    person.looks_away = True
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = shown(person, "yes", "a flood of the same line, again and again", deadline=1.0)
    assert outcome.ending is Ending.TIMED_OUT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
    assert not person.raw


def test_every_byte_that_is_typed_arrives_as_it_is_signals_and_detach_keys_too(person: Person) -> None:
    keys = bytes(range(256))
    script = "import os,sys; got=b''\nsys.stdout.write('go'); sys.stdout.flush()\n"
    script += "while len(got) < 256: got += os.read(0, 256)\nprint(got.hex())"

    def act() -> None:
        person.wait_for(b"go")
        person.type(keys)

    with beside(act):
        outcome = shown(person, sys.executable, "-c", script)
    assert outcome.ok
    person.wait_for(keys.hex().encode())


def test_the_client_begins_with_the_size_and_hears_of_each_change_through_a_storm(person: Person) -> None:
    person.resize(31, 101)
    script = (
        "import os,signal,sys,time\n"
        "def told(*_): print(*os.get_terminal_size(), flush=True)\n"
        "signal.signal(signal.SIGWINCH, told); told()\n"
        "while os.get_terminal_size().columns != 222: time.sleep(0.01)\n"
        "sys.exit(3)"
    )

    def act() -> None:
        person.wait_for(b"101 31")
        for width in range(1, 3000):
            person.resize(20, width % 200 + 1)
        person.resize(45, 222)

    with beside(act):
        outcome = shown(person, sys.executable, "-c", script)
    assert outcome.exit_code == 3
    person.wait_for(b"101 31")


def test_a_command_waits_until_its_terminal_has_a_size(person: Person) -> None:
    outcome = shown(person, *sized(("sh", "-c", 'stty size; echo "$1"; exit 5', "x", "two  words")))
    assert outcome.exit_code == 5
    person.wait_for(b"24 80\n")
    person.wait_for(b"two  words\n")


def test_a_terminal_without_a_size_gets_an_ordinary_one(person: Person) -> None:
    person.resize(0, 0)
    assert shown(person, "stty", "size").ok
    person.wait_for(b"24 80")


def test_a_cancelled_command_ends_and_the_terminal_is_as_it_was(person: Person) -> None:
    before = person.settings
    outcome = shown(person, "sleep", "60", cancelled=lambda: person.raw)
    assert outcome.ending is Ending.CANCELLED
    assert person.settings == before


def test_a_window_that_is_closed_ends_the_client(person: Person) -> None:
    def act() -> None:
        person.wait_for(b"here")
        person.hang_up()

    with beside(act):
        outcome = shown(person, "sh", "-c", "trap '' HUP; echo here; sleep 60")
    assert outcome.ending is Ending.HUNG_UP


def test_an_exception_of_a_signal_ends_the_client_and_gives_the_terminal_back(person: Person) -> None:
    before = person.settings

    def interrupt() -> bool:
        if person.raw:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        shown(person, "sleep", "60", cancelled=interrupt)
    assert person.settings == before


def test_a_client_that_is_not_there_leaves_no_raw_terminal(person: Person) -> None:
    before = person.settings
    assert shown(person, "/nowhere/at-all").ending is Ending.NOT_FOUND
    assert person.settings == before


def test_who_keeps_the_other_side_open_is_not_waited_for(person: Person) -> None:
    outcome = shown(person, "sh", "-c", "setsid sh -c 'trap \"\" HUP TERM; sleep 20' & echo words; exit 4")
    assert outcome.exit_code == 4
    person.wait_for(b"words")


def test_a_reset_of_the_terminal_by_the_command_does_not_reach_ours(person: Person) -> None:
    """The command's own settings are those of its side: ours is raw while it runs, and as it was then."""
    before = person.settings
    script = "stty sane; stty -a >/dev/null; printf '\\033c'; stty 300 raw -echo; echo done"
    assert shown(person, "sh", "-c", script).ok
    person.wait_for(b"done")
    assert person.settings == before


def test_what_a_command_asked_the_terminal_is_not_typed_for_the_shell(person: Person) -> None:
    """Answers that come after its end are thrown away with all that nobody read."""

    def act() -> None:
        person.wait_for(b"\x1b[c")
        person.type(b"\x1b[?62;22c")

    with beside(act):
        outcome = shown(person, "sh", "-c", "printf '\\033[c'; sleep 0.3")
    assert outcome.ok
    settings = termios.tcgetattr(person.terminal)
    settings[3] &= ~termios.ICANON
    settings[6][termios.VMIN] = 0
    termios.tcsetattr(person.terminal, termios.TCSANOW, settings)
    assert os.read(person.terminal, 100) == b""
