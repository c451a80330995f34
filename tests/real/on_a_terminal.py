"""What `builder run` does on a person's terminal, whichever the engine: typed in a window of tmux."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backend.engines.protocol import Engine
from backend.ownership import LABEL_STATE
from backend.projection.routes import Route
from tests.fakes.projected import named
from tests.real.agents_at_work import distinct
from tests.real.windows import COLUMNS, ROWS, window
from tests.results import check

# Sizes, signals, keys and the exit code, as a program inside sees them. It waits for no more than a minute.
WORK: Final = r"""
trap 'echo "now $(stty size)"' WINCH
trap 'stop=yes; echo interrupted' INT
test -t 0 && test -t 1 && test -t 2 && echo "size $(stty size) term $TERM"
i=0; while [ -z "$stop" ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done
stty raw -echo; printf 'press\r\n'
printf 'keys %s\r\n' "$(dd bs=1 count=6 2>/dev/null | od -An -tx1)"
stty sane
echo out; echo err >&2
exit 42
"""
# Another screen, no cursor, the mouse, marked pastes: what is left behind by a program that is killed.
TAKEN: Final = r"""printf '\033[?1049h\033[?25l\033[?1000;1006h\033[?2004htaken'; sleep 60"""
MODES: Final = ("alternate_on", "cursor_flag", "mouse_any_flag")
FLOOD: Final = 20_000_000


@dataclass(frozen=True)
class Desk:
    """Where a person sits: ``argv`` makes a whole command of what is typed after ``builder``."""

    argv: Callable[..., list[str]]
    cwd: Path
    engine: Engine
    state: Path

    def containers(self) -> tuple[str, ...]:
        state_id = (self.state / "state-id").read_text().split()[0]
        return self.engine.list_labelled(LABEL_STATE, state_id)

    def record(self, launch: str) -> dict[str, Any]:
        done = subprocess.run(
            self.argv("show", launch, "--json"), cwd=self.cwd, capture_output=True, text=True, check=True
        )
        (one,) = check(json.loads(done.stdout))["launches"]
        return dict(one["record"])

    def last(self) -> dict[str, Any]:
        """The record of the newest launch."""
        done = subprocess.run(
            self.argv("runs", "--json"), cwd=self.cwd, capture_output=True, text=True, check=True
        )
        return self.record(check(json.loads(done.stdout))["launches"][-1]["launch"])


def prove_terminal(desk: Desk) -> None:
    """Size, resize, Ctrl-C, every key, the exit code; and a record that says so and holds no word."""
    with window(desk.cwd) as own:
        own.run(desk.argv("run", "--no-source", "--", "sh", "-c", WORK))
        term = own.tmux("show-options", "-gv", "default-terminal").strip()
        own.wait(rf"size {ROWS} {COLUMNS} term {term}\n")
        own.resize(120, 40)
        own.wait("now 40 120")
        own.press("C-c")
        own.wait("interrupted\n")
        own.wait("press")
        own.press("C-p", "C-q", "C-z", "C-\\", "C-s", "C-d")
        own.wait("keys  10 11 1a 1c 13 04")
        own.wait(r"out\nerr")
        launch = own.wait(r"launch record: (\S+) ")
        own.wait("code 42")
        assert own.is_as_before()
        own.leave()
    record = desk.record(launch)
    assert (record["exitCode"], record["ending"]) == (42, "completed")
    assert record["command"]["terminal"] is True
    assert record["output"]["recorded"] is False
    assert record["output"]["stderrBytes"] == 0
    assert desk.containers() == ()


def prove_captured(desk: Desk) -> None:
    """On a terminal too, where it is asked for or where the result is for a program."""
    script = "test -t 0 || test -t 1 || test -t 2 || echo captured $TERM"
    with window(desk.cwd) as own:
        own.run(desk.argv("run", "--no-source", "--no-tty", "--", "sh", "-c", script))
        own.wait("captured dumb")
        own.wait("code 0")
    assert desk.last()["command"]["terminal"] is False


def prove_flood(desk: Desk) -> None:
    """More than any buffer holds, all of it shown; and Ctrl-C goes past a flood that has no end."""
    script = f"trap 'exit 130' INT; yes | head -c {FLOOD}; echo; echo end; read line; yes"
    with window(desk.cwd) as own:
        own.run(desk.argv("run", "--no-source", "--", "sh", "-c", script))
        own.wait("end\n")
        own.press("Enter")
        until(lambda: "end" not in own.screen(), "no second flood comes")
        own.press("C-c")
        own.wait("code 130")
    assert desk.last()["output"]["stdoutBytes"] > FLOOD
    assert desk.containers() == ()


def prove_deadline(desk: Desk) -> None:
    """A command that is ended cleans up nothing; the terminal is clean all the same."""
    with window(desk.cwd) as own:
        clean = [own.told(name) for name in MODES]
        own.run(desk.argv("run", "--no-source", "--deadline", "5s", "--", "sh", "-c", TAKEN))
        own.wait("taken")
        assert [own.told(name) for name in MODES] == ["1", "0", "1"]
        own.wait("code 125")
        assert "timed-out" in own.screen()
        assert own.is_as_before()
        assert [own.told(name) for name in MODES] == clean
        own.leave()
    assert desk.containers() == ()


def prove_killed(desk: Desk) -> None:
    """SIGKILL of the controller: the guard gives the terminal back and goes; the container has gone too."""
    with window(desk.cwd) as own:
        clean, shell = [own.told(name) for name in MODES], own.holders()
        own.run(desk.argv("run", "--no-source", "--", "sh", "-c", TAKEN))
        own.wait("taken")
        assert not own.is_as_before()
        os.kill(own.job(), signal.SIGKILL)
        # Not by the screen: the shell speaks before the guard has left the other one.
        until(lambda: own.ended_with(137), "the shell does not hear of its end")
        until(own.is_as_before, "nobody gave the settings back")
        until(lambda: [own.told(name) for name in MODES] == clean, "its modes are still on")
        own.leave()
        until(lambda: own.holders() == shell, "something still holds the terminal")
        until(lambda: not running(desk), "the container outlives its controller")
        own.run(desk.argv("reap"))
        own.wait("code 0")
    assert desk.containers() == ()


def prove_hung_up(desk: Desk) -> None:
    """The window is closed: the launch ends by itself, and its record says how."""
    with window(desk.cwd) as own:
        own.run(desk.argv("run", "--no-source", "--", "sh", "-c", "trap '' HUP; echo here; sleep 60"))
        own.wait("here\n")
        builder = own.job()
        own.hang_up()
        until(lambda: not Path(f"/proc/{builder}").exists(), "the controller outlives its terminal")
    assert desk.containers() == ()
    assert desk.last()["ending"] == "interrupted"


def until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait for it, and fail with those words."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def running(desk: Desk) -> list[str]:
    found = [desk.engine.inspect(container) for container in desk.containers()]
    return [one.id for one in found if one is not None and one.running]


@dataclass(frozen=True)
class FirstScreen:
    """An agent, the route of its dummy credential, what it shows first, and the keys that end it."""

    agent: str
    route: Route
    shows: str
    leave: tuple[str, ...]


FIRST_SCREENS: Final = (
    FirstScreen("claude-code", Route.CLAUDE_API_KEY, "Claude Code v[0-9]", ("C-c", "C-c")),
    FirstScreen("opencode", Route.OPENCODE_API_KEY, "Ask anything", ("C-c",)),
    FirstScreen("pi", Route.PI_API_KEY, "pi v", ("C-d",)),
)


def prove_screen(desk: Desk, screen: FirstScreen, file: Path) -> None:
    """It comes without a network, takes keys, ends by them, and leaves the terminal as it was."""
    file.write_bytes(distinct(screen.route))
    file.chmod(0o600)
    words = ("--no-source", "--credential", f"{named(screen.route)}={file}", "--agent", screen.agent)
    with window(desk.cwd) as own:
        clean = [own.told(name) for name in MODES]
        own.run(desk.argv("run", *words))
        own.wait(screen.shows)
        for key in screen.leave:
            own.press(key)
            time.sleep(0.5)
        own.wait("code [0-9]+")
        assert own.is_as_before()
        assert [own.told(name) for name in MODES] == clean
        own.leave()
    record = desk.last()
    assert record["command"]["terminal"] is True
    assert record["ending"] == "completed"


PROOFS: Final = (
    prove_terminal,
    prove_captured,
    prove_flood,
    prove_deadline,
    prove_killed,
    prove_hung_up,
)
