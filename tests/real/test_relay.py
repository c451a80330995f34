"""The script that lies in every image, run by this machine's Node over loopback, to a peer on loopback."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.network.admitting import AllowList
from backend.network.attempts import AttemptLog, Decision
from backend.network.bounds import DEFAULT_BOUNDS
from backend.network.serving import Outlet, listening
from images.config import NetworkPeer
from images.relay import READY, relay_script
from tests.fakes.outlets import Peer, echo, rest, until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed"),
]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[int, AttemptLog]]:
    """An echo on loopback that the policy names by its address, and the log of who reached it."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as far:
        port: int = far.getsockname()[1]

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(far.accept()[0],), daemon=True).start()

        def one(stream: socket.socket) -> None:
            with stream, contextlib.suppress(OSError):
                echo(stream, Peer(port))

        threading.Thread(target=serve, daemon=True).start()
        peers = frozenset({NetworkPeer("127.0.0.1", port)})
        log = AttemptLog(lambda: datetime.now(UTC))
        outlet = Outlet(allow=AllowList(peers, peers), log=log, bounds=DEFAULT_BOUNDS, upstream=None)
        folder.mkdir()
        with listening(folder, outlet):
            yield port, log
        far.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relayed(folder: Path, place: Path) -> Iterator[int]:
    """The port that the relay listens on, for the socket at ``place``."""
    script = folder / "relay"
    script.write_bytes(relay_script())
    argv = ("node", str(script), str(place), "0")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline().decode()
            assert line.startswith(READY)
            yield int(line.split()[-1])
        finally:
            child.send_signal(signal.SIGKILL)


def asked(port: int, target: str) -> tuple[socket.socket, bytes]:
    stream = socket.create_connection(("127.0.0.1", port), timeout=20)
    stream.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    return stream, until(stream, b"\r\n\r\n").split(b"\r\n")[0]


def test_bytes_go_through_both_ways_and_each_end_is_told(tmp_path: Path) -> None:
    with (
        served(tmp_path / "net") as (far, log),
        relayed(tmp_path, tmp_path / "net" / "socket") as port,
    ):
        target = f"127.0.0.1:{far}"
        refused, line = asked(port, "b.example:443")
        assert line.startswith(b"HTTP/1.1 403")
        assert rest(refused).endswith(b"builder: not-listed\n")
        refused.close()
        stream, line = asked(port, target)
        assert line.startswith(b"HTTP/1.1 200")
        stream.sendall(b"hello" * 100_000)
        stream.shutdown(socket.SHUT_WR)
        assert rest(stream) == b"hello" * 100_000
        stream.close()
    first, second = log.attempts()
    assert first.decision is Decision.NOT_LISTED
    assert second.decision.carried
    assert (second.sent, second.received) == (500_000, 500_000)


def test_many_at_once(tmp_path: Path) -> None:
    with (
        served(tmp_path / "net") as (far, log),
        relayed(tmp_path, tmp_path / "net" / "socket") as port,
    ):
        target = f"127.0.0.1:{far}"
        streams = [asked(port, target)[0] for _ in range(40)]
        for number, stream in enumerate(streams):
            stream.sendall(b"%d\n" % number)
        for number, stream in enumerate(streams):
            assert until(stream, b"\n") == b"%d\n" % number
            stream.close()
    found = log.attempts()
    assert len(found) == 40
    assert all(one.decision.carried and one.sent == one.received > 0 for one in found)


def test_a_client_that_resets_does_not_end_the_relay(tmp_path: Path) -> None:
    with (
        served(tmp_path / "net") as (_, log),
        relayed(tmp_path, tmp_path / "net" / "socket") as port,
    ):
        for _ in range(3):
            stream = socket.create_connection(("127.0.0.1", port), timeout=20)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            stream.sendall(b"CONN")
            stream.close()
        refused, line = asked(port, "b.example:443")
        assert line.startswith(b"HTTP/1.1 403")
        refused.close()
    assert Decision.NOT_LISTED in [one.decision for one in log.attempts()]


def test_without_a_controller_a_connection_ends_at_once(tmp_path: Path) -> None:
    with relayed(tmp_path, tmp_path / "nothing") as port:
        for _ in range(2):
            stream = socket.create_connection(("127.0.0.1", port), timeout=20)
            assert rest(stream) == b""
            stream.close()


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    script = tmp_path / "relay"
    script.write_bytes(relay_script())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        argv = ("node", str(script), "x", str(taken.getsockname()[1]))
        ended = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", b"relay: EADDRINUSE\n")
