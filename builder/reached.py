"""Say in a line each what a run reached and what it was refused, from its launch record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from backend.network.attempts import Decision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backend.network.holding import NetworkSeen
    from builder.report import Reporter

_SHOWN: Final = 10


def tell_network(reporter: Reporter, seen: NetworkSeen | None, launch_id: str) -> None:
    """After a run with a network: how much went through, and who was refused, once with the reason."""
    if seen is None:
        return
    carried = sum(one.decision.carried for one in seen.attempts)
    carried += sum(count for decision, count in seen.more if decision.carried)
    refused: Counter[tuple[str, Decision]] = Counter(
        (f"{one.host}:{one.port}" if one.host is not None else "", one.decision)
        for one in seen.attempts
        if not one.decision.carried
    )
    further = sum(count for decision, count in seen.more if not decision.carried)
    reporter.say(f"network: {carried} carried, {refused.total() + further} refused")
    for (peer, decision), count in refused.most_common(_SHOWN):
        times = f", {count} times" if count > 1 else ""
        reporter.say(f"network: refused{' ' + peer if peer else ''}: {decision}{times}")
    if seen.relay_ended:
        reporter.say(f"network: {_ended(seen.relay_ended)}")
    if len(refused) > _SHOWN or further:
        reporter.say(f"network: the others: builder show {launch_id}")


def attempt_lines(record: Mapping[str, object]) -> Iterator[str]:
    """The ``network`` of a record's predicate, a line for each attempt; nothing for a run without one."""
    network = record.get("network")
    if not isinstance(network, dict):
        return
    attempts = network.get("attempts")
    for one in attempts if isinstance(attempts, list) else []:
        if isinstance(one, dict):
            yield _line(one)
    more = network.get("notListed")
    for decision, count in more.items() if isinstance(more, dict) else ():
        yield f"and {count} more {decision}"
    ended = network.get("relayEnded")
    if isinstance(ended, int) and ended > 0:
        yield _ended(ended)


def _ended(times: int) -> str:
    return f"the relay inside was ended {times} times before the command was"


def _line(one: Mapping[str, object]) -> str:
    peer = f"{one.get('host')}:{one.get('port')}" if one.get("host") is not None else "?"
    at = f" {one['address']}" if one.get("address") else ""
    moved = (
        f" {one.get('sent')} out {one.get('received')} in" if one.get("sent") or one.get("received") else ""
    )
    return f"{one.get('startedOn')} {peer} {one.get('decision')}{at}{moved}"
