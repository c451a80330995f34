"""Each dangerous setting through every surface: it is refused, cannot be said, or is without effect.

A row is a setting, a column a surface. A surface that is not in the table, or a setting without an answer on
one of them, fails a test.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from backend.containers import ContainerPlan, ExecPlan, InspectedContainer
from backend.engines import calls, docker_create, podman_create
from backend.engines import docker_documents as docker
from backend.engines import podman_documents as podman
from backend.engines.select import connect
from backend.ownership import Owner
from backend.plan import plan_launch
from backend.requests import LaunchRequest
from builder.cli import main_inner
from builder.cli.arguments import parse_arguments
from builder.cli.options.parser import BadUsage
from builder.cli.verbs import VERBS
from builder.settings.settings_file import parse_settings
from images.basefacts import check_base_settings
from images.config import parse_config
from images.errors import ExitCode, HostError, LaunchReason, LaunchRefused, UsageError
from provenance.layout import open_image
from provenance.policy import load_policy
from provenance.verify import VerifiedImage
from tests.fakes.admitted import ENVIRONMENT, STATE, admitted_of, request
from tests.fakes.command_lines import LEAST_WORDS
from tests.fakes.layouts import make_image
from tests.fakes.locks import BUILDER_TOML
from tests.fakes.policies import HEAD, TRUST, write_policy
from tests.unit.backend.test_engine_documents import recorded
from tests.unit.backend.test_select import environment as operators
from tests.unit.backend.test_select import install_docker, install_podman

OWNER = Owner(STATE, "c" * 32)
SECRET = "dummy-secret-of-a-proxy"


@dataclass(frozen=True)
class Setting:
    """``flags``: as the engines' clients spell it. ``inspect``: how the two engines would tell that it is on.

    ``config``: the same where it tells of the container's own configuration. ``image``: as an image's
    configuration would ask for it.
    """

    flags: tuple[str, ...]
    docker: dict[str, Any] = field(default_factory=dict)
    podman: dict[str, Any] = field(default_factory=dict)
    image: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


def host(**changes: Any) -> dict[str, dict[str, Any]]:
    return {"docker": changes, "podman": changes}


DANGEROUS: dict[str, Setting] = {
    "privileged": Setting(("--privileged",), **host(Privileged=True)),
    "cap_add": Setting(("--cap-add=ALL",), **host(CapAdd=["SYS_ADMIN"])),
    "capabilities": Setting(
        ("--cap-add=NET_ADMIN",), docker={"CapDrop": []}, podman={"CapAdd": ["CAP_NET_ADMIN"]}
    ),
    "device": Setting(("--device=/dev/kvm",), **host(Devices=[{"PathOnHost": "/dev/kvm"}])),
    "gpus": Setting(("--gpus=all",), docker={"DeviceRequests": [{"Count": -1}]}),
    "device_cgroup_rule": Setting(("--device-cgroup-rule=a",), docker={"DeviceCgroupRules": ["c 1:* rwm"]}),
    "mount": Setting(("--mount=type=bind,source=/,target=/host",)),
    "volume": Setting(
        ("-v=/:/host", "--volume=/:/host"), docker={"Binds": ["/:/host"]}, image={"Volumes": {"/data": {}}}
    ),
    "volumes_from": Setting(("--volumes-from=other",), **host(VolumesFrom=["other"])),
    "network": Setting(("--network=host", "--net=host"), **host(NetworkMode="host")),
    "pid": Setting(("--pid=host",), **host(PidMode="host")),
    "ipc": Setting(("--ipc=host",), **host(IpcMode="host")),
    "uts": Setting(("--uts=host",), **host(UTSMode="host")),
    "userns": Setting(("--userns=host",), **host(UsernsMode="host")),
    "cgroup_parent": Setting(("--cgroup-parent=/x", "--cgroupns=host"), **host(CgroupParent="/x")),
    "publish": Setting(
        ("-p=80:80", "--publish=80:80"),
        **host(PortBindings={"80/tcp": [{"HostPort": "80"}]}),
        image={"ExposedPorts": {"80/tcp": {}}},
    ),
    "publish_all": Setting(("-P", "--publish-all"), **host(PublishAllPorts=True)),
    "env": Setting(
        ("-e=LD_PRELOAD=/x", "--env=LD_PRELOAD=/x", "--env-file=/x"),
        config={"Env": ["LD_PRELOAD=/workspace/x.so"]},
        image={"Env": ["LD_PRELOAD=/workspace/x.so"]},
    ),
    "user_root": Setting(("-u=0", "--user=0:0"), config={"User": "0:0"}, image={"User": "0:0"}),
    "group_add": Setting(("--group-add=0",), **host(GroupAdd=["0"])),
    "seccomp": Setting(
        ("--security-opt=seccomp=unconfined",),
        **host(SecurityOpt=["no-new-privileges", "seccomp=unconfined"]),
    ),
    "apparmor": Setting(
        ("--security-opt=apparmor=unconfined",),
        **host(SecurityOpt=["no-new-privileges", "apparmor=unconfined"]),
    ),
    "selinux_label": Setting(
        ("--security-opt=label=disable",), **host(SecurityOpt=["no-new-privileges", "label=disable"])
    ),
    "systempaths": Setting(
        ("--security-opt=systempaths=unconfined", "--security-opt=unmask=ALL"),
        **host(SecurityOpt=["no-new-privileges", "systempaths=unconfined"]),
    ),
    "new_privileges": Setting(("--security-opt=no-new-privileges=false",), **host(SecurityOpt=[])),
    "pull": Setting(("--pull=always",)),
    "restart": Setting(("--restart=always",), **host(RestartPolicy={"Name": "always"})),
    "ulimit": Setting(("--ulimit=nproc=-1",), docker={"Ulimits": [{"Name": "nproc", "Hard": -1}]}),
    "sysctl": Setting(("--sysctl=net.ipv4.ip_forward=1",), docker={"Sysctls": {"net.ipv4.ip_forward": "1"}}),
    "add_host": Setting(("--add-host=api:10.0.0.1",), **host(ExtraHosts=["api:10.0.0.1"])),
    "dns": Setting(("--dns=10.0.0.1",), **host(Dns=["10.0.0.1"])),
    "links": Setting(("--link=other:alias",), **host(Links=["other:alias"])),
    "runtime": Setting(("--runtime=/x",)),
    "entrypoint": Setting(
        ("--entrypoint=/bin/sh",), config={"Entrypoint": ["/bin/sh"]}, image={"Entrypoint": ["/bin/sh"]}
    ),
    "command": Setting((), config={"Cmd": ["sleep", "60"]}),
    "workdir": Setting(("--workdir=/host",), config={"WorkingDir": "/host"}),
    "healthcheck": Setting(
        ("--health-cmd=/x",),
        config={"Healthcheck": {"Test": ["CMD", "/x"]}},
        image={"Healthcheck": {"Test": ["CMD", "/x"]}},
    ),
    "onbuild": Setting((), image={"OnBuild": ["RUN /x"]}),
    "read_only": Setting(("--read-only=false",), **host(ReadonlyRootfs=False)),
    "tmpfs": Setting(("--tmpfs=/opt",), **host(Tmpfs={"/opt": "rw"})),
    "shm_size": Setting(("--shm-size=100g",)),
    "init": Setting(("--init",), docker={"Init": True}),
    "label": Setting(
        ("--label=agent-image-builder.state=x",),
        config={"Labels": {"agent-image-builder.state": "x"}},
        image={"Labels": {"agent-image-builder.state": "x"}},
    ),
    "name": Setting(("--name=other",)),
    "log_driver": Setting(("--log-driver=syslog",), **host(LogConfig={"Type": "syslog"})),
    "memory": Setting(("--memory=0", "--memory-swap=-1"), **host(Memory=1 << 50)),
    "pids_limit": Setting(("--pids-limit=-1",), **host(PidsLimit=1 << 20)),
    "cpus": Setting(("--cpus=0",), **host(NanoCpus=10**12)),
    "oom": Setting(("--oom-kill-disable",), **host(OomKillDisable=True)),
    "oom_score": Setting(("--oom-score-adj=-1000",), **host(OomScoreAdj=-1000)),
    "pod": Setting(("--pod=x", "--rootfs=/", "--systemd=always", "--http-proxy=true")),
    "socket": Setting(("--mount=type=bind,source=/var/run/docker.sock,target=/s",)),
}
KEYS = sorted(
    {*DANGEROUS, *(flag.lstrip("-").split("=")[0] for one in DANGEROUS.values() for flag in one.flags)}
)
FLAGS = sorted({flag for one in DANGEROUS.values() for flag in one.flags})


# files: builder.toml, policy.toml, settings.toml


def plain(key: str) -> bool:
    """A key that a file may have is another thing there; the tests of that file hold its values."""
    return key not in {"user", "env", "v", "label", "e", "p", "u", "P", "name"}


VALUES = ("true", '["/:/host"]')


@pytest.mark.parametrize("table", ["", "[image]", "[run]", "[node]", "[agents]", "[toolchain]"])
@pytest.mark.parametrize("key", [key for key in KEYS if plain(key)])
def test_no_table_of_builder_toml_knows_it(key: str, table: str) -> None:
    for value in VALUES:
        line = f'"{key}" = {value}\n'
        if not table:
            text = BUILDER_TOML.replace("schema = 1\n", f"schema = 1\n{line}")
        elif table in BUILDER_TOML:
            text = BUILDER_TOML.replace(f"{table}\n", f"{table}\n{line}")
        else:
            text = f"{BUILDER_TOML}\n{table}\n{line}"
        assert line in text
        with pytest.raises(UsageError):
            parse_config(text, where="builder.toml")


@pytest.mark.parametrize(
    "user", ['"root"', '{ name = "root", uid = 0, gid = 0 }', '{ name = "a", uid = 997, gid = 997 }']
)
def test_builder_toml_cannot_make_the_agent_root_or_the_watch(user: str) -> None:
    text = BUILDER_TOML.replace('user = { name = "agent", uid = 1000, gid = 1000 }', f"user = {user}")
    assert text != BUILDER_TOML
    with pytest.raises(UsageError):
        parse_config(text, where="builder.toml")


@pytest.mark.parametrize("key", [key for key in KEYS if key not in {"network"}])
@pytest.mark.parametrize("place", ["top", "trust", "enable"])
def test_no_table_of_policy_toml_knows_it(key: str, place: str, tmp_path: Path) -> None:
    line = f'"{key}" = true\n'
    text = {
        "top": HEAD + line + TRUST,
        "trust": HEAD + TRUST.replace("[[trust]]\n", f"[[trust]]\n{line}", 1),
        "enable": f"{HEAD}{TRUST}\n[enable]\n{line}",
    }[place]
    with pytest.raises(UsageError):
        load_policy(write_policy(tmp_path / "config", text))


def test_policy_toml_s_network_is_a_ceiling_and_no_network(tmp_path: Path) -> None:
    """The one name that they share: it is read as a list of host:port, and grants nothing by itself."""
    for value in ("true", '"host"', '["host"]', '["0.0.0.0/0:443"]'):
        with pytest.raises(UsageError):
            load_policy(write_policy(tmp_path / "config", f"{HEAD}network = {value}\n{TRUST}"))


@pytest.mark.parametrize("value", ["true", '"host"', "[]"])
@pytest.mark.parametrize("key", KEYS)
def test_settings_toml_does_not_know_it(key: str, value: str) -> None:
    with pytest.raises(UsageError):
        parse_settings(f'schema = 1\n"{key}" = {value}\n', where="settings.toml")


# the request


@pytest.mark.parametrize("name", list(DANGEROUS))
def test_a_request_has_no_field_for_it(name: str) -> None:
    own = {item.name for item in dataclasses.fields(LaunchRequest)}
    if name == "command":  # what runs inside, as the agent: not the container's command
        assert name in own
        return
    assert name not in own
    with pytest.raises(TypeError):
        request(**{name: True})
    with pytest.raises((TypeError, AttributeError)):
        setattr(request(), name, True)


PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "command": lambda flag: {"command": (flag, flag)},
    "argument": lambda flag: {"command": ("sh", flag)},
    "agent-argument": lambda flag: {"command": (), "agent": "pi", "arguments": (flag,)},
    "agent": lambda flag: {"command": (), "agent": flag},
    "run": lambda flag: {"run_id": flag},
    "scope": lambda flag: {"scope": flag},
    "allow": lambda flag: {"allow": (flag,)},
}


@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("flag", FLAGS)
def test_a_value_that_looks_like_a_flag_is_refused_or_stays_a_value(
    verified: VerifiedImage, flag: str, place: str
) -> None:
    admitted = admitted_of(verified)
    asked = request(**PLACES[place](flag))
    if place in ("agent", "run", "scope", "allow"):
        with pytest.raises((UsageError, LaunchRefused)):
            plan_launch(admitted, asked, OWNER)
        return
    plan = plan_launch(admitted, asked, OWNER)
    untouched = plan_launch(admitted, request(), OWNER)
    assert plan.container == untouched.container
    assert created(plan.container) == created(untouched.container)
    # The exec's own options end where the container's id begins.
    assert before(plan.command) == before(untouched.command)


def created(plan: ContainerPlan) -> tuple[tuple[str, ...], ...]:
    return (
        docker_create.create_arguments(plan),
        podman_create.create_arguments(plan, userns=("--userns=nomap",)),
    )


def before(plan: ExecPlan) -> tuple[str, ...]:
    arguments = calls.exec_arguments("d" * 64, plan, stdin=False)
    return arguments[: arguments.index("d" * 64)]


# the image's configuration

IMAGES = [name for name, one in DANGEROUS.items() if one.image]
GOOD = {"User": "1000:1000", "Entrypoint": ["/usr/bin/catatonit", "--"], "Env": ENVIRONMENT}


@pytest.mark.parametrize(
    "name", [name for name in IMAGES if name not in ("user_root", "entrypoint", "publish")]
)
def test_a_base_that_asks_for_it_is_refused(name: str, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    base = open_image(layout, make_image(layout, config=DANGEROUS[name].image))
    with pytest.raises(UsageError):
        check_base_settings(base.settings)


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_that_asks_for_it_is_refused_or_not_heard(
    name: str, verified: VerifiedImage, tmp_path: Path
) -> None:
    """As if it were proved: user and entry point are refused, and nothing else reaches what engines are told.

    That an image's configuration is its lock's is a check of its proof, and of the build before:
    tests/unit/builder/test_image_check.py.
    """
    layout = tmp_path / "layout"
    asking = open_image(layout, make_image(layout, config={**GOOD, **DANGEROUS[name].image}))
    admitted = admitted_of(dataclasses.replace(verified, image=asking))
    if name in ("user_root", "entrypoint", "env"):  # without its own variables it has no HOME
        with pytest.raises(LaunchRefused) as caught:
            plan_launch(admitted, request(), OWNER)
        assert caught.value.reason == LaunchReason.IMAGE_SETTINGS
        return
    untouched = plan_launch(admitted_of(verified), request(), OWNER).container
    plan = plan_launch(admitted, request(), OWNER).container
    assert dataclasses.replace(plan, image=untouched.image) == untouched
    for arguments in created(plan):
        assert "--no-healthcheck" in arguments
    assert "--image-volume=ignore" in created(plan)[1]


# the command line


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_takes_it_as_a_flag(verb: str) -> None:
    for flag in FLAGS:
        spellings = [[verb, flag], [verb, *flag.split("=", 1)]] if verb == "run" else [[verb, flag]]
        for argv in spellings:
            with pytest.raises(BadUsage):
                parse_arguments(argv)


def test_behind_the_dashes_it_is_the_command_s_own() -> None:
    for flag in FLAGS:
        assert parse_arguments(["run", "--", flag, "x"]).tail == [flag, "x"]


# the process environment and the clients' own files

AMBIENT = {
    "BUILDKIT_HOST": "tcp://10.0.0.1:1234",
    "BUILDX_BUILDER": "other",
    "CONTAINERS_CONF": "/operator/containers.conf",
    "CONTAINERS_CONF_OVERRIDE": "/operator/override.conf",
    "CONTAINERS_REGISTRIES_CONF": "/operator/registries.conf",
    "CONTAINERS_STORAGE_CONF": "/operator/storage.conf",
    "CONTAINER_CONNECTION": "elsewhere",
    "CONTAINER_HOST": "ssh://root@10.0.0.1/run/podman.sock",
    "DOCKER_API_VERSION": "1.12",
    "DOCKER_CERT_PATH": "/operator/certs",
    "DOCKER_CLI_PLUGIN_EXTRA_DIRS": "/operator/plugins",
    "DOCKER_CONTENT_TRUST": "1",
    "DOCKER_CONTENT_TRUST_SERVER": "https://10.0.0.1",
    "DOCKER_DEFAULT_PLATFORM": "linux/s390x",
    "DOCKER_TLS_VERIFY": "1",
    "HTTPS_PROXY": f"http://user:{SECRET}@10.0.0.1:3128",
    "HTTP_PROXY": f"http://user:{SECRET}@10.0.0.1:3128",
    "LD_PRELOAD": "/operator/x.so",
    "PODMAN_IGNORE_CGROUPSV1_WARNING": "1",
    "PODMAN_USERNS": "host",
    "REGISTRY_AUTH_FILE": "/operator/auth.json",
    "STORAGE_DRIVER": "vfs",
    "STORAGE_OPTS": "overlay.mount_program=/operator/x",
    "TMPDIR": "/operator",
    "XDG_CONFIG_HOME": "/operator/.config",
    "http_proxy": f"http://user:{SECRET}@10.0.0.1:3128",
}
CLIENTS_SEE = {
    "docker": {"DOCKER_CONFIG", "DOCKER_HOST", "HOME", "LC_ALL", "PATH"},
    "podman": {
        "CONTAINERS_CONF",
        "CONTAINERS_REGISTRIES_CONF",
        "CONTAINERS_STORAGE_CONF",
        "HOME",
        "LC_ALL",
        "PATH",
        "XDG_RUNTIME_DIR",
    },
}
SHELLS_OWN = {"PWD", "SHLVL", "_", "OLDPWD"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "bin"
    made.mkdir()
    for name, path in (("sh", "/bin/sh"), ("cat", "/bin/cat"), ("env", "/usr/bin/env")):
        (made / name).symlink_to(path)
    return made


@pytest.mark.parametrize("product", ["docker", "podman"])
@pytest.mark.parametrize("name", [*AMBIENT, "all of them"])
def test_the_environment_does_not_reach_an_engine_s_client(
    folder: Path, tmp_path: Path, product: str, name: str
) -> None:
    shim = install_docker(folder) if product == "docker" else install_podman(folder)
    given = AMBIENT if name == "all of them" else {name: AMBIENT[name]}
    home = tmp_path / "client"
    connect(product, home, operators(folder, **(given | {"PATH": str(folder)})))
    seen = {key: value for key, value in shim.environment().items() if key not in SHELLS_OWN}
    assert set(seen) == CLIENTS_SEE[product]
    said = json.dumps([seen, shim.calls()])
    assert "/operator" not in said.replace("/home/operator", "")
    assert SECRET not in said
    assert "10.0.0.1" not in said


@pytest.mark.parametrize(
    "address",
    [
        "tcp://10.0.0.1:2375",
        f"tcp://user:{SECRET}@10.0.0.1:2376",
        "ssh://root@10.0.0.1",
        "npipe:////./pipe/docker_engine",
        "fd://",
        "unix://relative.sock",
        "unix:///a\nb",
    ],
)
def test_docker_host_elsewhere_is_refused_without_being_repeated(
    folder: Path, tmp_path: Path, address: str
) -> None:
    shim = install_docker(folder)
    with pytest.raises(HostError) as caught:
        connect("docker", tmp_path / "client", operators(folder, DOCKER_HOST=address, PATH=str(folder)))
    assert caught.value.reason == "engine-remote"
    assert SECRET not in str(caught.value)
    assert shim.calls() == []


def test_the_library_s_switch_that_prints_environments_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for verb in VERBS:
        code = main_inner(
            [verb, *LEAST_WORDS.get(verb, ())], {"HOME": str(tmp_path), "PYTHON_ON_WHALES_DEBUG": "1"}
        )
        assert code in (ExitCode.HOST, ExitCode.RUN_FAILED), verb
    assert "unset PYTHON_ON_WHALES_DEBUG" in capsys.readouterr().err


OPERATORS_FILES = {
    ".docker/config.json": json.dumps(
        {
            "proxies": {"default": {"httpProxy": f"http://user:{SECRET}@10.0.0.1:3128"}},
            "credsStore": "operator",
            "detachKeys": "ctrl-x",
            "cliPluginsExtraDirs": ["/operator/plugins"],
            "HttpHeaders": {"X-Operator": SECRET},
            "currentContext": "default",
        }
    ),
    ".config/containers/containers.conf": "\n".join(
        (
            "[containers]",
            'env = ["LD_PRELOAD=/operator/x.so"]',
            'volumes = ["/:/operator"]',
            'devices = ["/dev/kvm"]',
            "privileged = true",
            'default_capabilities = ["SYS_ADMIN"]',
            'seccomp_profile = "unconfined"',
            'netns = "host"',
            'userns = "host"',
            "[engine]",
            'hooks_dir = ["/operator/hooks"]',
            'runtime = "/operator/runtime"',
        )
    ),
    ".config/containers/storage.conf": '[storage]\ndriver = "vfs"\n',
    ".config/containers/mounts.conf": "/operator:/run/secrets\n",
    ".config/containers/policy.json": '{"default":[{"type":"reject"}]}',
    ".config/containers/registries.conf": 'unqualified-search-registries = ["10.0.0.1"]\n',
}


@pytest.mark.parametrize("product", ["docker", "podman"])
@pytest.mark.parametrize("again", [False, True], ids=["first", "slipped into ours"])
def test_the_operator_s_client_files_are_not_read(
    folder: Path, tmp_path: Path, product: str, again: bool
) -> None:
    """They lie in his HOME, or were slipped into our own client directory: each connect writes it anew."""
    home, ours = tmp_path / "home", tmp_path / "client"
    for name, text in OPERATORS_FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    shim = install_docker(folder) if product == "docker" else install_podman(folder)
    given = operators(folder, HOME=str(home), PATH=str(folder), DOCKER_HOST="unix:///run/d.sock")
    connect(product, ours, given)
    if again:
        for path in (ours / product).iterdir():
            if path.is_file():
                path.write_text(OPERATORS_FILES[".config/containers/containers.conf"])
        connect(product, ours, given)
    seen = shim.environment()
    named = [seen[key] for key in seen if key.endswith(("_CONF", "_CONFIG")) or key == "HOME"]
    assert named
    assert all(text.startswith(str(ours)) for text in named)
    for path in ours.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert "/operator" not in text
            assert SECRET not in text
            assert "10.0.0.1" not in text
            assert "vfs" not in text


# an engine that does it all the same

TELLING = [
    (product, name)
    for name, one in DANGEROUS.items()
    for product in ("docker", "podman")
    if getattr(one, product) or one.config
]


@pytest.mark.parametrize(("product", "name"), TELLING)
def test_an_engine_that_does_it_unasked_tells_so(product: str, name: str) -> None:
    """In its own document: what is told differs, and read-back compares everything that is told."""
    one = DANGEROUS[name]
    good, found = told(product, {}, {}), told(product, getattr(one, product), one.config)
    assert good != found
    told_apart = {
        item.name
        for item in dataclasses.fields(InspectedContainer)
        if getattr(good, item.name) != getattr(found, item.name)
    }
    assert told_apart <= COMPARED, told_apart


# What backend.readback.compare_created compares; tests/unit/backend/test_readback.py holds each one.
COMPARED = {
    "capabilities_added",
    "capabilities_dropped",
    "command",
    "cpus",
    "devices",
    "entrypoint",
    "environment",
    "extra_groups",
    "ipc_mode",
    "labels",
    "log_driver",
    "memory",
    "mounts",
    "network_mode",
    "pid_mode",
    "pids",
    "privileged",
    "published_ports",
    "read_only_root",
    "security_options",
    "tmpfs",
    "unplanned",
    "user",
    "userns_mode",
    "working_dir",
}


def told(product: str, host_config: dict[str, Any], config: dict[str, Any]) -> InspectedContainer:
    name = {"docker": "docker-20.10-container", "podman": "podman-4.3-container"}[product]
    document = recorded(name)
    document["HostConfig"].update(host_config)
    document["Config"].update(config)
    if product == "docker":
        return docker.container_of(docker.read_document(docker.ContainerDocument, document, "inspect"))
    return podman.container_of(docker.read_document(podman.ContainerDocument, document, "inspect"))
