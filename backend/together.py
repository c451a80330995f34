"""Ask two things at once, where neither waits for the other's answer: each is a client process of its own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Final, TypeVar

_First = TypeVar("_First")
_Second = TypeVar("_Second")

# Whether whoever asked has gone: a signal is an exception in his thread alone, not in the one that asks.
_abandoned: Final[ContextVar[Callable[[], bool] | None]] = ContextVar("abandoned", default=None)


def abandoned() -> Callable[[], bool] | None:
    """What a call in this thread looks at to see that nobody waits for it; None where an exception tells."""
    return _abandoned.get()


def both(first: Callable[[], _First], second: Callable[[], _Second]) -> tuple[_First, _Second]:
    """The answers of two calls that are made at the same time; both have ended when this returns or raises.

    Raises what ``first`` raised, else what ``second`` did. Where this is itself interrupted, the other call
    is cancelled, and waited for.
    """
    gone, around = threading.Event(), abandoned()

    def alone() -> bool:
        return gone.is_set() or (around is not None and around())

    context = contextvars.copy_context()
    context.run(_abandoned.set, alone)
    with ThreadPoolExecutor(max_workers=1) as pool:
        other = pool.submit(context.run, second)
        answered = False
        try:
            found = first()
            answer = other.result()
            answered = True
        finally:
            if not answered:
                gone.set()
    return found, answer
