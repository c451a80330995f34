"""Which peers a run may reach, and which addresses no name may lead to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.network.admitting import MAX_ALLOWED, AllowList, granted, is_public
from images.config import NetworkPeer, parse_peer
from images.errors import LaunchReason, LaunchRefused, UsageError
from tests.attacks import Position, attack

PUBLIC = ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.63.255.255", "2606:4700::1111", "64:ff9b::101:101"]
NOT_PUBLIC = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],  # noqa: S104  (nothing is bound)
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12:3456::1"],
    "link-local": ["169.254.0.1", "fe80::1", "fe80::1%eth0", "fec0::1"],
    "metadata": ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"],
    "shared": ["100.64.0.1", "100.127.255.255"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:10.0.0.1", "::127.0.0.1"],
    "carrying another": ["2002:7f00:1::", "2001:0:4136:e378::", "64:ff9b::7f00:1", "64:ff9b:1::1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "multicast, reserved": ["224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "ff02::1"],
    "benchmark": ["198.18.0.1", "2001:2::1"],
}


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address", [one for kind in NOT_PUBLIC.values() for one in kind], ids=lambda one: one.replace("%", "-")
)
def test_what_is_not_the_public_internet_is_not(address: str) -> None:
    assert not is_public(address)


@given(st.ip_addresses())
def test_nothing_is_public_that_python_knows_not_to_be_global(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if is_public(str(address)):
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=4))
def test_an_address_that_stands_for_another_opens_nothing(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    assert not is_public(str(ipaddress.IPv6Address(0xFFFF << 32 | number)))
    assert not is_public(str(ipaddress.IPv6Address(0x2002 << 112 | number << 80)))
    nat64 = str(ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) | number))
    assert is_public(nat64) is is_public(str(address))


def peers(*texts: str) -> frozenset[NetworkPeer]:
    return frozenset(map(parse_peer, texts))


def test_the_list_is_what_was_asked_for_and_no_more() -> None:
    allow = granted(("a.example:443",), peers("a.example:443", "b.example:443", "10.0.0.5:8443"))
    assert allow == AllowList(peers("a.example:443"), peers("10.0.0.5:8443"))
    assert allow.has(NetworkPeer("a.example", 443))
    for host, port in (("a.example", 80), ("b.example", 443), ("x.a.example", 443), ("a.example.", 443)):
        assert not allow.has(NetworkPeer(host, port))


def test_beyond_the_ceiling_is_refused_by_name() -> None:
    with pytest.raises(LaunchRefused, match=r"no a\.example:443, and 1 more") as refused:
        granted(("a.example:443", "b.example:443", "c.example:1"), peers("c.example:1", "a.example:80"))
    assert refused.value.reason == LaunchReason.NETWORK_CEILING.value
    assert refused.value.hint.startswith('add "a.example:443" to network in policy.toml and raise its serial')


@pytest.mark.parametrize("text", ["a.example", "a.example:0", "*.example:443", "A.example:443", "127.1:80"])
def test_what_is_no_peer_is_refused_whoever_asks(text: str) -> None:
    with pytest.raises(UsageError, match="expected host:port"):
        granted((text,), peers("a.example:443"))


def test_a_list_has_an_end() -> None:
    many = tuple(f"a{n}.example:443" for n in range(MAX_ALLOWED + 1))
    with pytest.raises(UsageError, match=f"more than {MAX_ALLOWED}"):
        granted(many, peers(*many))


def test_an_exact_address_of_the_policy_opens_that_address_and_port_alone() -> None:
    ceiling = peers("git.corp.example:443", "10.0.0.5:443", "[fd00::5]:443", "169.254.169.254:80")
    allow = granted(("git.corp.example:443",), ceiling)
    assert allow.may_connect("10.0.0.5", 443)
    assert allow.may_connect("::ffff:10.0.0.5", 443)
    assert allow.may_connect("fd00::5", 443)
    assert allow.may_connect("fd00:0:0::5", 443)
    assert allow.may_connect("1.1.1.1", 443)
    for address, port in (
        ("10.0.0.5", 80),
        ("10.0.0.6", 443),
        ("fd00::5%eth0", 443),
        ("169.254.169.254", 443),
        ("127.0.0.1", 443),
    ):
        assert not allow.may_connect(address, port)


@attack(by=Position.NETWORK)
def test_a_name_of_the_policy_opens_no_private_address() -> None:
    allow = granted(("git.corp.example:443",), peers("git.corp.example:443"))
    assert not allow.may_connect("10.0.0.5", 443)
