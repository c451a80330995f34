"""A run's network served for real on a socket of the test's own, and a fake internet behind it."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from backend.network.admitting import AllowList
from backend.network.attempts import Attempt, AttemptLog, Decision, Refused
from backend.network.bounds import Bounds, Upstream
from backend.network.serving import SOCKET, Outlet, listening
from images.config import NetworkPeer, parse_peer

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)


@dataclass
class Peer:
    """A listener at an address of the fake internet. ``accepted`` counts its connections."""

    port: int
    accepted: list[int] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)


# Address and port -> the path of the unix socket that stands for them: unit tests have no network interface.
INTERNET: dict[tuple[str, int], str] = {}


def fake_dial(address: str, port: int) -> tuple[socket.socket, str]:
    """What :func:`backend.network.serving.dial` does, on the fake internet."""
    return socket.socket(socket.AF_UNIX), INTERNET.get((address, port), "/nobody/listens")


def echo(stream: socket.socket, _peer: Peer) -> None:
    """Says everything back, and ends when the other side has."""
    while chunk := stream.recv(65536):
        stream.sendall(chunk)
    stream.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def peer(
    talk: Callable[[socket.socket, Peer], None] = echo, address: str = "127.0.0.1", port: int = 8443
) -> Iterator[Peer]:
    """A peer while this lasts; what it does with a connection is ``talk``."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        place = f"{folder}/peer"
        listener.bind(place)
        listener.listen(64)
        found = Peer(port)

        def serve() -> None:
            while True:
                try:
                    stream, _ = listener.accept()
                except OSError:
                    return
                found.accepted.append(1)
                threading.Thread(target=one, args=(stream,), daemon=True).start()

        def one(stream: socket.socket) -> None:
            with stream, contextlib.suppress(OSError):
                talk(stream, found)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        INTERNET[address, port] = place
        try:
            yield found
        finally:
            del INTERNET[address, port]
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


@dataclass
class Served:
    """A network that is served. ``asked``: every name that its resolver was asked for."""

    folder: Path
    log: AttemptLog
    outlet: Outlet
    asked: list[str]

    def connect(self) -> socket.socket:
        """A connection as the relay inside makes it."""
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(20)
        try:
            stream.connect(str(self.folder / SOCKET))
        except OSError:
            stream.close()
            raise
        return stream

    def ask(self, target: str) -> tuple[socket.socket, bytes]:
        """A connection that has said CONNECT, and the first line of the answer."""
        stream = self.connect()
        stream.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return stream, until(stream, b"\r\n\r\n").split(b"\r\n")[0]

    def only(self) -> Attempt:
        """The one attempt there was."""
        (found,) = self.log.attempts()
        return found

    def decisions(self) -> list[Decision]:
        """What became of each, in order."""
        return [attempt.decision for attempt in self.log.attempts()]


def until(stream: socket.socket, mark: bytes) -> bytes:
    """What comes up to a mark, or up to the end."""
    found = b""
    while mark not in found and (chunk := stream.recv(1)):
        found += chunk
    return found


def rest(stream: socket.socket) -> bytes:
    """What comes up to the end; a reset is one."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := stream.recv(65536):
            found += chunk
    return found


@contextlib.contextmanager
def served(
    folder: Path,
    *peers: str,
    exact: tuple[str, ...] = (),
    names: dict[str, tuple[str, ...]] | None = None,
    bounds: Bounds | None = None,
    upstream: Upstream | None = None,
    now: Callable[[], datetime] = lambda: NOW,
) -> Iterator[Served]:
    """``names``: what the resolver says; a name that is not there is asked for nowhere."""
    asked: list[str] = []
    table = names or {}

    def resolver(host: str, port: int) -> tuple[str, ...]:
        del port
        asked.append(host)
        if host not in table:
            raise Refused(Decision.UNRESOLVED)
        return table[host]

    def parsed(texts: tuple[str, ...]) -> frozenset[NetworkPeer]:
        return frozenset(map(parse_peer, texts))

    log = AttemptLog(now)
    outlet = Outlet(
        allow=AllowList(parsed(peers), parsed(exact)),
        log=log,
        bounds=bounds or Bounds(),
        upstream=upstream,
        resolver=resolver,
        dial=fake_dial,
    )
    folder.mkdir(exist_ok=True)
    with listening(folder, outlet):
        yield Served(folder, log, outlet, asked)
