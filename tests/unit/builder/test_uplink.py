"""What settings.toml says of a run's way out, and how what a run reached is told to people."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest

from backend.network.admitting import AllowList
from backend.network.attempts import AttemptLog, Decision
from backend.network.bounds import DIRECT
from backend.network.holding import NetworkSeen
from backend.network.planning import NetworkPlan
from builder.reached import attempt_lines, tell_network
from builder.report import Reporter
from builder.settings.settings_file import Settings, parse_settings
from builder.uplink import uplink_of
from images.config import NetworkPeer
from images.credentials import Secret
from images.errors import LaunchReason, LaunchRefused
from tests.fakes.outlets import NOW


def settings_with(*lines: str) -> Settings:
    return parse_settings("\n".join(("schema = 1", *lines)), where="settings.toml")


def test_nothing_set_is_the_direct_way() -> None:
    assert uplink_of(settings_with()) == DIRECT


def test_the_proxy_for_tls_is_taken_else_the_other() -> None:
    found = uplink_of(
        settings_with(
            'proxy = { https = "http://Proxy.example:3128", http = "http://b.example",'
            ' no_proxy = [".corp.example"] }'
        )
    ).upstream
    assert found is not None
    assert (found.host, found.port, found.direct) == ("proxy.example", 3128, (".corp.example",))
    assert not found.authorization
    other = uplink_of(settings_with('proxy = { http = "http://b.example" }')).upstream
    assert other is not None
    assert (other.host, other.port) == ("b.example", 80)


def test_a_login_is_a_secret_from_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text('https = "http://me:p%40ss@proxy.example:1"\n')
    file.chmod(0o600)
    found = uplink_of(settings_with(f'proxy_file = "{file}"'))
    assert found.upstream is not None
    assert found.upstream.authorization == Secret(b"Basic " + base64.b64encode(b"me:p@ss"))
    assert "p@ss" not in repr(found)


def test_a_proxy_behind_tls_is_refused_by_name() -> None:
    with pytest.raises(LaunchRefused, match="reached by TLS") as refused:
        uplink_of(settings_with('proxy = { https = "https://proxy.example:3128" }'))
    assert refused.value.reason == LaunchReason.NETWORK_UNSUPPORTED


def test_the_authorities_are_the_files_bytes(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(b"authorities")
    bundle.chmod(0o644)
    assert uplink_of(settings_with(f'ca_bundle = "{bundle}"')).ca_bundle == b"authorities"


def test_each_attempt_of_a_record_is_a_line() -> None:
    record = {
        "network": {
            "attempts": [
                {
                    "host": "a.example",
                    "port": 443,
                    "decision": "carried",
                    "address": "1.1.1.1",
                    "sent": 5,
                    "received": 7,
                    "startedOn": "2026-11-30T06:00:00Z",
                },
                {"host": None, "port": None, "decision": "malformed", "startedOn": "2026-11-30T06:00:01Z"},
            ],
            "notListed": {"not-listed": 12},
            "relayEnded": 20,
        }
    }
    assert list(attempt_lines(record)) == [
        "2026-11-30T06:00:00Z a.example:443 carried 1.1.1.1 5 out 7 in",
        "2026-11-30T06:00:01Z ? malformed",
        "and 12 more not-listed",
        "the relay inside was ended 20 times before the command was",
    ]
    assert list(attempt_lines({"network": None})) == []


def test_a_run_tells_how_much_went_through_and_who_was_refused_once(tmp_path: Path) -> None:
    log = AttemptLog(lambda: NOW)
    for host, decision in (
        ("a.example", Decision.CARRIED),
        ("b.example", Decision.NOT_LISTED),
        ("b.example", Decision.NOT_LISTED),
        ("", Decision.MALFORMED),
    ):
        attempt = log.begin()
        if host:
            log.name(attempt, NetworkPeer(host, 443))
        log.finish(attempt, decision)
    plan = NetworkPlan(allow=AllowList(frozenset(), frozenset()), folder=tmp_path, uplink=DIRECT)
    seen = NetworkSeen(plan=plan, attempts=log.attempts(), more=((Decision.NOT_LISTED, 7),), relay_ended=2)
    told = io.StringIO()
    tell_network(Reporter(stream=told), seen, "run.1")
    assert told.getvalue().splitlines() == [
        "network: 1 carried, 10 refused",
        "network: refused b.example:443: not-listed, 2 times",
        "network: refused: malformed",
        "network: the relay inside was ended 2 times before the command was",
        "network: the others: builder show run.1",
    ]
    tell_network(Reporter(stream=told), None, "run.1")
