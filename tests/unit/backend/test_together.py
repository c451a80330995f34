"""Two questions at once: both answered, errors in order, and nobody left alone with a call that hangs."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Never

import pytest

from backend.engines.client import Client
from backend.together import abandoned, both
from images.errors import HostError


class Interrupted(BaseException):
    """As a signal handler raises it."""


def fails(message: str) -> Never:
    raise HostError(message)


def test_neither_waits_for_the_other() -> None:
    met = threading.Barrier(2, timeout=20)
    assert both(lambda: ("first", met.wait() >= 0), lambda: ("second", met.wait() >= 0)) == (
        ("first", True),
        ("second", True),
    )


def test_the_first_error_is_the_first_calls() -> None:
    with pytest.raises(HostError, match="one"):
        both(lambda: fails("one"), lambda: fails("two"))
    with pytest.raises(HostError, match="two"):
        both(lambda: 1, lambda: fails("two"))


def hung(ended: list[str], begun: threading.Event) -> None:
    """A call that looks whether anybody waits for it, and for nothing else."""
    begun.set()
    looks, until = abandoned(), time.monotonic() + 20
    assert looks is not None
    while not looks() and time.monotonic() < until:
        time.sleep(0.01)
    ended.append("abandoned" if looks() else "forgotten")


def test_an_interrupted_caller_leaves_no_call_behind() -> None:
    ended: list[str] = []
    begun = threading.Event()

    def interrupted() -> Never:
        begun.wait(20)
        raise Interrupted

    with pytest.raises(Interrupted):
        both(interrupted, lambda: hung(ended, begun))
    assert ended == ["abandoned"]
    assert abandoned() is None  # outside, an exception tells


def test_it_holds_within_one_another_too() -> None:
    ended: list[str] = []
    begun = threading.Event()

    def interrupted() -> Never:
        begun.wait(20)
        raise Interrupted

    with pytest.raises(Interrupted):
        both(interrupted, lambda: both(lambda: hung(ended, begun), lambda: None))
    assert ended == ["abandoned"]


def test_a_client_that_hangs_is_ended_with_its_caller(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program = tmp_path / "hangs"
    program.write_text(f"#!/bin/sh\n: > {begun}\nexec sleep 300\n")
    program.chmod(0o700)
    client = Client(product="docker", start=(str(program),), environment={"PATH": "/usr/bin:/bin"})

    def interrupted() -> Never:
        until = time.monotonic() + 20
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.01)
        raise Interrupted

    before = time.monotonic()
    with pytest.raises(Interrupted):
        both(interrupted, lambda: client.ask("info"))
    assert begun.exists()
    assert time.monotonic() - before < 50, sys.version  # the call's own limit is 60 s
