"""Which host and port a run may reach, and which addresses no name may lead to. Pure: nothing is resolved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from images.config import NetworkPeer, parse_peer
from images.errors import LaunchReason, LaunchRefused, UsageError

MAX_ALLOWED: Final = 200

# What is not the public internet (IANA's special-purpose registries), whatever this Python's own tables say,
# and one cloud's metadata service that has a public address.
_NOT_PUBLIC: Final = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared; one cloud's metadata service is 100.100.100.200
        "127.0.0.0/8",
        "168.63.129.16/32",  # a metadata service
        "169.254.0.0/16",  # link-local; most metadata services are 169.254.169.254
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "2001::/23",  # Teredo, ORCHID, benchmarks
        "2001:db8::/32",
        "2002::/16",  # 6to4 carries any IPv4 address
        "3fff::/20",
    )
)
# The rest of IPv6 (loopback, link-local, unique local, mapped, multicast) lies outside of this.
_PUBLIC_SIX: Final = IPv6Network("2000::/3")
# What a NAT64 gateway makes of an IPv4 address: judged as that address.
_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether a numeric address belongs to the public internet; ValueError for what is none.

    Everything that stands for another address (mapped, 6to4, Teredo) is not; NAT64 is as its IPv4 address.
    """
    found = ip_address(address)
    if isinstance(found, IPv6Address):
        if found.scope_id is not None:
            return False
        if found in _NAT64:
            return is_public(str(IPv4Address(int(found) & 0xFFFFFFFF)))
        if found not in _PUBLIC_SIX:
            return False
    return not any(found in network for network in _NOT_PUBLIC if network.version == found.version)


@dataclass(frozen=True, slots=True)
class AllowList:
    """``peers``: what the run may reach. ``exact``: the policy's entries that are addresses, not names."""

    peers: frozenset[NetworkPeer]
    exact: frozenset[NetworkPeer]

    def has(self, peer: NetworkPeer) -> bool:
        """Whether exactly this host and port are listed."""
        return peer in self.peers

    def may_connect(self, address: str, port: int) -> bool:
        """Whether what a listed name resolved to may be connected to: public, or named by the policy itself.

        ``address``: numeric, as a resolver gives it; a scope or another spelling never matches the policy.
        """
        found = ip_address(address)
        mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
        plain = str(mapped or found)
        return is_public(address) or NetworkPeer(plain, port) in self.exact


def granted(asked: Iterable[str], ceiling: Iterable[NetworkPeer]) -> AllowList:
    """The list of a run, which the policy's ceiling has too. Raises UsageError or LaunchRefused."""
    try:
        peers = frozenset(parse_peer(text) for text in asked)
    except ValueError as broken:
        raise UsageError(str(broken), where="[run].allow", hint='allow = ["api.anthropic.com:443"]') from None
    if len(peers) > MAX_ALLOWED:
        raise UsageError(f"more than {MAX_ALLOWED} host:port pairs", where="[run].allow")
    above = frozenset(ceiling)
    if beyond := sorted(peers - above):
        more = f", and {len(beyond) - 1} more" if len(beyond) > 1 else ""
        raise LaunchRefused(
            LaunchReason.NETWORK_CEILING,
            f"the policy's network has no {beyond[0]}{more}",
            where="[run].allow",
            hint=f'add "{beyond[0]}" to network in policy.toml and raise its serial,'
            " or take it out of [run].allow",
        )
    return AllowList(peers, frozenset(peer for peer in above if _is_address(peer.host)))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
