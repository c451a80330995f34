"""Plan a launch or a detection: pure, typed, and hardened in one place, before any engine hears of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backend.account import WATCH, WORKSPACE, Account, account_of, agent_exec
from backend.containers import (
    MIB,
    ContainerPlan,
    ExecPlan,
    ImageIdKind,
    Limits,
    LoadedImage,
    Purpose,
    Tmpfs,
)
from backend.lease import watched_by_lease
from backend.network.planning import NetworkPlan, plan_network, through_network, with_network
from backend.ownership import (
    LABEL_LAUNCH,
    LABEL_LEASE,
    LABEL_RUN,
    LABEL_SCOPE,
    LABEL_STEP,
    LABEL_SUPERVISION,
    Owner,
)
from backend.projection.asking import (
    check_arguments,
    check_labels,
    check_projection,
    check_server_secrets,
    is_set_up,
)
from backend.projection.integrations import NO_SETUP, Setup, setup_of
from backend.projection.logins import LOGIN_WORDS
from backend.projection.placing import Projection, with_setup
from backend.requests import LaunchClass, LaunchRequest, Supervision, check_request
from backend.space import EXPORT_SECONDS, SpacePlan, plan_space, with_space
from backend.terminal_kind import NO_TERMINAL
from images.config import WATCH_UID, AgentName
from images.errors import LaunchReason, LaunchRefused, UsageError
from images.launchers import launcher_path
from images.oci import OciImage

if TYPE_CHECKING:
    from backend.admission import AdmittedImage
    from provenance.verify import VerifiedImage

# The controller's own time limit fires first and is what the record names; this one works without it.
WATCH_MARGIN: Final = 60.0  # seconds, for start and read-back on a busy machine

_INITS: Final = frozenset({"catatonit", "tini", "tini-static", "dumb-init", "docker-init"})
_IMAGE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._/-]{0,127}")
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")  # what an image name has and a container or pod name may not
_MAX_COMMAND: Final = 120 * 1024  # bytes of all arguments together; one argument of Linux takes 128 KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Permit: one launch of an admitted image, complete. Constructed only here, from an AdmittedImage.

    ``command``: the exec as the agent's uid. ``agent``: empty when a plain command was asked for. ``space``:
    the files; None for an empty /workspace in memory. ``network``: None for none. ``projection``: what is put
    below HOME: the request's credentials, and what the policy turns on.
    """

    admitted: AdmittedImage
    request: LaunchRequest
    launch_id: str
    container: ContainerPlan
    command: ExecPlan
    account: Account
    agent: str
    projection: Projection
    supervision: Supervision
    space: SpacePlan | None
    network: NetworkPlan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectPlan:
    """One detection of a clean image: the same hardening, a fixed set of commands, no request."""

    detect_id: str
    container: ContainerPlan
    account: Account


@dataclass(frozen=True, slots=True, kw_only=True)
class ElsewherePlan:
    """What a launch of a verified image would be, for people to start elsewhere: to be shown, never launched.

    ``command``: the exec as the agent's uid; an agent's launcher, or a shell where ``agent`` is empty.
    """

    verified: VerifiedImage
    container: ContainerPlan
    command: ExecPlan
    account: Account
    agent: str


def plan_launch(
    admitted: AdmittedImage, request: LaunchRequest, owner: Owner, staging: Path | None = None
) -> LaunchPlan:
    """The plan of one launch. Raises LaunchRefused or UsageError before anything exists.

    ``staging``: a private directory, below which a network's socket will be; needed for a network alone.
    """
    check_request(request)
    agent, argv = _command(admitted, request)
    check_arguments(argv, request.projection)
    check_labels((request.run_id, request.scope), request.projection)
    check_projection(request.projection, request.launch_class, agent, dict(admitted.agents))
    check_server_secrets(request.projection, request.launch_class, agent, admitted.integrations)
    account = account_of(admitted.image)
    launch_id = request.launch_id
    container = _hardened(
        Purpose.LAUNCH,
        image=_as_loaded(admitted.image, admitted.id_kind),
        name=f"aib-{owner.state_id[:8]}-{launch_id}",
        labels=_labels(request, owner, launch_id),
        account=account,
        # Where limits do not bind, none is asked for: an engine that takes them silently would seem to obey.
        limits=request.limits if admitted.limits_enforced else None,
        deadline=request.deadline + WATCH_MARGIN + (EXPORT_SECONDS if request.source else 0.0),
    )
    if request.supervision is Supervision.LEASED:
        container = replace(
            container,
            arguments=watched_by_lease(container.deadline, request.lease_seconds),
            keep_stdin=False,
        )
    space = None
    if request.source is not None:
        space = plan_space(
            request.source, container, request.launch_class, shared_files=admitted.shared_files
        )
        container = with_space(container, space)
    network = plan_network(admitted, request, launch_id, staging)
    command = agent_exec(account, argv, request.terminal or NO_TERMINAL)
    if network is not None:
        container, command = with_network(container, network), through_network(command, network)
    return LaunchPlan(
        admitted=admitted,
        request=request,
        launch_id=launch_id,
        container=container,
        command=command,
        account=account,
        agent=agent,
        projection=with_setup(request.projection, _setup(admitted, request, agent), _greeted(request, agent)),
        supervision=request.supervision,
        space=space,
        network=network,
    )


def _labels(request: LaunchRequest, owner: Owner, launch_id: str) -> tuple[tuple[str, str], ...]:
    leased = request.supervision is Supervision.LEASED
    return (
        *owner.labels(Purpose.LAUNCH),
        (LABEL_LAUNCH, f"{owner.state_id}.{launch_id}"),
        (LABEL_RUN, request.run_id),
        (LABEL_SCOPE, request.scope),
        (LABEL_STEP, str(request.step)),
        (LABEL_SUPERVISION, request.supervision.value),
        *(((LABEL_LEASE, str(request.lease_seconds)),) if leased else ()),
    )


def _setup(admitted: AdmittedImage, request: LaunchRequest, agent: str) -> Setup:
    """From the policy's word alone: no request, flag or file of a repository adds to it."""
    if not is_set_up(request.launch_class):
        return NO_SETUP
    return setup_of(admitted.integrations, agent, dict(admitted.agents))


def _greeted(request: LaunchRequest, agent: str) -> frozenset[AgentName]:
    """Who is told that a person knows it already; not where it is to ask for a login."""
    if request.launch_class is LaunchClass.LOGIN or not agent:
        return frozenset()
    return frozenset({AgentName(agent)})


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


def plan_elsewhere(
    verified: VerifiedImage, *, agent: AgentName | None, limits: Limits, deadline: float
) -> ElsewherePlan:
    """The container of a launch, without an engine that was probed and without this state's labels.

    ``deadline``: seconds; with no controller there, what PID 1 counts is the only one. Raises LaunchRefused
    for an image without that agent, or with settings that no launch takes.
    """
    account = account_of(verified.image)
    if not _IMAGE_NAME.fullmatch(verified.image_name):
        raise LaunchRefused(
            LaunchReason.IMAGE_SETTINGS,
            f"the image's name is {verified.image_name[:80]!r}",
            where=str(verified.image.digest),
            hint="builder build",
        )
    if agent is not None:
        _check_agent(agent, [one.name for one in verified.lock.agents], verified.image)
    container = _hardened(
        Purpose.LAUNCH,
        image=_as_loaded(verified.image, ImageIdKind.CONFIG),
        name=_NO_NAME.sub("-", verified.image_name)[:63].strip("-"),
        labels=(),  # with those of this state it would be taken for a container of ours, and reaped
        account=account,
        limits=limits,
        deadline=deadline,
    )
    return ElsewherePlan(
        verified=verified,
        container=container,
        command=agent_exec(account, ("sh",) if agent is None else (launcher_path(agent),)),
        account=account,
        agent="" if agent is None else agent.value,
    )


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


def _command(admitted: AdmittedImage, request: LaunchRequest) -> tuple[str, tuple[str, ...]]:
    if request.supervision is Supervision.LEASED:
        if request.command or request.agent or request.arguments:
            raise UsageError("a leased launch names no command: its commands come one by one")
        return "", ("sh",)  # what is looked up when it is looked at from inside
    if bool(request.command) is bool(request.agent):
        raise UsageError(
            "either a command or an agent", hint="builder run -- CMD, or builder run --agent NAME"
        )
    if request.agent:
        _check_agent(request.agent, [name for name, _ in admitted.agents], admitted.image)
        login = request.launch_class is LaunchClass.LOGIN
        words = LOGIN_WORDS[AgentName(request.agent)] if login else request.arguments
        argv = (launcher_path(AgentName(request.agent)), *words)
    elif request.arguments:
        raise UsageError("arguments without an agent: they belong to the command itself")
    else:
        argv = request.command
    if not argv[0] or any("\0" in text for text in argv):
        raise UsageError("the command is empty, or an argument holds a zero byte")
    if sum(len(text.encode("utf-8", "surrogateescape")) + 1 for text in argv) > _MAX_COMMAND:
        raise UsageError(f"the command is longer than {_MAX_COMMAND} bytes", hint="pass it as a file")
    return request.agent, argv


def _check_agent(agent: str, has: Sequence[str], image: OciImage) -> None:
    if agent not in set(AgentName) or agent not in has:
        raise LaunchRefused(
            LaunchReason.UNKNOWN_AGENT,
            f"the image has no agent {agent[:40]!r}; it has: {', '.join(has)}",
            where=str(image.digest),
            hint="builder show",
        )
