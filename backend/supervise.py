"""Hold one container of ours: created, read back, tethered to our pipe, looked at from inside, removed."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from backend.account import ROOT, WATCH, Account, agent_exec
from backend.containers import ContainerPlan, ExecPlan, InspectedContainer
from backend.engines.client import complaint
from backend.engines.protocol import Engine
from backend.inside import InsideFacts, inside_argv, read_inside
from backend.ownership import LABEL_LAUNCH
from backend.readback import WRITABLE_NEVER, allowances_of, compare_created, compare_inside, refuse
from backend.runner import Child, Command, spawn
from images.errors import HostError, LaunchReason, LaunchRefused

READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 30.0
KILL_SECONDS: Final = 10.0
# $1: places to be closed to all but root, which hold no blank; the others are to be opened.
OPEN_PLACES: Final = 'closed=$1; shift; chmod 1777 "$@" && chmod 0755 $closed'
# Linux spares the caller of kill(-1), and nobody forks between two victims: who says so has ended them all.
END_AGENT: Final = ("sh", "-c", "kill -KILL -1 2>/dev/null; echo ended")
_CLIENT_MARGIN: Final = 60.0  # the client may live that much longer than the container's own deadline


@contextlib.contextmanager
def created(engine: Engine, plan: ContainerPlan, on_removed: Callable[[], None]) -> Iterator[str]:
    """The full id of a created container. It is gone before ``on_removed`` is called."""
    with swept(engine, plan, on_removed):
        yield engine.create(plan)


@contextlib.contextmanager
def swept(engine: Engine, plan: ContainerPlan, on_removed: Callable[[], None]) -> Iterator[None]:
    """Whatever carries the plan's launch label is gone before ``on_removed`` is called."""
    label = dict(plan.labels)[LABEL_LAUNCH]
    try:
        yield
    finally:
        remove_launch(engine, label)
        if plan.named_volumes:
            for volume in engine.list_volumes(LABEL_LAUNCH, label):
                engine.remove_volume(volume)
        on_removed()


def remove_launch(engine: Engine, label: str) -> None:
    """By label, not by id: an engine may fail after it made the container."""
    for container in engine.list_labelled(LABEL_LAUNCH, label):
        engine.remove(container)


def confirm(
    engine: Engine, container: str, plan: ContainerPlan, *, running: bool = False
) -> InspectedContainer:
    """Read a container back and compare; LaunchRefused names each difference.

    ``running``: whether it was started before, by who is adopted; else nothing may have run yet.
    """
    found = engine.inspect(container)
    if found is None:
        raise HostError(
            f"container {container[:12]} vanished before it was started",
            where=engine.product,
            hint="builder doctor",
        )
    compared = replace(found, running=False) if running else found
    refuse(compare_created(plan, compared, allowances_of(engine.product)), plan.name)
    return found


@contextlib.contextmanager
def tethered(engine: Engine, container: str, plan: ContainerPlan) -> Iterator[Child]:
    """Start the container and hold the pipe that PID 1 reads; closing it ends the container and all in it.

    When the block begins, PID 1 has echoed a line of ours: it runs, and it reads our pipe and no other.
    """
    argv, environment = engine.attach_argv(container)
    echo = _Echo()
    command = Command(
        argv=argv, environment=environment, deadline=plan.deadline + _CLIENT_MARGIN, capture=1 << 14
    )
    with spawn(command, on_stdout=echo.take) as tether:
        try:
            _shake_hands(tether, echo, engine.product)
            open_places(engine, container, plan)
            yield tether
        finally:
            tether.close_stdin()
            tether.wait(STOP_SECONDS)


def look_inside(engine: Engine, container: str, plan: ContainerPlan, exec_plan: ExecPlan) -> InsideFacts:
    """What the container shows from inside, as the user of ``exec_plan``, compared with the plan."""
    nonce = secrets.token_hex(8)
    own = (*(item.path for item in plan.tmpfs), *(item.target for item in plan.named_volumes))
    places = tuple(dict.fromkeys((*own, *WRITABLE_NEVER)))
    look = ExecPlan(
        argv=inside_argv(nonce, exec_plan.argv[0], places),
        user=exec_plan.user,
        environment=exec_plan.environment,
        working_dir=exec_plan.working_dir,
    )
    outcome = engine.exec(container, look, deadline=LOOK_SECONDS)
    if not outcome.ok or outcome.stdout_truncated:
        raise HostError(
            "the container cannot be looked at from inside: "
            f"{complaint(outcome.stderr) or outcome.ending.value}",
            where=engine.product,
            hint="the image needs sh and cat: builder build",
        )
    found = read_inside(outcome.stdout, nonce)
    refuse(compare_inside(plan, exec_plan, found, allowances_of(engine.product)), plan.name)
    return found


def need_command(found: InsideFacts, name: str) -> str:
    """Where the command lies; refused when it is missing, so that 126 and 127 stay the command's own."""
    if not found.command:
        raise LaunchRefused(
            LaunchReason.COMMAND_MISSING,
            f"no program {name[:100]!r} in the image",
            where="inside the container, as the agent",
            hint="builder show",
        )
    return found.command


def end_agent(engine: Engine, container: str, account: Account) -> bool:
    """KILL every process of the agent; whether that was done, by its own word.

    It is not where no process can be started inside any more, or the agent was faster with a KILL of its own.
    """
    with contextlib.suppress(HostError):
        outcome = engine.exec(container, agent_exec(account, END_AGENT), deadline=KILL_SECONDS)
        return outcome.ok and outcome.stdout == b"ended\n"
    return False


def open_places(engine: Engine, container: str, plan: ContainerPlan) -> None:
    """Let the agent into its own tmpfs where the engine gave it to root.

    Podman knows no owner of a tmpfs, and older runc sets its mode to that of the directory below; what is the
    watch's is then nobody's but root's. Root inside has no capability, but owns these mounts and may change
    their mode. Nothing of the agent runs yet.
    """
    if allowances_of(engine.product).own_tmpfs:
        return
    places = tuple(item.path for item in plan.tmpfs if item.uid not in (ROOT[0], WATCH[0]))
    closed = tuple(item.path for item in plan.tmpfs if item.uid == WATCH[0])
    command = ExecPlan(
        argv=("sh", "-c", OPEN_PLACES, "sh", " ".join(closed), *places), user=ROOT, working_dir="/"
    )
    outcome = engine.exec(container, command, deadline=LOOK_SECONDS)
    if not outcome.ok:
        raise HostError(
            f"the agent cannot be given {', '.join(places)}: {complaint(outcome.stderr)}",
            where=engine.product,
            hint="builder doctor",
        )


class _Echo:
    """Waits for one line of ours to come back through PID 1."""

    def __init__(self) -> None:
        self.line = secrets.token_hex(16).encode() + b"\n"
        self._seen = bytearray()
        self.came = threading.Event()

    def take(self, chunk: bytes) -> None:
        if not self.came.is_set():
            self._seen = (self._seen + chunk)[-4 * len(self.line) :]
            if self.line in self._seen:
                self.came.set()


def _shake_hands(tether: Child, echo: _Echo, product: str) -> None:
    until = time.monotonic() + READY_SECONDS
    with contextlib.suppress(BrokenPipeError):  # it ended already: told below
        if tether.stdin >= 0:
            os.write(tether.stdin, echo.line)
    while not echo.came.wait(0.02):
        ended = tether.wait(0)
        if ended is not None and not echo.came.wait(0.1):
            raise HostError(
                f"{product} did not start the container: {complaint(ended.stderr) or ended.ending.value}",
                where=product,
                hint="builder doctor",
                reason="start",
            )
        if time.monotonic() > until:
            raise HostError(
                f"the container did not answer within {READY_SECONDS:.0f} s",
                where=product,
                hint="builder doctor",
                reason="start",
            )
