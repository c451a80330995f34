"""An engine that ends under a command and comes back: told as it is, and one recovery leaves nothing.

The engine is a Docker daemon of the test's own, beside the one that others use.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.agent_command import Output
from backend.engines.protocol import Engine
from backend.engines.select import connect
from backend.launch import launch
from backend.recovery import RecoveryPlan, recover
from images.errors import HostError
from tests.fakes.proved import World
from tests.real.ground import Ground, ground_on, open_journal, world

__all__ = ["world"]

pytestmark = pytest.mark.real

SECONDS = 60.0
NOBODY = 65534


@dataclass
class Daemon:
    """``dockerd`` over a ``containerd``, as distributions start them, with all that is theirs below ``root``.

    In a network namespace of its own: without a bridge to make it would remove that of the other daemon.
    """

    root: Path
    containerd: subprocess.Popen[bytes] | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"unix://{self.root}/docker.sock"

    def open(self) -> None:
        (self.root / "containerd.toml").write_text(
            f'version = 2\nroot = "{self.root}/images"\nstate = "{self.root}/tasks"\n'
            f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\naddress = "{self.root}/containerd.sock"\n'
        )
        self.containerd = self._spawn("containerd", f"--config={self.root}/containerd.toml")
        self.start()

    def start(self) -> None:
        self.process = self._spawn(
            "unshare",
            *("--net", "--", "dockerd"),
            *(f"--host={self.endpoint}", f"--containerd={self.root}/containerd.sock"),
            *(f"--data-root={self.root}/data", f"--exec-root={self.root}/exec", f"--pidfile={self.root}/pid"),
            *("--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"),
        )
        until = time.monotonic() + SECONDS
        while not self._answers():
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < until, self.told()
            time.sleep(0.2)

    def _spawn(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = shutil.which(name)
        assert program is not None, f"{name} is not on the PATH"
        with (self.root / "log").open("ab") as log:
            return subprocess.Popen((program, *arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _answers(self) -> bool:
        argv = ("docker", "--host", self.endpoint, "version")
        return subprocess.run(argv, capture_output=True, timeout=SECONDS, check=False).returncode == 0

    def told(self) -> str:
        return (self.root / "log").read_text()[-3000:]

    def end(self, number: int) -> None:
        """By a signal, and wait for it."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(SECONDS)
            self.process = None

    def close(self) -> None:
        self.end(signal.SIGTERM)
        if self.containerd is not None:
            self.containerd.terminate()
            self.containerd.wait(SECONDS)
        # The daemon mounts its own folder once more on itself.
        mounted = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
        for place in sorted((one for one in mounted if one.startswith(f"{self.root}/")), reverse=True):
            subprocess.run(("umount", "--lazy", place), check=True, timeout=SECONDS)


@pytest.fixture(scope="module")
def daemon(engine_name: str) -> Iterator[Daemon]:
    assert engine_name == "docker", "only a rootful daemon can be started beside another here"
    root = Path(f"/run/aib-restart-{os.getpid()}")  # the path of a socket may not be long
    root.mkdir(mode=0o700)
    made = Daemon(root)
    try:
        made.open()
        yield made
    finally:
        made.close()
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def own(daemon: Daemon, world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    environment = {"PATH": os.environ["PATH"], "DOCKER_HOST": daemon.endpoint}
    engine: Engine = connect("docker", tmp_path_factory.mktemp("client"), environment)
    with ground_on(world, engine, tmp_path_factory) as made:
        yield made


def recovered(ground: Ground) -> RecoveryPlan:
    with open_journal(ground) as journal:
        return recover(
            ground.engine, journal, ground.root / "leases", ground.state_id, lambda: datetime.now(UTC)
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_engine_that_restarts_under_a_command(daemon: Daemon, own: Ground, number: int) -> None:
    """``systemctl restart docker``, and one that was killed: R2."""
    request = own.request("sh", "-c", "echo ready; sleep 50")

    def restart(chunk: bytes) -> None:
        if b"ready" in chunk:
            daemon.end(number)

    with own.control() as controller, pytest.raises(HostError) as told:
        launch(controller, own.admitted, request, Output(on_stdout=restart))
    assert told.value.hint
    with open_journal(own) as journal:
        (entry,) = journal.entries(request.run_id)
        assert not entry.final
    daemon.start()
    found = recovered(own)
    assert f"{request.run_id}.1" in found.close
    assert own.left() == ()
    assert recovered(own).nothing
    record, said = own.shell("echo again")
    assert (record.exit_code, said) == (0, "again\n")


def test_an_engine_that_is_not_there_is_told_before_anything_is_saved(daemon: Daemon, own: Ground) -> None:
    daemon.end(signal.SIGTERM)
    try:
        request = own.request("true")
        with own.control() as controller, pytest.raises(HostError) as told:
            launch(controller, own.admitted, request)
        assert told.value.hint
        with open_journal(own) as journal:
            assert journal.entries(request.run_id) == ()
    finally:
        daemon.start()


def test_an_engine_that_this_user_may_not_ask_is_told_as_that(daemon: Daemon) -> None:
    """The socket is there, and is not his."""
    home = daemon.root / "nobodys"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    daemon.root.chmod(0o711)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            connect("docker", home / "client", {"PATH": os.environ["PATH"], "DOCKER_HOST": daemon.endpoint})
        except HostError as told:
            os.write(writing, f"{told.what} | {told.hint}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    assert "permission denied" in said
    assert said.partition(" | ")[2], said
