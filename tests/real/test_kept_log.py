"""`run --keep-log` on a real engine: what the command said is there afterwards, without its credential."""

from __future__ import annotations

import re

import pytest

from tests.real.spine import Spine

pytestmark = pytest.mark.real

TOKEN = "ghp_" + "0123456789abcdefghij" * 2


def test_what_a_command_said_is_kept_when_asked_and_only_then(spine: Spine) -> None:
    said = f"p=ghp_; echo one; echo ${{p}}{TOKEN[4:]}; sleep 0.3; echo two >&2; exit 3"
    command = ("--", "sh", "-c", said)  # put together inside: no argv may hold what looks like a credential
    done = spine.builder("run", "--keep-log", *command)
    assert done.returncode == 3, done.stderr
    assert done.stdout == f"one\n{TOKEN}\n"
    launch = re.search(r"builder logs (\S+)", done.stderr)
    assert launch is not None
    printed = spine.builder("logs", launch[1])
    assert printed.returncode == 0, printed.stderr
    assert TOKEN not in printed.stdout
    first, _, last = printed.stdout.split("\n")[:3]
    assert (first, last) == ("one", "two")
    plain = spine.builder("run", "--", "true")
    assert "builder logs" not in plain.stderr
    recorded = re.search(r"launch record: (\S+)", plain.stderr)
    assert recorded is not None
    missing = spine.builder("logs", recorded[1])
    assert missing.returncode == 2
    assert "only run --keep-log keeps it" in missing.stderr
