"""Recorded answers of engines, read strictly; what is not as expected is an error that names the key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.containers import ContainerStatus, InspectedContainer, InspectedMount
from backend.engines import docker_documents as docker
from backend.engines import podman_documents as podman
from images.errors import HostError

DOCUMENTS = Path(__file__).parent / "documents"
KERNEL, HOST = "6.1.0-test", "workstation"


def recorded(name: str) -> Any:
    document = json.loads((DOCUMENTS / f"{name}.json").read_text())
    return document[0] if isinstance(document, list) else document


def docker_facts(change: Callable[[Any, Any], None] = lambda _version, _info: None) -> Any:
    version, info = recorded("docker-20.10-version"), recorded("docker-20.10-info")
    change(version, info)
    return docker.facts_of(
        docker.read_document(docker.VersionDocument, version, "version"),
        docker.read_document(docker.InfoDocument, info, "info"),
        endpoint="unix:///run/docker.sock",
        host_name=HOST,
        kernel=KERNEL,
    )


def podman_facts(change: Callable[[Any], None] = lambda _info: None) -> Any:
    info = recorded("podman-4.3-info")
    change(info)
    return podman.facts_of(
        docker.read_document(podman.InfoDocument, info, "info"), host_name=HOST, kernel=KERNEL
    )


def docker_container(change: Callable[[Any], None] = lambda _document: None) -> InspectedContainer:
    document = recorded("docker-20.10-container")
    change(document)
    return docker.container_of(docker.read_document(docker.ContainerDocument, document, "inspect"))


def podman_container(change: Callable[[Any], None] = lambda _document: None) -> InspectedContainer:
    document = recorded("podman-4.3-container")
    change(document)
    return podman.container_of(docker.read_document(podman.ContainerDocument, document, "inspect"))


def test_docker_is_identified_by_its_own_words() -> None:
    facts = docker_facts()
    assert (facts.product, facts.version, facts.api_version) == ("docker", "20.10.24+dfsg1", "1.41")
    assert (facts.rootless, facts.remote) == (False, False)
    assert (facts.storage_driver, facts.cgroup_version, facts.cgroup_driver) == ("overlay2", "1", "cgroupfs")


def test_docker_rootless_says_so() -> None:
    def rootless(version: Any, info: Any) -> None:
        info["SecurityOptions"] = ["name=seccomp,profile=default", "name=rootless", "name=cgroupns"]
        info["CgroupDriver"] = "none"

    facts = docker_facts(rootless)
    assert (facts.rootless, facts.cgroup_driver) == (True, "none")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("OperatingSystem", "Docker Desktop"),
        ("KernelVersion", "6.6.12-linuxkit"),
        ("Name", "another-machine"),
    ],
)
def test_a_docker_in_a_vm_or_elsewhere_is_remote(key: str, value: str) -> None:
    assert docker_facts(lambda _version, info: info.update({key: value})).remote


def test_podman_behind_docker_s_interface_is_podman() -> None:
    def served_by_podman(version: Any, info: Any) -> None:
        version["Server"]["Components"] = [{"Name": "Podman Engine", "Version": "4.3.1"}]

    assert docker_facts(served_by_podman).product == "podman"


def test_a_containerd_store_is_recognised() -> None:
    info = recorded("docker-20.10-info")
    assert not docker.read_document(docker.InfoDocument, info, "info").containerd_store
    info["DriverStatus"] = [["driver-type", "io.containerd.snapshotter.v1"]]
    assert docker.read_document(docker.InfoDocument, info, "info").containerd_store


def test_podman_is_identified_by_its_own_words() -> None:
    facts = podman_facts()
    assert (facts.product, facts.version, facts.rootless, facts.remote) == ("podman", "4.3.1", True, False)
    assert (facts.storage_driver, facts.cgroup_version, facts.cgroup_driver) == ("overlay", "1", "none")
    assert facts.security_options == (
        "name=seccomp,profile=/usr/share/containers/seccomp.json",
        "name=rootless",
    )


def test_podman_machine_is_remote() -> None:
    assert podman_facts(lambda info: info["host"].update(serviceIsRemote=True)).remote
    assert podman_facts(lambda info: info["host"].update(kernel="6.5.0-fcos")).remote
    assert podman_facts(lambda info: info["host"].update(hostname="podman-machine-default")).remote


def test_podman_with_vfs_says_so() -> None:
    assert podman_facts(lambda info: info["store"].update(graphDriverName="vfs")).storage_driver == "vfs"


def test_a_docker_container_in_our_words() -> None:
    found = docker_container()
    assert found.image_id == "sha256:c8dadcbb9060f59e5beee8ee301ac551fcfd19f74cd64dd2e734c8cbccefcce1"
    assert (found.name, found.status, found.running, found.exit_code) == ("recorded", "created", False, None)
    assert (found.user, found.entrypoint) == ("997:997", ("/usr/bin/catatonit",))
    assert found.command == ("--", "timeout", "-k5", "60", "cat")
    assert (found.capabilities_dropped, found.capabilities_added) == (("ALL",), ())
    assert found.mounts == (
        InspectedMount(kind="bind", source="/srv/staging/source", target="/source", writable=False),
    )
    assert found.tmpfs == (("/tmp", "rw,nosuid,nodev,noexec,size=1048576,mode=1777,uid=0,gid=0"),)
    assert (found.memory, found.pids, found.cpus) == (268435456, 64, 1.5)
    assert (found.network_mode, found.ipc_mode, found.log_driver) == ("none", "private", "none")
    assert found.unplanned == ()


def test_a_podman_container_in_our_words() -> None:
    found = podman_container()
    assert found.image_id == "sha256:c8dadcbb9060f59e5beee8ee301ac551fcfd19f74cd64dd2e734c8cbccefcce1"
    assert (found.name, found.status, found.running, found.exit_code) == ("recorded", "created", False, None)
    assert (found.entrypoint, found.command[0]) == (("/usr/bin/catatonit",), "--")
    assert (found.capabilities_dropped, found.capabilities_added) == (("ALL",), ())
    assert [(m.target, m.writable) for m in found.mounts] == [("/source", False)]
    assert (found.memory, found.pids, found.cpus) == (0, 0, 0.0)
    assert (found.ipc_mode, found.unplanned) == ("private", ())


@pytest.mark.parametrize(
    ("word", "status", "code"),
    [
        ("created", ContainerStatus.CREATED, None),
        ("running", ContainerStatus.RUNNING, None),
        ("restarting", ContainerStatus.RUNNING, None),
        ("paused", ContainerStatus.PAUSED, None),
        ("exited", ContainerStatus.EXITED, 7),
        ("dead", ContainerStatus.EXITED, 7),
        ("removing", ContainerStatus.OTHER, None),
        ("a later word", ContainerStatus.OTHER, None),
    ],
)
def test_where_a_docker_container_is(word: str, status: ContainerStatus, code: int | None) -> None:
    found = docker_container(lambda document: document["State"].update(Status=word, ExitCode=7))
    assert (found.status, found.exit_code) == (status, code)


@pytest.mark.parametrize(
    ("word", "status", "code"),
    [
        ("configured", ContainerStatus.CREATED, None),
        ("created", ContainerStatus.CREATED, None),
        ("initialized", ContainerStatus.CREATED, None),
        ("running", ContainerStatus.RUNNING, None),
        ("stopping", ContainerStatus.RUNNING, None),
        ("paused", ContainerStatus.PAUSED, None),
        ("stopped", ContainerStatus.EXITED, 7),
        ("exited", ContainerStatus.EXITED, 7),
        ("removing", ContainerStatus.OTHER, None),
        ("a later word", ContainerStatus.OTHER, None),
    ],
)
def test_where_a_podman_container_is(word: str, status: ContainerStatus, code: int | None) -> None:
    """``stopped`` lasts an instant: the process has ended, and Podman has not cleaned up behind it yet."""
    found = podman_container(lambda document: document["State"].update(Status=word, ExitCode=7))
    assert (found.status, found.exit_code) == (status, code)


def test_podman_5_writes_the_entry_point_as_a_list() -> None:
    found = podman_container(lambda document: document["Config"].update(Entrypoint=["/init", "-x"]))
    assert found.entrypoint == ("/init", "-x")


def test_a_capability_that_stayed_is_not_all_dropped() -> None:
    found = podman_container(lambda document: document.update(BoundingCaps=["CAP_KILL"]))
    assert "ALL" not in found.capabilities_dropped


UNPLANNED: list[tuple[str, object]] = [
    ("DeviceCgroupRules", ["c 1:* rwm"]),
    ("CgroupParent", "/somewhere"),
    ("RestartPolicy", {"Name": "always", "MaximumRetryCount": 0}),
    ("VolumesFrom", ["other"]),
    ("Links", ["other:alias"]),
    ("ExtraHosts", ["api:10.0.0.1"]),
    ("Dns", ["10.0.0.1"]),
    ("Binds", ["/:/host"]),
    ("Sysctls", {"net.ipv4.ip_forward": "1"}),
    ("Ulimits", [{"Name": "nofile", "Hard": 1, "Soft": 1}]),
    ("Init", True),
    ("UTSMode", "host"),
    ("OomScoreAdj", -1000),
    ("OomKillDisable", True),
]


@pytest.mark.parametrize(("key", "value"), UNPLANNED)
def test_what_no_plan_can_ask_for_is_named(key: str, value: object) -> None:
    found = docker_container(lambda document: document["HostConfig"].update({key: value}))
    assert found.unplanned == (key,)


def test_devices_and_ports_are_told() -> None:
    def opened(document: Any) -> None:
        document["HostConfig"]["Devices"] = [{"PathOnHost": "/dev/kvm"}]
        document["HostConfig"]["DeviceRequests"] = [{"Driver": "gpu"}]
        document["HostConfig"]["PortBindings"] = {"80/tcp": [{"HostPort": "80"}]}
        document["HostConfig"]["PublishAllPorts"] = True

    found = docker_container(opened)
    assert len(found.devices) == 2
    assert found.published_ports == ("80/tcp", "all")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("HostConfig", "Privileged"), "false"),
        (("HostConfig", "ReadonlyRootfs"), None),
        (("HostConfig", "CapAdd"), "ALL"),
        (("HostConfig", "Memory"), "1g"),
        (("State", "Running"), 0),
        (("Config", "User"), None),
        (("Config", "Env"), {"A": "b"}),
        (("Image",), 5),
    ],
)
def test_a_value_of_another_type_is_an_error_that_names_the_key(path: tuple[str, ...], value: object) -> None:
    def wrong(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    for read in (docker_container, podman_container):
        with pytest.raises(HostError, match=path[-1]):
            read(wrong)


@pytest.mark.parametrize("key", ["Privileged", "ReadonlyRootfs", "CapDrop", "SecurityOpt", "NetworkMode"])
def test_a_missing_setting_is_never_taken_for_a_safe_one(key: str) -> None:
    for read in (docker_container, podman_container):
        with pytest.raises(HostError, match=key):
            read(lambda document: document["HostConfig"].pop(key))


@pytest.mark.parametrize("value", [1, True, 1.5, "text", {"a": 1}, [1], [[]]])
@pytest.mark.parametrize("key", ["Mounts", "Config", "HostConfig", "State", "Name"])
def test_a_document_with_something_else_in_a_place_is_the_engines_failure(key: str, value: object) -> None:
    for read in (docker_container, podman_container):
        if (key, value) == ("Name", "text"):
            continue
        with pytest.raises(HostError, match=key):
            read(lambda document: document.update({key: value}))
