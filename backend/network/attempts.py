"""What became of each attempt to reach the network: a closed set of decisions, and a bounded log of them."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from provenance.statements import utc

if TYPE_CHECKING:
    from images.config import NetworkPeer
    from images.strictjson import JsonValue

# Kept in full; what goes beyond is counted by decision. Each way of being refused has room of its own, so
# that a flood of one kind hides neither a carried attempt nor a refused one of another kind.
MAX_CARRIED: Final = 1000
MAX_REFUSED: Final = 200


class Decision(StrEnum):
    """What became of one attempt; each has a line in docs/reference/network.md."""

    CARRIED = "carried"
    CUT_AT_THE_END = "cut-at-the-end"
    CUT_IDLE = "cut-idle"
    CUT_BYTES = "cut-bytes"
    NOT_LISTED = "not-listed"
    NOT_CONNECT = "not-connect"
    MALFORMED = "malformed"
    TOO_SLOW = "too-slow"
    PRIVATE_ADDRESS = "private-address"
    UNRESOLVED = "unresolved"
    UNREACHABLE = "unreachable"
    PROXY_UNREACHABLE = "proxy-unreachable"
    PROXY_REFUSED = "proxy-refused"

    @property
    def carried(self) -> bool:
        """Whether bytes of the agent's went to the peer."""
        return self in _CARRIED


class Refused(Exception):
    """An attempt that is not carried, and why."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.value)
        self.decision = decision


_CARRIED: Final = frozenset(
    {Decision.CARRIED, Decision.CUT_AT_THE_END, Decision.CUT_IDLE, Decision.CUT_BYTES}
)


class ResolvedBy(StrEnum):
    """Who turned the name into an address: then only ``controller`` has judged that address."""

    NOBODY = "nobody"
    CONTROLLER = "controller"
    PROXY = "proxy"


@dataclass(slots=True)
class Attempt:
    """One connection to the controller's socket, while it lasts and afterwards.

    ``number``: how many came before it. ``host``, ``port``: None unless the request was well-formed.
    ``address``: what was connected to, empty if nothing was, or if a proxy knows. ``sent``, ``received``: in
    bytes, of the agent's and for it. ``started``, ``ended``: the controller's clock; None while it lasts.
    """

    number: int
    started: datetime
    decision: Decision = Decision.CUT_AT_THE_END
    host: str | None = None
    port: int | None = None
    address: str = ""
    resolved_by: ResolvedBy = ResolvedBy.NOBODY
    sent: int = 0
    received: int = 0
    ended: datetime | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """As the launch record has it."""
        return {
            "host": self.host,
            "port": self.port,
            "decision": self.decision.value,
            "address": self.address,
            "resolvedBy": self.resolved_by.value,
            "sent": self.sent,
            "received": self.received,
            "startedOn": utc(self.started),
            "endedOn": utc(self.ended) if self.ended else None,
        }


@dataclass(slots=True)
class AttemptLog:
    """Every attempt of one launch. Used from many threads.

    ``show``: what may be told of a host that the agent has written: its letters may be a credential.
    """

    now: Callable[[], datetime]
    show: Callable[[str], str] = str
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)
    _open: list[Attempt] = field(default_factory=list)
    _carried: list[Attempt] = field(default_factory=list)
    _refused: dict[Decision, list[Attempt]] = field(default_factory=dict)
    _more: Counter[Decision] = field(default_factory=Counter)

    def begin(self) -> Attempt:
        """An attempt that has just come; :meth:`finish` it."""
        with self._lock:
            attempt = Attempt(number=next(self._numbers), started=self.now())
            self._open.append(attempt)
        return attempt

    def name(self, attempt: Attempt, peer: NetworkPeer) -> None:
        """Say whom it asks for."""
        attempt.host, attempt.port = self.show(peer.host), peer.port

    def finish(self, attempt: Attempt, decision: Decision) -> None:
        """Write down what became of it."""
        attempt.decision, attempt.ended = decision, self.now()
        with self._lock:
            self._open.remove(attempt)
            if decision.carried:
                kept, room = self._carried, MAX_CARRIED
            else:
                kept, room = self._refused.setdefault(decision, []), MAX_REFUSED
            if len(kept) < room:
                kept.append(attempt)
            else:
                self._more[decision] += 1

    def attempts(self) -> tuple[Attempt, ...]:
        """Those that are kept, in the order in which they came; open ones as cut at the end."""
        with self._lock:
            refused = itertools.chain.from_iterable(self._refused.values())
            return tuple(sorted([*self._open, *self._carried, *refused], key=lambda one: one.number))

    def more(self) -> tuple[tuple[Decision, int], ...]:
        """How many there were beyond those, by decision."""
        with self._lock:
            return tuple(sorted(self._more.items()))
