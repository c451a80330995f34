"""The plan of a run's network: what it adds to a launch, and to which launches it cannot be added."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from backend.containers import Network, ReadOnlyBind
from backend.network.bounds import Uplink, Upstream
from backend.network.planning import NetworkPlan
from backend.ownership import Owner
from backend.plan import LaunchPlan, plan_launch
from backend.requests import LaunchClass, Supervision
from images.credentials import Secret
from images.errors import LaunchReason, LaunchRefused, UsageError
from provenance.verify import VerifiedImage
from tests.fakes.admitted import STATE, admitted_of, networked, request
from tests.fakes.sources import source_of

OWNER = Owner(state_id=STATE, lease_id="e" * 32)
PEER = "api.anthropic.com:443"
STAGING = Path("/srv/state/staging/launch-1")


def planned(verified: VerifiedImage, **asked: Any) -> LaunchPlan:
    return plan_launch(admitted_of(networked(verified, PEER)), request(**asked), OWNER, STAGING)


def network_of(plan: LaunchPlan) -> NetworkPlan:
    assert plan.network is not None
    return plan.network


def test_a_launch_without_a_list_has_nothing_of_it(verified: VerifiedImage) -> None:
    plan = planned(verified)
    assert plan.network is None
    assert plan.container.read_only_binds == ()
    assert not any("proxy" in name.lower() for name, _ in plan.command.environment)


def test_a_list_adds_one_read_only_bind_and_no_network(verified: VerifiedImage) -> None:
    bare, plan = planned(verified), planned(verified, allow=(PEER,))
    bind = ReadOnlyBind(source=STAGING / "network-run.1", target="/opt/builder/network")
    assert plan.container == dataclasses.replace(bare.container, read_only_binds=(bind,))
    assert plan.container.network is Network.NONE


def test_what_programs_inside_are_told(verified: VerifiedImage) -> None:
    bare, plan = planned(verified), planned(verified, allow=(PEER,))
    more = dict(plan.command.environment)
    for name, value in bare.command.environment:
        assert more.pop(name) == value
    assert more == {
        "HTTPS_PROXY": "http://127.0.0.1:3128",
        "HTTP_PROXY": "http://127.0.0.1:3128",
        "NO_PROXY": "localhost,127.0.0.1,::1",
        "http_proxy": "http://127.0.0.1:3128",
        "https_proxy": "http://127.0.0.1:3128",
        "no_proxy": "localhost,127.0.0.1,::1",
    }


def test_the_operators_authorities_are_named_and_the_proxy_is_not(verified: VerifiedImage) -> None:
    uplink = Uplink(
        upstream=Upstream(
            host="proxy.corp.example", port=3128, authorization=Secret(b"Basic ZHVtbXk6ZHVtbXk=")
        ),
        ca_bundle=b"-----BEGIN CERTIFICATE-----\n",
    )
    plan = planned(verified, allow=(PEER,), uplink=uplink)
    more = dict(plan.command.environment)
    for name in ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE"):
        assert more[name] == "/opt/builder/network/ca.pem"
    assert "corp" not in repr(plan.container) + repr(plan.command)
    assert "ZHVtbXk" not in repr(plan)


def test_the_network_comes_beside_the_files_and_not_into_what_fills_them(
    verified: VerifiedImage, tmp_path: Path
) -> None:
    source = source_of(tmp_path)
    plan = planned(verified, allow=(PEER,), source=source)
    assert [bind.target for bind in plan.container.read_only_binds] == ["/source", "/opt/builder/network"]
    copied = plan_launch(
        admitted_of(networked(verified, PEER), shared_files=True),
        request(allow=(PEER,), source=dataclasses.replace(source, route="copy-in")),
        OWNER,
        STAGING,
    )
    assert copied.space is not None
    assert copied.space.fill is not None
    assert copied.space.fill.read_only_binds == ()


def test_the_list_is_under_the_ceiling(verified: VerifiedImage) -> None:
    assert (
        network_of(planned(verified, allow=(PEER, PEER))).allow.peers
        == network_of(planned(verified, allow=(PEER,))).allow.peers
    )
    with pytest.raises(LaunchRefused, match=r"no api\.anthropic\.com:80") as refused:
        planned(verified, allow=(PEER, "api.anthropic.com:80"))
    assert refused.value.reason == LaunchReason.NETWORK_CEILING
    with pytest.raises(UsageError, match="expected host:port"):
        planned(verified, allow=("https://api.anthropic.com",))


def test_where_the_relay_cannot_work_it_is_refused_by_name(verified: VerifiedImage, tmp_path: Path) -> None:
    source = source_of(tmp_path)
    for asked in (
        {"command": (), "supervision": Supervision.LEASED},
        {"launch_class": LaunchClass.EXPORT_COMMAND, "source": source},
    ):
        with pytest.raises(LaunchRefused) as refused:
            planned(verified, allow=(PEER,), **asked)
        assert refused.value.reason == LaunchReason.NETWORK_UNSUPPORTED
    for admitted, reason in (
        (admitted_of(networked(verified, PEER), shared_files=False), LaunchReason.NETWORK_UNSUPPORTED),
        (admitted_of(networked(verified, PEER, renderer=4)), LaunchReason.NETWORK_RELAY),
    ):
        with pytest.raises(LaunchRefused) as refused:
            plan_launch(admitted, request(allow=(PEER,)), OWNER, STAGING)
        assert refused.value.reason == reason
        assert refused.value.hint
    with pytest.raises(UsageError, match="private directory"):
        plan_launch(admitted_of(networked(verified, PEER)), request(allow=(PEER,)), OWNER)
