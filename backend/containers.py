"""What a container is made of: the closed vocabulary that plans are written in and engine dialects translate.

There is no raw flag, mount, device, capability or namespace here, so none can reach an engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from images.digests import Digest
from images.oci import OciImage

MIB: Final = 1024 * 1024


class Purpose(StrEnum):
    """Why a container exists; a label on it, and the choice of its security profile."""

    LAUNCH = "launch"
    DETECT = "detect"
    PROBE = "probe"
    RESOLVE = "resolve"
    BUILD = "build"
    FILL = "fill"  # created to copy into its volume, and never started


class Network(StrEnum):
    """NONE is ``--network none``. ORDINARY (the engine's default network) is for the resolver alone."""

    NONE = "none"
    ORDINARY = "ordinary"


class ImageIdKind(StrEnum):
    """Which digest an engine's store uses as image id."""

    CONFIG = "config"
    MANIFEST = "manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Identity of an engine, from its own structured output; never from the executable's name."""

    product: str  # "docker" or "podman": what it really is
    version: str
    api_version: str
    rootless: bool
    remote: bool  # VM, ssh or tcp endpoint: paths are resolved elsewhere
    storage_driver: str
    cgroup_version: str  # "1" or "2"
    cgroup_driver: str  # "none" when it cannot limit
    security_options: tuple[str, ...]
    endpoint: str  # socket address without credentials
    host_name: str
    kernel: str
    runtime: str  # default OCI runtime
    storage_root: str  # where it keeps images and containers, on its own machine


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedImage:
    """An image of ours in an engine's store: ``id`` is what create takes, of kind ``id_kind``."""

    image: OciImage
    id: Digest
    id_kind: ImageIdKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Tmpfs:
    """A sized memory file system."""

    path: str
    size: int  # bytes
    mode: int = 0o1777
    uid: int = 0
    gid: int = 0
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the cgroup must enforce: memory in bytes, CPUs as a decimal number, process ids."""

    cpus: float
    memory: int
    pids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnlyBind:
    """A controller-owned host directory bound read-only and non-recursively."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateBind:
    """A controller-owned 0700 host directory bound writable: the build container's socket on Podman only."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePlan:
    """A volume on the engine's disk, made before the containers that mount it and removed after them."""

    name: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeMount:
    """One of our volumes in a container."""

    name: str
    target: str
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedVolume:
    """The engine's own account of a volume."""

    name: str
    driver: str
    labels: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """Everything about one container, before an engine hears of it.

    Whatever the purpose: no capability added, never privileged, nothing published, ``--pull never``, log
    driver none (BUILD alone keeps the engine's log, bounded, to tell why BuildKit ended). LAUNCH, DETECT,
    PROBE and FILL: all capabilities dropped, no new privileges, read-only root, network none.
    """

    purpose: Purpose
    image: LoadedImage
    name: str
    labels: tuple[tuple[str, str], ...]
    entrypoint: tuple[str, ...]  # argv[0] and its fixed arguments; empty = the image's own
    arguments: tuple[str, ...]
    user: tuple[int, int] | None  # uid, gid; None = the image's own (RESOLVE and BUILD only)
    environment: tuple[tuple[str, str], ...] = ()
    working_dir: str = "/"
    hostname: str = "agent"
    network: Network = Network.NONE
    read_only_root: bool = True
    tmpfs: tuple[Tmpfs, ...] = ()
    read_only_binds: tuple[ReadOnlyBind, ...] = ()
    private_binds: tuple[PrivateBind, ...] = ()
    volumes: tuple[
        str, ...
    ] = ()  # targets of anonymous volumes on the engine's disk, removed with the container
    named_volumes: tuple[VolumeMount, ...] = ()
    limits: Limits | None = None
    keep_stdin: bool = True
    auto_remove: bool = False
    deadline: float = 3600.0  # seconds; enforced inside by PID 1 or by the caller
    extra_groups: tuple[int, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlan:
    """One command in a running container."""

    argv: tuple[str, ...]
    user: tuple[int, int]
    environment: tuple[tuple[str, str], ...] = ()
    working_dir: str = "/workspace"


class ContainerStatus(StrEnum):
    """Where a container is in its life. Each engine has more words for it, and passes through some of them
    for an instant only: no decision of ours may hang on which of them was caught."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    OTHER = "other"  # on its way to be removed, or a word that this release does not know


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedMount:
    """One mount as the engine reports it. ``source``: a host path, or the name of a volume."""

    kind: str
    source: str
    target: str
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedContainer:
    """The engine's own account of a container, in our words, for read-back."""

    id: str
    name: str
    image_id: str
    status: ContainerStatus
    running: bool
    exit_code: int | None
    oom_killed: bool
    user: str
    environment: tuple[str, ...]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    working_dir: str
    labels: tuple[tuple[str, str], ...]
    network_mode: str
    privileged: bool
    read_only_root: bool
    capabilities_added: tuple[str, ...]
    capabilities_dropped: tuple[str, ...]  # as the engine says; "ALL" or each one
    security_options: tuple[str, ...]
    mounts: tuple[InspectedMount, ...]
    tmpfs: tuple[tuple[str, str], ...]  # path, options
    published_ports: tuple[str, ...]
    devices: tuple[str, ...]
    pid_mode: str
    ipc_mode: str
    userns_mode: str
    log_driver: str
    memory: int
    pids: int
    cpus: float
    extra_groups: tuple[str, ...] = ()
    unplanned: tuple[str, ...] = ()  # settings that are on although no plan can ask for them; must be empty
