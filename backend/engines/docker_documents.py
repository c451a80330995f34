"""Docker's own JSON (version, info, container and image inspect) read strictly into our values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from backend.containers import ContainerStatus, EngineFacts, InspectedContainer, InspectedMount
from images.errors import HostError
from images.strictjson import JsonValue


class Document(BaseModel):
    """Known keys with exact types; keys that we do not use are left alone, since every version adds some."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, populate_by_name=True)


def or_empty(value: object) -> object:
    """Null for an empty list, as Go writes it; what is no list is left to the model."""
    return () if value is None else tuple(value) if isinstance(value, list) else value


def _or_no_map(value: object) -> object:
    return {} if value is None else value


def _pairs(value: object) -> object:
    if not isinstance(value, list):
        return ()
    return tuple(tuple(pair) if isinstance(pair, list) else pair for pair in value)


Texts = Annotated[tuple[str, ...], BeforeValidator(or_empty)]
TextMap = Annotated[dict[str, str], BeforeValidator(_or_no_map)]
Things = Annotated[tuple[pydantic.JsonValue, ...], BeforeValidator(or_empty)]
ThingMap = Annotated[dict[str, pydantic.JsonValue], BeforeValidator(_or_no_map)]

Model = TypeVar("Model", bound=BaseModel)


def read_document(model: type[Model], value: JsonValue, what: str) -> Model:
    """A parsed JSON value as a model; HostError names the first key that is not as expected."""
    try:
        return model.model_validate(value)
    except ValidationError as broken:
        first = broken.errors(include_input=False, include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise HostError(
            f"the engine answered something unexpected: {key}: {first['msg']}", where=what
        ) from None


class _Component(Document):
    Name: str
    Version: str = ""


class _Server(Document):
    Version: str
    ApiVersion: str
    Components: Annotated[tuple[_Component, ...], BeforeValidator(or_empty)] = ()


class VersionDocument(Document):
    """``docker version``."""

    Server: _Server


class InfoDocument(Document):
    """``docker info``."""

    ID: str = ""
    Name: str
    ServerVersion: str
    Driver: str
    DriverStatus: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_pairs)] = ()
    CgroupDriver: str = ""
    CgroupVersion: str = "1"
    KernelVersion: str
    OperatingSystem: str
    DefaultRuntime: str = ""
    DockerRootDir: str = ""
    SecurityOptions: Texts = ()

    @property
    def containerd_store(self) -> bool:
        """Whether images are kept by a containerd snapshotter, where the image id is the manifest digest."""
        return ("driver-type", "io.containerd.snapshotter.v1") in self.DriverStatus


def facts_of(
    version: VersionDocument, info: InfoDocument, *, endpoint: str, host_name: str, kernel: str
) -> EngineFacts:
    """Identity of a Docker Engine. ``host_name`` and ``kernel`` are ours: others mean a VM or far machine."""
    names = {component.Name for component in version.Server.Components}
    product = "podman" if any("podman" in name.lower() for name in names) else "docker"
    elsewhere = info.KernelVersion != kernel or info.Name != host_name
    return EngineFacts(
        product=product,
        version=info.ServerVersion,
        api_version=version.Server.ApiVersion,
        rootless=any(_option_name(option) == "rootless" for option in info.SecurityOptions),
        remote=elsewhere or "Docker Desktop" in info.OperatingSystem,
        storage_driver=info.Driver,
        cgroup_version=info.CgroupVersion,
        cgroup_driver=info.CgroupDriver or "none",
        security_options=info.SecurityOptions,
        endpoint=endpoint,
        host_name=info.Name,
        kernel=info.KernelVersion,
        runtime=info.DefaultRuntime,
        storage_root=info.DockerRootDir,
    )


def _option_name(option: str) -> str:
    return option.split(",", 1)[0].removeprefix("name=")


class _RootFs(Document):
    Layers: Texts = ()


class ImageDocument(Document):
    """One image of ``docker image inspect``."""

    Id: str
    RootFS: _RootFs


_STATUS = {
    "created": ContainerStatus.CREATED,
    "running": ContainerStatus.RUNNING,
    "restarting": ContainerStatus.RUNNING,
    "paused": ContainerStatus.PAUSED,
    "exited": ContainerStatus.EXITED,
    "dead": ContainerStatus.EXITED,  # its removal failed half-way
}
_ENDED = tuple(word for word, status in _STATUS.items() if status is ContainerStatus.EXITED)


class _State(Document):
    Status: str
    Running: bool
    OOMKilled: bool
    ExitCode: int


class _Config(Document):
    User: str
    Env: Texts
    Entrypoint: Texts = ()
    Cmd: Texts = ()
    WorkingDir: str
    Labels: TextMap = Field(default_factory=dict)
    Healthcheck: ThingMap = Field(default_factory=dict)


class _Named(Document):
    Type: str = ""
    Name: str = ""


class _Mount(Document):
    Type: str
    Source: str = ""
    Name: str = ""
    Destination: str
    RW: bool


class _HostConfig(Document):
    NetworkMode: str
    Privileged: bool
    ReadonlyRootfs: bool
    CapAdd: Texts
    CapDrop: Texts
    SecurityOpt: Texts
    Tmpfs: TextMap = Field(default_factory=dict)
    PortBindings: ThingMap = Field(default_factory=dict)
    PublishAllPorts: bool = False
    Devices: Things = ()
    DeviceRequests: Things = ()
    DeviceCgroupRules: Things = ()
    PidMode: str
    IpcMode: str
    UsernsMode: str
    UTSMode: str = ""
    CgroupParent: str = ""
    LogConfig: _Named
    RestartPolicy: _Named
    Memory: int
    NanoCpus: int
    PidsLimit: int | None = None
    VolumesFrom: Things = ()
    Links: Things = ()
    ExtraHosts: Things = ()
    Dns: Things = ()
    Binds: Things = ()
    GroupAdd: Texts = ()
    Sysctls: ThingMap = Field(default_factory=dict)
    Ulimits: Things = ()
    Init: bool | None = None
    OomScoreAdj: int = 0
    OomKillDisable: bool | None = None


class ContainerDocument(Document):
    """One container of ``docker container inspect``."""

    Id: str
    Name: str
    Image: str
    State: _State
    Config: _Config
    HostConfig: _HostConfig
    Mounts: Annotated[tuple[_Mount, ...], BeforeValidator(or_empty)] = ()


def container_of(document: ContainerDocument) -> InspectedContainer:
    """In our words; whatever is set that no plan of ours can ask for is named in ``unplanned``."""
    host, config = document.HostConfig, document.Config
    return InspectedContainer(
        id=document.Id,
        name=document.Name.removeprefix("/"),
        image_id=document.Image,
        status=_STATUS.get(document.State.Status, ContainerStatus.OTHER),
        running=document.State.Running,
        exit_code=document.State.ExitCode if document.State.Status in _ENDED else None,
        oom_killed=document.State.OOMKilled,
        user=config.User,
        environment=config.Env,
        entrypoint=config.Entrypoint,
        command=config.Cmd,
        working_dir=config.WorkingDir,
        labels=tuple(sorted(config.Labels.items())),
        network_mode=host.NetworkMode,
        privileged=host.Privileged,
        read_only_root=host.ReadonlyRootfs,
        capabilities_added=host.CapAdd,
        capabilities_dropped=host.CapDrop,
        security_options=host.SecurityOpt,
        mounts=tuple(
            InspectedMount(kind=m.Type, source=_source_of(m), target=m.Destination, writable=m.RW)
            for m in document.Mounts
        ),
        tmpfs=tuple(sorted(host.Tmpfs.items())),
        published_ports=tuple(sorted(host.PortBindings)) + (("all",) if host.PublishAllPorts else ()),
        devices=tuple(str(device)[:200] for device in (*host.Devices, *host.DeviceRequests)),
        pid_mode=host.PidMode,
        ipc_mode=host.IpcMode,
        userns_mode=host.UsernsMode,
        log_driver=host.LogConfig.Type,
        memory=host.Memory,
        pids=host.PidsLimit or 0,
        cpus=host.NanoCpus / 1_000_000_000,
        extra_groups=host.GroupAdd,
        unplanned=_unplanned(document),
    )


def _source_of(mount: _Mount) -> str:
    """A volume is known by its name; where it lies on the engine's disk is the engine's matter."""
    return mount.Name if mount.Type == "volume" else mount.Source or mount.Name


def checks_health(healthcheck: Mapping[str, object]) -> bool:
    """Whether the engine would run a command inside by itself; ``--no-healthcheck`` leaves ``NONE``."""
    return healthcheck.get("Test") not in (None, [], ["NONE"])


def _unplanned(document: ContainerDocument) -> tuple[str, ...]:
    host = document.HostConfig
    restart = host.RestartPolicy.Name not in ("", "no")
    asked = {
        "Healthcheck": checks_health(document.Config.Healthcheck),
        "DeviceCgroupRules": host.DeviceCgroupRules,
        "UTSMode": host.UTSMode,
        "CgroupParent": host.CgroupParent,
        "RestartPolicy": restart,
        "VolumesFrom": host.VolumesFrom,
        "Links": host.Links,
        "ExtraHosts": host.ExtraHosts,
        "Dns": host.Dns,
        "Binds": host.Binds,
        "Sysctls": host.Sysctls,
        "Ulimits": host.Ulimits,
        "Init": host.Init,
        "OomScoreAdj": host.OomScoreAdj,
        "OomKillDisable": host.OomKillDisable,
    }
    return tuple(name for name, value in asked.items() if value)
