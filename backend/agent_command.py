"""Run one command of the agent to its end, count what it says, and judge how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from backend.account import agent_exec
from backend.commands import Ending, OnChunk, Outcome
from backend.engines.protocol import Engine
from backend.foreground import Foreground, run_foreground, sized
from backend.plan import LaunchPlan
from backend.records import LaunchEnding
from backend.requests import Supervision
from backend.supervise import end_agent
from backend.terminal import CallerTerminal
from images.errors import HostError

# cgroup v1 writes the count as oom_kill in memory.oom_control, v2 in memory.events.
MEMORY_EVENTS: Final = (
    "sh",
    "-c",
    'while read -r name count; do [ "$name" = oom_kill ] && printf \'%s %s\\n\' "$name" "$count"; done'
    " 2>/dev/null </sys/fs/cgroup/memory/memory.oom_control"
    ' || while read -r name count; do [ "$name" = oom_kill ] && printf \'%s %s\\n\' "$name" "$count"; done'
    " </sys/fs/cgroup/memory.events; true",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the command's output goes, chunk by chunk, while it runs. The record keeps byte counts only.

    ``cancelled`` is asked while the command runs, and may answer from another thread: True ends the launch.
    ``terminal``: the caller's own, for a request that names its kind; nothing comes in chunks then.
    """

    on_stdout: OnChunk | None = None
    on_stderr: OnChunk | None = None
    cancelled: Callable[[], bool] | None = None
    terminal: CallerTerminal | None = None


@dataclass(slots=True)
class Counted:
    """How many bytes the command has written so far; right at any moment, also after an interruption."""

    stdout: int = 0
    stderr: int = 0

    def of_stdout(self, live: OnChunk | None) -> OnChunk:
        """Count a chunk of standard output, then show it."""

        def take(chunk: bytes) -> None:
            self.stdout += len(chunk)
            if live is not None:
                live(chunk)

        return take

    def of_stderr(self, live: OnChunk | None) -> OnChunk:
        """Count a chunk of standard error, then show it."""

        def take(chunk: bytes) -> None:
            self.stderr += len(chunk)
            if live is not None:
                live(chunk)

        return take


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How the command ended. ``exit_code``: its own. ``out_of_memory``: None when not asked."""

    ending: LaunchEnding
    reason: str = ""
    exit_code: int | None = None
    out_of_memory: bool | None = None


def run_command(
    engine: Engine, container: str, plan: LaunchPlan, output: Output, counted: Counted
) -> CommandEnd:
    """The plan's command, as the agent. After a time-out or cancellation nothing of the agent is left: where
    that cannot be had, a leased container goes too."""
    outcome: Outcome | None = None
    try:
        outcome = _exec(engine, container, plan, output, counted)
    finally:
        if outcome is None or outcome.ending is not Ending.EXITED:
            # Ending the engine's client leaves the command alive inside. A tethered one is removed next.
            ended = end_agent(engine, container, plan.account)
            if not ended and plan.supervision is Supervision.LEASED:
                engine.remove(container)
    return _judged(engine, container, plan, outcome)


def _exec(engine: Engine, container: str, plan: LaunchPlan, output: Output, counted: Counted) -> Outcome:
    """The plan's command: captured, or on the caller's terminal."""
    deadline = plan.request.deadline
    if output.terminal is None:
        return engine.exec(
            container,
            plan.command,
            on_stdout=counted.of_stdout(output.on_stdout),
            on_stderr=counted.of_stderr(output.on_stderr),
            deadline=deadline,
            cancelled=output.cancelled,
        )
    argv, environment = engine.terminal_argv(container, replace(plan.command, argv=sized(plan.command.argv)))
    what = Foreground(
        argv=argv,
        environment=environment,
        deadline=deadline,
        on_chunk=counted.of_stdout(None),
        cancelled=output.cancelled,
    )
    return run_foreground(output.terminal, what)


def _judged(engine: Engine, container: str, plan: LaunchPlan, outcome: Outcome) -> CommandEnd:
    if outcome.ending is Ending.TIMED_OUT:
        return CommandEnd(ending=LaunchEnding.TIMED_OUT, reason="deadline")
    if outcome.ending is Ending.CANCELLED:
        return CommandEnd(ending=LaunchEnding.INTERRUPTED, reason="cancelled")
    if outcome.ending is Ending.HUNG_UP:
        return CommandEnd(ending=LaunchEnding.INTERRUPTED, reason="hung-up")
    if outcome.ending is not Ending.EXITED or outcome.exit_code is None or outcome.exit_code < 0:
        raise HostError(
            f"the engine's client ended: {outcome.detail or outcome.ending.value}",
            where=engine.product,
            hint="builder doctor",
        )
    out_of_memory = None
    if outcome.exit_code != 0:
        found = engine.inspect(container)
        if found is None or not found.running:
            return CommandEnd(ending=LaunchEnding.CONTAINER_LOST, reason="container-lost")
        out_of_memory = _out_of_memory(engine, container, plan)
    return CommandEnd(ending=LaunchEnding.COMPLETED, exit_code=outcome.exit_code, out_of_memory=out_of_memory)


def _out_of_memory(engine: Engine, container: str, plan: LaunchPlan) -> bool | None:
    """From the cgroup's counter: the engine's own flag stays off when a process of an exec is killed."""
    if plan.container.limits is None:
        return None
    outcome = engine.exec(container, agent_exec(plan.account, MEMORY_EVENTS), deadline=10)
    counts = [line.split() for line in outcome.stdout.decode("ascii", "replace").splitlines()]
    found = [int(count[1]) for count in counts if len(count) == 2 and count[1].isdigit()]
    return any(found) if outcome.ok and found else None
