"""From a plan or a record to the document that `run` prints of it."""

from __future__ import annotations

from backend.admission import AdmittedImage
from backend.plan import LaunchPlan
from backend.records import LaunchRecord
from backend.requests import LaunchRequest
from builder.cli.documents.launches import (
    ExportedCommitDocument,
    LaunchedDocument,
    LimitsDocument,
    PlanDocument,
    PlannedIntegrationsDocument,
    PlannedLaunchDocument,
    PlannedSourceDocument,
)


def plan_document(plan: LaunchPlan) -> PlanDocument:
    """The launch that would be."""
    container, command = plan.container, plan.command
    return PlanDocument(
        plan=PlannedLaunchDocument(
            image=str(plan.admitted.image.digest),
            class_=plan.request.launch_class,
            run=plan.request.run_id,
            step=plan.request.step,
            engine=plan.admitted.facts.product,
            mode=plan.admitted.mode,
            accepted=tuple(one.what.value for one in plan.admitted.accepted),
            credentials=tuple(str(one.name) for one in plan.request.projection.credentials),
            integrations=_planned_integrations(plan),
            user=f"{command.user[0]}:{command.user[1]}",
            watch_user=f"{container.user[0]}:{container.user[1]}" if container.user else "",
            command=command.argv,
            terminal=plan.request.terminal is not None,
            network=container.network,
            allow=tuple(map(str, sorted(plan.network.allow.peers))) if plan.network else (),
            read_only_root=container.read_only_root,
            tmpfs={one.path: one.size for one in container.tmpfs},
            limits=None
            if container.limits is None
            else LimitsDocument(
                cpus=container.limits.cpus,
                memory=container.limits.memory,
                pids=container.limits.pids,
            ),
            deadline=plan.request.deadline,
            source=_planned_source(plan),
        )
    )


def _planned_integrations(plan: LaunchPlan) -> PlannedIntegrationsDocument:
    setup = plan.projection.setup
    return PlannedIntegrationsDocument(
        turned_on=setup.names,
        agents=tuple(sorted(setup.agents)),
        server_secrets=tuple(one.name for one in plan.projection.server_secrets),
        fenced=tuple(sorted(setup.fenced)),
    )


def _planned_source(plan: LaunchPlan) -> PlannedSourceDocument | None:
    space = plan.space
    if space is None:
        return None
    return PlannedSourceDocument(
        kind=space.source.kind,
        candidate_of=space.source.candidate_of or None,
        commit=space.source.commit,
        tree=space.source.tree.tree,
        route=space.route,
        workspace=space.start,
        workspace_bytes=space.bound,
        volumes=tuple(volume.name for volume in space.volumes),
        export=space.export,
        not_seen=space.source.unseen.total,
    )


def launched_document(
    admitted: AdmittedImage, request: LaunchRequest, record: LaunchRecord, exit_code: int
) -> LaunchedDocument:
    """A launch whose command came to its end with this exit code."""
    space = record.observed.space
    exported = None
    if space is not None and space.imported is not None and space.fetch is not None:
        repository, reference = space.fetch
        exported = ExportedCommitDocument(
            commit=space.imported.commit.name, repository=repository, reference=reference
        )
    return LaunchedDocument(
        launch=record.launch_id,
        run=request.run_id,
        step=request.step,
        launch_class=request.launch_class,
        image=str(record.image),
        engine=admitted.facts.product,
        mode=admitted.mode,
        exit_code=exit_code,
        statement=str(record.statement.digest),
        exported=exported,
    )
