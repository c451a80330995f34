"""Plan a launch or a detection: pure, typed, and hardened in one place, before any engine hears of it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from backend.containers import (
    ContainerPlan,
    ExecPlan,
    ImageIdKind,
    Limits,
    LoadedImage,
    Purpose,
    Tmpfs,
)
from backend.ownership import LABEL_LAUNCH, LABEL_RUN, LABEL_SCOPE, LABEL_STEP, LABEL_SUPERVISION, Owner
from images.config import WATCH_UID, AgentName
from images.errors import LaunchReason, LaunchRefused, UsageError
from images.launchers import launcher_path
from images.oci import OciImage

if TYPE_CHECKING:
    from backend.admission import AdmittedImage

MIB: Final = 1024 * 1024
WORKSPACE: Final = "/workspace"
WATCH: Final = (WATCH_UID, WATCH_UID)
ROOT: Final = (0, 0)
MAX_DEADLINE: Final = 7 * 24 * 3600.0  # seconds
# The controller's own time limit fires first and is what the record names; this one works without it.
WATCH_MARGIN: Final = 60.0  # seconds, for start and read-back on a busy machine

_RUN_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SCOPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/#:@-]{0,127}")
_USER: Final = re.compile(r"([1-9][0-9]{0,9}):([1-9][0-9]{0,9})")
_INITS: Final = frozenset({"catatonit", "tini", "tini-static", "dumb-init", "docker-init"})
_MAX_COMMAND: Final = 120 * 1024  # bytes of all arguments together; one argument of Linux takes 128 KiB


class LaunchClass(StrEnum):
    """What a launch is for. EXECUTE alone exists yet; the others are refused by name."""

    EXECUTE = "execute"
    REVIEW = "review"
    FIX = "fix"
    LOGIN = "login"
    EXPORT_COMMAND = "export-command"
    DETECT = "detect"


class Supervision(StrEnum):
    """TETHERED: the container ends with its controller, whose pipe PID 1 reads."""

    TETHERED = "tethered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom the agent is inside: from the verified image's own configuration."""

    uid: int
    gid: int
    home: str

    @property
    def ids(self) -> tuple[int, int]:
        """uid and gid."""
        return (self.uid, self.gid)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What a caller may ask for, and nothing else: no flag, mount, device, capability, namespace or variable.

    Either ``command`` (argv) or ``agent`` with ``arguments``. ``deadline``: seconds that the command gets.
    ``allow``: host:port pairs; none can be granted yet.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Permit: one launch of an admitted image, complete. Constructed only here, from an AdmittedImage.

    ``command``: the exec as the agent's uid. ``agent``: empty when a plain command was asked for.
    """

    admitted: AdmittedImage
    request: LaunchRequest
    launch_id: str
    container: ContainerPlan
    command: ExecPlan
    account: Account
    agent: str
    supervision: Supervision


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectPlan:
    """One detection of a clean image: the same hardening, a fixed set of commands, no request."""

    detect_id: str
    container: ContainerPlan
    account: Account


def plan_launch(admitted: AdmittedImage, request: LaunchRequest, owner: Owner) -> LaunchPlan:
    """The plan of one launch. Raises LaunchRefused or UsageError before anything exists."""
    _check_request(request)
    agent, argv = _command(admitted, request)
    account = account_of(admitted.image)
    launch_id = f"{request.run_id}.{request.step}"
    labels = (
        *owner.labels(Purpose.LAUNCH),
        (LABEL_LAUNCH, f"{owner.state_id}.{launch_id}"),
        (LABEL_RUN, request.run_id),
        (LABEL_SCOPE, request.scope),
        (LABEL_STEP, str(request.step)),
        (LABEL_SUPERVISION, Supervision.TETHERED.value),
    )
    container = _hardened(
        Purpose.LAUNCH,
        image=_as_loaded(admitted.image, admitted.id_kind),
        name=f"aib-{owner.state_id[:8]}-{launch_id}",
        labels=labels,
        account=account,
        # Where limits do not bind, none is asked for: an engine that takes them silently would seem to obey.
        limits=request.limits if admitted.limits_enforced else None,
        deadline=request.deadline + WATCH_MARGIN,
    )
    return LaunchPlan(
        admitted=admitted,
        request=request,
        launch_id=launch_id,
        container=container,
        command=agent_exec(account, argv),
        account=account,
        agent=agent,
        supervision=Supervision.TETHERED,
    )


def plan_detect(
    image: OciImage,
    id_kind: ImageIdKind,
    owner: Owner,
    *,
    detect_id: str,
    limits: Limits | None,
    deadline: float,
) -> DetectPlan:
    """The closed plan of a detection; the hardening is that of a launch."""
    account = account_of(image)
    container = _hardened(
        Purpose.DETECT,
        image=_as_loaded(image, id_kind),
        name=f"aib-{owner.state_id[:8]}-{detect_id}",
        labels=(*owner.labels(Purpose.DETECT), (LABEL_LAUNCH, f"{owner.state_id}.{detect_id}")),
        account=account,
        limits=limits,
        deadline=deadline,
    )
    return DetectPlan(detect_id=detect_id, container=container, account=account)


def agent_exec(account: Account, argv: tuple[str, ...]) -> ExecPlan:
    """A command as the agent. The environment is the image's own and these three; nobody else adds to it."""
    name = account.home.rpartition("/")[2]
    return ExecPlan(
        argv=argv,
        user=account.ids,
        environment=(("LOGNAME", name), ("TERM", "dumb"), ("USER", name)),
        working_dir=WORKSPACE,
    )


def account_of(image: OciImage) -> Account:
    """The agent's account. Refused: an image whose user is not two numbers, is root, or is the watch."""
    found = _USER.fullmatch(image.settings.user)
    home = dict(entry.partition("=")[::2] for entry in image.settings.environment).get("HOME", "")
    if not found or int(found[1]) == WATCH_UID or int(found[2]) == WATCH_UID:
        raise LaunchRefused(
            LaunchReason.IMAGE_SETTINGS,
            f"the image's user is {image.settings.user[:40]!r}, not the agent's uid:gid",
            where=str(image.digest),
            hint="builder build",
        )
    if not re.fullmatch(r"/home/[A-Za-z0-9_][A-Za-z0-9_-]*", home):
        raise LaunchRefused(
            LaunchReason.IMAGE_SETTINGS,
            f"the image's HOME is {home[:80]!r}",
            where=str(image.digest),
            hint="builder build",
        )
    return Account(uid=int(found[1]), gid=int(found[2]), home=home)


def _hardened(
    purpose: Purpose,
    *,
    image: LoadedImage,
    name: str,
    labels: tuple[tuple[str, str], ...],
    account: Account,
    limits: Limits | None,
    deadline: float,
) -> ContainerPlan:
    _check_init(image.image)
    return ContainerPlan(
        purpose=purpose,
        image=image,
        name=name,
        labels=tuple(sorted(labels)),
        entrypoint=(),  # the image's own init, which its digest covers
        arguments=("timeout", "-k5", str(math.ceil(deadline)), "cat"),
        user=WATCH,
        working_dir="/",
        tmpfs=_memory_file_systems(account),
        limits=limits,
        keep_stdin=True,
        deadline=deadline,
    )


def _memory_file_systems(account: Account) -> tuple[Tmpfs, ...]:
    """Every writable place, each with a size. Agents build and run things in HOME, /tmp and /workspace."""

    def private(path: str, size: int) -> Tmpfs:
        return Tmpfs(path=path, size=size, mode=0o700, uid=account.uid, gid=account.gid, executable=True)

    return (
        private(account.home, 1024 * MIB),
        Tmpfs(path="/run", size=16 * MIB, mode=0o755, uid=WATCH_UID, gid=WATCH_UID),
        Tmpfs(path="/tmp", size=1024 * MIB, mode=0o1777, executable=True),  # noqa: S108  (inside the container)
        private(WORKSPACE, 2048 * MIB),
    )


def _as_loaded(image: OciImage, id_kind: ImageIdKind) -> LoadedImage:
    """The id that this image must have in a store of that kind; loading compares it with what came out."""
    expected = image.settings.digest if id_kind is ImageIdKind.CONFIG else image.digest
    return LoadedImage(image=image, id=expected, id_kind=id_kind)


def _check_init(image: OciImage) -> None:
    entry = image.settings.entrypoint
    name = entry[0].rpartition("/")[2] if entry else ""
    if name not in _INITS or not entry[0].startswith("/") or entry[1:] not in ((), ("--",)):
        raise LaunchRefused(
            LaunchReason.IMAGE_SETTINGS,
            f"the image's entry point is {entry!r:.120}, not an init",
            where=str(image.digest),
            hint="builder build",
        )


def _check_request(request: LaunchRequest) -> None:
    if request.launch_class is not LaunchClass.EXECUTE:
        raise LaunchRefused(
            LaunchReason.CLASS_UNSUPPORTED,
            f"launch class {request.launch_class.value} is not in this version yet",
            hint="use execute",
        )
    if request.allow:
        raise LaunchRefused(
            LaunchReason.NETWORK_UNSUPPORTED,
            f"no container has a network yet, and this run asks for {request.allow[0][:80]!r}",
            where="[run].allow",
            hint="set allow = [] in builder.toml",
        )
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
    limits = request.limits
    if not (limits.memory >= 6 * MIB and limits.pids >= 8 and 0.01 <= limits.cpus <= 4096):
        raise UsageError("a limit is out of range", hint="memory >= 6MiB, pids >= 8, cpus >= 0.01")


def _command(admitted: AdmittedImage, request: LaunchRequest) -> tuple[str, tuple[str, ...]]:
    if bool(request.command) is bool(request.agent):
        raise UsageError(
            "either a command or an agent", hint="builder run -- CMD, or builder run --agent NAME"
        )
    if request.agent:
        if request.agent not in set(AgentName) or request.agent not in dict(admitted.agents):
            has = ", ".join(name for name, _ in admitted.agents)
            raise LaunchRefused(
                LaunchReason.UNKNOWN_AGENT,
                f"the image has no agent {request.agent[:40]!r}; it has: {has}",
                where=str(admitted.image.digest),
                hint="builder show",
            )
        argv = (launcher_path(AgentName(request.agent)), *request.arguments)
    elif request.arguments:
        raise UsageError("arguments without an agent: they belong to the command itself")
    else:
        argv = request.command
    if not argv[0] or any("\0" in text for text in argv):
        raise UsageError("the command is empty, or an argument holds a zero byte")
    if sum(len(text.encode("utf-8", "surrogateescape")) + 1 for text in argv) > _MAX_COMMAND:
        raise UsageError(f"the command is longer than {_MAX_COMMAND} bytes", hint="pass it as a file")
    return request.agent, argv
