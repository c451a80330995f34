"""A scripted engine: containers in a table, answers from a table; an unlisted question is an error."""

# ruff: noqa: ARG002  (it takes what the protocol gives, and needs less)

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from backend.account import WATCH
from backend.commands import BoundedFile, Input, OnChunk
from backend.containers import (
    ContainerPlan,
    ContainerStatus,
    EngineFacts,
    ExecPlan,
    ImageIdKind,
    InspectedContainer,
    InspectedMount,
    InspectedVolume,
    LoadedImage,
    VolumePlan,
)
from backend.engines.grammar import check_exec, check_plan, check_volume
from backend.inside import SCRIPT
from backend.lease import AGE, MAKE, REACH, RENEW
from backend.ownership import LABEL_LEASE
from backend.runner import Ending, Outcome
from backend.shared_files import SCRIPT as SHARED
from backend.supervise import END_AGENT
from backend.workspace.checking import SCRIPT as CHECK
from images.errors import HostError
from images.oci import OciImage
from tests.fakes.inside import inside_answer
from tests.fakes.layouts import merged_tar

DOCKER_FACTS = EngineFacts(
    product="docker",
    version="20.10.24",
    api_version="1.41",
    rootless=True,
    remote=False,
    storage_driver="overlay2",
    cgroup_version="2",
    cgroup_driver="systemd",
    security_options=("name=seccomp,profile=default", "name=rootless"),
    endpoint="unix:///run/user/1000/docker.sock",
    host_name="workstation",
    kernel="6.1.0",
    runtime="runc",
    storage_root="/",
)
# The attached client of a fake container: PID 1 is `cat`, and a file says that it runs.
# With a second argument the deadline inside ends it after so many seconds.
_CLIENT = """
trap 'rm -f "$1"; exit 143' TERM
echo $$ >"$1"
[ -z "$2" ] || { sleep "$2"; rm -f "$1"; } &
cat
rm -f "$1"
"""

Answer = Outcome | Callable[[ContainerPlan, ExecPlan, bytes], Outcome]


def said(stdout: bytes = b"", *, exit_code: int = 0, stderr: bytes = b"") -> Outcome:
    """What a client that ran to its end left."""
    return Outcome(ending=Ending.EXITED, exit_code=exit_code, stdout=stdout, stderr=stderr)


@dataclass
class FakeContainer:
    """One row of the table."""

    id: str
    plan: ContainerPlan
    running_file: Path
    started: bool = False
    exit_code: int = 0
    oom_killed: bool = False
    renewed: int | None = None  # of a leased one: when it was started, then when its lease was renewed
    uptime: Callable[[], int] = lambda: 0

    @property
    def expired(self) -> bool:
        """Whether PID 1 of a leased container has ended because its lease grew old."""
        seconds = dict(self.plan.labels).get(LABEL_LEASE)
        return (
            seconds is not None and self.renewed is not None and self.uptime() - self.renewed >= int(seconds)
        )

    @property
    def running(self) -> bool:
        """A container ends with its attached client, however that one dies; a leased one with its lease."""
        if self.expired:
            return False
        try:
            client = self.running_file.read_text().strip()
        except FileNotFoundError:
            return False
        return not client or Path(f"/proc/{client}").exists()


@dataclass
class FakeEngine:
    """Fulfils the engine protocol without an engine. ``folder``: an empty directory for its marks.

    ``answers``: argv of an exec -> its answer. ``main``: what a container that is started attached does with
    its input. ``fails``: verb -> the error that its next call raises (after its effect, for create).
    ``tampers``: changes what inspect says, ``packs`` the tar of a container's files. ``inside``: changes to
    the account that the inside script gives.
    """

    folder: Path
    told: EngineFacts = DOCKER_FACTS
    id_kind: ImageIdKind = ImageIdKind.CONFIG
    answers: dict[tuple[str, ...], Answer] = field(default_factory=dict)
    main: Callable[[ContainerPlan, bytes], Outcome] = lambda _, data: said(data)
    fails: dict[str, HostError] = field(default_factory=dict)
    tampers: dict[str, object] = field(default_factory=dict)
    packs: Callable[[bytes], bytes] = lambda tar: tar
    inside: dict[str, object] = field(default_factory=dict)
    client_script: str = _CLIENT
    ends_after: float | None = None
    exec_script: str = "printf 'hostile-agent-ready\\n'; sleep 60"
    uptime: int = 1000  # seconds, as a leased container reads it
    images: dict[str, OciImage] = field(default_factory=dict)
    containers: dict[str, FakeContainer] = field(default_factory=dict)
    shares_files: bool = True
    faults: bytes = b""
    volumes: dict[str, VolumePlan] = field(default_factory=dict)
    filled: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    @property
    def product(self) -> str:
        return self.told.product

    def facts(self) -> EngineFacts:
        self._called("facts")
        return self.told

    def find_image(self, image: OciImage) -> LoadedImage | None:
        self._called("find_image")
        loaded = self._loaded(image)
        return loaded if loaded.id in self.images else None

    def load(self, image: OciImage, staging: Path) -> LoadedImage:
        self._called("load")
        loaded = self._loaded(image)
        self.images[loaded.id] = image
        return loaded

    def remove_image(self, image: LoadedImage) -> None:
        self._called("remove_image")
        if any(container.plan.image.id == image.id for container in self.containers.values()):
            raise HostError(f"image {image.id} is in use")
        self.images.pop(image.id, None)

    def create(self, plan: ContainerPlan) -> str:
        check_plan(plan)
        if plan.image.id not in self.images:
            raise HostError(f"no image {plan.image.id}")
        if any(container.plan.name == plan.name for container in self.containers.values()):
            raise HostError(f"the name {plan.name} is in use")
        container = secrets.token_hex(32)
        self.containers[container] = FakeContainer(
            container, plan, self.folder / container, uptime=lambda: self.uptime
        )
        self._called("create")
        return container

    def inspect(self, container: str) -> InspectedContainer | None:
        self._called("inspect")
        found = self.containers.get(container)
        return None if found is None else replace(_inspected(found), **self.tampers)  # type: ignore[arg-type]

    def start(self, container: str) -> None:
        self._called("start")
        found = self._get(container)
        found.started = True
        found.renewed = self.uptime
        found.running_file.touch()

    def attach_argv(self, container: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
        self._called("attach")
        found = self._get(container)
        found.started = True
        seconds = "" if self.ends_after is None else str(self.ends_after)
        return ("sh", "-c", self.client_script, "fake", str(found.running_file), seconds), {
            "PATH": "/usr/bin:/bin"
        }

    def start_attached(
        self,
        container: str,
        *,
        stdin: Input,
        on_stdout: OnChunk | None,
        on_stderr: OnChunk | None,
        deadline: float,
        stdout_path: Path | None = None,
        hold_stdin: bool = False,
    ) -> Outcome:
        del hold_stdin  # the fake's container ends by itself
        self._called("start_attached")
        found = self._get(container)
        found.started = True
        outcome = self.main(found.plan, _all(stdin))
        found.exit_code = outcome.exit_code or 0
        return _shown(outcome, on_stdout, on_stderr, stdout_path)

    def exec(
        self,
        container: str,
        plan: ExecPlan,
        *,
        stdin: Input = None,
        on_stdout: OnChunk | None = None,
        on_stderr: OnChunk | None = None,
        deadline: float = 60.0,
        cancelled: Callable[[], bool] | None = None,
        stdout_to: BoundedFile | None = None,
    ) -> Outcome:
        check_exec(plan)
        self._called("exec")
        if cancelled is not None and cancelled():
            return Outcome(ending=Ending.CANCELLED, exit_code=-15)
        found = self.containers.get(container)
        if found is None or not found.running:
            return said(stderr=b"no such running container", exit_code=1)
        answer = self._of_lease(found, plan) or self._answer(found.plan, plan)
        outcome = answer if isinstance(answer, Outcome) else answer(found.plan, plan, _all(stdin))
        if stdout_to is None:
            return _shown(outcome, on_stdout, on_stderr, None)
        shown = _shown(outcome, on_stdout, on_stderr, stdout_to.path)
        if len(outcome.stdout) <= stdout_to.limit:
            return shown
        os.truncate(stdout_to.path, stdout_to.limit)
        detail = f"more than {stdout_to.limit} bytes of output"
        return replace(shown, ending=Ending.OVERFLOWED, exit_code=-15, detail=detail)

    def exec_argv(self, container: str, plan: ExecPlan) -> tuple[tuple[str, ...], Mapping[str, str]]:
        check_exec(plan)
        self._called("exec")
        self._get(container)
        return ("sh", "-c", self.exec_script), {"PATH": "/usr/bin:/bin"}

    def terminal_argv(self, container: str, plan: ExecPlan) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """The command itself, on a terminal as a container's is; what ends the client leaves it."""
        check_exec(plan)
        self._called("exec")
        if not self._get(container).running:
            return ("sh", "-c", "exit 1"), {"PATH": "/usr/bin:/bin"}
        environment = {"PATH": "/usr/bin:/bin", **dict(plan.environment)}
        on_it = ("sh", "-c", 'stty sane; exec "$@"', "sh", *plan.argv)
        return ("setsid", "--ctty", "--wait", *on_it), environment

    def copy_in(self, container: str, target: str, tar: Path) -> None:
        self._called("copy_in")
        plan = self._get(container).plan
        if target in plan.volumes:
            return
        mount = next((item for item in plan.named_volumes if item.target == target and item.writable), None)
        if mount is None or mount.name not in self.volumes:
            raise HostError(f"nothing can be copied to {target}")
        self.filled.setdefault(mount.name, []).append((plan.purpose.value, tar.read_bytes()))

    def pack(self, container: str, target: BoundedFile) -> bool:
        self._called("pack")
        image = self.images[self._get(container).plan.image.id]
        packed = self.packs(merged_tar(image))
        target.path.write_bytes(packed[: target.limit])
        return len(packed) <= target.limit

    def logs(self, container: str, limit: int) -> bytes:
        self._called("logs")
        return b""

    def remove(self, container: str) -> None:
        self._called("remove")
        found = self.containers.pop(container, None)
        if found is not None:
            found.running_file.unlink(missing_ok=True)

    def list_labelled(self, label: str, value: str) -> tuple[str, ...]:
        self._called("list")
        rows = self.containers.values()
        return tuple(row.id for row in rows if dict(row.plan.labels).get(label) == value)

    def create_volume(self, plan: VolumePlan) -> None:
        check_volume(plan)
        if plan.name in self.volumes:
            raise HostError(f"volume {plan.name} was there already")
        self.volumes[plan.name] = plan
        self._called("create_volume")

    def inspect_volume(self, name: str) -> InspectedVolume | None:
        self._called("inspect_volume")
        found = self.volumes.get(name)
        if found is None:
            return None
        return InspectedVolume(name=name, driver="local", labels=tuple(sorted(found.labels)), options=())

    def remove_volume(self, name: str) -> None:
        self._called("remove_volume")
        users = [row for row in self.containers.values() if name in {m.name for m in row.plan.named_volumes}]
        if users:
            raise HostError(f"volume {name} is in use")
        self.volumes.pop(name, None)

    def list_volumes(self, label: str, value: str) -> tuple[str, ...]:
        self._called("list_volumes")
        return tuple(name for name, plan in self.volumes.items() if dict(plan.labels).get(label) == value)

    def _loaded(self, image: OciImage) -> LoadedImage:
        digest = image.settings.digest if self.id_kind is ImageIdKind.CONFIG else image.digest
        return LoadedImage(image=image, id=digest, id_kind=self.id_kind)

    def _of_lease(self, found: FakeContainer, plan: ExecPlan) -> Outcome | None:
        """What the scripts of a lease do, as the watch; an answer of the table goes first."""
        if plan.argv in self.answers or plan.argv[:2] != ("sh", "-c"):
            return None
        script = plan.argv[2]
        if script in (MAKE, RENEW) and plan.user == WATCH:
            found.renewed = self.uptime
            return said()
        if script == AGE and plan.user == WATCH:
            return said(str(self.uptime - (found.renewed or 0)).encode() + b"\n")
        return said() if script == REACH else None

    def _answer(self, container: ContainerPlan, plan: ExecPlan) -> Answer:
        if plan.argv[:3] == ("sh", "-c", SCRIPT):
            return said(inside_answer(container, plan, self.product, self.inside))
        if plan.argv[:3] == ("sh", "-c", CHECK):
            return said(self.faults + b"checked " + plan.argv[6].encode() + b"\n")
        if plan.argv[:3] == ("sh", "-c", SHARED):
            return self._shared(container)
        if plan.argv == END_AGENT and END_AGENT not in self.answers:
            return said(b"ended\n")
        if plan.argv not in self.answers:
            raise AssertionError(f"the fake engine has no answer for {plan.argv}")
        return self.answers[plan.argv]

    def _shared(self, plan: ContainerPlan) -> Outcome:
        if not self.shares_files:
            return said(stderr=b"cat: /source/nonce: No such file or directory", exit_code=81)
        nonce = (plan.read_only_binds[0].source / "nonce").read_bytes()
        return said(nonce + b"\n/source ro,relatime\n")

    def _get(self, container: str) -> FakeContainer:
        if container not in self.containers:
            raise HostError(f"no container {container[:12]}")
        return self.containers[container]

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if verb in self.fails:
            raise self.fails.pop(verb)


def _all(stdin: Input) -> bytes:
    if isinstance(stdin, bytes):
        return stdin
    if isinstance(stdin, Path):
        return stdin.read_bytes()
    if isinstance(stdin, Iterator):
        return b"".join(stdin)
    return b""


def _shown(
    outcome: Outcome, on_stdout: OnChunk | None, on_stderr: OnChunk | None, stdout_path: Path | None
) -> Outcome:
    if on_stdout is not None and outcome.stdout:
        on_stdout(outcome.stdout)
    if on_stderr is not None and outcome.stderr:
        on_stderr(outcome.stderr)
    if stdout_path is None:
        return outcome
    stdout_path.write_bytes(outcome.stdout)
    return replace(outcome, stdout=b"")


def _inspected(row: FakeContainer) -> InspectedContainer:
    plan, image = row.plan, row.plan.image.image.settings
    environment = dict(entry.partition("=")[::2] for entry in image.environment) | dict(plan.environment)
    ended = ContainerStatus.EXITED if row.started else ContainerStatus.CREATED
    status = ContainerStatus.RUNNING if row.running else ended
    return InspectedContainer(
        id=row.id,
        name=plan.name,
        image_id=plan.image.id,
        status=status,
        running=row.running,
        exit_code=row.exit_code if status is ContainerStatus.EXITED else None,
        oom_killed=row.oom_killed,
        user="" if plan.user is None else f"{plan.user[0]}:{plan.user[1]}",
        environment=tuple(f"{name}={value}" for name, value in environment.items()),
        entrypoint=plan.entrypoint[:1] or image.entrypoint,
        command=(*plan.entrypoint[1:], *plan.arguments),
        working_dir=plan.working_dir,
        labels=tuple(sorted({**dict(image.labels), **dict(plan.labels)}.items())),
        network_mode=plan.network.value,
        privileged=False,
        read_only_root=plan.read_only_root,
        capabilities_added=(),
        capabilities_dropped=("ALL",),
        security_options=("no-new-privileges",),
        mounts=tuple(
            InspectedMount(kind="bind", source=str(item.source), target=item.target, writable=False)
            for item in plan.read_only_binds
        )
        + tuple(
            InspectedMount(kind="volume", source=item.name, target=item.target, writable=item.writable)
            for item in plan.named_volumes
        ),
        tmpfs=tuple(sorted((item.path, f"size={item.size}") for item in plan.tmpfs)),
        published_ports=(),
        devices=(),
        pid_mode="",
        ipc_mode="private",
        userns_mode="",
        log_driver="none",
        memory=plan.limits.memory if plan.limits else 0,
        pids=plan.limits.pids if plan.limits else 0,
        cpus=plan.limits.cpus if plan.limits else 0.0,
        extra_groups=tuple(str(group) for group in plan.extra_groups),
    )
