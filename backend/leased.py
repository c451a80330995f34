"""Leased launches, for a service that outlives its own restarts: opened, adopted, kept, used, closed.

A leased container is a launch like any other: admitted, planned, journaled, read back by both witnesses. It
ends when it is closed, at its deadline, or when nobody renewed its lease (docs/adr/0020).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from backend.account import agent_exec
from backend.admission import AdmittedImage
from backend.agent_command import CommandEnd, Counted, Output, run_command
from backend.containers import ContainerStatus
from backend.engines.protocol import Engine
from backend.journal import Boundary, Entry
from backend.launch import Controller, judge_store, loaded_plan, log_of
from backend.launch_checks import check_same_engine, check_same_run
from backend.launch_log import LaunchLog
from backend.lease import hand_lease, lease_age, renew_lease
from backend.live import shown
from backend.ownership import LABEL_LAUNCH, LABEL_OWNER, exclusive, is_alive
from backend.plan import LaunchPlan, plan_launch
from backend.projection.asking import check_arguments
from backend.projection.projecting import project
from backend.records import LaunchEnding, LaunchRecord, Observed, ending_by
from backend.recovery import LOCK_NAME
from backend.requests import LaunchRequest, Supervision
from backend.supervise import READY_SECONDS, confirm, look_inside, open_places, remove_launch
from images.digests import Digest
from images.errors import BuilderError, HostError, StateError, UsageError

RENEWALS: Final = 3  # how many fit into a lease: two may fail
_IN_PLACE: Final = "in place: "  # what the journal notes of credentials and the rest: names alone
_NOTED: Final = 800  # characters, which a line of the journal has room for


@dataclass(slots=True, kw_only=True)
class Leased:
    """One leased container, held by this controller. Used from one thread; :meth:`kept` renews from another.

    Forgetting it leaves the container to its lease, and to whoever adopts it.
    """

    engine: Engine
    log: LaunchLog
    container: str
    seen: Observed
    counted: Counted

    @property
    def plan(self) -> LaunchPlan:
        """What was planned, and read back."""
        return self.log.plan

    def renew(self) -> None:
        """Say that it is still wanted. HostError when it is gone."""
        renew_lease(self.engine, self.container)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Renew while this lasts, in a thread of its own. A renewal that fails is tried again at its turn."""
        stop = threading.Event()
        pause = self.plan.request.lease_seconds / RENEWALS

        def renew() -> None:
            while not stop.wait(pause):
                with contextlib.suppress(BuilderError):  # who lost it is told by the next command
                    self.renew()

        self.renew()
        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def run(self, argv: tuple[str, ...], deadline: float, output: Output | None = None) -> CommandEnd:
        """One command as the agent, to its end; renew meanwhile. See :func:`backend.launch.launch`.

        ``deadline``: seconds; it gets no more than the launch's own deadline leaves, and nothing after it.
        """
        if not argv or not argv[0]:
            raise UsageError("the command is empty")
        if deadline <= 0:
            raise UsageError(f"a deadline of {deadline} s; expected more than 0")
        check_arguments(argv, self.plan.request.projection)
        left = self.plan.request.deadline - (self.log.now() - self.seen.started).total_seconds()
        if left <= 0:
            return CommandEnd(ending=LaunchEnding.TIMED_OUT, reason="deadline")
        plan = replace(
            self.plan,
            command=agent_exec(self.plan.account, argv),
            request=replace(self.plan.request, deadline=min(deadline, left)),
        )
        with shown(output, plan.request.projection.secrets) as watched:
            return run_command(self.engine, self.container, plan, watched, self.counted)

    def close(self) -> LaunchRecord:
        """End it, and sign its record."""
        found = self.engine.inspect(self.container)
        lives = found is not None and found.running
        self.log.advance(Boundary.ENDED)
        ending = LaunchEnding.COMPLETED if lives else LaunchEnding.CONTAINER_LOST
        self.seen = replace(self.seen, ending=ending, reason="" if lives else "container-lost")
        return _end(self.engine, self.log, self.seen, self.counted)


def open_leased(controller: Controller, admitted: AdmittedImage, request: LaunchRequest) -> Leased:
    """Create, read back, start, hand the lease over, look inside. Nothing is left when it raises.

    Raises LaunchRefused, HostError, StateError, UsageError.
    """
    _need_leased(request)
    plan = loaded_plan(controller, admitted, request)
    log = log_of(controller, plan)
    log.intend(controller.owner.lease_id)
    started = controller.now()
    seen = Observed(started=started, finished=started, ending=LaunchEnding.INTERRUPTED)
    leased = Leased(engine=controller.engine, log=log, container="", seen=seen, counted=Counted())
    opened = False
    try:
        _start(controller, leased)
        opened = True
    except BuilderError as failed:
        leased.seen = replace(leased.seen, ending=ending_by(failed), reason=failed.reason)
        raise
    finally:
        if not opened:
            _end(controller.engine, log, leased.seen, leased.counted)
    return leased


def adopt_leased(
    controller: Controller, admitted: AdmittedImage, request: LaunchRequest, leases: Path
) -> Leased:
    """Take over the container that a dead controller opened with the same request; it is read back anew.

    ``leases``: where controllers of this state root hold theirs. StateError when there is none to adopt:
    not opened, ended, opened with other credentials, or its controller lives. LaunchRefused when it is not as
    planned.
    """
    _need_leased(request)
    engine, now = controller.engine, controller.now()
    check_same_engine(engine, admitted)
    with exclusive(leases / LOCK_NAME):
        entry = _abandoned(controller, request, leases)
        label = _labelled_owner(engine, entry)
        plan = plan_launch(admitted, request, replace(controller.owner, lease_id=label))
        check_same_run(controller.journal, plan)
        given = _given(controller, plan)
        if (age := lease_age(engine, entry.container_id)) is None or age >= request.lease_seconds:
            raise _none(entry.intent.launch_id, "its lease has grown old")
        renew_lease(engine, entry.container_id)
        found = confirm(engine, entry.container_id, plan.container, running=True)
        inside = look_inside(engine, entry.container_id, plan.container, plan.command)
        # Last: what is not as planned stays whose it was, and ends by its lease.
        controller.journal.adopt(plan.launch_id, controller.owner.lease_id, now)
    seen = Observed(
        started=controller.journal.passages(plan.launch_id)[0].at,
        finished=now,
        ending=LaunchEnding.INTERRUPTED,
        container=found,
        inside=inside,
        projected=given,
    )
    return Leased(
        engine=engine,
        log=log_of(controller, plan),
        container=entry.container_id,
        seen=seen,
        counted=Counted(),
    )


def _need_leased(request: LaunchRequest) -> None:
    if request.supervision is not Supervision.LEASED:
        raise UsageError(f"a {request.supervision.value} launch is not leased")


def _start(controller: Controller, leased: Leased) -> None:
    engine, log, plan = leased.engine, leased.log, leased.plan
    leased.container = engine.create(plan.container)
    log.advance(Boundary.CREATED, container_id=leased.container)
    leased.seen = replace(leased.seen, container=confirm(engine, leased.container, plan.container))
    leased.seen = replace(leased.seen, store=judge_store(controller, leased.container, plan))
    log.advance(Boundary.CONFIRMED)
    engine.start(leased.container)
    _wait_running(engine, leased.container)
    log.advance(Boundary.STARTED)
    open_places(engine, leased.container, plan.container)
    hand_lease(engine, leased.container, plan.account)
    inside = look_inside(engine, leased.container, plan.container, plan.command)
    given = project(engine, leased.container, plan.account, plan.projection)
    leased.seen = replace(leased.seen, inside=inside, projected=given)
    log.advance(Boundary.COMMANDED, detail=_in_place(given))


def _wait_running(engine: Engine, container: str) -> None:
    until = time.monotonic() + READY_SECONDS
    while (found := engine.inspect(container)) is None or not found.running:
        if found is None or found.status is ContainerStatus.EXITED or time.monotonic() > until:
            raise HostError(
                f"{engine.product} did not start the container",
                where=engine.product,
                hint="builder doctor",
                reason="start",
            )
        time.sleep(0.02)


def _end(engine: Engine, log: LaunchLog, seen: Observed, counted: Counted) -> LaunchRecord:
    remove_launch(engine, dict(log.plan.container.labels)[LABEL_LAUNCH])
    log.advance(Boundary.REMOVED, detail=seen.reason)
    seen = replace(seen, finished=log.now(), stdout_bytes=counted.stdout, stderr_bytes=counted.stderr)
    return log.sign(seen)


def _abandoned(controller: Controller, request: LaunchRequest, leases: Path) -> Entry:
    """The journal's entry of this request, if its commands ran and its controller is dead."""
    name = f"{request.run_id}.{request.step}"
    found = [one for one in controller.journal.entries(request.run_id) if one.intent.launch_id == name]
    if not found:
        raise _none(name, "it was never opened")
    if found[0].boundary is not Boundary.COMMANDED:
        raise _none(name, f"it is {found[0].boundary.value}")
    if is_alive(leases, found[0].intent.lease_id):
        raise _none(name, "its controller lives")
    return found[0]


def _given(controller: Controller, plan: LaunchPlan) -> tuple[str, ...]:
    """The names of what who opened it read back in place, by its own journal: what an agent made of the files
    since, it could make say anything. The caller's must be the same: their values are what is hidden."""
    passages, names = controller.journal.passages(plan.launch_id), plan.projection.names
    said = next(one.detail for one in passages if one.boundary is Boundary.COMMANDED)
    if said != _in_place(names):
        raise _none(plan.launch_id, f"it was opened with {said.removeprefix(_IN_PLACE) or 'no credential'}")
    return names


def _in_place(names: tuple[str, ...]) -> str:
    """What the journal notes of them; of very many, their digest."""
    said = ", ".join(names)
    return "" if not names else _IN_PLACE + (said if len(said) < _NOTED else str(Digest.of(said.encode())))


def _labelled_owner(engine: Engine, entry: Entry) -> str:
    """Labels cannot be changed: they name who opened it, and the journal who holds it."""
    found = engine.inspect(entry.container_id)
    if found is None or not found.running:
        raise _none(entry.intent.launch_id, "its container has ended")
    return dict(found.labels).get(LABEL_OWNER, "")


def _none(name: str, why: str) -> StateError:
    return StateError(f"launch {name} cannot be adopted: {why}", hint="open another run")
