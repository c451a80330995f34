"""The closed tool plans: the fixed argv, deadline and clean-up of resolver, build container, its version."""

from __future__ import annotations

import contextlib
import math
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.containers import (
    ContainerPlan,
    ExecPlan,
    LoadedImage,
    Network,
    PrivateBind,
    Purpose,
    Tmpfs,
)
from backend.engines.client import complaint
from backend.engines.protocol import Engine
from backend.runner import Child, Command, Ending, Outcome, spawn
from images.errors import HostError

TOOL_LABEL: Final = "agent-image-builder.tool"  # a fresh random value for each container of a tool
Labels = tuple[tuple[str, str], ...]

_JOB_BYTES: Final = 64 * 1024 * 1024
# The job and its secrets live in a memory file system, and arrive as a tar of known size on standard input.
# Then nothing comes but the end of the input: when this process dies, however it dies, PID 1 is told to end.
_RESOLVE: Final = (
    'exec 3<&0 </dev/null; umask 022; mkdir -p /run/job && head -c "$1" <&3 | tar -x -C /run/job || exit; '
    "( cat <&3 >/dev/null; kill -TERM 1 ) & exec 3<&-; exec node /run/job/resolve.mjs"
)

# PID 1 reads our pipe: when this process dies, however it dies, the build container ends with all that it
# runs. BuildKit's own end stops PID 1 too.
_BUILD: Final = (
    'deadline="$1"; shift; exec 3<&0; '
    '( rootlesskit --state-dir=/run/user/1000/rootlesskit buildkitd "$@" </dev/null 3<&-; kill -TERM 1 ) & '
    'exec timeout --kill-after=5 "$deadline" cat <&3 >/dev/null'
)
_BUILD_STATE: Final = "/home/user/.local/share/buildkit"
# Absent from the image: a runtime may give a memory file system the mode of the directory that it covers, and
# Podman gives it to root.
_BUILD_MEMORY: Final = "/run/state"
_BUILD_USER: Final = (1000, 1000)
_BUILD_SOCKET_DIR: Final = "/run/private"
_SOCKET: Final = "buildkitd.sock"
_SOCKET_PATH_BYTES: Final = 107  # what a unix socket address holds
_READY_SECONDS: Final = 60.0
_VERSION_SECONDS: Final = 30
_VERSION: Final = re.compile(rb"^buildkitd \S+ (v?[0-9][0-9A-Za-z.+-]{0,63})(?=\s|$)", re.MULTILINE)
_UNSTAMPED: Final = "+unknown"  # what a BuildKit says that was compiled without its version


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContainer:
    """A running BuildKit: the ``endpoint`` that buildx takes, and the ``environment`` to reach it."""

    name: str
    container: str
    endpoint: str
    environment: Mapping[str, str]
    is_running: Callable[[], bool]


def run_resolver(
    engine: Engine,
    image: LoadedImage,
    *,
    job: bytes,
    stdout_path: Path,
    on_progress: Callable[[bytes], None],
    deadline: float,
    labels: Labels,
) -> Outcome:
    """Run the resolver over the tar ``job``; its result tar lands in ``stdout_path``.

    ``on_progress`` gets the chunks of its standard error. ``deadline`` in seconds holds inside and outside.
    The exit code is the container's own. The container is gone when this returns or raises (HostError), and
    it ends when this process dies.
    """
    token = secrets.token_hex(8)
    plan = resolver_plan(image, token=token, size=len(job), deadline=deadline, labels=labels)
    with created(engine, plan) as container:
        outcome = engine.start_attached(
            container,
            stdin=job,
            on_stdout=None,
            on_stderr=on_progress,
            deadline=deadline + 15,
            stdout_path=stdout_path,
            hold_stdin=True,
        )
        return _with_own_code(engine, container, outcome)


def resolver_plan(
    image: LoadedImage, *, token: str, size: int, deadline: float, labels: Labels
) -> ContainerPlan:
    """The one plan with a network. No capability, no host path; its root is writable and thrown away.

    ``size``: of the job, in bytes.
    """
    return ContainerPlan(
        purpose=Purpose.RESOLVE,
        image=image,
        name=f"agent-image-builder-resolve-{token}",
        labels=(*labels, (TOOL_LABEL, token)),
        entrypoint=("/usr/bin/timeout",),
        arguments=("--kill-after=5", str(math.ceil(deadline)), "sh", "-c", _RESOLVE, "resolve", str(size)),
        user=None,
        hostname="resolver",
        network=Network.ORDINARY,
        read_only_root=False,
        tmpfs=(Tmpfs(path="/run/job", size=_JOB_BYTES),),
        deadline=deadline,
    )


def buildkit_version(engine: Engine, image: LoadedImage, labels: Labels) -> str:
    """What ``buildkitd --version`` says in a build container's image, as ``v0.1.2``.

    The image may come from anywhere: it is asked under the hardening of a launch, without a network, and the
    container is gone when this returns. Raises HostError when it does not tell.
    """
    plan = version_plan(image, token=secrets.token_hex(8), labels=labels)
    with created(engine, plan) as container:
        outcome = engine.start_attached(
            container, stdin=None, on_stdout=None, on_stderr=None, deadline=_VERSION_SECONDS + 15
        )
        outcome = _with_own_code(engine, container, outcome)
    found = _VERSION.search(outcome.stdout)
    version = found[1].decode("ascii") if found else ""
    if outcome.ok and version and not version.endswith(_UNSTAMPED):
        return version
    said = complaint(outcome.stderr) or complaint(outcome.stdout[:2000]) or "nothing"
    raise HostError(
        f"the build container does not tell its BuildKit version; buildkitd --version said: {said}",
        where=str(image.image.digest),
        hint="name another build_container in settings.toml",
        reason="build-container",
    )


def version_plan(image: LoadedImage, *, token: str, labels: Labels) -> ContainerPlan:
    """One fixed question to the image: no capability, no network, nothing writable, not root."""
    return ContainerPlan(
        purpose=Purpose.PROBE,
        image=image,
        name=f"agent-image-builder-version-{token}",
        labels=(*labels, (TOOL_LABEL, token)),
        entrypoint=("/usr/bin/timeout",),
        arguments=("--kill-after=5", str(_VERSION_SECONDS), "buildkitd", "--version"),
        user=_BUILD_USER,
        hostname="version",
        deadline=_VERSION_SECONDS,
    )


@contextlib.contextmanager
def build_container(
    engine: Engine,
    image: LoadedImage,
    private_dir: Path,
    labels: Labels,
    *,
    state_bytes: int = 0,
    deadline: float = 3600.0,
) -> Iterator[BuildContainer]:
    """A running BuildKit without network, reachable by buildx; gone with its state when the block ends.

    ``private_dir``: a 0700 directory of ours with a short path, for the socket where the engine needs one
    (Podman). ``state_bytes``: BuildKit's state lies in a memory file system of this size; 0 = on the engine's
    disk. It also ends when this process dies, and after ``deadline`` seconds. HostError when it does not
    answer.
    """
    by_socket = engine.product == "podman"
    plan = build_plan(
        image,
        token=secrets.token_hex(8),
        deadline=deadline,
        labels=labels,
        socket_dir=_short(private_dir) if by_socket else None,
        state_bytes=state_bytes,
    )
    with created(engine, plan) as container:
        argv, environment = engine.attach_argv(container)
        tether = spawn(Command(argv=argv, environment=environment, deadline=deadline + 60))
        with tether:
            _wait_until_ready(engine, container, tether, by_socket=by_socket)
            yield BuildContainer(
                name=plan.name,
                container=container,
                endpoint=f"unix://{private_dir / _SOCKET}"
                if by_socket
                else f"docker-container://{plan.name}",
                environment=environment,
                is_running=lambda: tether.wait(0) is None,
            )


def build_plan(
    image: LoadedImage,
    *,
    token: str,
    deadline: float,
    labels: Labels,
    socket_dir: Path | None,
    state_bytes: int = 0,
) -> ContainerPlan:
    """BuildKit as uid 1000 over a disk volume of its own, or over memory; nothing added, no network."""
    memory = Tmpfs(path=_BUILD_MEMORY, size=state_bytes, mode=0o1777, executable=True)
    root = (f"--root={_BUILD_MEMORY}/buildkit",) if state_bytes else ()
    address = () if socket_dir is None else (f"--addr=unix://{_BUILD_SOCKET_DIR}/{_SOCKET}",)
    binds = () if socket_dir is None else (PrivateBind(source=socket_dir, target=_BUILD_SOCKET_DIR),)
    return ContainerPlan(
        purpose=Purpose.BUILD,
        image=image,
        name=f"agent-image-builder-build-{token}",
        labels=(*labels, (TOOL_LABEL, token)),
        entrypoint=("/bin/sh",),
        arguments=("-c", _BUILD, "build", str(math.ceil(deadline)), *root, *address),
        user=None,
        hostname="build",
        read_only_root=False,
        private_binds=binds,
        tmpfs=(memory,) if state_bytes else (),
        volumes=() if state_bytes else (_BUILD_STATE,),
        deadline=deadline,
    )


@contextlib.contextmanager
def created(engine: Engine, plan: ContainerPlan) -> Iterator[str]:
    """The id of a created container, which is gone when the block ends, however it ends."""
    token = dict(plan.labels)[TOOL_LABEL]
    try:
        yield engine.create(plan)
    finally:
        # By label, not by id: an engine may fail after it made the container.
        for container in engine.list_labelled(TOOL_LABEL, token):
            engine.remove(container)


def _with_own_code(engine: Engine, container: str, outcome: Outcome) -> Outcome:
    if outcome.ending is not Ending.EXITED:
        return outcome
    found = engine.inspect(container)
    if found is None or found.exit_code is None:
        state = "gone" if found is None else found.status
        raise HostError(
            f"{engine.product} ended the client of a tool, but its container is {state}",
            where=engine.product,
            hint="builder doctor",
        )
    return Outcome(
        ending=outcome.ending,
        exit_code=found.exit_code,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        stdout_truncated=outcome.stdout_truncated,
        stderr_truncated=outcome.stderr_truncated,
        detail="out of memory" if found.oom_killed else outcome.detail,
    )


def _wait_until_ready(engine: Engine, container: str, tether: Child, *, by_socket: bool) -> None:
    address = ("--addr", f"unix://{_BUILD_SOCKET_DIR}/{_SOCKET}") if by_socket else ()
    ask = ExecPlan(argv=("buildctl", *address, "debug", "workers"), user=_BUILD_USER, working_dir="/")
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        if tether.wait(0.2) is not None:
            break
        found = engine.inspect(container)
        if found is not None and found.running and engine.exec(container, ask, deadline=10).ok:
            return
    ended = tether.wait(0)
    why = complaint(ended.stderr if ended is not None else engine.logs(container, 2000)) or "it said nothing"
    raise HostError(
        f"the build container does not answer: {why}",
        where=engine.product,
        hint="builder doctor",
        reason="build-container",
    )


def _short(private_dir: Path) -> Path:
    if len(str(private_dir / _SOCKET).encode()) > _SOCKET_PATH_BYTES:
        raise HostError(
            f"the path of BuildKit's socket would be longer than {_SOCKET_PATH_BYTES} bytes",
            where=str(private_dir),
            hint="use a --state directory with a shorter path",
        )
    return private_dir
