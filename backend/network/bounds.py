"""The bounds of a run's network, and the operator's own proxy on the way out: values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from images.credentials import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one launch may use. Times in seconds.

    ``connections`` at a time, the others wait; ``attempts`` in all, then nothing is answered any more;
    ``octets``: bytes in both directions together; ``half_closed_seconds``: how long nothing may come once one
    side has said that it will say no more.
    """

    connections: int = 64
    attempts: int = 50_000
    octets: int = 64 << 30
    head_seconds: float = 10.0
    connect_seconds: float = 20.0
    idle_seconds: float = 900.0
    half_closed_seconds: float = 120.0


DEFAULT_BOUNDS: Final = Bounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """An HTTP proxy that the controller's connections go through, reached without TLS.

    ``authorization``: the whole value of Proxy-Authorization; empty for none. ``direct``: hosts that are
    reached without it, each with what is below it, or ``*``: their addresses the controller judges itself.
    """

    host: str
    port: int
    authorization: Secret
    direct: tuple[str, ...] = ()

    def carries(self, host: str) -> bool:
        """Whether connections to ``host`` go through it."""
        return not any(
            rule == "*" or host == rule.lstrip(".") or host.endswith("." + rule.lstrip("."))
            for rule in (text.lower() for text in self.direct)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """How the controller gets out, and whom the container believes. ``ca_bundle``: PEM, or empty."""

    upstream: Upstream | None = None
    ca_bundle: bytes = b""


DIRECT: Final = Uplink()
