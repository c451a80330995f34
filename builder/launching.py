"""`builder run`: verify for admission, probe the engine, admit, plan, launch; or say what would happen."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from backend.admission import AdmittedImage, admit, engine_uid, readable_keys
from backend.containers import Limits
from backend.engines.protocol import Engine
from backend.journal import Journal
from backend.launch import Controller, Output, launch
from backend.ownership import hold_lease
from backend.plan import LaunchPlan, LaunchRequest, plan_launch
from backend.records import LaunchRecord
from builder.leftovers import remove_leftovers
from builder.probing import probe_engine
from builder.verifying import Chosen, Verification, verify_image
from builder.workshop import Workshop
from images.config import RunDefaults, RunLimits
from images.errors import LaunchReason, LaunchRefused, VerifyFailed
from images.oci import Platform
from provenance.checks import CheckId, Status
from provenance.keys import PrivateKey
from provenance.layout import blob_path
from provenance.marks import raise_marks
from provenance.policy import Policy
from provenance.verify import VerifiedImage

# What [run] says when there is no builder.toml to say it.
DEFAULT_RUN = RunDefaults(
    agent=None, allow=(), limits=RunLimits(cpus=2.0, memory=4 << 30, pids=512, deadline=7200.0)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run: a ``command``, or an ``agent`` with ``arguments``. ``deadline`` in seconds."""

    command: tuple[str, ...]
    agent: str
    arguments: tuple[str, ...]
    deadline: float | None


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
    facts = engine.facts()
    admitted = admit(
        verified,
        policy,
        probe,
        facts=facts,
        platform=launcher.platform,
        exposed_keys=readable_keys(launcher.role_keys, engine_uid=engine_uid(facts)),
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


def launch_request(chosen: Chosen, request: RunRequest) -> LaunchRequest:
    """The launch that [run] and the command line ask for together."""
    defaults = chosen.project.config.run if chosen.project else DEFAULT_RUN
    agent = request.agent
    if not agent and not request.command and defaults.agent is not None:
        agent = defaults.agent.value
    limits = defaults.limits
    return LaunchRequest(
        run_id=secrets.token_hex(8),
        scope="command-line",
        limits=Limits(cpus=limits.cpus, memory=limits.memory, pids=limits.pids),
        deadline=request.deadline or limits.deadline,
        command=request.command,
        agent=agent,
        arguments=request.arguments,
        allow=tuple(map(str, defaults.allow)),
    )


def dry_run(workshop: Workshop, admitted: AdmittedImage, request: LaunchRequest) -> LaunchPlan:
    """The plan, from the same code as a launch; nothing is created."""
    with hold_lease(workshop.state.leases, workshop.state.id) as owner:
        return plan_launch(admitted, request, owner)


def launch_image(
    workshop: Workshop,
    engine: Engine,
    admitted: AdmittedImage,
    request: LaunchRequest,
    *,
    launcher: Launcher,
    output: Output,
) -> LaunchRecord:
    """Recover what dead controllers left, then launch."""
    state = workshop.state
    with (
        hold_lease(state.leases, state.id) as owner,
        state.staging("launch") as staging,
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
        )
        return launch(controller, admitted, request, output)
