"""The plan: hardened whatever is asked, and every dangerous wish refused by name or impossible to say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from backend.account import account_of
from backend.containers import ContainerPlan, ImageIdKind, Network, Purpose
from backend.engines import docker_create, podman_create
from backend.lease import WATCH_LEASE
from backend.ownership import Owner
from backend.plan import plan_detect, plan_launch
from backend.requests import LaunchClass, LaunchRequest, Supervision
from images.errors import BuilderError, LaunchReason, LaunchRefused, UsageError
from provenance.layout import open_image
from provenance.verify import VerifiedImage
from tests.fakes.admitted import ENVIRONMENT, LIMITS, STATE, admitted_of, request
from tests.fakes.layouts import make_image

OWNER = Owner(STATE, "c" * 32)
GOLDEN = """\
container create
--name=aib-55555555-run.1
--hostname=agent
--label=agent-image-builder.launch=55555555555555555555555555555555.run.1
--label=agent-image-builder.owner=cccccccccccccccccccccccccccccccc
--label=agent-image-builder.purpose=launch
--label=agent-image-builder.run=run
--label=agent-image-builder.scope=issue/7
--label=agent-image-builder.state=55555555555555555555555555555555
--label=agent-image-builder.step=1
--label=agent-image-builder.supervision=tethered
--pull=never --init=false --restart=no --no-healthcheck --log-driver=none --interactive
--user=997:997 --workdir=/
--network=none --ipc=private --shm-size=67108864 --cap-drop=ALL --security-opt=no-new-privileges --read-only
--memory=536870912 --memory-swap=536870912 --cpus=1.500 --pids-limit=64
--tmpfs=/home/agent:rw,nosuid,nodev,exec,size=1073741824,mode=0700,uid=1000,gid=1000
--tmpfs=/run:rw,nosuid,nodev,noexec,size=16777216,mode=0755,uid=997,gid=997
--tmpfs=/tmp:rw,nosuid,nodev,exec,size=1073741824,mode=1777,uid=0,gid=0
--tmpfs=/workspace:rw,nosuid,nodev,exec,size=2147483648,mode=0700,uid=1000,gid=1000
"""


def test_the_whole_plan_as_docker_is_told(verified: VerifiedImage) -> None:
    plan = plan_launch(admitted_of(verified), request(), OWNER)
    said = docker_create.create_arguments(plan.container)
    tail = (str(verified.image.settings.digest), "timeout", "-k5", "120", "cat")
    assert said == (*GOLDEN.split(), *tail)
    assert plan.command.argv == ("true",)
    assert plan.command.user == (1000, 1000)
    assert plan.command.environment == (("LOGNAME", "agent"), ("TERM", "dumb"), ("USER", "agent"))
    assert plan.command.working_dir == "/workspace"


def test_it_is_pure(verified: VerifiedImage) -> None:
    first = plan_launch(admitted_of(verified), request(), OWNER)
    assert first == plan_launch(admitted_of(verified), request(), OWNER)


@pytest.mark.parametrize("kind", list(ImageIdKind))
def test_the_image_is_named_by_the_id_of_this_kind_of_store(
    verified: VerifiedImage, kind: ImageIdKind
) -> None:
    plan = plan_launch(admitted_of(verified, id_kind=kind), request(), OWNER)
    expected = {
        ImageIdKind.CONFIG: verified.image.settings.digest,
        ImageIdKind.MANIFEST: verified.image.digest,
    }
    assert plan.container.image.id == expected[kind]


def hardened(plan: ContainerPlan) -> None:
    assert plan.user == (997, 997)
    assert plan.network is Network.NONE
    assert plan.read_only_root
    assert plan.entrypoint == ()
    assert plan.arguments[:2] == ("timeout", "-k5")
    assert plan.arguments[3:] == ("cat",)
    assert plan.environment == ()
    assert plan.read_only_binds == plan.private_binds == ()
    assert plan.extra_groups == ()
    assert not plan.auto_remove
    assert {item.path for item in plan.tmpfs} == {"/home/agent", "/run", "/tmp", "/workspace"}
    assert all(0 < item.size <= 1 << 31 for item in plan.tmpfs)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"command": ("--privileged",)},
        {"command": ("sh", "-c", "x"), "scope": "a" * 128},
        {"command": (), "agent": "claude-code", "arguments": ("--user=0", "--network=host", "-v", "/:/host")},
        {"command": (), "agent": "pi"},
    ],
)
def test_nothing_that_is_asked_loosens_it(verified: VerifiedImage, changes: dict[str, Any]) -> None:
    plan = plan_launch(admitted_of(verified), request(**changes), OWNER)
    hardened(plan.container)
    said = docker_create.create_arguments(plan.container)
    told = podman_create.create_arguments(plan.container, userns=("--userns=nomap",))
    for arguments in (said, told):
        flags = {text.partition("=")[0] for text in arguments if text.startswith("-")}
        assert not flags & {
            "--privileged",
            "--cap-add",
            "--device",
            "--volume",
            "-v",
            "--mount",
            "--env",
            "--publish",
            "--pid",
            "--uts",
            "--group-add",
            "--add-host",
        }


def test_a_detection_has_the_same_hardening(verified: VerifiedImage) -> None:
    plan = plan_detect(
        verified.image, ImageIdKind.CONFIG, OWNER, detect_id="detect-1", limits=LIMITS, deadline=60
    )
    hardened(plan.container)
    launched = plan_launch(admitted_of(verified), request(), OWNER).container
    same = dataclasses.replace(
        plan.container,
        purpose=Purpose.LAUNCH,
        name=launched.name,
        labels=launched.labels,
        arguments=launched.arguments,
        deadline=launched.deadline,
    )
    assert same == launched


def test_a_request_has_no_way_to_say_anything_else() -> None:
    """A new field is a new surface: think about it here first."""
    assert {item.name for item in dataclasses.fields(LaunchRequest)} == {
        "run_id",
        "scope",
        "session",
        "step",
        "limits",
        "deadline",
        "launch_class",
        "command",
        "agent",
        "arguments",
        "allow",
        "uplink",  # how the controller itself gets out: a proxy, and authorities; nothing of a container's
        "projection",  # closed routes, each into a file of its agent: tests/unit/backend/projection
        "supervision",
        "lease_seconds",
        "source",
        "terminal",  # what kind of one: three words of a closed form, in variables of the command alone
    }


def test_a_leased_plan_differs_in_what_pid_1_watches_and_in_nothing_else(verified: VerifiedImage) -> None:
    admitted = admitted_of(verified)
    leased = plan_launch(
        admitted, request(command=(), supervision=Supervision.LEASED, lease_seconds=45), OWNER
    )
    tethered = plan_launch(admitted, request(), OWNER)
    assert leased.supervision is Supervision.LEASED
    plan = leased.container
    assert plan.arguments == ("timeout", "-k5", "120", "sh", "-c", WATCH_LEASE, "lease", "45")
    assert not plan.keep_stdin
    assert set(plan.labels) - set(tethered.container.labels) == {
        ("agent-image-builder.lease-seconds", "45"),
        ("agent-image-builder.supervision", "leased"),
    }
    same = dataclasses.replace(
        plan, arguments=("timeout", "-k5", "120", "cat"), keep_stdin=True, labels=tethered.container.labels
    )
    assert same == tethered.container
    for arguments in (
        docker_create.create_arguments(plan),
        podman_create.create_arguments(plan, userns=("--userns=nomap",)),
    ):
        assert "--interactive" not in arguments


def test_where_limits_do_not_bind_none_is_asked_for(verified: VerifiedImage) -> None:
    plan = plan_launch(admitted_of(verified, limits_enforced=False), request(), OWNER)
    assert plan.container.limits is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"allow": ("api.anthropic.com:443",)}, LaunchReason.NETWORK_CEILING),
        ({"command": (), "agent": "goose"}, LaunchReason.UNKNOWN_AGENT),
        ({"command": (), "agent": "opencode"}, LaunchReason.UNKNOWN_AGENT),  # known, not in this image
        ({"command": (), "agent": "../../bin/sh"}, LaunchReason.UNKNOWN_AGENT),
        ({"launch_class": LaunchClass.DETECT}, LaunchReason.CLASS_UNSUPPORTED),
        *(
            ({"launch_class": kind}, LaunchReason.SOURCE_REQUIRED)
            for kind in (LaunchClass.REVIEW, LaunchClass.FIX, LaunchClass.EXPORT_COMMAND)
        ),
    ],
)
def test_refused_by_name(verified: VerifiedImage, changes: dict[str, Any], reason: LaunchReason) -> None:
    with pytest.raises(LaunchRefused) as caught:
        plan_launch(admitted_of(verified), request(**changes), OWNER)
    assert caught.value.reason == reason
    assert caught.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"command": ()},
        {"agent": "pi"},
        {"arguments": ("x",)},
        {"command": ("",)},
        {"command": ("a\0b",)},
        {"command": ("x" * 130_000,)},
        {"command": ("x",) * 70_000},
        {"run_id": ""},
        {"run_id": "Run"},
        {"run_id": "a.b"},
        {"run_id": "a" * 41},
        {"scope": ""},
        {"scope": "a\nb"},
        {"scope": "--privileged"},
        {"step": 0},
        {"deadline": 0.0},
        {"deadline": float("inf")},
        {"deadline": float("nan")},
        {"limits": dataclasses.replace(LIMITS, memory=0)},
        {"limits": dataclasses.replace(LIMITS, pids=-1)},
        {"limits": dataclasses.replace(LIMITS, cpus=0.0)},
        {"lease_seconds": 4},
        {"lease_seconds": 601},
        {"supervision": Supervision.LEASED},  # it names a command
        {"supervision": Supervision.LEASED, "command": (), "agent": "pi"},
    ],
)
def test_usage(verified: VerifiedImage, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        plan_launch(admitted_of(verified), request(**changes), OWNER)


GOOD = {"User": "1000:1000", "Entrypoint": ["/usr/bin/catatonit", "--"], "Env": ENVIRONMENT}


@pytest.mark.parametrize(
    "changes",
    [
        {"User": ""},
        {"User": "agent"},
        {"User": "0:0"},
        {"User": "1000:0"},
        {"User": "997:997"},
        {"User": "1000"},
        {"Env": []},
        {"Env": ["HOME=/"]},
        {"Env": ["HOME=/workspace"]},
        {"Env": ["HOME=/home/agent:exec"]},
        {"Env": ["HOME=/home/../etc"]},
        {"Entrypoint": []},
        {"Entrypoint": ["/bin/sh", "-c"]},
        {"Entrypoint": ["catatonit", "--"]},
        {"Entrypoint": ["/usr/bin/catatonit", "-P"]},
    ],
)
def test_an_image_whose_configuration_is_not_ours(tmp_path: Path, changes: dict[str, object]) -> None:
    image = open_image(tmp_path / "l", make_image(tmp_path / "l", config={**GOOD, **changes}))
    with pytest.raises(LaunchRefused) as caught:
        plan_detect(image, ImageIdKind.CONFIG, OWNER, detect_id="detect-1", limits=None, deadline=60)
    assert caught.value.reason == LaunchReason.IMAGE_SETTINGS


def test_the_account_is_the_images(tmp_path: Path) -> None:
    config = {**GOOD, "User": "1234:2345", "Env": ["HOME=/home/worker"]}
    image = open_image(tmp_path / "l", make_image(tmp_path / "l", config=config))
    account = account_of(image)
    assert (account.uid, account.gid, account.home) == (1234, 2345, "/home/worker")
    plan = plan_detect(image, ImageIdKind.CONFIG, OWNER, detect_id="detect-1", limits=None, deadline=60)
    owners = {item.path: (item.uid, item.gid, item.mode) for item in plan.container.tmpfs}
    assert owners["/home/worker"] == owners["/workspace"] == (1234, 2345, 0o700)


@pytest.mark.parametrize("lease", ["", "x", "/etc"])
def test_no_owner_no_plan(lease: str) -> None:
    with pytest.raises(BuilderError):
        Owner(STATE, lease)
