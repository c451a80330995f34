"""What `builder show --as` prints, typed at Docker and at Compose: it runs, as hard as the plan says."""

from __future__ import annotations

import json
import os
import pty
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.real.spine import Spine

pytestmark = pytest.mark.real

LOOK = (
    "id -u; stat -c %u /proc/1; cat /proc/1/comm; ls /sys/class/net; pwd; echo $HOME;"
    " grep -E '^(CapEff|NoNewPrivs)' /proc/self/status; touch /new 2>/dev/null || echo read-only;"
    " touch new ~/new && ls /workspace; claude --version"
)
SEEN = [
    *("1000", "997", "catatonit", "lo", "/workspace", "/home/agent"),
    *("CapEff:\t0000000000000000", "NoNewPrivs:\t1", "read-only", "new"),
]


def shown(spine: Spine, form: str) -> str:
    done = spine.builder("show", "--as", form)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def name(spine: Spine) -> Iterator[str]:
    """What the texts call the container; it is there neither before nor after."""
    found: str = yaml.safe_load(shown(spine, "compose"))["services"]["agent"]["container_name"]

    def remove() -> None:
        subprocess.run(["docker", "rm", "--force", "--volumes", found], capture_output=True, check=False)

    remove()
    yield found
    remove()


@pytest.fixture
def loaded(spine: Spine) -> None:
    """The image is in Docker's store: a launch put it there."""
    done = spine.builder("run", "--", "true")
    assert done.returncode == 0, done.stderr


def typed(script: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-euc", script], cwd=where, capture_output=True, text=True, timeout=300, check=False
    )


def in_a_terminal(script: str) -> str:
    """What a script says whose standard streams are a terminal."""
    said = bytearray()

    def read(descriptor: int) -> bytes:
        chunk = os.read(descriptor, 4096)
        said.extend(chunk)
        return chunk

    status = pty.spawn(["sh", "-euc", script], read, lambda _: b"")
    assert os.waitstatus_to_exitcode(status) == 0, said.decode()
    return said.decode().replace("\r", "")


def settings_of(name: str) -> dict[str, object]:
    """Docker's own account of how a container is confined."""
    done = subprocess.run(
        ["docker", "container", "inspect", name], capture_output=True, text=True, check=True
    )
    (found,) = json.loads(done.stdout)
    host, own = found["HostConfig"], found["Config"]
    return {
        **{key: host[key] for key in ("Memory", "MemorySwap", "NanoCpus", "PidsLimit", "ShmSize", "Tmpfs")},
        **{key: host[key] for key in ("CapDrop", "ReadonlyRootfs", "NetworkMode", "IpcMode", "Privileged")},
        "added": host["CapAdd"] or [],
        "mounted": [host["Binds"] or [], host["Devices"] or [], found["Mounts"]],
        # Compose says it with a colon; both are the same setting.
        "security": [option.removesuffix(":true") for option in host["SecurityOpt"]],
        "logs": host["LogConfig"]["Type"],
        "restart": host["RestartPolicy"]["Name"] or "no",
        "image": found["Image"],
        **{
            key: own[key]
            for key in ("User", "Cmd", "Entrypoint", "OpenStdin", "Tty", "Hostname", "WorkingDir")
        },
        "environment": sorted(own["Env"]),
    }


def test_the_commands_for_docker(spine: Spine, loaded: None, name: str, tmp_path: Path) -> None:
    script = shown(spine, "docker")
    last = script.rindex("docker container exec")
    made, agent = script[:last], script[last:]
    done = typed(made, tmp_path)
    assert done.returncode == 0, done.stderr
    # As the same user in the same terminal; the agent gives way to a look around.
    command = agent[: agent.index("/usr/local/bin/claude")]
    said = in_a_terminal(command + f"sh -c {shlex.quote(LOOK)}")
    assert said.split("\n")[: len(SEEN)] == SEEN
    assert "(Claude Code)" in said
    assert in_a_terminal(agent.replace("/usr/local/bin/claude", "/usr/local/bin/claude --version"))


def test_the_compose_file(spine: Spine, loaded: None, name: str, tmp_path: Path) -> None:
    compose = shutil.which("docker-compose")
    assert compose is not None, "Debian's docker-compose is missing: tools/test installs it"
    text = shown(spine, "compose")
    (tmp_path / "compose.yaml").write_text(text)
    done = typed(f"{compose} --file compose.yaml up --detach", tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in text.splitlines() if "docker compose exec" in line]
    within = line[line.index("exec") + len("exec") : line.index("/usr/local/bin/claude")]
    looked = typed(f"{compose} --file compose.yaml exec -T {within} sh -c {shlex.quote(LOOK)}", tmp_path)
    assert looked.returncode == 0, looked.stderr
    assert looked.stdout.split("\n")[: len(SEEN)] == SEEN
    down = typed(f"{compose} --file compose.yaml down", tmp_path)
    assert down.returncode == 0, down.stderr


def test_compose_and_docker_make_the_same_container(
    spine: Spine, loaded: None, name: str, tmp_path: Path
) -> None:
    script = shown(spine, "docker")
    assert typed(script[: script.index("docker container start")], tmp_path).returncode == 0
    by_docker = settings_of(name)
    assert by_docker["CapDrop"] == ["ALL"]
    assert by_docker["NetworkMode"] == "none"
    assert by_docker["mounted"] == [[], [], []]
    subprocess.run(["docker", "rm", name], capture_output=True, check=True)
    (tmp_path / "compose.yaml").write_text(shown(spine, "compose"))
    done = typed("docker-compose --file compose.yaml up --no-start", tmp_path)
    assert done.returncode == 0, done.stderr
    assert settings_of(name) == by_docker
