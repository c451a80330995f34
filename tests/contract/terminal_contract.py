"""What every engine must do with a command on a terminal: one suite for the fake and for each real engine."""

from __future__ import annotations

from backend.commands import Ending, Outcome
from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from backend.foreground import Foreground, run_foreground, sized
from backend.terminal import caller_terminal
from tests.contract.engine_contract import execute, plan_for, running
from tests.fakes.person import Person, beside


def on_terminal(engine: Engine, container: str, person: Person, script: str) -> Outcome:
    """Run a script of the shell on the person's terminal, as the agent."""
    plan = execute(*sized(("sh", "-c", script)))
    argv, environment = engine.terminal_argv(container, plan)
    what = Foreground(argv=argv, environment=environment, deadline=60.0, on_chunk=lambda _: None)
    terminal = caller_terminal(person.terminal, person.terminal)
    assert terminal is not None
    with terminal:
        return run_foreground(terminal, what)


class TerminalContract:
    """Subclasses give the fixtures ``engine`` and ``loaded``."""

    def test_a_command_on_a_terminal_finds_one_of_the_callers_size(
        self, engine: Engine, loaded: LoadedImage
    ) -> None:
        script = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size && echo out && echo err >&2; exit 7"
        with running(engine, plan_for(loaded)) as container, Person(33, 99) as person:
            before = person.settings
            outcome = on_terminal(engine, container, person, script)
            assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 7)
            person.wait_for(b"33 99\r\nout\r\nerr\r\n")
            assert person.settings == before

    def test_each_key_is_the_commands_and_none_detaches_it(self, engine: Engine, loaded: LoadedImage) -> None:
        keys = bytes(range(256)) + b"\x10\x11" * 8  # what detaches by default
        script = (
            f"stty raw -echo; echo go; head -c {len(keys)} | od -An -v -tx1 | tr -d ' \\n'; echo .; exit 3"
        )

        def act(person: Person) -> None:
            person.wait_for(b"go")
            person.type(keys)

        with running(engine, plan_for(loaded)) as container, Person() as person:
            with beside(lambda: act(person)):
                outcome = on_terminal(engine, container, person, script)
            assert outcome.exit_code == 3
            person.wait_for(keys.hex().encode() + b".")

    def test_ctrl_c_interrupts_the_command_and_not_us(self, engine: Engine, loaded: LoadedImage) -> None:
        def act(person: Person) -> None:
            person.wait_for(b"here")
            person.type(b"\x03")

        script = "trap : INT; sh -c 'echo here; sleep 50'; echo ended by $?; exit 5"
        with running(engine, plan_for(loaded)) as container, Person() as person:
            with beside(lambda: act(person)):
                outcome = on_terminal(engine, container, person, script)
            assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 5)
            person.wait_for(b"ended by 130")

    def test_a_new_size_reaches_the_command(self, engine: Engine, loaded: LoadedImage) -> None:
        def act(person: Person) -> None:
            person.wait_for(b"here")
            person.resize(44, 144)
            person.wait_for(b"44 144")
            person.type(b"\x03")

        script = 'trap "stty size" WINCH; trap "exit 6" INT; echo here; while :; do sleep 0.05; done'
        with running(engine, plan_for(loaded)) as container, Person() as person:
            with beside(lambda: act(person)):
                outcome = on_terminal(engine, container, person, script)
            assert outcome.exit_code == 6
