"""Read-back: as planned is silent; any one thing that differs is named; allowances are the listed ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.containers import ContainerPlan, ExecPlan, InspectedContainer, InspectedMount
from backend.inside import EffectiveLimits, inside_argv, read_inside
from backend.ownership import Owner
from backend.plan import plan_launch
from backend.readback import (
    WRITABLE_NEVER,
    Difference,
    allowances_of,
    compare_created,
    compare_inside,
    limit_pairs,
    refuse,
)
from images.errors import LaunchReason, LaunchRefused
from provenance.verify import VerifiedImage
from tests.fakes.admitted import STATE, admitted_of, request
from tests.fakes.engine import FakeEngine
from tests.fakes.inside import inside_answer

OWNER = Owner(STATE, "c" * 32)


@pytest.fixture
def plan(verified: VerifiedImage) -> ContainerPlan:
    return plan_launch(admitted_of(verified), request(), OWNER).container


@pytest.fixture
def command(verified: VerifiedImage) -> ExecPlan:
    return plan_launch(admitted_of(verified), request(), OWNER).command


@pytest.fixture
def created(plan: ContainerPlan, tmp_path: Path) -> InspectedContainer:
    fake = FakeEngine(tmp_path)
    fake.load(plan.image.image, tmp_path)
    found = fake.inspect(fake.create(plan))
    assert found is not None
    return found


def differences(
    plan: ContainerPlan, found: InspectedContainer, product: str = "docker"
) -> tuple[Difference, ...]:
    return compare_created(plan, found, allowances_of(product))


@pytest.mark.parametrize("product", ["docker", "podman"])
def test_as_planned(plan: ContainerPlan, created: InspectedContainer, product: str) -> None:
    assert differences(plan, created, product) == ()


CHANGES: dict[str, Any] = {
    "name": "another",
    "image_id": "sha256:" + "0" * 64,
    "running": True,
    "user": "0:0",
    "entrypoint": ("/bin/sh",),
    "command": ("sleep", "1"),
    "working_dir": "/tmp",
    "network_mode": "bridge",
    "privileged": True,
    "read_only_root": False,
    "capabilities_added": ("SYS_ADMIN",),
    "capabilities_dropped": (),
    "security_options": ("no-new-privileges", "seccomp=unconfined"),
    "mounts": (InspectedMount(kind="bind", source="/", target="/host", writable=True),),
    "tmpfs": (("/var/extra", ""),),
    "published_ports": ("80/tcp",),
    "devices": ("/dev/kvm",),
    "pid_mode": "host",
    "ipc_mode": "host",
    "userns_mode": "host",
    "log_driver": "json-file",
    "memory": 0,
    "pids": 0,
    "cpus": 0.0,
    "extra_groups": ("docker",),
    "unplanned": ("Sysctls",),
    "environment": ("PATH=/evil",),
    "labels": (),
}
# Not settings of a plan: who it is, and how it is going.
NOT_COMPARED = {"id", "status", "exit_code", "oom_killed"}


def test_every_field_of_an_inspected_container_is_compared() -> None:
    names = {item.name for item in dataclasses.fields(InspectedContainer)}
    assert names == set(CHANGES) | NOT_COMPARED


@pytest.mark.parametrize("field", sorted(CHANGES))
def test_one_difference_is_named(plan: ContainerPlan, created: InspectedContainer, field: str) -> None:
    found = dataclasses.replace(created, **{field: CHANGES[field]})
    (difference,) = differences(plan, found)
    expected = LaunchReason.IMAGE_ID if field == "image_id" else LaunchReason.READ_BACK
    assert difference.reason is expected
    with pytest.raises(LaunchRefused) as caught:
        refuse((difference,), "here")
    assert caught.value.reason == expected


def added_variable(text: str) -> Callable[[InspectedContainer], InspectedContainer]:
    return lambda found: dataclasses.replace(found, environment=(*found.environment, text))


def added_label(name: str) -> Callable[[InspectedContainer], InspectedContainer]:
    return lambda found: dataclasses.replace(found, labels=(*found.labels, (name, "x")))


@pytest.mark.parametrize(
    ("product", "change", "allowed"),
    [
        ("podman", added_variable("container=podman"), True),
        ("podman", added_variable("container=oci"), False),
        ("docker", added_variable("container=podman"), False),
        ("podman", added_variable("TERM=xterm"), True),
        ("docker", added_variable("HOSTNAME=agent"), True),
        ("docker", added_variable("HOSTNAME=operators-laptop"), False),
        ("docker", added_variable("HTTP_PROXY=http://proxy"), False),
        ("podman", added_variable("HTTP_PROXY=http://proxy"), False),
        ("docker", added_variable("HOME=/home/agent"), False),  # there twice
        ("docker", added_label("com.example.extra"), False),
    ],
)
def test_allowances(
    plan: ContainerPlan,
    created: InspectedContainer,
    product: str,
    change: Callable[[InspectedContainer], InspectedContainer],
    allowed: bool,
) -> None:
    assert bool(differences(plan, change(created), product)) is not allowed


def test_the_names_of_foreign_variables_are_told_but_not_their_values(
    plan: ContainerPlan, created: InspectedContainer
) -> None:
    found = added_variable("HTTP_PROXY=http://user:dummy-secret@proxy")(created)
    (difference,) = differences(plan, found)
    assert "HTTP_PROXY" in str(difference)
    assert "dummy-secret" not in str(difference)


def test_an_engine_without_a_table() -> None:
    with pytest.raises(LaunchRefused) as caught:
        allowances_of("containerd")
    assert caught.value.reason == LaunchReason.ENGINE_IDENTITY


@pytest.fixture
def inside(plan: ContainerPlan, command: ExecPlan) -> Callable[..., tuple[Difference, ...]]:
    def look(product: str = "docker", **changes: object) -> tuple[Difference, ...]:
        places = tuple(item.path for item in plan.tmpfs) + WRITABLE_NEVER
        argv = inside_argv("beef", "true", places)
        asked = dataclasses.replace(command, argv=argv)
        sections = {name.replace("_", "-"): text for name, text in changes.items()}
        found = read_inside(inside_answer(plan, asked, product, sections), "beef")
        return compare_inside(plan, command, found, allowances_of(product))

    return look


@pytest.mark.parametrize("product", ["docker", "podman"])
def test_inside_as_planned(inside: Callable[..., tuple[Difference, ...]], product: str) -> None:
    assert inside(product) == ()


STATUS = (
    "Uid:\t{uid}\nGid:\t{gid}\nGroups:\t{groups}\nCapInh:\t{inh}\nCapPrm:\t0\nCapEff:\t{eff}\nCapBnd:\t{bnd}\n"
    "CapAmb:\t0\nNoNewPrivs:\t{nnp}\nSeccomp:\t{seccomp}\n"
)


def status(**changes: str) -> str:
    given = {
        "uid": "1000\t1000\t1000\t1000",
        "gid": "1000\t1000\t1000\t1000",
        "groups": "1000",
        "inh": "0",
        "eff": "0",
        "bnd": "0",
        "nnp": "1",
        "seccomp": "2",
    }
    return STATUS.format(**(given | changes))


MOUNTS = (
    "1 0 0:1 / / ro - overlay overlay rw\n"
    "2 1 0:2 / /home/agent rw,nosuid,nodev - tmpfs tmpfs rw,size=1048576k,mode=700,uid=101000,gid=101000\n"
    "3 1 0:3 / /run rw,nosuid,nodev,noexec - tmpfs tmpfs rw,size=16384k,mode=755,uid=100997,gid=100997\n"
    "4 1 0:4 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw,size=1048576k,uid=100000,gid=100000\n"
    "5 1 0:5 / /workspace rw,nosuid,nodev - tmpfs tmpfs rw,size=2097152k,mode=700,uid=101000,gid=101000"
)


def mounts(before: str = "", after: str = "") -> str:
    assert before in MOUNTS
    return MOUNTS.replace(before, after) if before else MOUNTS + after


def test_these_mounts_are_as_planned(inside: Callable[..., tuple[Difference, ...]]) -> None:
    assert inside(mounts=MOUNTS) == ()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"environment": "PATH=/usr/local/bin:/usr/bin:/bin\0"}, "environment inside"),
        ({"init": "/sbin/docker-init\0--\0cat\0"}, "PID 1"),
        ({"init_status": status()}, "uids of PID 1"),
        ({"status": status(uid="0\t0\t0\t0")}, "uids of the agent"),
        ({"status": status(uid="1000\t0\t0\t1000")}, "uids of the agent"),
        ({"status": status(gid="0\t0\t0\t0")}, "gids of the agent"),
        ({"status": status(groups="1000 998")}, "groups of the agent"),
        ({"status": status(bnd="00000000a80425fb")}, "capabilities of the agent"),
        ({"status": status(eff="1")}, "capabilities of the agent"),
        ({"status": status(inh="1")}, "capabilities of the agent"),
        ({"status": status(nnp="0")}, "no new privileges of the agent"),
        ({"status": status(seccomp="0")}, "seccomp filter of the agent"),
        ({"interfaces": "eth0\nlo"}, "network interfaces"),
        ({"interfaces": ""}, "network interfaces"),
        ({"limits": ""}, "memory limit inside"),
        ({"limits": "memory.max 536870912\npids.max max\ncpu.max 150000 100000"}, "pids limit inside"),
        ({"limits": "memory.max 536870912\npids.max 64\ncpu.max max 100000"}, "cpu limit inside"),
        ({"mounts": mounts("/ / ro", "/ / rw")}, "/ read-only"),
        ({"mounts": mounts(after="\n9 1 0:9 / /var/run/docker.sock rw - tmpfs tmpfs rw")}, "mounts inside"),
        ({"mounts": mounts(after="\n9 1 0:9 / /home/agent/.ssh rw - ext4 /dev/vda rw")}, "mounts inside"),
        ({"mounts": mounts(after="\n9 1 0:9 / /proc/sys rw - proc proc rw")}, "/proc/sys read-only"),
        ({"mounts": mounts(after="\n9 1 0:9 / /sys rw - sysfs sysfs rw")}, "/sys read-only"),
        ({"mounts": mounts(after="\n9 1 0:9 / /tmp rw - ext4 /dev/vda rw")}, "planned mounts inside"),
        ({"mounts": mounts("size=16384k", "size=99999999k")}, "/run size"),
        ({"mounts": mounts("rw,size=16384k", "rw")}, "/run size"),
        ({"mounts": mounts("/run rw,nosuid,nodev,noexec", "/run rw,nosuid,nodev")}, "/run executable"),
        ({"mounts": mounts("/tmp rw,nosuid,nodev", "/tmp rw")}, "/tmp nosuid, nodev"),
        ({"mounts": mounts("mode=755,uid=100997", "mode=755,uid=101000")}, "/run owner"),
        ({"uid_map": "0 0 1000"}, "/workspace owner"),
        ({"mounts": mounts("mode=755", "mode=777")}, "/run mode"),
        ({"mounts": mounts("5 1 0:5 / /workspace", "5 1 0:5 / /workplace")}, "planned mounts inside"),
        ({"writable": ""}, "/home/agent writable by the agent"),
    ],
)
def test_each_difference_inside_is_named(
    inside: Callable[..., tuple[Difference, ...]], changes: dict[str, str], named: str
) -> None:
    assert named in {difference.what for difference in inside(**changes)}


def test_the_watch_s_place_is_not_the_agent_s(inside: Callable[..., tuple[Difference, ...]]) -> None:
    """As an engine that knows no owner of a tmpfs would leave it: open to all."""
    lines = "yes /home/agent\nyes /tmp\nyes /workspace\nyes /run\n"
    lines += "".join(f"no {place}\n" for place in WRITABLE_NEVER)
    (difference,) = inside(writable=lines)
    assert difference.what == "/run writable by the agent"


@pytest.mark.parametrize("path", WRITABLE_NEVER)
def test_what_must_never_be_writable(inside: Callable[..., tuple[Difference, ...]], path: str) -> None:
    lines = "yes /home/agent\nyes /tmp\nyes /workspace\nno /run\n"
    lines += "".join(f"{'yes' if place == path else 'no'} {place}\n" for place in WRITABLE_NEVER)
    (difference,) = inside(writable=lines)
    assert difference.what == f"{path} writable by the agent"


def test_limits_that_nobody_asked_for_are_not_compared(verified: VerifiedImage) -> None:
    plan = plan_launch(admitted_of(verified, limits_enforced=False), request(), OWNER).container
    assert limit_pairs(plan, EffectiveLimits(memory=None, pids=None, cpus=None)) == ()


def test_a_refusal_names_all_and_stays_short() -> None:
    many = tuple(Difference(f"setting {n}", "a" * 500, "b" * 500) for n in range(20))
    with pytest.raises(LaunchRefused) as caught:
        refuse(many, "aib-run.1")
    assert "and 14 more" in caught.value.what
    assert len(caught.value.what) < 4000
    assert refuse((), "aib-run.1") is None
