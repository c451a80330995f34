"""Podman's own JSON (info, container and image inspect) read strictly into our values."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from backend.containers import ContainerStatus, EngineFacts, InspectedContainer, InspectedMount
from backend.engines.docker_documents import (
    Document,
    TextMap,
    Texts,
    ThingMap,
    Things,
    checks_health,
    or_empty,
)
from images.digests import Digest
from images.errors import HostError, UsageError


class _Camel(Document):
    """``podman info`` writes its keys in camelCase."""

    model_config = ConfigDict(alias_generator=to_camel)


class _Runtime(_Camel):
    name: str


class _Security(_Camel):
    rootless: bool
    seccomp_enabled: bool
    seccomp_profile_path: str = ""
    selinux_enabled: bool = False
    apparmor_enabled: bool = False


class _Host(_Camel):
    hostname: str
    kernel: str
    cgroup_manager: str
    cgroup_version: str
    cgroup_controllers: Texts = ()
    oci_runtime: _Runtime
    security: _Security
    service_is_remote: bool = False


class _Store(_Camel):
    graph_driver_name: str
    graph_root: str
    run_root: str


class _Version(Document):
    APIVersion: str
    Version: str


class InfoDocument(Document):
    """``podman info``."""

    host: _Host
    store: _Store
    version: _Version


class VersionDocument(Document):
    """``podman version`` on the machine that it runs on: there is a client, and no server."""

    Client: _Version


def facts_of(info: InfoDocument, *, host_name: str, kernel: str) -> EngineFacts:
    """Identity of a Podman. ``host_name`` and ``kernel`` are ours: others mean a VM or another machine."""
    host, security = info.host, info.host.security
    states = (
        (f"name=seccomp,profile={security.seccomp_profile_path}", security.seccomp_enabled),
        ("name=rootless", security.rootless),
        ("name=selinux", security.selinux_enabled),
        ("name=apparmor", security.apparmor_enabled),
    )
    return EngineFacts(
        product="podman",
        version=info.version.Version,
        api_version=info.version.APIVersion,
        rootless=security.rootless,
        remote=host.service_is_remote or host.hostname != host_name or host.kernel != kernel,
        storage_driver=info.store.graph_driver_name,
        cgroup_version=host.cgroup_version.removeprefix("v"),
        cgroup_driver=host.cgroup_manager if host.cgroup_controllers else "none",
        security_options=tuple(option for option, on in states if on),
        endpoint=f"store:{info.store.graph_root}",
        host_name=host.hostname,
        kernel=host.kernel,
        runtime=host.oci_runtime.name,
        storage_root=info.store.graph_root,
    )


class _RootFs(Document):
    Layers: Texts = ()


class ImageDocument(Document):
    """One image of ``podman image inspect``."""

    Id: str
    Digest: str
    RootFS: _RootFs


_STATUS = {
    "configured": ContainerStatus.CREATED,
    "created": ContainerStatus.CREATED,
    "initialized": ContainerStatus.CREATED,
    "running": ContainerStatus.RUNNING,
    "stopping": ContainerStatus.RUNNING,
    "paused": ContainerStatus.PAUSED,
    "stopped": ContainerStatus.EXITED,  # its process ended; the engine has not cleaned up behind it yet
    "exited": ContainerStatus.EXITED,
}
_ENDED = tuple(word for word, status in _STATUS.items() if status is ContainerStatus.EXITED)


class _State(Document):
    Status: str
    Running: bool
    OOMKilled: bool
    ExitCode: int


def _one_or_many(value: object) -> object:
    """Podman 4 writes the entry point as one text, Podman 5 as a list."""
    if isinstance(value, str):
        return (value,) if value else ()
    return or_empty(value)


class _Config(Document):
    User: str
    Env: Texts
    Entrypoint: Annotated[tuple[str, ...], BeforeValidator(_one_or_many)] = ()
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
    PidMode: str
    IpcMode: str
    UsernsMode: str
    UTSMode: str = ""
    CgroupParent: str = ""
    LogConfig: _Named
    RestartPolicy: _Named
    Memory: int
    NanoCpus: int
    PidsLimit: int
    VolumesFrom: Things = ()
    Links: Things = ()
    ExtraHosts: Things = ()
    Dns: Things = ()
    GroupAdd: Texts = ()
    CgroupConf: ThingMap = Field(default_factory=dict)
    OomScoreAdj: int = 0
    OomKillDisable: bool = False


class ContainerDocument(Document):
    """One container of ``podman container inspect``."""

    Id: str
    Name: str
    Image: str
    Pod: str = ""
    Rootfs: str = ""
    EffectiveCaps: Texts = ()
    BoundingCaps: Texts = ()
    State: _State
    Config: _Config
    HostConfig: _HostConfig
    Mounts: Annotated[tuple[_Mount, ...], BeforeValidator(or_empty)] = ()


def container_of(document: ContainerDocument) -> InspectedContainer:
    """In our words. No bounding and no effective capability is reported as ``ALL`` dropped."""
    host, config = document.HostConfig, document.Config
    without = not document.EffectiveCaps and not document.BoundingCaps
    return InspectedContainer(
        id=document.Id,
        name=document.Name,
        image_id=digest_of_id(document.Image),
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
        capabilities_dropped=("ALL",) if without else host.CapDrop,
        security_options=host.SecurityOpt,
        mounts=tuple(
            InspectedMount(kind=m.Type, source=_source_of(m), target=m.Destination, writable=m.RW)
            for m in document.Mounts
        ),
        tmpfs=tuple(sorted(host.Tmpfs.items())),
        published_ports=tuple(sorted(host.PortBindings)) + (("all",) if host.PublishAllPorts else ()),
        devices=tuple(str(device)[:200] for device in host.Devices),
        pid_mode=host.PidMode,
        # Podman 4 calls its own private namespace shareable: another container could ask to join it.
        ipc_mode="private" if host.IpcMode == "shareable" else host.IpcMode,
        userns_mode=host.UsernsMode,
        log_driver=host.LogConfig.Type,
        memory=host.Memory,
        pids=host.PidsLimit,
        cpus=host.NanoCpus / 1_000_000_000,
        extra_groups=host.GroupAdd,
        unplanned=_unplanned(document),
    )


def _source_of(mount: _Mount) -> str:
    """A volume is known by its name; where it lies on the engine's disk is the engine's matter."""
    return mount.Name if mount.Type == "volume" else mount.Source or mount.Name


def _unplanned(document: ContainerDocument) -> tuple[str, ...]:
    host = document.HostConfig
    asked = {
        "Healthcheck": checks_health(document.Config.Healthcheck),
        "Pod": document.Pod,
        "Rootfs": document.Rootfs,
        "UTSMode": host.UTSMode not in ("", "private"),
        "CgroupParent": host.CgroupParent,
        "CgroupConf": host.CgroupConf,
        "RestartPolicy": host.RestartPolicy.Name not in ("", "no"),
        "VolumesFrom": host.VolumesFrom,
        "Links": host.Links,
        "ExtraHosts": host.ExtraHosts,
        "Dns": host.Dns,
        "OomScoreAdj": host.OomScoreAdj,
        "OomKillDisable": host.OomKillDisable,
    }
    return tuple(name for name, value in asked.items() if value)


def digest_of_id(text: str) -> Digest:
    """An image id, which Podman writes without its algorithm."""
    try:
        return Digest(text if text.startswith("sha256:") else f"sha256:{text}")
    except UsageError:
        raise HostError(f"not an image id: {text[:80]!r}", where="podman") from None
