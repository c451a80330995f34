"""Hold one container of ours: created, read back, tethered to our pipe, looked at from inside, removed."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from backend.containers import ContainerPlan, ExecPlan, InspectedContainer
from backend.engines.client import complaint
from backend.engines.protocol import Engine
from backend.inside import InsideFacts, inside_argv, read_inside
from backend.ownership import LABEL_LAUNCH
from backend.plan import ROOT, WATCH, Account, agent_exec
from backend.readback import WRITABLE_NEVER, allowances_of, compare_created, compare_inside, refuse
from backend.runner import Child, Command, spawn
from images.errors import HostError, LaunchReason, LaunchRefused

READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 30.0
KILL_SECONDS: Final = 10.0
_CLIENT_MARGIN: Final = 60.0  # the client may live that much longer than the container's own deadline


@contextlib.contextmanager
def created(engine: Engine, plan: ContainerPlan, on_removed: Callable[[], None]) -> Iterator[str]:
    """The full id of a created container. It is gone before ``on_removed`` is called."""
    label = dict(plan.labels)[LABEL_LAUNCH]
    try:
        yield engine.create(plan)
    finally:
        # By label, not by id: an engine may fail after it made the container.
        for container in engine.list_labelled(LABEL_LAUNCH, label):
            engine.remove(container)
        on_removed()


def confirm(engine: Engine, container: str, plan: ContainerPlan) -> InspectedContainer:
    """Read a created container back and compare; LaunchRefused names each difference. Nothing has run yet."""
    found = engine.inspect(container)
    if found is None:
        raise HostError(
            f"container {container[:12]} vanished before it was started",
            where=engine.product,
            hint="builder doctor",
        )
    refuse(compare_created(plan, found, allowances_of(engine.product)), plan.name)
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
            _open_places(engine, container, plan)
            yield tether
        finally:
            tether.close_stdin()
            tether.wait(STOP_SECONDS)


def look_inside(engine: Engine, container: str, plan: ContainerPlan, exec_plan: ExecPlan) -> InsideFacts:
    """What the container shows from inside, as the user of ``exec_plan``, compared with the plan."""
    nonce = secrets.token_hex(8)
    places = tuple(dict.fromkeys((*(item.path for item in plan.tmpfs), *WRITABLE_NEVER)))
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
    """KILL every process of the agent; whether the engine could be asked. The container goes next anyway."""
    kill = agent_exec(account, ("sh", "-c", "kill -KILL -1"))
    with contextlib.suppress(HostError):
        engine.exec(container, kill, deadline=KILL_SECONDS)
        return True
    return False


def _open_places(engine: Engine, container: str, plan: ContainerPlan) -> None:
    """Let the agent into its own tmpfs where the engine gave it to root.

    Podman knows no owner of a tmpfs, and older runc sets its mode to that of the directory below. Root inside
    has no capability, but owns these mounts and may change their mode. Nothing of the agent runs yet.
    """
    if allowances_of(engine.product).own_tmpfs:
        return
    places = tuple(item.path for item in plan.tmpfs if item.uid not in (ROOT[0], WATCH[0]))
    command = ExecPlan(argv=("chmod", "1777", *places), user=ROOT, working_dir="/")
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
