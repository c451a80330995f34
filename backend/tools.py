"""The closed tool plans: the fixed argv, deadline and clean-up of resolver, build container, its version."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.commands import NO_FEED, Feed
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
from provenance.writing import state_errors

TOOL_LABEL: Final = "agent-image-builder.tool"  # a fresh random value for each container of a tool
Labels = tuple[tuple[str, str], ...]

_JOB_BYTES: Final = 64 * 1024 * 1024
# The job and its secrets live in a memory file system, and arrive as a tar of known size on standard input.
# Behind it comes what the job is to bring somewhere, of known size too, to be read from a pipe. Then only the
# end of the input can come: when this process dies, however it dies, PID 1 is told to end.
_RESOLVE: Final = (
    'exec 3<&0 </dev/null; umask 022; mkdir -p /run/job && head -c "$1" <&3 | tar -x -C /run/job || exit; '
    '[ "$2" = 0 ] || mkfifo /run/job/stream || exit; '
    '( [ "$2" = 0 ] || head -c "$2" <&3 >/run/job/stream; cat <&3 >/dev/null; kill -TERM 1 ) & '
    "exec 3<&-; exec node /run/job/resolve.mjs"
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
# Below a private directory of ours. Short: a socket's path has 107 bytes, and a home may use up most of them.
_SOCKET_DIR: Final = "b"
_SOCKET: Final = "s"
_BUILD_SOCKET: Final = "/run/user/1000/buildkit/buildkitd.sock"
_ASK: Final = ("buildctl", "debug", "workers")
# BuildKit gives its socket to its own user alone, who is another one on this host.
_ASK_BY_SOCKET: Final = ("sh", "-c", f"buildctl debug workers && chmod 0666 {_BUILD_SOCKET_DIR}/{_SOCKET}")
_SOCKET_PATH_BYTES: Final = 107  # what a unix socket address holds
_READY_SECONDS: Final = 60.0
_VERSION_SECONDS: Final = 30
_VERSION: Final = re.compile(rb"^buildkitd \S+ (v?[0-9][0-9A-Za-z.+-]{0,63})(?=\s|$)", re.MULTILINE)
_UNSTAMPED: Final = "+unknown"  # what a BuildKit says that was compiled without its version


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContainer:
    """A running BuildKit: the ``endpoint`` that buildx takes, and the ``environment`` to reach it.

    ``is_running``: as the engine's client knows, which may be a moment late. ``answers``: BuildKit
    itself, asked once a build has failed.
    """

    name: str
    container: str
    endpoint: str
    environment: Mapping[str, str]
    is_running: Callable[[], bool]
    answers: Callable[[], bool]


def run_resolver(
    engine: Engine,
    image: LoadedImage,
    *,
    job: bytes,
    stdout_path: Path,
    on_progress: Callable[[bytes], None],
    deadline: float,
    labels: Labels,
    feed: Feed = NO_FEED,
) -> Outcome:
    """Run the resolver over the tar ``job``; its result tar lands in ``stdout_path``.

    ``feed``: what it finds behind the job; an error of its chunks ends the container and is passed on.
    ``on_progress`` gets the chunks of its standard error. ``deadline`` in seconds holds inside and outside.
    The exit code is the container's own. The container is gone when this returns or raises (HostError), and
    it ends when this process dies.
    """
    token = secrets.token_hex(8)
    plan = resolver_plan(
        image, token=token, size=len(job), feed_size=feed.size, deadline=deadline, labels=labels
    )
    with created(engine, plan) as container:
        outcome = engine.start_attached(
            container,
            stdin=itertools.chain((job,), feed.chunks()) if feed.size else job,
            on_stdout=None,
            on_stderr=on_progress,
            deadline=deadline + 15,
            stdout_path=stdout_path,
            hold_stdin=True,
        )
        return _with_own_code(engine, container, outcome)


def resolver_plan(
    image: LoadedImage, *, token: str, size: int, deadline: float, labels: Labels, feed_size: int = 0
) -> ContainerPlan:
    """The one plan with a network. No capability, no host path; its root is writable and thrown away.

    ``size``: of the job, in bytes; ``feed_size``: of what comes behind it.
    """
    sizes = (str(size), str(feed_size))
    return ContainerPlan(
        purpose=Purpose.RESOLVE,
        image=image,
        name=f"agent-image-builder-resolve-{token}",
        labels=(*labels, (TOOL_LABEL, token)),
        entrypoint=("/usr/bin/timeout",),
        arguments=("--kill-after=5", str(math.ceil(deadline)), "sh", "-c", _RESOLVE, "resolve", *sizes),
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

    ``private_dir``: a 0700 directory of ours with a short path, for the socket. ``state_bytes``: BuildKit's
    state lies in a memory file system of this size; 0 = on the engine's disk. It also ends when this process
    dies, and after ``deadline`` seconds. HostError when it does not answer.
    """
    token = secrets.token_hex(8)

    def plan(socket_dir: Path | None) -> ContainerPlan:
        return build_plan(
            image,
            token=token,
            deadline=deadline,
            labels=labels,
            socket_dir=socket_dir,
            state_bytes=state_bytes,
        )

    with _created_near(engine, plan, private_dir) as (container, socket):
        argv, environment = engine.attach_argv(container)
        tether = spawn(Command(argv=argv, environment=environment, deadline=deadline + 60))
        with tether:
            _wait_until_ready(engine, container, tether, by_socket=socket is not None)
            name = plan(None).name
            yield BuildContainer(
                name=name,
                container=container,
                endpoint=_endpoint(engine, _taken(socket, private_dir), name),
                environment=environment,
                is_running=lambda: tether.wait(0) is None,
                answers=lambda: tether.wait(0) is None and _answers(engine, container),
            )


@contextlib.contextmanager
def _created_near(
    engine: Engine, plan: Callable[[Path | None], ContainerPlan], private_dir: Path
) -> Iterator[tuple[str, Path | None]]:
    """The container, and where its socket will be, if the engine can bind a directory of this host.

    A socket carries twice what the engine's exec does (ADR 21); one of another machine cannot be bound, and
    buildx knows no other way into Podman.
    """
    must, socket_dir = engine.product == "podman", private_dir / _SOCKET_DIR
    fits = len(str(socket_dir / _SOCKET).encode()) <= _SOCKET_PATH_BYTES
    if must and not fits:
        raise HostError(
            f"the path of BuildKit's socket would be longer than {_SOCKET_PATH_BYTES} bytes",
            where=str(private_dir),
            hint="use a --state directory with a shorter path",
        )
    with contextlib.ExitStack() as stack:
        socket: Path | None = None
        if must or (fits and not engine.facts().remote):
            with state_errors(socket_dir):
                socket_dir.mkdir()
                # For BuildKit's uid, whatever it is on this host; nobody else comes through the 0700 above.
                socket_dir.chmod(0o777)
            with contextlib.nullcontext() if must else contextlib.suppress(HostError):
                container = stack.enter_context(created(engine, plan(socket_dir)))
                socket = socket_dir / _SOCKET
        if socket is None:
            container = stack.enter_context(created(engine, plan(None)))
        yield container, socket


def _taken(socket: Path | None, private_dir: Path) -> Path | None:
    """The socket, moved to where the build container has no way; its directory takes nothing more.

    From now on steps run that nobody trusts. Where the engine gives BuildKit our own uid, what took it over
    could open the directory again, and put a link to another socket of this host in the place: so nothing in
    there is ever opened. A link is no socket: what is behind it is the build container's choice.
    """
    if socket is None:
        return None
    own = private_dir / _SOCKET
    with state_errors(own):
        socket.parent.chmod(0o711)
        try:
            socket.rename(own)
        except FileNotFoundError:  # this process does not see it
            return None
        return own if stat.S_ISSOCK(own.lstat().st_mode) else None


def _answers(engine: Engine, container: str) -> bool:
    """BuildKit itself, asked through the engine: one that has just ended is not there to be asked."""
    try:
        return engine.exec(container, _question(_ASK), deadline=10).ok
    except HostError:
        return False


def _question(argv: tuple[str, ...]) -> ExecPlan:
    return ExecPlan(argv=argv, user=_BUILD_USER, working_dir="/")


def _endpoint(engine: Engine, socket: Path | None, name: str) -> str:
    """The socket; else the engine's exec, which buildx knows of Docker only."""
    if socket is not None:
        return f"unix://{socket}"
    if engine.product == "podman":
        raise HostError(
            "BuildKit's socket is not in the directory that was bound for it",
            where=engine.product,
            hint="builder doctor: does the engine see this host's files?",
            reason="build-container",
        )
    return f"docker-container://{name}"


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
    # The first is where BuildKit listens anyway, and where an engine's exec finds it.
    sockets = (_BUILD_SOCKET, f"{_BUILD_SOCKET_DIR}/{_SOCKET}")
    address = () if socket_dir is None else tuple(f"--addr=unix://{path}" for path in sockets)
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
    ask = _question(_ASK_BY_SOCKET if by_socket else _ASK)
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
