"""What a caller may ask of a launch, and what is refused of it before anything is planned."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, assert_never

from backend.containers import MIB, Limits
from backend.network.bounds import DIRECT, Uplink
from backend.projection.history import History
from backend.projection.placing import NOTHING, Projection
from backend.terminal_kind import TerminalKind
from images.errors import LaunchReason, LaunchRefused, UsageError

if TYPE_CHECKING:
    from backend.workspace.prepared import PreparedSource

MAX_DEADLINE: Final = 7 * 24 * 3600.0  # seconds
LEAST_LEASE, MAX_LEASE = 5, 600  # seconds; a renewal takes an exec, half a second on a busy machine
WORKSPACE_BYTES: Final = 8 * 1024 * MIB
LEAST_WORKSPACE: Final = 1 * MIB

_RUN_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SCOPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/#:@-]{0,127}")


class LaunchClass(StrEnum):
    """What a launch is for. DETECT is no launch, and is refused by name.

    LOGIN runs a CLI's own login, to keep what it leaves: an agent, and nothing else of a request's.
    REVIEW looks at a candidate, and nothing of it can come out. FIX starts from a candidate. EXPORT_COMMAND
    runs a command of the tree's own over its files, without an agent and without git.
    """

    EXECUTE = "execute"
    REVIEW = "review"
    FIX = "fix"
    LOGIN = "login"
    EXPORT_COMMAND = "export-command"
    DETECT = "detect"


class SourceRoute(StrEnum):
    """How /source gets in: bound read-only where that was proved to work, or copied into a volume."""

    BIND = "bind"
    COPY_IN = "copy-in"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSource:
    """The files of a launch. ``route``: BIND is taken where the host's probe proved it; COPY_IN always is.

    ``workspace_bytes``: what /workspace may grow to, by samples; a launch that goes beyond is ended.
    """

    prepared: PreparedSource
    route: SourceRoute = SourceRoute.BIND
    workspace_bytes: int = WORKSPACE_BYTES


class Supervision(StrEnum):
    """TETHERED: the container ends with its controller, whose pipe PID 1 reads.

    LEASED: it outlives its controller for as long as a lease inside stays fresh (docs/adr/0020).
    """

    TETHERED = "tethered"
    LEASED = "leased"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What a caller may ask for, and nothing else: no flag, mount, device, capability, namespace or variable.

    Either ``command`` (argv) or ``agent`` with ``arguments``. ``deadline``: seconds that the command gets.
    ``allow``: exact host:port pairs, under the policy's ceiling; ``uplink``: how the controller reaches them.
    ``projection``: the credentials that the agent gets.
    ``source``: None gives an empty /workspace in memory.
    ``session``: what the agent remembers of earlier runs, and then of this one; None: nothing is kept.
    ``terminal``: the kind of the caller's, on which the command then runs; None captures what it writes.

    A leased launch names no command: its commands come one by one; ``deadline`` is then the container's, and
    ``lease_seconds`` how old its lease may grow.
    """

    run_id: str
    scope: str
    limits: Limits
    deadline: float
    step: int = 1
    launch_class: LaunchClass = LaunchClass.EXECUTE
    command: tuple[str, ...] = ()
    agent: str = ""
    arguments: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    uplink: Uplink = DIRECT
    projection: Projection = NOTHING
    supervision: Supervision = Supervision.TETHERED
    lease_seconds: int = 30
    source: LaunchSource | None = None
    terminal: TerminalKind | None = None
    session: History | None = None

    @property
    def launch_id(self) -> str:
        """The name of the launch: its run's, and which step of it."""
        return f"{self.run_id}.{self.step}"


def check_request(request: LaunchRequest) -> None:
    """Raises LaunchRefused or UsageError."""
    _check_class(request)
    if not _RUN_ID.fullmatch(request.run_id):
        raise UsageError(
            f"not a run id: {request.run_id[:60]!r}", hint="lowercase letters, digits and -, at most 40"
        )
    if not _SCOPE.fullmatch(request.scope):
        raise UsageError(
            f"not a scope: {request.scope[:60]!r}", hint="letters, digits and ._/#:@-, at most 128"
        )
    if not 1 <= request.step <= 1_000_000:
        raise UsageError(f"not a step: {request.step}")
    if not 0 < request.deadline <= MAX_DEADLINE:
        raise UsageError(f"a deadline of {request.deadline} s; expected more than 0 and at most 7 days")
    if not LEAST_LEASE <= request.lease_seconds <= MAX_LEASE:
        raise UsageError(f"a lease of {request.lease_seconds} s; expected {LEAST_LEASE} to {MAX_LEASE}")
    limits = request.limits
    if not (limits.memory >= 6 * MIB and limits.pids >= 8 and 0.01 <= limits.cpus <= 4096):
        raise UsageError("a limit is out of range", hint="memory >= 6MiB, pids >= 8, cpus >= 0.01")
    if request.supervision is not Supervision.TETHERED:
        _check_leased(request)
    if request.source is not None and request.source.workspace_bytes < LEAST_WORKSPACE:
        raise UsageError("a workspace of less than 1 MiB")


def _check_leased(request: LaunchRequest) -> None:
    if request.source is not None:
        raise UsageError("a leased launch has no source yet: its /workspace begins empty")
    if request.projection.rotating or request.session is not None:
        raise UsageError(
            "a leased launch has no login that is renewed, and no session: nobody takes them out"
        )
    if request.terminal is not None:
        raise UsageError("a leased launch has no terminal: its commands come one by one, and are captured")


def _check_class(request: LaunchRequest) -> None:
    kind = request.launch_class
    if request.session is not None:
        _check_session(request)
    match kind:
        case LaunchClass.EXECUTE:
            return
        case LaunchClass.REVIEW | LaunchClass.FIX:
            _need_source(request)
            if request.source is not None and not request.source.prepared.candidate_of:
                raise LaunchRefused(
                    LaunchReason.NOT_A_CANDIDATE,
                    f"a {kind.value} starts from a candidate that a launch exported, not from the operator's"
                    f" commit {request.source.prepared.commit}",
                    where=request.run_id[:60],
                    hint="name the launch that exported the candidate, and its exact commit",
                )
        case LaunchClass.EXPORT_COMMAND:
            _need_source(request)
            if request.agent or not request.command:
                raise LaunchRefused(
                    LaunchReason.COMMAND_ONLY,
                    "a command over the files of a commit gets no agent, no git and no credential",
                    where=request.run_id[:60],
                    hint="builder run --check LAUNCH -- COMMAND",
                )
        case LaunchClass.LOGIN:
            given = request.projection.credentials or request.source is not None or request.arguments
            if given or not request.agent or request.supervision is not Supervision.TETHERED:
                raise UsageError(
                    "a login is of one agent, tethered, and begins with nothing", hint="builder login AGENT"
                )
        case LaunchClass.DETECT:
            raise LaunchRefused(
                LaunchReason.CLASS_UNSUPPORTED,
                f"launch class {kind.value} is not in this version yet",
                hint="use execute, review, fix, login or export-command",
            )
        case _:
            assert_never(kind)


def _check_session(request: LaunchRequest) -> None:
    if request.launch_class not in (LaunchClass.EXECUTE, LaunchClass.FIX):
        raise UsageError(
            f"a launch of class {request.launch_class.value} keeps no session",
            hint="leave --session out",
        )
    if request.session is not None and request.session.agent.value != request.agent:
        raise UsageError(
            "a session belongs to the agent that runs", hint="builder run --agent NAME --session NAME"
        )


def _need_source(request: LaunchRequest) -> None:
    if request.source is None:
        raise LaunchRefused(
            LaunchReason.SOURCE_REQUIRED,
            f"a launch of class {request.launch_class.value} needs the files of one exact commit",
            where=request.run_id[:60],
            hint="name the repository and the commit",
        )
