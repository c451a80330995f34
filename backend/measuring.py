"""Sample how large a workspace has become while the command runs, and say when it must end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from backend.account import WATCH, WORKSPACE, Account, agent_exec
from backend.agent_command import CommandEnd, Counted, Output, run_command
from backend.commands import Outcome
from backend.containers import MIB, ExecPlan
from backend.engines.protocol import Engine
from backend.plan import LaunchPlan
from backend.records import LaunchEnding
from images.errors import BuilderError

FIRST_SECONDS: Final = 2.0
EVERY_SECONDS: Final = 5.0
SAMPLE_SECONDS: Final = 60.0
# One sample takes at most this part of the time.
_SHARE: Final = 10.0
FLOOR: Final = 512 * MIB  # bytes that must stay free on the engine's disk
MOST_MISSED: Final = 3

# As the agent, who alone may look into what is the agent's; so an agent that wants to can hide some of it.
SIZE: Final = ("du", "-skx", WORKSPACE)
# As the watch, whom no agent can stop or answer for: what is left of the disk below /workspace.
LEFT: Final = ("df", "-Pk", WORKSPACE)


_SIZE: Final = re.compile(rb"([0-9]{1,15})\t[^\n]*\n")
_LEFT: Final = re.compile(rb"[^\n]*\n\S+ +[0-9]+ +[0-9]+ +([0-9]{1,15}) +[0-9]+% [^\n]*\n")


@dataclass(frozen=True, slots=True)
class Over:
    """Why the launch ends; ``reason`` goes into the record."""

    reason: str
    what: str


class Measure:
    """Samples in a thread of its own while the block lasts; :meth:`ended` is for ``Output.cancelled``."""

    def __init__(self, engine: Engine, container: str, account: Account, bound: int) -> None:
        self._ask: tuple[tuple[ExecPlan, Callable[[bytes], Over | None]], ...] = (
            (agent_exec(account, SIZE), lambda said: _too_large(said, bound)),
            (ExecPlan(argv=LEFT, user=WATCH, working_dir="/"), _too_little),
        )
        self._engine = engine
        self._container = container
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._missed = 0
        self.over: Over | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def ended(self) -> bool:
        """Whether the command must end."""
        return self.over is not None

    def _sample(self) -> None:
        pause = FIRST_SECONDS
        while self.over is None and not self._stop.wait(pause):
            began = time.monotonic()
            self._once()
            pause = max(EVERY_SECONDS, _SHARE * (time.monotonic() - began))

    def _once(self) -> None:
        for plan, judge in self._ask:
            try:
                outcome = self._engine.exec(
                    self._container, plan, deadline=SAMPLE_SECONDS, cancelled=self._stop.is_set
                )
                self.over = judge(_answer(outcome))
            except (BuilderError, ValueError):
                self._missed += 1
                if self._missed >= MOST_MISSED and not self._stop.is_set():
                    self.over = Over(
                        "workspace-unmeasured",
                        f"the workspace could not be measured {self._missed} times in a row",
                    )
                return
            if self.over is not None:
                return
        self._missed = 0


def run_measured(
    engine: Engine, container: str, plan: LaunchPlan, output: Output, counted: Counted
) -> CommandEnd:
    """The command of a plan with files, ended when its workspace grows past its bound."""
    if plan.space is None:
        return run_command(engine, container, plan, output, counted)
    asked = output.cancelled
    with Measure(engine, container, plan.account, plan.space.bound) as measure:
        watched = replace(output, cancelled=lambda: measure.ended() or (asked is not None and asked()))
        end = run_command(engine, container, plan, watched, counted)
    if measure.over is None or end.ending is not LaunchEnding.INTERRUPTED:
        return end
    return CommandEnd(ending=LaunchEnding.WORKSPACE_FULL, reason=measure.over.reason)


def _answer(outcome: Outcome) -> bytes:
    """du says 1 where it may not look: what it counted then still counts."""
    if outcome.exit_code not in (0, 1) or not outcome.stdout:
        raise ValueError("no answer")
    return outcome.stdout


def _kibibytes(form: re.Pattern[bytes], said: bytes) -> int:
    """The bytes that an answer names; ValueError for an answer of another form."""
    found = form.fullmatch(said)
    if found is None:
        raise ValueError("no answer")
    return int(found[1]) * 1024


def _too_large(said: bytes, bound: int) -> Over | None:
    size = _kibibytes(_SIZE, said)
    if size <= bound:
        return None
    return Over("workspace-full", f"/workspace has {size // MIB} MiB, and may have {bound // MIB} MiB")


def _too_little(said: bytes) -> Over | None:
    left = _kibibytes(_LEFT, said)
    if left >= FLOOR:
        return None
    return Over(
        "engine-disk-full", f"{left // MIB} MiB are left on the engine's disk; {FLOOR // MIB} MiB stay free"
    )
