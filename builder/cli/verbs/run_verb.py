"""`builder run`: launch a verified image; the exit code is the command's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import BinaryIO

from backend.launch import Output
from backend.plan import LaunchPlan
from backend.records import LaunchEnding, LaunchRecord
from builder.cli.invocation import Invocation, Result, RunExit
from builder.cli.platform import host_platform
from builder.cli.session import key_of, open_workshop, policy_of
from builder.launching import (
    Launcher,
    RunRequest,
    admit_image,
    dry_run,
    launch_image,
    launch_request,
    verify_for_launch,
)
from builder.verifying import Verification, choose_image
from images.config import parse_duration
from images.errors import HostError, LaunchReason, LaunchRefused, UsageError, VerifyFailed
from provenance.attest import signer_id
from provenance.policy import Policy
from provenance.policy_model import Role
from provenance.verify import Purpose


def run(invocation: Invocation) -> Result:
    """Admission, then the launch. ``--dry-run`` stops before anything exists, and shows the plan."""
    try:
        return _run(invocation)
    except VerifyFailed as broken:
        # Wherever it shows, in the layout's own index or while a layer is loaded: this image is not proved.
        raise LaunchRefused(
            LaunchReason.NOT_VERIFIED, broken.what, where=broken.where, hint=broken.hint
        ) from None


def _run(invocation: Invocation) -> Result:
    options = invocation.options
    asked = _asked(invocation)
    workshop = open_workshop(invocation)
    platform = host_platform()
    chosen = choose_image(workshop.state, options.image, options.lock, platform, invocation.working_dir)
    policy = policy_of(invocation, beside=chosen.project_dir)
    invocation.reporter.say(f"image: {chosen.digest}")
    request = launch_request(chosen, asked)
    launcher = _launcher(invocation, policy)
    what = Verification(
        state=workshop.state, policy=policy, purpose=Purpose.ADMISSION, platform=platform, now=invocation.now
    )
    with workshop.at_work():
        with invocation.reporter.step("verify for launch"):
            verified = verify_for_launch(chosen, what)
        engine = workshop.connect()
        admitted = admit_image(workshop, engine, verified, policy, launcher)
    if options.dry_run:
        return _show_plan(invocation, dry_run(workshop, admitted, request))
    output = Output(on_stdout=_writer(sys.stdout.buffer), on_stderr=_writer(sys.stderr.buffer))
    record = launch_image(workshop, engine, admitted, request, launcher=launcher, output=output)
    invocation.reporter.say(f"launch record: {record.launch_id} ({record.statement.digest})")
    raise RunExit(_exit_code(record))


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
    )


def _launcher(invocation: Invocation, policy: Policy) -> Launcher:
    signer = key_of(invocation, Role.LAUNCHER)
    keys = invocation.config_dir / "keys"
    return Launcher(
        platform=host_platform(),
        signer=signer,
        launcher_id=signer_id(policy, Role.LAUNCHER, signer),
        version=version("agent-image-builder"),
        role_keys=(keys / "builder.key", keys / "verifier.key"),
        now=invocation.now,
    )


def _writer(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(chunk: bytes) -> None:
        try:
            stream.write(chunk)
            stream.flush()
        except OSError as broken:
            # What the command says cannot be lost in silence: the launch ends, and the exit code is ours.
            raise HostError(
                f"the command's output cannot be written: {broken.strerror}",
                where=f"descriptor {stream.fileno()}",
                hint="give it a reader that stays, or a file on a disk with room",
                reason="output",
            ) from None

    return write


def _exit_code(record: LaunchRecord) -> int:
    if record.observed.ending is LaunchEnding.COMPLETED and record.exit_code is not None:
        return record.exit_code
    raise HostError(
        f"the command did not come to an end by itself: {record.observed.ending}",
        where=record.launch_id,
        hint="builder run --deadline TIME"
        if record.observed.ending is LaunchEnding.TIMED_OUT
        else "builder doctor",
        reason=record.observed.reason or record.observed.ending.value,
    )


def _show_plan(invocation: Invocation, plan: LaunchPlan) -> Result:
    container, command = plan.container, plan.command
    facts: dict[str, object] = {
        "image": str(plan.admitted.image.digest),
        "engine": plan.admitted.facts.product,
        "mode": plan.admitted.mode.value,
        "accepted": [one.what.value for one in plan.admitted.accepted],
        "user": f"{command.user[0]}:{command.user[1]}",
        "watch_user": f"{container.user[0]}:{container.user[1]}" if container.user else "",
        "command": list(command.argv),
        "network": container.network.value,
        "read_only_root": container.read_only_root,
        "tmpfs": {one.path: one.size for one in container.tmpfs},
        "limits": None
        if container.limits is None
        else {
            "cpus": container.limits.cpus,
            "memory": container.limits.memory,
            "pids": container.limits.pids,
        },
        "deadline": plan.request.deadline,
    }
    for name, value in facts.items():
        invocation.reporter.say(f"{name}: {value}")
    return Result(document={"plan": facts})
