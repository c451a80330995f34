"""The controller's side of a run's network, over real sockets: who is reached, who is not, each bound."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import selectors
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from backend.network import attempts as attempts_module
from backend.network.attempts import AttemptLog, Decision, ResolvedBy
from backend.network.bounds import Bounds, Upstream
from backend.network.serving import SOCKET, resolve
from images.config import NetworkPeer
from images.credentials import Secret
from images.errors import HostError
from tests.fakes.outlets import NOW, Peer, Served, echo, fake_dial, peer, rest, served, until

ESTABLISHED = b"HTTP/1.1 200 Connection established"
LOCAL = {"a.example": ("127.0.0.1",)}


@contextlib.contextmanager
def one_listed(
    tmp_path: Path, *, talk: Callable[[socket.socket, Peer], None] = echo, bounds: Bounds | None = None
) -> Iterator[tuple[Peer, str, Served]]:
    """A peer on this machine that the run may reach, as this pair; both end with it."""
    with peer(talk) as far:
        target, exact = f"a.example:{far.port}", (f"127.0.0.1:{far.port}",)
        with served(tmp_path / "net", target, exact=exact, names=LOCAL, bounds=bounds or Bounds()) as network:
            yield far, target, network


def test_a_listed_peer_is_reached_and_written_down(tmp_path: Path) -> None:
    clock = itertools.count()
    with (
        peer() as far,
        served(
            tmp_path / "net",
            f"a.example:{far.port}",
            exact=(f"127.0.0.1:{far.port}",),
            names=LOCAL,
            now=lambda: NOW + timedelta(seconds=next(clock)),
        ) as network,
    ):
        stream, line = network.ask(f"a.example:{far.port}")
        assert line == ESTABLISHED
        stream.sendall(b"hello " * 100_000)
        stream.shutdown(socket.SHUT_WR)
        assert rest(stream) == b"hello " * 100_000
        stream.close()
    (found,) = network.log.attempts()
    assert found.to_json() == {
        "host": "a.example",
        "port": far.port,
        "decision": "carried",
        "address": "127.0.0.1",
        "resolvedBy": "controller",
        "sent": 600_000,
        "received": 600_000,
        "startedOn": "2026-11-30T06:00:00Z",
        "endedOn": "2026-11-30T06:00:01Z",
    }


def test_a_name_that_is_not_listed_is_not_even_resolved(tmp_path: Path) -> None:
    """So that nothing goes out in the questions for names either."""
    with peer() as far, served(tmp_path / "net", f"a.example:{far.port}", names=LOCAL) as network:
        for target in (
            f"b.example:{far.port}",
            f"secret-words.a.example:{far.port}",
            f"127.0.0.1:{far.port}",
            f"[::1]:{far.port}",
            "a.example:1",
            "169.254.169.254:80",
        ):
            stream, line = network.ask(target)
            assert line == b"HTTP/1.1 403 Not on the list of this run"
            assert rest(stream) == b"builder: not-listed\n"
            stream.close()
        assert network.asked == []
        assert far.accepted == []
    assert network.decisions() == [Decision.NOT_LISTED] * 6
    assert network.log.attempts()[1].host == "secret-words.a.example"
    assert network.log.attempts()[0].resolved_by is ResolvedBy.NOBODY


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1",),
        ("::1",),
        ("10.0.0.1",),
        ("169.254.169.254",),
        ("fe80::1%lo",),
        ("::ffff:127.0.0.1",),
        ("0.0.0.0",),  # noqa: S104  (nothing is bound)
        ("8.8.8.8", "127.0.0.1"),
        ("127.0.0.1", "8.8.8.8"),
    ],
)
def test_a_listed_name_leads_to_no_private_address(tmp_path: Path, addresses: tuple[str, ...]) -> None:
    with peer() as far:
        names = {"a.example": addresses}
        with served(tmp_path / "net", f"a.example:{far.port}", names=names) as network:
            stream, line = network.ask(f"a.example:{far.port}")
            assert line == b"HTTP/1.1 403 Not a public address"
            stream.close()
        assert far.accepted == []
    assert network.decisions() == [Decision.PRIVATE_ADDRESS]
    assert network.only().address == ""


def test_what_was_judged_is_what_is_connected_to(tmp_path: Path) -> None:
    """Rebinding: a name that answers otherwise the second time is asked once only."""
    with peer() as good, peer(address="127.0.0.2") as bad:
        names = {"a.example": ("127.0.0.1",)}
        with served(
            tmp_path / "net",
            f"a.example:{good.port}",
            exact=(f"127.0.0.1:{good.port}",),
            names=names,
        ) as network:
            first = network.outlet.resolver

            def rebinding(host: str, port: int) -> tuple[str, ...]:
                answer = first(host, port)
                names["a.example"] = ("127.0.0.2",)
                return answer

            network.outlet.resolver = rebinding
            stream, line = network.ask(f"a.example:{good.port}")
            assert line == ESTABLISHED
            stream.close()
            assert network.asked == ["a.example"]
            again, line = network.ask(f"a.example:{good.port}")
            assert line == b"HTTP/1.1 403 Not a public address"
            again.close()
        assert len(good.accepted) == 1
        assert bad.accepted == []


def test_the_next_address_is_taken_when_one_is_dead(tmp_path: Path) -> None:
    with peer() as far:
        port = far.port
        exact = (f"127.0.0.1:{port}", f"127.0.0.9:{port}")
        names = {"a.example": ("127.0.0.9", "127.0.0.1")}
        with served(tmp_path / "net", f"a.example:{port}", exact=exact, names=names) as network:
            stream, line = network.ask(f"a.example:{port}")
            assert line == ESTABLISHED
            stream.close()
    assert network.only().address == "127.0.0.1"


def test_the_next_address_is_taken_when_there_can_be_no_socket_for_one(tmp_path: Path) -> None:
    """A host without IPv6, or a process without descriptors: nobody was reached, and nothing else is said."""

    def dial(address: str, port: int) -> tuple[socket.socket, str]:
        if ":" in address:
            raise OSError(errno.EAFNOSUPPORT, "no such family")
        return fake_dial(address, port)

    names = {"both.example": ("2606:2800::1", "127.0.0.1"), "six.example": ("2606:2800::1",)}
    with peer() as far:
        pairs = (f"both.example:{far.port}", f"six.example:{far.port}")
        with served(tmp_path / "net", *pairs, exact=(f"127.0.0.1:{far.port}",), names=names) as network:
            network.outlet.dial = dial
            stream, line = network.ask(pairs[0])
            assert line == ESTABLISHED
            stream.shutdown(socket.SHUT_WR)
            assert rest(stream) == b""
            stream.close()
            stream, line = network.ask(pairs[1])
            assert line == b"HTTP/1.1 502 Cannot be reached"
            stream.close()
    assert network.decisions() == [Decision.CARRIED, Decision.UNREACHABLE]
    assert [one.address for one in network.log.attempts()] == ["127.0.0.1", ""]


def test_an_accept_opens_nothing_but_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one moment without descriptors would end the network of a run for good."""

    def none_left() -> None:
        raise OSError(errno.EMFILE, "no descriptor left")

    with served(tmp_path / "net", "a.example:443") as network:
        monkeypatch.setattr(selectors, "DefaultSelector", none_left)
        for _ in range(2):
            stream, line = network.ask("b.example:443")
            assert line == b"HTTP/1.1 403 Not on the list of this run"
            stream.close()
        monkeypatch.undo()
    assert network.decisions() == [Decision.NOT_LISTED] * 2


def test_who_hangs_up_before_he_has_asked_has_carried_nothing(tmp_path: Path) -> None:
    with served(tmp_path / "net", "a.example:443") as network:
        stream = network.connect()
        stream.sendall(b"CONNECT a.exa")
        stream.shutdown(socket.SHUT_WR)
        rest(stream)
        stream.close()
    assert network.decisions() == [Decision.MALFORMED]


def test_a_dead_peer_and_a_dead_name_are_told_apart(tmp_path: Path) -> None:
    with peer() as far:
        port = far.port
    targets = (f"a.example:{port}", f"b.example:{port}")
    with served(tmp_path / "net", *targets, exact=(f"127.0.0.1:{port}",), names=LOCAL) as network:
        lines = []
        for target in targets:
            stream, line = network.ask(target)
            lines.append(line)
            stream.close()
    assert lines == [b"HTTP/1.1 502 Cannot be reached", b"HTTP/1.1 502 No such name"]
    assert network.decisions() == [Decision.UNREACHABLE, Decision.UNRESOLVED]


def test_the_peer_may_speak_first_and_end_first(tmp_path: Path) -> None:
    def greet(stream: socket.socket, at: Peer) -> None:
        stream.sendall(b"220 hello\r\n")
        stream.shutdown(socket.SHUT_WR)
        while chunk := stream.recv(100):
            at.heard.append(chunk)

    with one_listed(tmp_path, talk=greet) as (far, target, network):
        stream, _ = network.ask(target)
        assert rest(stream) == b"220 hello\r\n"
        stream.sendall(b"bye")
        stream.close()
        wait_for(lambda: b"".join(far.heard) == b"bye")
        wait_for(lambda: network.only().ended is not None)
    assert network.only().decision is Decision.CARRIED
    assert (network.only().sent, network.only().received) == (3, 11)


def test_smuggled_bytes_reach_nobody(tmp_path: Path) -> None:
    with one_listed(tmp_path) as (far, target, network):
        for raw in (
            f"CONNECT {target} HTTP/1.1\r\n\r\nCONNECT b.example:1 HTTP/1.1\r\n\r\n",
            f"CONNECT {target} HTTP/1.1\nHost: {target}\n\n\r\n\r\n",
            f"CONNECT http://{target}/ HTTP/1.1\r\n\r\n",
            f"CONNECT a.example.:{far.port} HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ):
            stream = network.connect()
            stream.sendall(raw.encode())
            assert until(stream, b"\r\n") == b"HTTP/1.1 400 Not a request of one form\r\n"
            stream.close()
        stream = network.connect()
        stream.sendall(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert until(stream, b"\r\n") == b"HTTP/1.1 405 CONNECT is the only method\r\n"
        stream.close()
    assert far.accepted == []
    assert network.asked == []
    assert network.decisions() == [*[Decision.MALFORMED] * 5, Decision.NOT_CONNECT]
    assert {(one.host, one.port) for one in network.log.attempts()} == {(None, None)}


def test_a_head_without_an_end_is_cut(tmp_path: Path) -> None:
    with served(tmp_path / "net", "a.example:443") as network:
        stream = network.connect()
        stream.sendall(b"CONNECT a.example:443 HTTP/1.1\r\n" + b"X: y\r\n" * 10_000)
        assert b"400" in until(stream, b"\r\n")
        stream.close()
    assert network.decisions() == [Decision.MALFORMED]


def test_who_says_nothing_is_hung_up_on(tmp_path: Path) -> None:
    with served(tmp_path / "net", "a.example:443", bounds=Bounds(head_seconds=0.2)) as network:
        silent, slow = network.connect(), network.connect()
        slow.sendall(b"CONNECT a.exa")
        for stream in (silent, slow):
            assert until(stream, b"\r\n") == b"HTTP/1.1 408 Too slow\r\n"
            stream.close()
    assert network.decisions() == [Decision.TOO_SLOW] * 2


def test_a_tunnel_that_is_idle_ends(tmp_path: Path) -> None:
    with one_listed(tmp_path, bounds=Bounds(idle_seconds=0.2)) as (_, target, network):
        stream, line = network.ask(target)
        assert line == ESTABLISHED
        assert rest(stream) == b""
        stream.close()
    assert network.decisions() == [Decision.CUT_IDLE]


def test_a_peer_that_does_not_hear_the_end_holds_no_place(tmp_path: Path) -> None:
    with one_listed(tmp_path, talk=deaf, bounds=Bounds(half_closed_seconds=0.2)) as (_, target, network):
        stream, line = network.ask(target)
        assert line == ESTABLISHED
        stream.shutdown(socket.SHUT_WR)
        assert rest(stream) == b""
        stream.close()
    assert network.decisions() == [Decision.CUT_IDLE]


def deaf(stream: socket.socket, _peer: Peer) -> None:
    """Hears everything out and never says that it has."""
    while stream.recv(65536):
        pass
    threading.Event().wait(5)


def test_a_launch_has_so_many_bytes_and_no_more(tmp_path: Path) -> None:
    with one_listed(tmp_path, bounds=Bounds(octets=100_000)) as (_, target, network):
        stream, _ = network.ask(target)
        with pytest.raises(OSError, match=r".*"):
            stream.sendall(b"x" * 100_000_000)
        stream.close()
        again, _ = network.ask(target)
        with contextlib.suppress(OSError):
            again.sendall(b"x")
        rest(again)
        again.close()
        wait_for(lambda: settled(network, 2))
    assert network.decisions() == [Decision.CUT_BYTES] * 2
    assert network.log.attempts()[0].sent < 2_000_000


def test_so_many_connections_at_a_time_and_the_others_wait(tmp_path: Path) -> None:
    with one_listed(tmp_path, bounds=Bounds(connections=2)) as (far, target, network):
        held = [network.ask(target)[0] for _ in range(2)]
        third = network.connect()
        third.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        third.settimeout(0.3)
        with pytest.raises(TimeoutError):
            third.recv(1)
        assert len(far.accepted) == 2
        held[0].close()
        third.settimeout(20)
        assert until(third, b"\r\n") == ESTABLISHED + b"\r\n"
        for stream in (held[1], third):
            stream.close()


def test_a_flood_has_an_end_and_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "MAX_REFUSED", 3)
    with one_listed(tmp_path, bounds=Bounds(attempts=12)) as (_, target, network):
        for _ in range(10):
            stream, _ = network.ask("b.example:443")
            rest(stream)
            stream.close()
        stream, line = network.ask(target)
        assert line == ESTABLISHED
        stream.close()
        stream = network.connect()
        stream.sendall(b"no request at all\r\n\r\n")
        rest(stream)
        stream.close()
        wait_for(lambda: refused(network))
        wait_for(lambda: settled(network, 5))
    assert network.decisions() == [*[Decision.NOT_LISTED] * 3, Decision.CARRIED, Decision.MALFORMED]
    assert network.log.more() == ((Decision.NOT_LISTED, 7),)


def test_the_end_of_the_launch_ends_every_connection(tmp_path: Path) -> None:
    with peer() as far:
        target = f"a.example:{far.port}"
        with served(tmp_path / "net", target, exact=(f"127.0.0.1:{far.port}",), names=LOCAL) as network:
            stream, _ = network.ask(target)
            stream.sendall(b"x")
            assert stream.recv(1) == b"x"
            unfinished = network.connect()
            unfinished.sendall(b"CONN")
        assert rest(stream) == b""
        assert rest(unfinished)[:12] in (b"", b"HTTP/1.1 400")
        stream.close()
        unfinished.close()
    assert network.decisions()[0] is Decision.CUT_AT_THE_END
    assert network.log.attempts()[0].received == 1
    assert not [one for one in threading.enumerate() if one.name == "network"]


def test_a_resolver_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    asked, go_on = threading.Event(), threading.Event()
    with peer() as far:
        targets = (f"a.example:{far.port}", f"slow.example:{far.port}")
        with served(tmp_path / "net", *targets, exact=(f"127.0.0.1:{far.port}",), names=LOCAL) as network:
            quick = network.outlet.resolver

            def resolver(host: str, port: int) -> tuple[str, ...]:
                if host == "slow.example":
                    asked.set()
                    go_on.wait(60)
                return quick(host, port)

            network.outlet.resolver = resolver
            hanging = network.connect()
            hanging.sendall(f"CONNECT {targets[1]} HTTP/1.1\r\n\r\n".encode())
            assert asked.wait(20)
            stream, line = network.ask(targets[0])
            assert line == ESTABLISHED
            stream.close()
            go_on.set()
            hanging.close()


def test_the_socket_is_open_to_whoever_may_enter_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30) / ("longer" * 30)
    folder.mkdir(parents=True)
    before = os.umask(0o077)
    try:
        with served(folder, "a.example:443") as network:
            found = (folder / SOCKET).stat()
            assert stat.S_ISSOCK(found.st_mode)
            assert stat.S_IMODE(found.st_mode) == 0o666
            assert network.decisions() == []
    finally:
        os.umask(before)


def test_where_no_socket_can_be_it_is_said(tmp_path: Path) -> None:
    (tmp_path / SOCKET).touch()
    with pytest.raises(HostError, match="cannot be served: Address already in use"), served(tmp_path):
        pass


def test_a_failure_of_the_body_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the disk is gone"), served(tmp_path):
        raise OSError("the disk is gone")


def upstream_of(port: int, **given: object) -> Upstream:
    return Upstream(host="proxy.example", port=port, **{"authorization": Secret(b""), **given})  # type: ignore[arg-type]


def test_the_operators_proxy_resolves_and_the_record_says_so(tmp_path: Path) -> None:
    def proxy(stream: socket.socket, at: Peer) -> None:
        at.heard.append(until(stream, b"\r\n\r\n"))
        stream.sendall(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\nearly ")
        while chunk := stream.recv(100):
            stream.sendall(chunk)
        stream.shutdown(socket.SHUT_WR)

    with peer(proxy) as far:
        names = {"proxy.example": ("127.0.0.1",)}
        login = Secret(b"Basic ZHVtbXk6ZHVtbXk=")
        with served(
            tmp_path / "net",
            "a.example:443",
            names=names,
            upstream=upstream_of(far.port, authorization=login),
        ) as network:
            stream = network.connect()
            stream.sendall(
                b"CONNECT a.example:443 HTTP/1.1\r\nProxy-Authorization: Basic b3du\r\nX-Own: y\r\n\r\n"
            )
            assert until(stream, b"\r\n\r\n") == ESTABLISHED + b"\r\n\r\n"
            stream.sendall(b"late")
            stream.shutdown(socket.SHUT_WR)
            assert rest(stream) == b"early late"
            stream.close()
            refused, line = network.ask("b.example:443")
            assert line.startswith(b"HTTP/1.1 403")
            refused.close()
        assert network.asked == ["proxy.example"]
        assert far.heard == [
            b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n"
            b"Proxy-Authorization: Basic ZHVtbXk6ZHVtbXk=\r\n\r\n"
        ]
    found = network.log.attempts()[0]
    assert (found.resolved_by, found.address, found.sent, found.received) == (ResolvedBy.PROXY, "", 4, 10)


def test_hosts_that_need_no_proxy_are_resolved_and_judged_here(tmp_path: Path) -> None:
    upstream = upstream_of(1, direct=(".a.example", "b.example"))
    for host in ("a.example", "x.a.example", "b.example", "x.b.example"):
        assert not upstream.carries(host)
    assert upstream.carries("xa.example")
    assert not upstream_of(1, direct=("*",)).carries("c.example")
    with served(
        tmp_path / "net", "a.example:443", names={"a.example": ("10.0.0.1",)}, upstream=upstream
    ) as network:
        network.ask("a.example:443")[0].close()
    assert network.decisions() == [Decision.PRIVATE_ADDRESS]


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", Decision.PROXY_REFUSED),
        (b"HTTP/1.1 407 Who\r\n\r\n", Decision.PROXY_REFUSED),
        (b"not http\r\n\r\n", Decision.PROXY_REFUSED),
        (b"", Decision.PROXY_UNREACHABLE),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000, Decision.PROXY_UNREACHABLE),
    ],
)
def test_what_the_proxy_says_no_with(tmp_path: Path, answer: bytes, decision: Decision) -> None:
    def proxy(stream: socket.socket, _at: Peer) -> None:
        until(stream, b"\r\n\r\n")
        stream.sendall(answer)

    with peer(proxy) as far:
        names = {"proxy.example": ("127.0.0.1",)}
        with served(
            tmp_path / "net", "a.example:443", names=names, upstream=upstream_of(far.port)
        ) as network:
            stream, line = network.ask("a.example:443")
            assert line.startswith(b"HTTP/1.1 502 The proxy of this network")
            stream.close()
    assert network.decisions() == [decision]


def test_a_proxy_that_is_not_there(tmp_path: Path) -> None:
    with peer() as far:
        port = far.port
    names = {"proxy.example": ("127.0.0.1",)}
    with served(tmp_path / "net", "a.example:443", names=names, upstream=upstream_of(port)) as network:
        network.ask("a.example:443")[0].close()
        network.outlet.upstream = Upstream(host="none.example", port=1, authorization=Secret(b""))
        network.ask("a.example:443")[0].close()
    assert network.decisions() == [Decision.PROXY_UNREACHABLE] * 2


def test_a_proxy_that_says_nothing_is_not_the_agents_fault(tmp_path: Path) -> None:
    def silent(stream: socket.socket, _: Peer) -> None:
        while stream.recv(65536):
            pass

    bounds, names = Bounds(connect_seconds=0.3), {"proxy.example": ("127.0.0.1",)}
    with peer(silent) as far:
        upstream = upstream_of(far.port)
        with served(
            tmp_path / "net", "a.example:443", names=names, upstream=upstream, bounds=bounds
        ) as network:
            stream, line = network.ask("a.example:443")
            assert line == b"HTTP/1.1 502 The proxy of this network cannot be reached"
            stream.close()
    assert network.decisions() == [Decision.PROXY_UNREACHABLE]


def test_this_machines_resolver_gives_each_address_once() -> None:
    assert resolve("127.0.0.1", 443) == ("127.0.0.1",)
    assert resolve("2130706433", 443) == ("127.0.0.1",)  # what no list can hold, and the judge sees through
    with pytest.raises(attempts_module.Refused):
        resolve("a" * 70 + ".invalid", 443)


def test_what_the_log_may_not_show_it_does_not() -> None:
    log = AttemptLog(lambda: NOW, show=lambda text: "hidden" if "word" in text else text)
    attempt = log.begin()
    log.name(attempt, NetworkPeer("word.example", 443))
    log.finish(attempt, Decision.NOT_LISTED)
    assert [(one.host, one.port) for one in log.attempts()] == [("hidden", 443)]


def settled(network: Served, count: int) -> bool:
    """Whether so many attempts have come to their end."""
    found = network.log.attempts()
    return len(found) == count and all(one.ended for one in found)


def refused(network: Served) -> bool:
    try:
        network.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def wait_for(done: object) -> None:
    ready = threading.Event()
    for _ in range(1000):
        if done():  # type: ignore[operator]
            return
        ready.wait(0.02)
    raise AssertionError("it did not come to that")
