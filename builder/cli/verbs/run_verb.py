"""`builder run`: launch a verified image; the exit code is the command's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from backend.admission import AdmittedImage
from backend.agent_command import Output
from backend.plan import LaunchPlan
from backend.records import LaunchEnding, LaunchRecord
from backend.requests import WORKSPACE_BYTES, LaunchClass, LaunchRequest, SourceRoute
from backend.terminal import CallerTerminal
from backend.terminal_kind import kind_of
from backend.workspace.refusals import CandidateRefused
from builder.cli.caller_terminal import terminal_of
from builder.cli.command_stream import CommandStream
from builder.cli.documents import printed
from builder.cli.documents.launches import LaunchedDocument, PlanDocument
from builder.cli.ground import admitted_here, find_ground
from builder.cli.invocation import Invocation, Result
from builder.cli.launch_answers import launched_document, plan_document
from builder.cli.session import login_store, open_workshop
from builder.continuing import CandidateRequest, FoundCandidate, RunOf, continued, find_candidate
from builder.credentials import read_sources, server_secret_descriptors, sources_of
from builder.keeping import Keeping, keeping_for, login_for, tell_hosts
from builder.launching import RunRequest, agent_of, dry_run, is_given, launch_image, launch_request
from builder.reached import tell_network
from builder.report import in_words
from builder.sourcing import (
    FoundSource,
    SourceRequest,
    find_source,
    ready_source,
    repository_here,
    tell_export,
)
from builder.storage.kept_output import keeping
from builder.verifying import Chosen
from builder.workshop import Workshop
from images.config import AgentName, parse_duration, parse_memory
from images.errors import HostError, LaunchReason, LaunchRefused, UsageError, VerifyFailed

_HINTS = {
    LaunchEnding.TIMED_OUT: "builder run --deadline TIME",
    LaunchEnding.WORKSPACE_FULL: "builder run --source DIR --workspace-size SIZE",
}


def run(invocation: Invocation) -> Result[PlanDocument | LaunchedDocument]:
    """Admission, then the launch. ``--dry-run`` stops before anything exists, and shows the plan."""
    try:
        return _run(invocation)
    except CandidateRefused:  # about what came out of the container, and not about the image
        raise
    except VerifyFailed as broken:
        # Wherever it shows, in the layout's own index or while a layer is loaded: this image is not proved.
        raise LaunchRefused(
            LaunchReason.NOT_VERIFIED, broken.what, where=broken.where, hint=broken.hint
        ) from None


def _run(invocation: Invocation) -> Result[PlanDocument | LaunchedDocument]:
    asked = _asked(invocation)
    wanted = _files(invocation)
    workshop = open_workshop(invocation)
    with terminal_of(invocation) as terminal, workshop.state.staging("launch") as staging:
        if terminal is not None:
            asked = replace(asked, terminal=kind_of(invocation.environment))
        found: FoundSource | FoundCandidate | None = None
        if isinstance(wanted, SourceRequest):
            found = find_source(workshop, wanted, staging)
        elif wanted is not None:
            found = find_candidate(workshop, wanted)
        return _launch(invocation, workshop, asked, found, staging, terminal=terminal)


def _launch(
    invocation: Invocation,
    workshop: Workshop,
    asked: RunRequest,
    found: FoundSource | FoundCandidate | None,
    staging: Path,
    *,
    terminal: CallerTerminal | None,
) -> Result[PlanDocument | LaunchedDocument]:
    ground = find_ground(invocation, workshop)
    with _kept_for(invocation, workshop, ground.chosen, asked) as keeping:
        request = launch_request(
            ground.chosen, asked, workshop.settings, ground.policy, invocation.now(), keeping=keeping
        )
        tell_hosts(invocation.reporter, keeping.login, request.allow)
        engine, admitted = admitted_here(invocation, workshop, ground)
        request = _with_files(workshop, request, found, staging)
        if invocation.options.dry_run:
            return _show_plan(invocation, dry_run(workshop, admitted, request, staging))
        _tell_request(invocation, admitted, request)
        stdout = CommandStream(sys.stdout.buffer)
        output = Output(
            on_stdout=stdout.write, on_stderr=CommandStream(sys.stderr.buffer).write, terminal=terminal
        )
        try:
            with _kept(workshop, request, output, keep=invocation.options.keep_log) as watched:
                record = launch_image(
                    workshop,
                    engine,
                    admitted,
                    request,
                    launcher=ground.launcher,
                    output=watched,
                    staging=staging,
                    keepers=keeping.keepers,
                )
        finally:
            if invocation.json_output:  # an object follows, of the launch or of its failure
                stdout.end_line()
    _tell_record(invocation, found, record)
    code = _exit_code(record)
    return Result(document=launched_document(admitted, request, record, code), code=code)


@contextmanager
def _kept_for(
    invocation: Invocation, workshop: Workshop, chosen: Chosen, asked: RunRequest
) -> Iterator[Keeping]:
    """The login and the session of this run."""
    agent, store = agent_of(chosen, asked), login_store(invocation)
    given = is_given(chosen, asked, workshop.settings)
    login = login_for(store, agent, asked.login, given=given)
    session = None
    if asked.session is not None:
        if agent not in set(AgentName):
            raise UsageError("a plain command has no session", hint="builder run --agent NAME --session NAME")
        session = (asked.session, AgentName(agent))
    with keeping_for(
        store, workshop.state, login=login, session=session, now=invocation.now, reporter=invocation.reporter
    ) as keeping:
        yield keeping


def _tell_request(invocation: Invocation, admitted: AdmittedImage, request: LaunchRequest) -> None:
    say = invocation.reporter.say
    for credential in request.projection.credentials:
        say(f"credential: {credential.name}, by standard input into the agent's HOME")
    if request.allow:
        say(f"network: {', '.join(request.allow)}, and nothing else")
    if admitted.integrations.names:
        say(f"turned on by the policy: {', '.join(admitted.integrations.names)}")
    if request.terminal is not None:
        say("terminal: this one; what it shows is neither recorded nor redacted")


def _tell_record(
    invocation: Invocation, found: FoundSource | FoundCandidate | None, record: LaunchRecord
) -> None:
    directory = found.origin.worktree or found.origin.git_dir if isinstance(found, FoundSource) else None
    tell_network(invocation.reporter, record.observed.network, record.launch_id)
    tell_export(invocation.reporter, directory, record)
    if invocation.options.keep_log:
        invocation.reporter.say(f"what it said was kept: builder logs {record.launch_id}")
    invocation.reporter.say(f"launch record: {record.launch_id} ({record.statement.digest})")


def _kept(
    workshop: Workshop, request: LaunchRequest, output: Output, *, keep: bool
) -> AbstractContextManager[Output]:
    if not keep:
        return nullcontext(output)
    return keeping(output, workshop.state.logs, request.launch_id, request.projection.secrets)


def _with_files(
    workshop: Workshop,
    request: LaunchRequest,
    found: FoundSource | FoundCandidate | None,
    staging: Path,
) -> LaunchRequest:
    match found:
        case None:
            return request
        case FoundSource():
            return replace(request, source=ready_source(workshop, found, staging))
        case FoundCandidate():
            return continued(workshop, found, request, staging)
        case _:
            assert_never(found)


def _asked(invocation: Invocation) -> RunRequest:
    options = invocation.options
    tail = tuple(options.tail or ())
    if not options.agent and options.tail is not None and not tail:
        raise UsageError("nothing follows --", hint="builder run -- CMD, or builder run --agent NAME")
    deadline = None
    if options.deadline:
        try:
            deadline = parse_duration(options.deadline)
        except ValueError as broken:
            raise UsageError(f"--deadline: {broken}") from None
    return RunRequest(
        command=() if options.agent else tail,
        agent=options.agent or "",
        arguments=tail if options.agent else (),
        deadline=deadline,
        credentials=read_sources(sources_of(options.credential, options.credential_fd), invocation.now()),
        server_descriptors=server_secret_descriptors(options.server_secret_fd),
        launch_class=_candidate(invocation)[0],
        login=options.login,
        session=options.session,
    )


def _candidate(invocation: Invocation) -> tuple[LaunchClass, str]:
    """What is done, and with which launch's candidate: empty for none. argparse takes at most one."""
    options = invocation.options
    for launch_class, launch_id in (
        (LaunchClass.REVIEW, options.review),
        (LaunchClass.FIX, options.fix),
        (LaunchClass.EXPORT_COMMAND, options.check),
    ):
        if launch_id is not None:
            return launch_class, launch_id
    return LaunchClass.EXECUTE, ""


def _files(invocation: Invocation) -> SourceRequest | CandidateRequest | None:
    options = invocation.options
    launch_class, launch_id = _candidate(invocation)
    continuing = launch_class is not LaunchClass.EXECUTE
    if options.new_run and not continuing:
        raise UsageError("--new-run without a candidate", hint="builder run --review LAUNCH --new-run")
    source = options.source
    if source is None and not continuing and not options.no_source and _runs_an_agent(invocation):
        source = repository_here(invocation.working_dir)
        if source is not None:
            invocation.reporter.say(f"source: the repository here, {source} (--no-source for none)")
    if source is None and not continuing:
        given = (("--commit", options.commit is not None), ("--copy-in", options.copy_in))
        for name, value in (*given, ("--workspace-size", options.workspace_size)):
            if value:
                raise UsageError(f"{name} without --source or a candidate", hint="builder run --source DIR")
        return None
    size = WORKSPACE_BYTES
    if options.workspace_size:
        try:
            size = parse_memory(options.workspace_size)
        except ValueError as broken:
            raise UsageError(f"--workspace-size: {broken}") from None
    route = SourceRoute.COPY_IN if options.copy_in else SourceRoute.BIND
    if continuing:
        return CandidateRequest(
            launch_id=launch_id,
            commit=options.commit,
            run=RunOf.OWN if options.new_run else RunOf.CANDIDATE,
            route=route,
            workspace_bytes=size,
        )
    return SourceRequest(
        directory=invocation.working_dir / source,
        revision="HEAD" if options.commit is None else options.commit,
        route=route,
        workspace_bytes=size,
    )


def _runs_an_agent(invocation: Invocation) -> bool:
    """Not so when a command follows ``--``: then nobody is there to work on files unless they are named."""
    return bool(invocation.options.agent) or not invocation.options.tail


def _exit_code(record: LaunchRecord) -> int:
    if record.observed.ending is LaunchEnding.COMPLETED and record.exit_code is not None:
        return record.exit_code
    raise HostError(
        f"the command did not come to an end by itself: {record.observed.ending}",
        where=record.launch_id,
        hint=_HINTS.get(record.observed.ending, "builder doctor"),
        reason=record.observed.reason or record.observed.ending.value,
    )


def _show_plan(invocation: Invocation, plan: LaunchPlan) -> Result[PlanDocument]:
    document = plan_document(plan)
    for name, value in printed(document.plan).items():
        invocation.reporter.say(f"{name}: {in_words(value)}")
    return Result(document=document)
