"""`builder run`: verify for admission, probe the engine, admit, plan, launch; or say what would happen."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from backend.admission import AdmittedImage, admit
from backend.agent_command import Output
from backend.containers import Limits
from backend.engines.protocol import Engine
from backend.home import Keepers
from backend.host import Host, look_at_host
from backend.journal import Boundary, Journal
from backend.launch import Controller, launch
from backend.launch_checks import check_same_run
from backend.network.bounds import DIRECT
from backend.ownership import hold_lease
from backend.plan import ElsewherePlan, LaunchPlan, plan_elsewhere, plan_launch
from backend.projection.asking import needs_server_secrets
from backend.projection.credentials import Credential
from backend.projection.logins import LOGIN_HOSTS
from backend.projection.placing import projection_of
from backend.records import LaunchRecord
from backend.requests import LaunchClass, LaunchRequest
from backend.terminal_kind import TerminalKind
from builder.credentials import kept_sources, read_server_secrets, read_sources
from builder.keeping import Keeping
from builder.leftovers import remove_leftovers
from builder.probing import probe_engine
from builder.report import Reporter
from builder.settings.settings_file import Settings
from builder.uplink import uplink_of
from builder.verifying import Chosen, Verification, verify_image
from builder.workshop import Workshop
from images.config import AgentName, RunDefaults, RunLimits
from images.errors import LaunchReason, LaunchRefused, VerifyFailed
from images.oci import Platform
from provenance.checks import CheckId, Status
from provenance.keys import PrivateKey
from provenance.layout import blob_path
from provenance.marks import raise_marks
from provenance.policy import Policy
from provenance.verify import VerifiedImage

# What [run] says when there is no builder.toml to say it.
_STAGES: Final = {
    Boundary.INTENDED: "make and check the container …",
    Boundary.ENDED: "take home what was committed, and remove the container …",
}
LOGIN_SECONDS: Final = 1800.0  # for a person to find the browser, the account and the code
DEFAULT_RUN = RunDefaults(
    agent=None, allow=(), limits=RunLimits(cpus=2.0, memory=4 << 30, pids=512, deadline=7200.0)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run: a ``command``, or an ``agent`` with ``arguments``. ``deadline`` in seconds.

    ``credentials``: those that the operator typed the names of. ``server_descriptors``: ``SERVER.VARIABLE``
    -> descriptor, of the secrets for which the policy asks at each launch. ``terminal``: the kind of
    the one that the command runs on; None captures it. ``login``, ``session``: their names, where they are
    named.
    """

    command: tuple[str, ...]
    agent: str
    arguments: tuple[str, ...]
    deadline: float | None
    credentials: tuple[Credential, ...] = ()
    server_descriptors: Mapping[str, int] = field(default_factory=dict)
    launch_class: LaunchClass = LaunchClass.EXECUTE
    terminal: TerminalKind | None = None
    login: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Who launches, on which platform. ``role_keys``: where builder's and verifier's keys would be."""

    platform: Platform
    signer: PrivateKey
    launcher_id: str
    version: str
    role_keys: tuple[Path, ...]
    now: Callable[[], datetime]


def verify_for_launch(chosen: Chosen, what: Verification) -> VerifiedImage:
    """Everything that verify does, and the verifier's summary. LaunchRefused when the image is not proved."""
    report = verify_image(chosen, what, rescan=False)
    try:
        return report.require()
    except VerifyFailed as broken:
        unexpected = report.check(CheckId.PARAMETERS).status is Status.NOT_PERFORMED
        reason = (
            LaunchReason.NO_EXPECTATION
            if unexpected and broken.reason == CheckId.PARAMETERS.name.lower()
            else LaunchReason.NOT_VERIFIED
        )
        raise LaunchRefused(reason, broken.what, where=broken.where, hint=broken.hint) from None


def admit_image(
    workshop: Workshop, engine: Engine, verified: VerifiedImage, policy: Policy, launcher: Launcher
) -> AdmittedImage:
    """Probe (kept per boot), then admit; what was accepted or let pass is printed."""
    probe = probe_engine(workshop, engine)
    facts = probe.facts  # asked a moment ago; the launch asks once more
    admitted = admit(
        verified,
        policy,
        probe,
        facts=facts,
        platform=launcher.platform,
        host=look_at_host(
            Host(facts=facts, uid_map=probe.uid_map, state=workshop.state.root, keys=launcher.role_keys)
        ),
    )
    raise_marks(workshop.state.marks, policy)
    with contextlib.suppress(OSError):
        # In use from now on: `builder gc` keeps it until the journal does.
        os.utime(blob_path(verified.image.layout, verified.image.digest))
    say = workshop.reporter.say
    say(f"mode: {admitted.mode}")
    for accepted in admitted.accepted:
        say(f"accepted, not enforced: {accepted.what}: {accepted.why}")
    for note in admitted.notes:
        say(f"development mode lets pass: {note}")
    return admitted


def agent_of(chosen: Chosen, request: RunRequest) -> str:
    """The agent that runs: the one that is named, or where nothing is, that of [run]; empty for a command."""
    defaults = chosen.project.config.run if chosen.project else DEFAULT_RUN
    # A command over files gets no agent, so none is put in the place of a missing command.
    may_default = request.launch_class is not LaunchClass.EXPORT_COMMAND
    if may_default and not request.agent and not request.command and defaults.agent is not None:
        return defaults.agent.value
    return request.agent


def is_given(chosen: Chosen, request: RunRequest, settings: Settings) -> bool:
    """Whether the agent's credential was named, on the command line or in settings.toml."""
    agent = agent_of(chosen, request)
    typed = any(one.name.route.agent == agent for one in request.credentials)
    return typed or bool(kept_sources(settings.credentials, agent, request.credentials))


def launch_request(
    chosen: Chosen,
    request: RunRequest,
    settings: Settings,
    policy: Policy,
    now: datetime,
    *,
    keeping: Keeping | None = None,
) -> LaunchRequest:
    """The launch that [run], settings.toml and the command line ask for together; the values of the servers
    that the policy turns on. ``keeping``: the login and the session that it gets."""
    defaults = chosen.project.config.run if chosen.project else DEFAULT_RUN
    agent = agent_of(chosen, request)
    limits = defaults.limits
    # What the author of a commit wrote gets no network, whatever the agents have.
    allow = tuple(map(str, defaults.allow)) if request.launch_class is not LaunchClass.EXPORT_COMMAND else ()
    lent = keeping.credentials if keeping else ()
    kept = () if lent else kept_sources(settings.credentials, agent, request.credentials)
    places = policy.enable.secrets if needs_server_secrets(request.launch_class, agent) else ()
    return LaunchRequest(
        run_id=secrets.token_hex(8),
        scope="command-line",
        launch_class=request.launch_class,
        limits=Limits(cpus=limits.cpus, memory=limits.memory, pids=limits.pids),
        deadline=request.deadline or limits.deadline,
        command=request.command,
        agent=agent,
        arguments=request.arguments,
        allow=allow,
        uplink=uplink_of(settings) if allow else DIRECT,
        projection=projection_of(
            [*request.credentials, *lent, *read_sources(kept, now)],
            read_server_secrets(places, request.server_descriptors),
        ),
        terminal=request.terminal,
        session=keeping.history if keeping else None,
    )


def login_request(
    chosen: Chosen, agent: AgentName, settings: Settings, policy: Policy, terminal: TerminalKind | None
) -> LaunchRequest:
    """The launch of a CLI's own login: it reaches what [run] has, and of its provider's hosts those that the
    policy has too."""
    defaults = chosen.project.config.run if chosen.project else DEFAULT_RUN
    hosts = set(LOGIN_HOSTS[agent]) & set(map(str, policy.network))
    allow = tuple(sorted({*map(str, defaults.allow), *hosts}))
    limits = defaults.limits
    return LaunchRequest(
        run_id=secrets.token_hex(8),
        scope="command-line",
        launch_class=LaunchClass.LOGIN,
        limits=Limits(cpus=limits.cpus, memory=limits.memory, pids=limits.pids),
        deadline=min(LOGIN_SECONDS, limits.deadline),
        agent=agent.value,
        allow=allow,
        uplink=uplink_of(settings) if allow else DIRECT,
        terminal=terminal,
    )


def elsewhere_plan(chosen: Chosen, verified: VerifiedImage) -> ElsewherePlan:
    """What [run] asks for of this image, as a plan to be shown; needs no engine."""
    defaults = chosen.project.config.run if chosen.project else DEFAULT_RUN
    limits = defaults.limits
    return plan_elsewhere(
        verified,
        agent=defaults.agent,
        limits=Limits(cpus=limits.cpus, memory=limits.memory, pids=limits.pids),
        deadline=limits.deadline,
    )


def dry_run(workshop: Workshop, admitted: AdmittedImage, request: LaunchRequest, staging: Path) -> LaunchPlan:
    """The plan, from the same code as a launch; nothing is created in the engine."""
    state = workshop.state
    with hold_lease(state.leases, state.id) as owner:
        plan = plan_launch(admitted, request, owner, staging)
        if state.journal.exists():
            with Journal.open(state.journal, state.id) as journal:
                check_same_run(journal, plan)
        return plan


def _tell(reporter: Reporter, boundary: Boundary) -> None:
    """Where a second or more may pass in silence: before the command's first word, and after its last."""
    if boundary in _STAGES:
        reporter.say(_STAGES[boundary])


def launch_image(
    workshop: Workshop,
    engine: Engine,
    admitted: AdmittedImage,
    request: LaunchRequest,
    *,
    launcher: Launcher,
    output: Output,
    staging: Path,
    keepers: Keepers | None = None,
) -> LaunchRecord:
    """Recover what dead controllers left, then launch. ``staging``: where a source was prepared."""
    state = workshop.state
    with (
        hold_lease(state.leases, state.id) as owner,
        Journal.open(state.journal, state.id) as journal,
    ):
        remove_leftovers(workshop, engine, journal, launcher.now)
        controller = Controller(
            engine=engine,
            journal=journal,
            owner=owner,
            signer=launcher.signer,
            launcher_id=launcher.launcher_id,
            version=launcher.version,
            staging=staging,
            now=launcher.now,
            candidates=state.candidates,
            crossed=partial(_tell, workshop.reporter),
            loading=partial(workshop.reporter.step, f"load the image into {engine.product}"),
            hashing=partial(workshop.reporter.step, f"hash again what {engine.product} holds of the image"),
            stores=state.probe,
            keepers=keepers,
        )
        return launch(controller, admitted, request, output)
