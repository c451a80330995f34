"""Start a clean image's CLIs offline under the hardening of a launch, and record what they really are."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from backend.account import ROOT, WATCH, agent_exec
from backend.commands import Ending, Outcome
from backend.containers import MIB, EngineFacts, ExecPlan, Limits
from backend.engines.client import complaint
from backend.engines.protocol import Engine
from backend.inside import InsideFacts
from backend.ownership import Owner
from backend.plan import DetectPlan, plan_detect
from backend.supervise import confirm, created, look_inside, tethered
from images.config import AgentName
from images.digests import Digest
from images.errors import BuildFailed, HostError, LaunchRefused
from images.launchers import launcher_path
from provenance.scan.accept import CleanImage
from provenance.statements import DetectedAgent, DetectedImage

# For a host that enforces limits; elsewhere a detection asks for none.
DETECT_LIMITS: Final = Limits(cpus=2.0, memory=4096 * MIB, pids=512)
DETECT_SECONDS: Final = 600.0
VERSION_SECONDS: Final = 60.0
MAX_OUTPUT: Final = 64 * 1024  # bytes of one CLI's answer
SKIP_PERMISSIONS: Final = (
    launcher_path(AgentName.CLAUDE_CODE),
    "--dangerously-skip-permissions",
    "-p",
    "hello",
)

# At the start of a line and followed by nothing or a space, so that no version in a warning is taken for it.
_VERSION: Final = re.compile(
    rb"^v?([0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)(?=\s|$)", re.MULTILINE
)
# What Claude Code says when it refuses the flag; anything else that it says is not a refusal of the flag.
_ROOT_REFUSED: Final = re.compile(rb"cannot be used with root", re.IGNORECASE)


def detect(
    engine: Engine,
    clean: CleanImage,
    pins: Sequence[tuple[AgentName, str]],
    *,
    owner: Owner,
    staging: Path,
    limits: Limits | None = None,
) -> DetectedImage:
    """Run each agent's ``--version`` as the agent's uid, without network, and compare it with its pin.

    Raises BuildFailed naming agent and cause when one answers nothing, something else, or fails; HostError
    for the engine. The container is gone when this returns or raises.
    """
    facts = engine.facts()
    loaded = engine.load(clean.image, staging)
    plan = plan_detect(
        clean.image,
        loaded.id_kind,
        owner,
        detect_id=f"detect-{secrets.token_hex(8)}",
        limits=limits,
        deadline=DETECT_SECONDS,
    )
    try:
        return _detect(engine, clean, pins, plan, facts)
    except LaunchRefused as refused:
        # Its settings are not as planned: no launch of this image on this host could be admitted.
        raise HostError(refused.what, where=refused.where, hint=refused.hint, reason=refused.reason) from None


def _detect(
    engine: Engine,
    clean: CleanImage,
    pins: Sequence[tuple[AgentName, str]],
    plan: DetectPlan,
    facts: EngineFacts,
) -> DetectedImage:
    with created(engine, plan.container, lambda: None) as container:
        confirm(engine, container, plan.container)
        with tethered(engine, container, plan.container):
            inside = look_inside(engine, container, plan.container, agent_exec(plan.account, ("sh",)))
            agents = tuple(_version_of(engine, container, plan, name, pinned) for name, pinned in pins)
            behaviour = (
                _root_behaviour(engine, container, plan)
                if any(name is AgentName.CLAUDE_CODE for name, _ in pins)
                else ()
            )
    return DetectedImage(
        clean=clean,
        agents=agents,
        uid=plan.account.uid,
        gid=plan.account.gid,
        root_behaviour=behaviour,
        engine=f"{facts.product} {facts.version} {'rootless' if facts.rootless else 'rootful'}",
        hardening=_hardening(plan, inside),
    )


def _version_of(
    engine: Engine, container: str, plan: DetectPlan, name: AgentName, pinned: str
) -> DetectedAgent:
    command = agent_exec(plan.account, (launcher_path(name), "--version"))
    outcome = engine.exec(container, command, deadline=VERSION_SECONDS)
    _need_container(engine, container, outcome)
    # Pi answers on standard error. Beside an answer on standard output, what is there is not the answer.
    answer = outcome.stdout if outcome.stdout.strip() else outcome.stderr
    found = _VERSION.search(answer[:MAX_OUTPUT])
    reported = found[1].decode("ascii") if found else ""
    problem = _problem(outcome, reported, pinned)
    if problem:
        raise BuildFailed(
            f"{name.value} {pinned} {problem}",
            where=f"agents.{name.value}",
            hint=f'if its install script must run, add "{name.package}" to [node].install-scripts',
            reason="detect",
        )
    return DetectedAgent(
        name=name.value,
        pinned=pinned,
        reported=reported,
        exit_code=0,
        output_digest=Digest.of(outcome.stdout + outcome.stderr),
    )


def _problem(outcome: Outcome, reported: str, pinned: str) -> str:
    """Why this answer is not the pinned version; empty when it is."""
    said = complaint(outcome.stderr) or complaint(outcome.stdout[:MAX_OUTPUT])
    if outcome.ending is not Ending.EXITED:
        return f"did not report its version within {VERSION_SECONDS:.0f} s"
    if not outcome.ok:
        started = "cannot be started" if outcome.exit_code in (126, 127) else "does not report its version"
        return f"{started} (exit code {outcome.exit_code}): {said or 'it said nothing'}"
    if len(outcome.stdout) + len(outcome.stderr) > MAX_OUTPUT or outcome.stdout_truncated:
        return f"answered with more than {MAX_OUTPUT} bytes when asked for its version"
    if not reported:
        return f"reports no version; it said: {said or 'nothing'}"
    if reported != pinned:
        return f"reports version {reported}"
    return ""


def _need_container(engine: Engine, container: str, outcome: Outcome) -> None:
    """An engine's failure is found by inspect, never by an exit code."""
    if outcome.ok:
        return
    found = engine.inspect(container)
    if found is None or not found.running:
        raise HostError(
            "the container of the detection ended under it",
            where=engine.product,
            hint="builder doctor",
            reason="container-lost",
        )


def _root_behaviour(engine: Engine, container: str, plan: DetectPlan) -> tuple[str, ...]:
    """What the installed Claude Code makes of its permission-skipping flag, as root and as the agent.

    Root here has no capability and no writable HOME of its own; nothing else is ever run as root inside.
    """
    said = []
    for user, home in ((ROOT, "/tmp"), (plan.account.ids, plan.account.home)):  # noqa: S108  (inside)
        command = ExecPlan(
            argv=SKIP_PERMISSIONS,
            user=user,
            environment=(("HOME", home), ("TERM", "dumb")),
            working_dir="/tmp",  # noqa: S108  (inside)
        )
        outcome = engine.exec(container, command, deadline=VERSION_SECONDS)
        _need_container(engine, container, outcome)
        output = (outcome.stdout + outcome.stderr)[:MAX_OUTPUT]
        if outcome.ending is not Ending.EXITED:
            verdict = f"no answer ({outcome.ending.value})"
        else:
            verdict = "refused" if _ROOT_REFUSED.search(output) else "accepted"
            verdict += f", exit code {outcome.exit_code}"
        said.append(
            f"claude-code --dangerously-skip-permissions as uid {user[0]}: {verdict},"
            f" output {Digest.of(output)}"
        )
    return tuple(said)


def _hardening(plan: DetectPlan, inside: InsideFacts) -> tuple[str, ...]:
    """Only what was compared with the plan and found equal, by the engine's account and from inside."""
    limits = plan.container.limits
    return (
        "capabilities: none",
        "home: writable",
        "log driver: none",
        "limits: none asked"
        if limits is None
        else f"limits: cpus {limits.cpus:g}, memory {limits.memory}, pids {limits.pids}",
        f"network interfaces: {', '.join(inside.interfaces)}",
        "no new privileges",
        "root file system: read-only",
        "seccomp: filter",
        f"watch: {WATCH[0]}:{WATCH[1]}",
    )
