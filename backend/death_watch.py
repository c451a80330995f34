"""The hostile death-watch proof: a container must end with its controller, whatever the agent inside does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from backend.containers import ExecPlan
from backend.engines.protocol import Engine
from backend.runner import Child, Command, spawn
from images.errors import HostError

AGENT: Final = (1000, 1000)
HOSTILE_SECONDS: Final = 60.0  # how long the agent's processes try to stay
_READY: Final = b"hostile-agent-ready"
_READY_SECONDS: Final = 20.0

# What an agent with a shell can do to the processes that watch it: stop and kill what it sees, hold their
# descriptors open, leave its session, ignore signals, flood the log. Each attempt is a process of its own,
# since a refused one ends its shell.
_HOSTILE: Final = r"""
targets=
for entry in /proc/[0-9]*; do
    pid=${entry#/proc/}
    [ "$pid" = $$ ] || targets="$targets $pid"
done
stay() { trap '' HUP INT TERM QUIT USR1 USR2 PIPE; i=0; while [ $i -lt "$1" ]; do sleep 1; i=$((i+1)); done; }
for fd in 0 1 2; do
    ( exec 9<>/proc/1/fd/$fd; stay "$seconds" ) 2>/dev/null &
    ( exec 9>/proc/1/fd/$fd; while :; do echo flood >&9; done ) 2>/dev/null &
    ( exec 9</proc/1/fd/$fd; stay "$seconds" ) 2>/dev/null &
done
if command -v setsid >/dev/null; then setsid sh -c "trap '' HUP INT TERM; sleep $seconds" & fi
( stay "$seconds" ) &
( while :; do
    for pid in $targets; do
        kill -STOP "$pid" 2>/dev/null && echo "stopped $pid"
        kill -KILL "$pid" 2>/dev/null && echo "killed $pid"
    done
    sleep 0.05
done ) &
sleep 0.5
printf 'hostile-agent-ready\n'
stay "$seconds"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One container under attack. ``gone_after``: seconds from the event to its end; None = it stayed."""

    gone_after: float | None
    harm: tuple[str, ...]  # signals that reached a process which was there before the agent


def hostile_plan() -> ExecPlan:
    """The attack, as the agent's uid."""
    script = f"seconds={int(HOSTILE_SECONDS)}\n{_HOSTILE}"
    return ExecPlan(argv=("sh", "-c", script), user=AGENT, working_dir="/")


def watch_controller_killed(engine: Engine, container: str, *, bound: float) -> Watched:
    """Start it tethered, set the agent on it, then let the pipe go, as the kernel does after SIGKILL."""
    with _tether(engine, container) as tether:
        return _attacked(engine, container, tether, tether.close_stdin, bound=bound)


def watch_client_killed(engine: Engine, container: str, *, bound: float) -> Watched:
    """The same, but the engine's client is killed while the controller still holds its end of the pipe."""
    with _tether(engine, container) as tether:

        def kill() -> None:
            if tether.pid is not None:
                os.killpg(tether.pid, signal.SIGKILL)

        return _attacked(engine, container, tether, kill, bound=bound)


def watch_deadline(engine: Engine, container: str, *, bound: float) -> Watched:
    """The same with the watch off: nobody lets go, and only the deadline inside can end it.

    ``bound`` counts from the moment that the agent is at work.
    """
    with _tether(engine, container) as tether:
        return _attacked(engine, container, tether, lambda: None, bound=bound)


def _tether(engine: Engine, container: str) -> Child:
    argv, environment = engine.attach_argv(container)
    return spawn(Command(argv=argv, environment=environment, deadline=3600.0, grace=1.0))


def _attacked(
    engine: Engine, container: str, tether: Child, event: Callable[[], None], *, bound: float
) -> Watched:
    _wait_running(engine, container, tether)
    said = bytearray()
    plan = hostile_plan()
    argv, environment = engine.exec_argv(container, plan)
    command = Command(argv=argv, environment=environment, deadline=HOSTILE_SECONDS, grace=1.0)
    with spawn(command, on_stdout=said.extend) as attack:
        until = time.monotonic() + _READY_SECONDS
        while _READY not in said and time.monotonic() < until and attack.wait(0.02) is None:
            pass
        if _READY not in said and _is_running(engine, container):
            raise HostError(
                "the hostile agent of the death-watch proof did not start: the base image needs sh and sleep",
                where=engine.product,
                hint="builder bootstrap",
            )
        began = time.monotonic()
        event()
        gone = _gone_after(engine, container, began, bound)
    lines = bytes(said).decode("utf-8", "replace").splitlines()
    harm = {line for line in lines if line.startswith(("stopped ", "killed "))}
    return Watched(gone_after=gone, harm=tuple(sorted(harm)[:10]))


def _wait_running(engine: Engine, container: str, tether: Child) -> None:
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until and tether.wait(0.02) is None:
        if _is_running(engine, container):
            return
    raise HostError("the probe's container does not start", where=engine.product, hint="builder doctor")


def _is_running(engine: Engine, container: str) -> bool:
    found = engine.inspect(container)
    return found is not None and found.running


def _gone_after(engine: Engine, container: str, began: float, bound: float) -> float | None:
    while True:
        if not _is_running(engine, container):
            return time.monotonic() - began
        if time.monotonic() - began > bound:
            return None
        time.sleep(0.02)
