"""Launch an admitted image: journal, create, read back, start, run the command, remove, sign the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from backend.admission import AdmittedImage
from backend.commands import Ending, OnChunk, Outcome
from backend.engines.protocol import Engine
from backend.journal import Boundary, Intent, Journal
from backend.ownership import Owner
from backend.plan import LaunchPlan, LaunchRequest, agent_exec, plan_launch
from backend.records import LaunchEnding, LaunchRecord, Observed, sign_record
from backend.supervise import confirm, created, end_agent, look_inside, need_command, tethered
from images.errors import (
    BuilderError,
    HostError,
    Interrupted,
    LaunchReason,
    LaunchRefused,
    StateError,
    Terminated,
)
from provenance.keys import PrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Who launches: an engine, the journal, a held lease, the launcher's key and clock.

    ``staging``: a private directory for an image on its way into the engine. ``launcher_id``: a URI, as the
    policy's ``launcher_ids`` name it.
    """

    engine: Engine
    journal: Journal
    owner: Owner
    signer: PrivateKey
    launcher_id: str
    version: str
    staging: Path
    now: Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the command's output goes, chunk by chunk, while it runs. The record keeps byte counts only.

    ``cancelled`` is asked while the command runs, and may answer from another thread: True ends the launch.
    """

    on_stdout: OnChunk | None = None
    on_stderr: OnChunk | None = None
    cancelled: Callable[[], bool] | None = None


def launch(
    controller: Controller, admitted: AdmittedImage, request: LaunchRequest, output: Output | None = None
) -> LaunchRecord:
    """Run one command or agent in a container of its own, to the end.

    The container is gone when this returns or raises, also by Ctrl-C and SIGTERM (an exception from the
    signal handler). Once an intent was written, a record is signed and kept in the journal too.
    Raises LaunchRefused (nothing of the agent ran), HostError, StateError.
    """
    plan = plan_launch(admitted, request, controller.owner)
    check_same_engine(controller.engine, admitted)
    check_same_run(controller.journal, plan)
    load(controller.engine, plan, controller.staging)
    return _Launch(controller, plan, output or Output()).run()


def check_same_engine(engine: Engine, admitted: AdmittedImage) -> None:
    """The engine that was probed and admitted is the one that is about to launch."""
    facts = engine.facts()
    if facts != admitted.facts:
        raise LaunchRefused(
            LaunchReason.ENGINE_IDENTITY,
            f"{facts.product} {facts.version} at {facts.endpoint} is not the engine that was probed",
            hint="builder doctor",
        )


def check_same_run(journal: Journal, plan: LaunchPlan) -> None:
    """A run keeps its first step's image, engine and mode: replacing them is an operator's act, a new run."""
    facts = plan.admitted.facts
    now = (plan.admitted.image.digest, facts.product, facts.endpoint, plan.admitted.mode.value)
    for entry in journal.entries(plan.request.run_id):
        intent = entry.intent
        if (intent.image_digest, intent.product, intent.endpoint, intent.mode) != now:
            raise LaunchRefused(
                LaunchReason.RUN_PINNED,
                f"step {intent.step} of run {intent.run_id!r} used image {intent.image_digest} on"
                f" {intent.product} at {intent.endpoint} in {intent.mode} mode; this step would not",
                where=plan.launch_id,
                hint="start a new run",
            )


def load(engine: Engine, plan: LaunchPlan, staging: Path) -> None:
    """Put the image into the engine, unless it is there; its id must be the planned one."""
    planned = plan.container.image
    found = engine.find_image(planned.image) or engine.load(planned.image, staging)
    if (found.id, found.id_kind) != (planned.id, planned.id_kind):
        raise LaunchRefused(
            LaunchReason.IMAGE_ID,
            f"the engine has {found.id_kind.value} id {found.id},"
            f" planned {planned.id_kind.value} {planned.id}",
            where=str(planned.image.digest),
            hint="builder doctor",
        )


class _Launch:
    """One launch in progress: where it is in the journal, and what has been seen so far."""

    def __init__(self, controller: Controller, plan: LaunchPlan, output: Output) -> None:
        self._controller = controller
        self._plan = plan
        self._output = output
        self._gone = False
        started = controller.now()
        # Whatever interrupts us before the end is known leaves this ending.
        self._seen = Observed(started=started, finished=started, ending=LaunchEnding.INTERRUPTED)

    def run(self) -> LaunchRecord:
        self._intend()
        record: LaunchRecord | None = None
        try:
            self._hold_container()
        except (Interrupted, Terminated) as signal:
            self._seen = replace(self._seen, ending=LaunchEnding.INTERRUPTED, reason=signal.reason)
            raise
        except BuilderError as failed:
            refused = isinstance(failed, LaunchRefused)
            ending = LaunchEnding.REFUSED if refused else LaunchEnding.FAILED
            self._seen = replace(self._seen, ending=ending, reason=failed.reason)
            raise
        finally:
            if self._gone:  # else the journal stays open, and recovery finishes what the engine could not
                record = self._sign()
        if record is None:
            raise StateError("a launch ended without its container being removed", where=self._plan.launch_id)
        return record

    def _hold_container(self) -> None:
        engine, plan = self._controller.engine, self._plan.container
        with created(engine, plan, self._removed) as container:
            self._advance(Boundary.CREATED, container_id=container)
            self._seen = replace(self._seen, container=confirm(engine, container, plan))
            self._advance(Boundary.CONFIRMED)
            with tethered(engine, container, plan):
                self._advance(Boundary.STARTED)
                inside = look_inside(engine, container, plan, self._plan.command)
                self._seen = replace(self._seen, inside=inside)
                need_command(inside, self._plan.command.argv[0])
                self._advance(Boundary.COMMANDED)
                self._run_command(container)
                self._advance(Boundary.ENDED, exit_code=self._seen.exit_code)

    def _run_command(self, container: str) -> None:
        engine, plan = self._controller.engine, self._plan
        outcome: Outcome | None = None
        try:
            outcome = engine.exec(
                container,
                plan.command,
                on_stdout=self._count("stdout_bytes", self._output.on_stdout),
                on_stderr=self._count("stderr_bytes", self._output.on_stderr),
                deadline=plan.request.deadline,
                cancelled=self._output.cancelled,
            )
        finally:
            if outcome is None or outcome.ending is not Ending.EXITED:
                # Ending the engine's client leaves the command alive inside.
                end_agent(engine, container, plan.account)
        self._judge(container, outcome)

    def _judge(self, container: str, outcome: Outcome) -> None:
        engine = self._controller.engine
        if outcome.ending is Ending.TIMED_OUT:
            self._seen = replace(self._seen, ending=LaunchEnding.TIMED_OUT, reason="deadline")
            return
        if outcome.ending is Ending.CANCELLED:
            self._seen = replace(self._seen, ending=LaunchEnding.INTERRUPTED, reason="cancelled")
            return
        if outcome.ending is not Ending.EXITED or outcome.exit_code is None or outcome.exit_code < 0:
            raise HostError(
                f"the engine's client ended: {outcome.detail or outcome.ending.value}",
                where=engine.product,
                hint="builder doctor",
            )
        if outcome.exit_code != 0:
            found = engine.inspect(container)
            if found is None or not found.running:
                self._seen = replace(self._seen, ending=LaunchEnding.CONTAINER_LOST, reason="container-lost")
                return
            self._seen = replace(self._seen, out_of_memory=self._out_of_memory(container))
        self._seen = replace(self._seen, ending=LaunchEnding.COMPLETED, exit_code=outcome.exit_code)

    def _out_of_memory(self, container: str) -> bool | None:
        """From the cgroup's counter: the engine's own flag stays off when a process of an exec is killed."""
        if self._plan.container.limits is None:
            return None
        ask = agent_exec(self._plan.account, _MEMORY_EVENTS)
        outcome = self._controller.engine.exec(container, ask, deadline=10)
        counts = [line.split() for line in outcome.stdout.decode("ascii", "replace").splitlines()]
        found = [int(count[1]) for count in counts if len(count) == 2 and count[1].isdigit()]
        return any(found) if outcome.ok and found else None

    def _count(self, which: str, live: OnChunk | None) -> OnChunk:
        def take(chunk: bytes) -> None:
            if which == "stdout_bytes":
                self._seen = replace(self._seen, stdout_bytes=self._seen.stdout_bytes + len(chunk))
            else:
                self._seen = replace(self._seen, stderr_bytes=self._seen.stderr_bytes + len(chunk))
            if live is not None:
                live(chunk)

        return take

    def _intend(self) -> None:
        plan, request, facts = self._plan, self._plan.request, self._plan.admitted.facts
        self._controller.journal.intend(
            Intent(
                launch_id=plan.launch_id,
                run_id=request.run_id,
                step=request.step,
                scope=request.scope,
                launch_class=request.launch_class.value,
                lease_id=self._controller.owner.lease_id,
                container_name=plan.container.name,
                image_digest=plan.admitted.image.digest,
                product=facts.product,
                endpoint=facts.endpoint,
                mode=plan.admitted.mode.value,
            ),
            self._controller.now(),
        )

    def _advance(self, to: Boundary, *, container_id: str = "", exit_code: int | None = None) -> None:
        self._controller.journal.advance(
            self._plan.launch_id,
            to,
            self._controller.now(),
            container_id=container_id,
            exit_code=exit_code,
            detail=self._seen.reason,
        )

    def _removed(self) -> None:
        self._advance(Boundary.REMOVED)
        self._gone = True

    def _sign(self) -> LaunchRecord:
        controller = self._controller
        self._seen = replace(self._seen, finished=controller.now())
        record = sign_record(
            self._plan,
            self._seen,
            controller.signer,
            launcher_id=controller.launcher_id,
            version=controller.version,
        )
        controller.journal.advance(
            self._plan.launch_id, Boundary.RECORDED, controller.now(), bundle=record.bundle.raw
        )
        if record is None:
            raise StateError("a launch ended without its container being removed", where=self._plan.launch_id)
        return record


# cgroup v1 writes the count as oom_kill in memory.oom_control, v2 in memory.events.
_MEMORY_EVENTS = (
    "sh",
    "-c",
    'while read -r name count; do [ "$name" = oom_kill ] && printf \'%s %s\\n\' "$name" "$count"; done'
    " 2>/dev/null </sys/fs/cgroup/memory/memory.oom_control"
    ' || while read -r name count; do [ "$name" = oom_kill ] && printf \'%s %s\\n\' "$name" "$count"; done'
    " </sys/fs/cgroup/memory.events; true",
)
