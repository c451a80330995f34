"""A launch with a network against the scripted engine: the socket, the relay, the record, what is left."""

from __future__ import annotations

import functools
import json
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.commands import Outcome
from backend.launch import launch
from backend.network.bounds import Uplink
from backend.network.holding import STARTS, shown_host
from backend.network.serving import Outlet
from backend.records import LaunchEnding
from images.credentials import Secret
from images.errors import HostError, LaunchReason, LaunchRefused
from images.relay import READY, RELAY_PATH
from provenance.verify import VerifiedImage
from tests.fakes.admitted import Bench, admitted_of, networked, request
from tests.fakes.engine import said
from tests.fakes.outlets import fake_dial, peer, rest, until

RELAY = (RELAY_PATH,)


@pytest.fixture(autouse=True)
def fake_internet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.network.holding.Outlet", functools.partial(Outlet, dial=fake_dial))


def started(*_: object) -> Outcome:
    return said(f"{READY} 3128\n".encode())


def folder_of(at: Bench) -> Path:
    (container,) = at.engine.containers.values()
    (bind,) = container.plan.read_only_binds
    return bind.source


def asking(at: Bench, *targets: str) -> Callable[..., Outcome]:
    """What an agent does: it asks for each of these through the socket of its container."""

    def answer(*_: object) -> Outcome:
        lines = []
        for target in targets:
            with socket.socket(socket.AF_UNIX) as stream:
                stream.settimeout(20)
                stream.connect(str(folder_of(at) / "socket"))
                stream.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
                lines.append(until(stream, b"\r\n\r\n").split(b"\r\n")[0])
                if lines[-1].startswith(b"HTTP/1.1 200"):
                    stream.sendall(b"hello")
                    stream.shutdown(socket.SHUT_WR)
                    lines.append(rest(stream))
        return said(b"\n".join(lines))

    return answer


def predicate_of(at: Bench) -> dict[str, Any]:
    from tests.unit.backend.test_launch import predicate_of as found  # noqa: PLC0415

    return found(at)


def test_what_is_listed_is_reached_and_the_record_knows_each_attempt(
    at: Bench, verified: VerifiedImage
) -> None:
    with peer() as far:
        target = f"127.0.0.1:{far.port}"
        at.engine.answers |= {RELAY: started, ("true",): asking(at, target, "b.example:443")}
        out = bytearray()
        from backend.agent_command import Output  # noqa: PLC0415

        record = launch(
            at.controller,
            admitted_of(networked(verified, target)),
            request(allow=(target,)),
            Output(on_stdout=out.extend),
        )
    assert bytes(out).split(b"\n") == [
        b"HTTP/1.1 200 Connection established",
        b"hello",
        b"HTTP/1.1 403 Not on the list of this run",
    ]
    assert record.exit_code == 0
    network = predicate_of(at)["network"]
    assert network["allow"] == [target]
    assert network["exactAddresses"] == [target]
    assert network["upstreamProxy"] is False
    assert network["caBundle"] is None
    assert network["notListed"] == {}
    first, second = network["attempts"]
    assert (first["host"], first["port"], first["address"]) == ("127.0.0.1", far.port, "127.0.0.1")
    assert (first["decision"], first["sent"], first["received"]) == ("carried", 5, 5)
    assert (second["host"], second["port"], second["decision"]) == ("b.example", 443, "not-listed")
    assert list((at.controller.staging).iterdir()) == []


def test_a_launch_without_a_network_says_so(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[("true",)] = said()
    launch(at.controller, admitted_of(networked(verified, "a.example:443")), request())
    assert predicate_of(at)["network"] is None
    assert at.engine.calls.count("exec") == 2


def test_the_folder_lets_any_uid_in_and_holds_nothing_private(at: Bench, verified: VerifiedImage) -> None:
    seen: dict[str, int] = {}

    def look(*_: object) -> Outcome:
        folder = folder_of(at)
        seen["."] = stat.S_IMODE(folder.stat().st_mode)
        for file in folder.iterdir():
            seen[file.name] = stat.S_IMODE(file.stat().st_mode)
        seen["around"] = stat.S_IMODE(folder.parent.stat().st_mode)
        return said((folder / "ca.pem").read_bytes())

    at.controller.staging.chmod(0o700)
    at.engine.answers |= {RELAY: started, ("true",): look}
    launch(
        at.controller,
        admitted_of(networked(verified, "a.example:443")),
        request(allow=("a.example:443",), uplink=Uplink(ca_bundle=b"authorities")),
    )
    assert seen == {".": 0o711, "socket": 0o666, "ca.pem": 0o644, "around": 0o700}
    assert predicate_of(at)["network"]["caBundle"].startswith("sha256:")


def test_a_relay_that_does_not_start_refuses_the_launch(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers[RELAY] = said(exit_code=1, stderr=b"relay: EADDRINUSE\n")
    with pytest.raises(LaunchRefused, match="did not start inside: relay: EADDRINUSE") as refused:
        launch(
            at.controller,
            admitted_of(networked(verified, "a.example:443")),
            request(allow=("a.example:443",)),
        )
    assert refused.value.reason == LaunchReason.NETWORK_RELAY
    assert at.engine.containers == {}
    assert predicate_of(at)["ending"] == LaunchEnding.REFUSED.value
    assert predicate_of(at)["network"]["attempts"] == []


def test_a_relay_that_the_agent_ends_is_started_again_but_not_for_ever(
    at: Bench, verified: VerifiedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.network.holding._PAUSE", 0.001)
    starts: list[int] = []

    def start(*_: object) -> Outcome:
        starts.append(1)
        return started()

    def work(*_: object) -> Outcome:
        import threading  # noqa: PLC0415

        ready = threading.Event()
        while len(starts) < STARTS and not ready.wait(0.01):
            pass
        ready.wait(0.2)
        return said()

    at.engine.answers |= {RELAY: start, ("true",): work}
    launch(
        at.controller, admitted_of(networked(verified, "a.example:443")), request(allow=("a.example:443",))
    )
    assert len(starts) == STARTS
    assert predicate_of(at)["network"]["relayEnded"] == STARTS


@pytest.mark.parametrize("verb", ["create", "attach"])
def test_nothing_is_left_of_a_launch_that_fails(at: Bench, verified: VerifiedImage, verb: str) -> None:
    at.engine.fails[verb] = HostError("the engine is gone")
    with pytest.raises(HostError, match="the engine is gone"):
        launch(
            at.controller,
            admitted_of(networked(verified, "a.example:443")),
            request(allow=("a.example:443",)),
        )
    assert list(at.controller.staging.iterdir()) == []


def test_a_bind_that_is_not_the_planned_one_is_a_difference(at: Bench, verified: VerifiedImage) -> None:
    at.engine.tampers["mounts"] = ()
    with pytest.raises(LaunchRefused, match="mounts") as refused:
        launch(
            at.controller,
            admitted_of(networked(verified, "a.example:443")),
            request(allow=("a.example:443",)),
        )
    assert refused.value.reason == LaunchReason.READ_BACK


LONG = "x" * 25


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("api.anthropic.com", "api.anthropic.com"),
        (f"{LONG}.tunnel.example", "(…).tunnel.example"),
        (f"a.{LONG}.b.tunnel.example", "(…).tunnel.example"),
        (f"{LONG}.example", "(not shown)"),
        (LONG, "(not shown)"),
        ("dummy-word-1.example", "(not shown)"),
        ("169.254.169.254", "169.254.169.254"),
        ("2606:4700::1111", "2606:4700::1111"),
    ],
)
def test_a_name_that_carries_something_is_not_written_down(host: str, shown: str) -> None:
    assert shown_host(host, (Secret(b"Dummy-Word-1"),)) == shown


def test_a_record_of_a_network_is_a_document_of_json(at: Bench, verified: VerifiedImage) -> None:
    at.engine.answers |= {RELAY: started, ("true",): said()}
    record = launch(
        at.controller, admitted_of(networked(verified, "a.example:443")), request(allow=("a.example:443",))
    )
    assert json.loads(record.statement.predicate_json)["network"]["attempts"] == []
