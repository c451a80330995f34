"""Launch an admitted image: journal, create, read back, start, run the command, remove, sign the record."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from backend.admission import AdmittedImage
from backend.agent_command import Counted, Output, run_command
from backend.engine_store import StoreTrust, check_store
from backend.engines.protocol import Engine
from backend.home import Home, Keepers
from backend.journal import Boundary, Journal
from backend.launch_checks import check_image_id, check_same_engine, check_same_run
from backend.launch_log import LaunchLog
from backend.live import shown
from backend.measuring import run_measured
from backend.network.holding import Network
from backend.ownership import Owner
from backend.plan import LaunchPlan, plan_launch
from backend.projection.history import put_history
from backend.projection.projecting import project
from backend.records import LaunchEnding, LaunchRecord, Observed, ending_by
from backend.requests import LaunchClass, LaunchRequest, Supervision
from backend.room import (
    ExportStatus,
    check_room,
    export_workspace,
    fill_workspace,
    first_seen,
    import_workspace,
    make_volumes,
    prepare_repository,
    publish_workspace,
)
from backend.space import ExportRule, SpacePlan
from backend.supervise import confirm, look_inside, need_command, swept, tethered
from backend.together import both
from backend.workspace.candidates import withdraw
from backend.workspace.refusals import CandidateRefused
from images.errors import BuilderError, StateError, UsageError
from provenance.keys import PrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Who launches: an engine, the journal, a held lease, the launcher's key and clock.

    ``staging``: a private directory for an image on its way into the engine, and for files on their way in
    and out; the caller removes it. ``launcher_id``: a URI, as the policy's ``launcher_ids`` name it.
    ``candidates``: a private directory on the file system of ``staging``, where exported commits stay; a
    launch with a source needs one. ``crossed``: hears of each boundary once it is written down, for people to
    see how far a launch is; ``loading`` is entered while an image that is not there is loaded, ``hashing``
    while what the engine's store holds of one is hashed again. ``stores``: a private directory that remembers
    where that was done; without one it is done at each launch. ``keepers``: who keeps what a login, a login's
    use or a session leaves; a launch with one of them needs it.
    """

    engine: Engine
    journal: Journal
    owner: Owner
    signer: PrivateKey
    launcher_id: str
    version: str
    staging: Path
    now: Callable[[], datetime]
    candidates: Path | None = None
    crossed: Callable[[Boundary], None] | None = None
    loading: Callable[[], AbstractContextManager[object]] = nullcontext
    hashing: Callable[[], AbstractContextManager[object]] = nullcontext
    stores: Path | None = None
    keepers: Keepers | None = None


def log_of(controller: Controller, plan: LaunchPlan) -> LaunchLog:
    """Where this controller writes this launch down."""
    return LaunchLog(
        journal=controller.journal,
        signer=controller.signer,
        launcher_id=controller.launcher_id,
        version=controller.version,
        now=controller.now,
        plan=plan,
        crossed=controller.crossed,
    )


def loaded_plan(controller: Controller, admitted: AdmittedImage, request: LaunchRequest) -> LaunchPlan:
    """The plan, once the engine is the one that was admitted, the run goes on as it began, and the image is
    in the engine. Nothing of the launch exists yet. Raises LaunchRefused, UsageError, HostError."""
    plan = plan_launch(admitted, request, controller.owner, controller.staging)
    engine, image = controller.engine, plan.container.image.image
    _, found = both(partial(check_same_engine, engine, admitted), partial(engine.find_image, image))
    check_same_run(controller.journal, plan)
    if found is None:
        with controller.loading():
            found = engine.load(image, controller.staging)
    check_image_id(plan, found)
    return plan


def judge_store(controller: Controller, container: str, plan: LaunchPlan) -> StoreTrust:
    """What is known of the engine's store by now, with the container created and nothing of it started."""
    if not plan.admitted.rehash_store:
        return StoreTrust.TRUSTED
    return check_store(
        controller.engine,
        container,
        plan,
        controller.staging,
        memory=controller.stores,
        hashing=controller.hashing,
    )


def launch(
    controller: Controller, admitted: AdmittedImage, request: LaunchRequest, output: Output | None = None
) -> LaunchRecord:
    """Run one command or agent in a container of its own, to the end.

    The container is gone when this returns or raises, also by Ctrl-C and SIGTERM (an exception from the
    signal handler). Once an intent was written, a record is signed and kept in the journal too.
    Raises LaunchRefused (nothing of the agent ran), HostError, StateError; CandidateRefused, after the record
    was signed, when the command ended and what came out of its workspace is not taken. Where the request has
    credentials, the output is redacted before anybody sees it; but for what is shown on a terminal.
    """
    if request.supervision is not Supervision.TETHERED:
        raise UsageError("a leased launch is opened, not run: backend.open_leased")
    if (request.terminal is None) is not (output is None or output.terminal is None):
        raise UsageError("a terminal is in the request and in the output, or in neither")
    _need_keepers(controller, request)
    plan = loaded_plan(controller, admitted, request)
    if plan.space is not None and controller.candidates is None:
        raise StateError("there is no place for what is exported", where="candidates")
    with shown(output, request.projection.secrets) as watched:
        return _Launch(controller, plan, watched).run()


def _need_keepers(controller: Controller, request: LaunchRequest) -> None:
    """What a container renews and nobody keeps is lost for good."""
    leaves = request.launch_class is LaunchClass.LOGIN or request.projection.rotating or request.session
    if leaves and controller.keepers is None:
        raise UsageError(
            "a launch with a login that is renewed, or with a session, needs somebody to keep it"
        )


# A command that came to an end, or that was ended by a bound: what it committed until then is its own.
_EXPORTING: Final = frozenset({LaunchEnding.COMPLETED, LaunchEnding.TIMED_OUT, LaunchEnding.WORKSPACE_FULL})


class _Launch:
    """One launch in progress: where it is in the journal, and what has been seen so far."""

    def __init__(self, controller: Controller, plan: LaunchPlan, output: Output) -> None:
        self._controller = controller
        self._plan = plan
        self._output = output
        self._gone = False
        self._counted = Counted()
        self._network = Network(plan.network, controller.now, plan.request.projection.secrets)
        self._home = Home(controller.engine, plan, controller.keepers, controller.now)
        self._log = log_of(controller, plan)
        self._export: Path | None = None
        self._refused: CandidateRefused | None = None
        started = controller.now()
        # Whatever interrupts us before the end is known leaves this ending.
        self._seen = Observed(
            started=started,
            finished=started,
            ending=LaunchEnding.INTERRUPTED,
            space=first_seen(plan.space) if plan.space else None,
        )

    def run(self) -> LaunchRecord:
        self._log.intend(self._controller.owner.lease_id)
        record: LaunchRecord | None = None
        try:
            self._hold_container()
            self._take_home()
        except BuilderError as failed:
            self._seen = replace(self._seen, ending=ending_by(failed), reason=failed.reason, exit_code=None)
            raise
        finally:
            if self._gone:  # else the journal stays open, and recovery finishes what the engine could not
                record = self._sign()
        if record is None:
            raise StateError("a launch ended without its container being removed", where=self._plan.launch_id)
        if self._refused is not None:
            raise self._refused
        return record

    def _hold_container(self) -> None:
        engine, plan, space = self._controller.engine, self._plan.container, self._plan.space
        with swept(engine, plan, self._removed), self._network.served():
            if space is not None:
                make_volumes(engine, space, self._controller.staging)
                self._advance(Boundary.PROVIDED)
            container = engine.create(plan)
            self._advance(Boundary.CREATED, container_id=container)
            self._seen = replace(self._seen, container=confirm(engine, container, plan))
            self._seen = replace(self._seen, store=judge_store(self._controller, container, self._plan))
            self._advance(Boundary.CONFIRMED)
            if space is not None:
                fill_workspace(engine, container, self._plan, space, self._controller.staging)
                self._advance(Boundary.FILLED)
            with tethered(engine, container, plan):
                self._advance(Boundary.STARTED)
                inside = look_inside(engine, container, plan, self._plan.command)
                self._seen = replace(self._seen, inside=inside)
                need_command(inside, self._plan.command.argv[0])
                if space is not None:
                    check_room(engine, container, self._plan, space, inside)
                    prepare_repository(engine, container, self._plan, space)
                given = project(engine, container, self._plan.account, self._plan.projection)
                self._seen = replace(self._seen, projected=given)
                if self._plan.request.session is not None:
                    put_history(engine, container, self._plan.account, self._plan.request.session)
                with self._home.kept(container), self._network.relayed(engine, container, self._plan.account):
                    self._advance(Boundary.COMMANDED)
                    self._run_command(container)
                self._keep_what_it_left(container)
                self._advance(Boundary.ENDED, exit_code=self._seen.exit_code)
                if space is not None and space.export is ExportRule.COMMITS:
                    self._take_out(container, space)

    def _keep_what_it_left(self, container: str) -> None:
        """Of a command that has ended, whatever its exit code; a login that failed has left nothing."""
        if self._plan.request.launch_class is LaunchClass.LOGIN:
            if self._seen.exit_code == 0:
                self._home.take_login(container)
        elif self._seen.ending in _EXPORTING:
            self._home.take_session(container)

    def _run_command(self, container: str) -> None:
        engine, plan = self._controller.engine, self._plan
        if plan.space is None:
            end = run_command(engine, container, plan, self._output, self._counted)
        else:
            end = run_measured(engine, container, plan, self._output, self._counted)
        self._seen = replace(
            self._seen,
            ending=end.ending,
            reason=end.reason,
            exit_code=end.exit_code,
            out_of_memory=end.out_of_memory,
        )

    def _take_out(self, container: str, space: SpacePlan) -> None:
        """The stream, while the container still runs; a work that was cut short may have commits too."""
        if self._seen.ending not in _EXPORTING:
            return
        try:
            self._export = export_workspace(
                self._controller.engine, container, self._plan, space, self._controller.staging
            )
        except CandidateRefused as refused:
            self._refuse(refused)
        else:
            self._advance(Boundary.EXPORTED)

    def _take_home(self) -> None:
        """Import on the host, with the container gone; a candidate without a record is never left."""
        space, seen, candidates = self._plan.space, self._seen.space, self._controller.candidates
        if self._export is None or space is None or seen is None or candidates is None:
            return
        try:
            seen = import_workspace(space, self._plan.launch_id, self._export, seen)
        except CandidateRefused as refused:
            self._refuse(refused)
            return
        if seen.imported is None:
            self._seen = replace(self._seen, space=seen)
            return
        self._advance(Boundary.IMPORTED, detail=seen.imported.commit.name)
        before, known = self._seen, False
        try:
            seen = publish_workspace(seen, candidates, self._plan.launch_id)
            self._seen = replace(self._seen, space=seen)
            known = True
        finally:  # also a signal, between the move and what is known of it
            if not known:
                self._seen = before
                if seen.imported is not None and not seen.imported.repository.path.exists():
                    withdraw(candidates, self._plan.launch_id)

    def _refuse(self, refused: CandidateRefused) -> None:
        """What came out is not taken: the command's own ending stays what it was."""
        self._refused = refused
        if self._seen.space is not None:
            space = replace(self._seen.space, status=ExportStatus.REFUSED, reason=refused.reason)
            self._seen = replace(self._seen, space=space)

    def _advance(
        self, to: Boundary, *, container_id: str = "", exit_code: int | None = None, detail: str = ""
    ) -> None:
        self._log.advance(
            to, container_id=container_id, exit_code=exit_code, detail=detail or self._seen.reason
        )

    def _removed(self) -> None:
        self._advance(Boundary.REMOVED)
        self._gone = True

    def _sign(self) -> LaunchRecord:
        self._seen = replace(
            self._seen,
            finished=self._controller.now(),
            network=self._network.seen(),
            taken=self._home.taken,
            stdout_bytes=self._counted.stdout,
            stderr_bytes=self._counted.stderr,
        )
        return self._log.sign(self._seen)
