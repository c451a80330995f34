"""The closed grammar of each dialect: golden argv through a recording shim, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.containers import (
    ContainerPlan,
    ExecPlan,
    ImageIdKind,
    Limits,
    LoadedImage,
    Network,
    PrivateBind,
    Purpose,
    ReadOnlyBind,
    Tmpfs,
    VolumeMount,
    VolumePlan,
)
from backend.engines import docker_create, podman_create
from backend.engines.client import Client
from backend.engines.docker import DETACH_KEYS, Docker
from backend.engines.grammar import check_plan, check_volume, container_id
from backend.engines.podman import Podman
from backend.tools import build_plan, resolver_plan
from images.digests import Digest
from images.errors import HostError
from images.relay import NETWORK_PLACE
from provenance.layout import open_image
from tests.fakes.layouts import make_image
from tests.fakes.shim import Shim

GOLDEN = Path(__file__).parent / "golden"
ID = "0123456789abcdef" * 4
SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
LABELS = (("agent-image-builder.owner", "f" * 32),)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedImage:
    layout = tmp_path_factory.mktemp("layout")
    image = open_image(layout, make_image(layout))
    return LoadedImage(image=image, id=Digest("sha256:" + "a" * 64), id_kind=ImageIdKind.CONFIG)


def launch_plan(loaded: LoadedImage) -> ContainerPlan:
    return ContainerPlan(
        purpose=Purpose.LAUNCH,
        image=loaded,
        name="aib-00000000-run.1",
        labels=LABELS,
        entrypoint=(),
        arguments=("timeout", "-k5", "3620", "cat"),
        user=(997, 997),
        environment=(("LANG", "C.UTF-8"),),
        tmpfs=(
            Tmpfs(path="/home/agent", size=1 << 30, mode=0o700, uid=1000, gid=1000, executable=True),
            Tmpfs(path="/run", size=1 << 24, mode=0o755, uid=997, gid=997),
            Tmpfs(path="/tmp", size=1 << 30),
        ),
        read_only_binds=(ReadOnlyBind(source=Path("/srv/state/staging/source"), target="/source"),),
        limits=Limits(cpus=2, memory=4 << 30, pids=512),
    )


def plans(loaded: LoadedImage) -> dict[str, ContainerPlan]:
    launch = launch_plan(loaded)
    probe = replace(
        launch,
        purpose=Purpose.PROBE,
        entrypoint=("/usr/bin/catatonit",),
        arguments=("--", "cat"),
        limits=None,
    )
    copied = replace(
        launch,
        read_only_binds=(),
        named_volumes=(
            VolumeMount(name="aib-00000000-run.1-source", target="/source", writable=False),
            VolumeMount(name="aib-00000000-run.1-workspace", target="/workspace", writable=True),
        ),
    )
    fill = replace(
        copied,
        purpose=Purpose.FILL,
        name="aib-00000000-run.1-fill",
        keep_stdin=False,
        tmpfs=(),
        limits=None,
        named_volumes=(VolumeMount(name="aib-00000000-run.1-source", target="/source", writable=True),),
    )
    network = ReadOnlyBind(source=Path("/srv/state/staging/network-run.1"), target=NETWORK_PLACE)
    return {
        "launch": launch,
        "launch-network": replace(launch, read_only_binds=(*launch.read_only_binds, network)),
        "launch-copied": copied,
        "fill": fill,
        "probe": probe,
        "resolve": resolver_plan(loaded, token="0" * 16, size=20480, deadline=600, labels=LABELS),
        "build": build_plan(
            loaded, token="0" * 16, deadline=3600, labels=LABELS, socket_dir=Path("/srv/state/b")
        ),
    }


def engine_on(tmp_path: Path, product: str) -> tuple[Docker | Podman, Shim]:
    shim = Shim(tmp_path, product).install()
    shim.answer("container-create", ID + "\n")
    shim.answer("container-exec", "")
    client = Client(product=product, start=(str(shim.path),), environment={"PATH": "/usr/bin:/bin"})
    if product == "docker":
        return Docker(client=client, endpoint="unix:///run/docker.sock"), shim
    return Podman(client=client, signature_policy=tmp_path / "policy.json", rootless=True), shim


@pytest.mark.parametrize("product", ["docker", "podman"])
@pytest.mark.parametrize(
    "name", ["launch", "launch-network", "launch-copied", "fill", "probe", "resolve", "build"]
)
def test_create_is_the_golden_argv(product: str, name: str, loaded: LoadedImage, tmp_path: Path) -> None:
    engine, shim = engine_on(tmp_path, product)
    assert engine.create(plans(loaded)[name]) == ID
    golden = GOLDEN / f"{product}-{name}.txt"
    assert "\n".join(shim.calls()[0]) + "\n" == golden.read_text()
    assert shim.environment().keys() <= {"PATH", "PWD", "OLDPWD", "SHLVL", "_"}


@pytest.mark.parametrize("product", ["docker", "podman"])
def test_volume_calls_are_the_golden_argv(product: str, tmp_path: Path) -> None:
    engine, shim = engine_on(tmp_path, product)
    name, found = "aib-00000000-run.1-source", f"agent-image-builder.owner={'f' * 32}"
    one = json.dumps({"Name": name, "Driver": "local", "Labels": dict(LABELS), "Options": None})
    for verb, answer in (("create", name), ("inspect", one), ("ls", f"{name}\n"), ("rm", name)):
        shim.answer(f"volume-{verb}", answer)
    engine.create_volume(VolumePlan(name=name, labels=LABELS))
    assert engine.list_volumes(*LABELS[0]) == (name,)
    engine.remove_volume(name)
    assert shim.calls() == [
        ["volume", "create", f"--label={found}", name],
        ["volume", "inspect", "--format={{json .}}", name],
        ["volume", "ls", "--quiet", f"--filter=label={found}"],
        ["volume", "rm", name],
    ]


@pytest.mark.parametrize("product", ["docker", "podman"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"Labels": {"agent-image-builder.owner": "0" * 32}},
        {"Labels": None},
        {"Driver": "somewhere-else"},
        {"Options": {"type": "none", "device": "/home", "o": "bind"}},
    ],
)
def test_a_volume_that_was_there_already_is_not_taken_for_ours(
    product: str, wrong: dict[str, object], tmp_path: Path
) -> None:
    """Docker answers a second create with the first one's volume, whatever it is."""
    engine, shim = engine_on(tmp_path, product)
    as_planned = {"Name": "ours", "Driver": "local", "Labels": dict(LABELS), "Options": {}}
    shim.answer("volume-create", "ours\n")
    shim.answer("volume-inspect", json.dumps(as_planned | wrong))
    with pytest.raises(HostError) as caught:
        engine.create_volume(VolumePlan(name="ours", labels=LABELS))
    assert caught.value.reason == "volume"


@pytest.mark.parametrize(
    "plan",
    [
        VolumePlan(name="/etc", labels=LABELS),
        VolumePlan(name="--force", labels=LABELS),
        VolumePlan(name="a,b", labels=LABELS),
        VolumePlan(name="ours", labels=()),
        VolumePlan(name="ours", labels=(("a", "line\nbreak"),)),
        VolumePlan(name="ours", labels=(("token", SECRET),)),
    ],
)
def test_a_volume_with_a_text_that_could_be_read_otherwise_is_refused(plan: VolumePlan) -> None:
    with pytest.raises(HostError):
        check_volume(plan)


@pytest.mark.parametrize("product", ["docker", "podman"])
def test_exec_is_the_golden_argv(product: str, tmp_path: Path) -> None:
    engine, shim = engine_on(tmp_path, product)
    plan = ExecPlan(
        argv=("--looks-like=a-flag", "two words", ""), user=(1000, 1000), environment=(("TERM", "dumb"),)
    )
    engine.exec(ID, plan)
    engine.exec(ID, plan, stdin=b"x")
    common = ["--user=1000:1000", "--workdir=/workspace", "--env=TERM=dumb", ID, *plan.argv]
    assert shim.calls() == [
        ["container", "exec", *common],
        ["container", "exec", "--interactive", *common],
    ]


@pytest.mark.parametrize("product", ["docker", "podman"])
def test_exec_on_a_terminal_is_the_golden_argv(product: str, tmp_path: Path) -> None:
    engine, _ = engine_on(tmp_path, product)
    plan = ExecPlan(
        argv=("--looks-like=a-flag", "two words", ""),
        user=(1000, 1000),
        environment=(("TERM", "xterm-256color"),),
    )
    argv, environment = engine.terminal_argv(ID, plan)
    assert "\n".join(argv[1:]) + "\n" == (GOLDEN / f"{product}-terminal.txt").read_text()
    assert argv[0] == str(tmp_path / product)
    assert environment.keys() == {"PATH"}


def test_no_key_that_a_person_types_detaches_docker() -> None:
    """Its sequence is longer than any paste by accident, and begins with none of the keys of its default."""
    keys = DETACH_KEYS.split(",")
    assert len(keys) == 32
    assert keys[0] == "ctrl-^"
    assert not {"ctrl-p", "ctrl-q", "ctrl-c", "ctrl-z"} & set(keys)


@pytest.mark.parametrize("container", ["abc", "--privileged", ID + " "])
def test_exec_on_a_terminal_takes_a_whole_id_alone(container: str, tmp_path: Path) -> None:
    engine, _ = engine_on(tmp_path, "docker")
    with pytest.raises(HostError):
        engine.terminal_argv(container, ExecPlan(argv=("true",), user=(1000, 1000)))


@pytest.mark.parametrize(
    "name", ["launch", "launch-network", "launch-copied", "fill", "probe", "resolve", "build"]
)
def test_nothing_dangerous_is_ever_asked_for(name: str, loaded: LoadedImage) -> None:
    plan = plans(loaded)[name]
    arguments = (
        *docker_create.create_arguments(plan),
        *podman_create.create_arguments(
            plan, userns=podman_create.user_namespace(plan.purpose, rootless=True)
        ),
    )
    names = {argument.split("=", 1)[0] for argument in arguments if argument.startswith("--")}
    forbidden = {"--privileged", "--cap-add", "--device", "--publish", "--publish-all", "--pid", "--volume"}
    forbidden |= {
        "--uts",
        "--cgroup-parent",
        "--volumes-from",
        "--env-host",
        "--group-add",
        "--gpus",
        "--pod",
    }
    assert not names & forbidden
    assert {"--pull=never", "--init=false", "--restart=no"} <= set(arguments)


def test_only_the_resolver_has_a_network_and_only_buildkit_is_unconfined(loaded: LoadedImage) -> None:
    for name, plan in plans(loaded).items():
        arguments = docker_create.create_arguments(plan)
        assert ("--network=none" in arguments) == (name != "resolve")
        assert ("--cap-drop=ALL" in arguments) == (name != "build")
        assert ("--security-opt=no-new-privileges" in arguments) == (name != "build")
        assert any("unconfined" in argument for argument in arguments) == (name == "build")


def test_podman_maps_the_operator_away_except_for_buildkit() -> None:
    for purpose in Purpose:
        wanted = "--userns=keep-id:uid=1000,gid=1000" if purpose is Purpose.BUILD else "--userns=nomap"
        assert podman_create.user_namespace(purpose, rootless=True) == (wanted,)
        assert podman_create.user_namespace(purpose, rootless=False) == ()


BAD = {
    "root as PID 1": {"user": (0, 0)},
    "no user": {"user": None},
    "a uid out of range": {"user": (65534, 1)},
    "a writable root": {"read_only_root": False},
    "a network": {"network": Network.ORDINARY},
    "a writable bind": {"private_binds": (PrivateBind(source=Path("/srv"), target="/x"),)},
    "a read-only bind elsewhere": {
        "read_only_binds": (ReadOnlyBind(source=Path("/srv"), target="/opt/builder"),)
    },
    "a network of a probe": {
        "purpose": Purpose.PROBE,
        "read_only_binds": (ReadOnlyBind(source=Path("/srv"), target=NETWORK_PLACE),),
    },
    "a relative source": {"read_only_binds": (ReadOnlyBind(source=Path("srv"), target="/source"),)},
    "an option in a path": {"read_only_binds": (ReadOnlyBind(source=Path("/srv,bind"), target="/source"),)},
    "a parent in a path": {"read_only_binds": (ReadOnlyBind(source=Path("/srv/../etc"), target="/source"),)},
    "a colon in a tmpfs": {"tmpfs": (Tmpfs(path="/x:exec", size=1),)},
    "a tmpfs without size": {"tmpfs": (Tmpfs(path="/x", size=0),)},
    "two mounts at one place": {"tmpfs": (Tmpfs(path="/source", size=1),)},
    "a volume over a mount": {"volumes": ("/source",)},
    "a name with a space": {"name": "a b"},
    "a name like a flag": {"name": "--privileged"},
    "a label with a newline": {"labels": (("a", "b\nc"),)},
    "a label like a flag": {"labels": (("--x", "b"),)},
    "a label twice": {"labels": (("a", "b"), ("a", "c"))},
    "a variable with an equals sign": {"environment": (("A=B", "c"),)},
    "a variable twice": {"environment": (("A", "b"), ("A", "c"))},
    "a credential by its name": {"environment": (("ANTHROPIC_API_KEY", "dummy"),)},
    "a credential by its name's words": {"environment": (("my_service_token", "dummy"),)},
    "a credential by its shape": {"environment": (("HARMLESS", SECRET),)},
    "a credential in a label": {"labels": (("a", SECRET),)},
    "a zero byte": {"arguments": ("a\0b",)},
    "an argument too long for Linux": {"arguments": ("a" * (128 * 1024),)},
    "a relative entry point": {"entrypoint": ("sh",)},
    "a host name with a slash": {"hostname": "a/b"},
    "no memory": {"limits": Limits(cpus=1, memory=0, pids=1)},
    "no processes": {"limits": Limits(cpus=1, memory=1 << 30, pids=0)},
    "a negative cpu": {"limits": Limits(cpus=-1, memory=1 << 30, pids=1)},
    "a working directory elsewhere": {"working_dir": "home"},
    "a root group": {"extra_groups": (-1,)},
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_a_dangerous_plan_never_reaches_an_engine(what: str, loaded: LoadedImage, tmp_path: Path) -> None:
    plan = replace(launch_plan(loaded), **BAD[what])  # type: ignore[arg-type]
    for product in ("docker", "podman"):
        engine, shim = engine_on(tmp_path / product, product)
        with pytest.raises(HostError, match="not allowed") as caught:
            engine.create(plan)
        assert SECRET not in str(caught.value)
        assert shim.calls() == []


BAD_EXEC = {
    "nothing": {"argv": ()},
    "an empty program": {"argv": ("",)},
    "a zero byte": {"argv": ("a", "b\0")},
    "a bad variable": {"environment": (("A B", "c"),)},
    "a credential by its name": {"environment": (("GITHUB_TOKEN", "dummy"),)},
    "a credential by its shape": {"environment": (("HARMLESS", SECRET),)},
    "a bad user": {"user": (-1, 0)},
    "a relative directory": {"working_dir": "x"},
}


@pytest.mark.parametrize("what", sorted(BAD_EXEC))
def test_a_dangerous_exec_never_reaches_an_engine(what: str, tmp_path: Path) -> None:
    plan = replace(ExecPlan(argv=("true",), user=(1000, 1000)), **BAD_EXEC[what])  # type: ignore[arg-type]
    for product in ("docker", "podman"):
        engine, shim = engine_on(tmp_path / product, product)
        with pytest.raises(HostError):
            engine.exec(ID, plan)
        assert shim.calls() == []


@given(st.text(max_size=80))
def test_only_a_full_id_names_a_container(text: str) -> None:
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        assert container_id(text) == text
    else:
        with pytest.raises(HostError):
            container_id(text)


@given(values=st.lists(st.text(max_size=30), max_size=4), name=st.text(max_size=20))
def test_no_text_of_a_plan_becomes_a_flag(values: list[str], name: str, loaded: LoadedImage) -> None:
    """Whatever the command and the values are, the options in front of the image stay the same ones."""
    plan = replace(
        launch_plan(loaded),
        arguments=tuple(values),
        environment=(("A", name),),
    )
    try:
        check_plan(plan)
    except HostError:
        return
    plain = docker_create.create_arguments(replace(plan, arguments=(), environment=(("A", ""),)))
    arguments = docker_create.create_arguments(plan)
    end = arguments.index(loaded.id)
    assert [text.split("=", 1)[0] for text in arguments[:end]] == [
        text.split("=", 1)[0] for text in plain[: plain.index(loaded.id)]
    ]
    assert arguments[end + 1 :] == tuple(values)
