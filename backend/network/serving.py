"""Serve a run's network on a unix socket: the one module with sockets, as only the controller may open them.

Every connection is one CONNECT, answered and carried in a thread of its own. Who connects is the container:
whatever comes is untrusted, bounded in size, time and number, and never makes the controller wait.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backend.network.admitting import AllowList
from backend.network.attempts import Attempt, AttemptLog, Decision, Refused, ResolvedBy
from backend.network.bounds import Bounds, Upstream
from backend.network.carrying import Tunnel
from backend.network.connect_head import END, MAX_HEAD, read_connect, read_status
from images.config import NetworkPeer
from images.errors import HostError

SOCKET: Final = "socket"
STOP_SECONDS: Final = 5.0
_PAUSE: Final = 0.2  # seconds
_STATUS: Final = {
    Decision.NOT_LISTED: "403 Not on the list of this run",
    Decision.PRIVATE_ADDRESS: "403 Not a public address",
    Decision.NOT_CONNECT: "405 CONNECT is the only method",
    Decision.MALFORMED: "400 Not a request of one form",
    Decision.TOO_SLOW: "408 Too slow",
    Decision.UNRESOLVED: "502 No such name",
    Decision.UNREACHABLE: "502 Cannot be reached",
    Decision.PROXY_UNREACHABLE: "502 The proxy of this network cannot be reached",
    Decision.PROXY_REFUSED: "502 The proxy of this network refuses",
}
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"

Resolve = Callable[[str, int], tuple[str, ...]]
Dial = Callable[[str, int], "tuple[socket.socket, str | tuple[str, int]]"]


def resolve(host: str, port: int) -> tuple[str, ...]:
    """Numeric addresses of a name, by this machine's resolver, each once and in its order."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError):
        raise Refused(Decision.UNRESOLVED) from None
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


def dial(address: str, port: int) -> tuple[socket.socket, tuple[str, int]]:
    """A socket for a numeric address, and what to connect it to."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM), (address, port)


@dataclass(slots=True, kw_only=True)
class Outlet:
    """Where the connections of one launch go out: serves until it is stopped.

    ``log`` knows every attempt. ``resolver`` and ``dial`` are the two ways to the world outside.
    """

    allow: AllowList
    log: AttemptLog
    bounds: Bounds
    upstream: Upstream | None
    resolver: Resolve = resolve
    dial: Dial = dial
    _stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sockets: set[socket.socket] = field(default_factory=set)
    _carrying: set[threading.Thread] = field(default_factory=set)
    _octets: int = 0

    def serve(self, listener: socket.socket, wake: socket.socket, selector: selectors.BaseSelector) -> None:
        """Accept until ``wake`` is closed at its other end; one connection too many waits unaccepted.

        ``selector``: tells of both. Nothing else is opened for an accept, so that no lack of descriptors ends
        the network of a run.
        """
        try:
            self._serve(listener, wake, selector)
        finally:
            listener.close()  # whoever still comes is refused by the kernel

    def _serve(self, listener: socket.socket, wake: socket.socket, selector: selectors.BaseSelector) -> None:
        slots = threading.BoundedSemaphore(self.bounds.connections)
        for _ in range(self.bounds.attempts):
            while not slots.acquire(timeout=_PAUSE):
                if self._stopping.is_set():
                    return
            near = _accepted(listener, wake, selector)
            if near is None:
                return
            thread = threading.Thread(target=self._serve_one, args=(near, slots), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the kernel gives no thread: this one is hung up on
                near.close()
                slots.release()

    def turn_away(self) -> None:
        """Nothing new is begun from now on."""
        self._stopping.set()

    def stop(self) -> None:
        """End every connection; what hangs in the name service is left to itself, and can reach nothing."""
        self._stopping.set()
        with self._lock:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            waiting = tuple(self._carrying)
        until = time.monotonic() + STOP_SECONDS
        for thread in waiting:
            thread.join(max(0.0, until - time.monotonic()))

    def spend(self, octets: int) -> bool:
        """Count carried bytes; False when the launch has used up what it may."""
        with self._lock:
            self._octets += octets
            return self._octets <= self.bounds.octets

    def _serve_one(self, near: socket.socket, slots: threading.BoundedSemaphore) -> None:
        with self._lock:
            self._carrying.add(threading.current_thread())
        attempt = self.log.begin()
        decision = Decision.CUT_AT_THE_END
        try:
            with near, self._known(near):
                decision = self._answer(near, attempt)
        finally:
            self.log.finish(attempt, decision)
            with self._lock:
                self._carrying.discard(threading.current_thread())
            slots.release()

    def _answer(self, near: socket.socket, attempt: Attempt) -> Decision:
        try:
            far, early = self._reach(self._asked(near, attempt), attempt)
        except Refused as refused:
            _send_refusal(near, refused.decision)
            return refused.decision
        except OSError:  # the container hung up before it had asked
            return Decision.MALFORMED
        with far, self._known(far):
            try:
                near.sendall(_ESTABLISHED)
            except OSError:  # the container hung up before it was answered
                return Decision.CARRIED
            tunnel = Tunnel(near, far, attempt, self.spend, self._stopping)
            try:
                return tunnel.carry(early, self.bounds.idle_seconds, self.bounds.half_closed_seconds)
            except OSError:  # no descriptor for it: nothing was carried
                return Decision.UNREACHABLE

    def _asked(self, near: socket.socket, attempt: Attempt) -> NetworkPeer:
        """Whom a connection asks for, if that is on the list."""
        head, early = _read_head(near, self.bounds.head_seconds, Decision.MALFORMED, Decision.TOO_SLOW)
        peer = read_connect(head + early)  # what comes before our answer is no CONNECT
        self.log.name(attempt, peer)
        if not self.allow.has(peer):
            raise Refused(Decision.NOT_LISTED)
        return peer

    def _reach(self, peer: NetworkPeer, attempt: Attempt) -> tuple[socket.socket, bytes]:
        """A connection to the peer, and what it said already."""
        if self.upstream is not None and self.upstream.carries(peer.host):
            attempt.resolved_by = ResolvedBy.PROXY
            return self._reach_by(self.upstream, peer)
        addresses = self.resolver(peer.host, peer.port)
        attempt.resolved_by = ResolvedBy.CONTROLLER
        # One address that is not public spoils the name: an honest public name has none.
        if not all(self.allow.may_connect(address, peer.port) for address in addresses):
            raise Refused(Decision.PRIVATE_ADDRESS)
        until = time.monotonic() + self.bounds.connect_seconds
        for address in addresses:  # the very ones that were judged: no name is asked for again
            far = self._connected(address, peer.port, until)
            if far is not None:
                attempt.address = address
                return far, b""
        raise Refused(Decision.UNREACHABLE)

    def _reach_by(self, upstream: Upstream, peer: NetworkPeer) -> tuple[socket.socket, bytes]:
        until = time.monotonic() + self.bounds.connect_seconds
        try:
            addresses = self.resolver(upstream.host, upstream.port)
        except Refused:
            raise Refused(Decision.PROXY_UNREACHABLE) from None
        for address in addresses:
            far = self._connected(address, upstream.port, until)
            if far is None:
                continue
            accepted = False
            try:
                early = self._ask_proxy(far, upstream, peer)
                accepted = True
            finally:
                if not accepted:
                    far.close()
            return far, early
        raise Refused(Decision.PROXY_UNREACHABLE)

    def _ask_proxy(self, far: socket.socket, upstream: Upstream, peer: NetworkPeer) -> bytes:
        """Our own CONNECT, of nothing but the listed pair; what came behind the proxy's answer."""
        login = upstream.authorization.reveal()
        fields = b"Proxy-Authorization: " + login + b"\r\n" if login else b""
        target = str(peer).encode("ascii")
        with self._known(far):
            try:
                far.sendall(
                    b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n" + fields + b"\r\n"
                )
                head, early = _read_head(
                    far, self.bounds.connect_seconds, Decision.PROXY_UNREACHABLE, Decision.PROXY_UNREACHABLE
                )
            except OSError:
                raise Refused(Decision.PROXY_UNREACHABLE) from None
        status = read_status(head)
        if status is None or not 200 <= status < 300:
            raise Refused(Decision.PROXY_REFUSED)
        return early

    def _connected(self, address: str, port: int, until: float) -> socket.socket | None:
        left = until - time.monotonic()
        if left <= 0 or self._stopping.is_set():
            return None
        far: socket.socket | None = None
        connected = False
        try:
            far, where = self.dial(address, port)  # also here: no descriptor, or no such family on this host
            far.settimeout(left)
            with self._known(far):
                far.connect(where)
            connected = True
        except OSError:
            return None
        finally:
            if far is not None and not connected:
                far.close()
        return far

    @contextlib.contextmanager
    def _known(self, one: socket.socket) -> Iterator[None]:
        """While this lasts, :meth:`stop` ends it."""
        with self._lock:
            self._sockets.add(one)
        if self._stopping.is_set():
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(one)


@contextlib.contextmanager
def listening(folder: Path, outlet: Outlet) -> Iterator[None]:
    """Serve on ``folder/socket`` while this lasts. ``folder``: ours, and in a private one.

    Whoever may enter the folder can connect: the agent's uid is another number on each engine. Raises
    HostError when there can be no socket.
    """
    with _bound(folder) as listener:
        stop, wake = socket.socketpair()
        with stop, wake, selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            serving = threading.Thread(
                target=outlet.serve, args=(listener, wake, selector), name="network", daemon=True
            )
            serving.start()
            try:
                yield
            finally:
                outlet.turn_away()
                stop.close()
                serving.join()
                outlet.stop()


def _bound(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    handle = -1
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # By the descriptor: the name of a socket may not be long, and a state root's path may.
        place = f"/proc/self/fd/{handle}/{SOCKET}"
        listener.bind(place)
        Path(place).chmod(0o666)
        listener.listen(64)
        listener.setblocking(False)
    except OSError as broken:
        listener.close()
        raise HostError(
            f"the run's network cannot be served: {broken.strerror}", where=str(folder), hint="builder doctor"
        ) from None
    finally:
        if handle >= 0:
            os.close(handle)
    return listener


def _accepted(
    listener: socket.socket, wake: socket.socket, selector: selectors.BaseSelector
) -> socket.socket | None:
    """The next connection; None when the other end of ``wake`` was closed."""
    while True:
        if any(key.fileobj is wake for key, _ in selector.select()):
            return None
        try:
            return listener.accept()[0]
        except BlockingIOError:
            continue
        except OSError:  # this process has no descriptor left: it may have one in a moment
            time.sleep(_PAUSE)


def _read_head(
    stream: socket.socket, seconds: float, too_long: Decision, too_slow: Decision
) -> tuple[bytes, bytes]:
    """What comes up to the first empty line, and what comes behind it in the same breath."""
    until = time.monotonic() + seconds
    raw = bytearray()
    while END not in raw:
        left = until - time.monotonic()
        if left <= 0:
            raise Refused(too_slow)
        stream.settimeout(left)
        try:
            chunk = stream.recv(MAX_HEAD)
        except TimeoutError:
            raise Refused(too_slow) from None
        if not chunk or len(raw) > MAX_HEAD:
            raise Refused(too_long)
        raw += chunk
    at = raw.index(END) + len(END)
    return bytes(raw[:at]), bytes(raw[at:])


def _send_refusal(near: socket.socket, decision: Decision) -> None:
    line = _STATUS[decision]
    body = f"builder: {decision.value}\n".encode()
    fields = f"Connection: close\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    near.settimeout(_PAUSE)
    with contextlib.suppress(OSError):
        near.sendall(f"HTTP/1.1 {line}\r\n{fields}".encode() + body)
