"""Live output for people: redacted however it was split, complete at the end, and a prompt is shown."""

from __future__ import annotations

import os

import pytest

from backend import live
from backend.agent_command import Output
from backend.launch import launch
from backend.live import redacted
from backend.runner import Command, run
from images.credentials import Secret
from provenance.verify import VerifiedImage
from tests.fakes.admitted import Bench, admitted_of, request
from tests.fakes.credentials import token
from tests.fakes.engine import said

VALUE = Secret(b"dummy-value-of-a-key")


def test_a_launch_shows_no_known_value_and_counts_its_own_bytes(at: Bench, verified: VerifiedImage) -> None:
    out, err = bytearray(), bytearray()
    at.engine.answers[("true",)] = said(b"key dummy-value-of-a-key end", stderr=token() + b"\n")
    with redacted(Output(on_stdout=out.extend, on_stderr=err.extend), [VALUE]) as output:
        record = launch(at.controller, admitted_of(verified), request(), output)
    assert (bytes(out), bytes(err)) == (b"key [redacted] end", b"[redacted]\n")
    assert record.observed.stdout_bytes == len(b"key dummy-value-of-a-key end")


def test_the_rest_comes_also_when_the_launch_fails() -> None:
    out = bytearray()

    def fail() -> None:
        with redacted(Output(on_stdout=out.extend), [VALUE]) as output:
            assert output.on_stdout is not None
            output.on_stdout(b"last words of dummy-value")
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert bytes(out) == b"last words of dummy-value"


def test_one_consumer_of_both_pipes_gets_two_streams() -> None:
    seen = bytearray()
    take = seen.extend
    with redacted(Output(on_stdout=take, on_stderr=take), [VALUE]) as output:
        assert output.on_stdout is not None
        assert output.on_stderr is not None
        output.on_stdout(b"dummy-value-")
        output.on_stderr(b"a line\n")
        output.on_stdout(b"of-a-key\n")
    assert bytes(seen) == b"a line\n[redacted]\n"


def test_no_consumer_stays_none_and_cancel_is_the_callers() -> None:
    asked: list[bool] = [False, True]
    with redacted(Output(cancelled=lambda: asked.pop(0)), [VALUE]) as output:
        assert (output.on_stdout, output.on_stderr) == (None, None)
        assert output.cancelled is not None
        assert [output.cancelled(), output.cancelled()] == [False, True]


def test_a_prompt_without_a_newline_is_shown_while_the_child_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real process runner: nothing else asks so often whether it shall stop."""
    monkeypatch.setattr(live, "PATIENCE", 0.1)
    out = bytearray()

    def stop() -> bool:
        return bytes(out) == b"please type: "

    with redacted(Output(on_stdout=out.extend, cancelled=stop), [VALUE]) as output:
        run(
            Command(
                argv=("sh", "-c", "printf 'please type: dummy-val'; sleep 20"),
                environment={"PATH": os.defpath},
                deadline=15,
            ),
            on_stdout=output.on_stdout,
            cancelled=output.cancelled,
        )
        assert bytes(out) == b"please type: "
    assert bytes(out) == b"please type: dummy-val"
