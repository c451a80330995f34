"""The output of a command inside, byte for byte, and where an object for programs begins after it."""

from __future__ import annotations

import io
import os

import pytest

from builder.cli.command_stream import CommandStream
from images.errors import HostError


@pytest.mark.parametrize(
    ("chunks", "written"),
    [
        ((), b""),
        ((b"",), b""),
        ((b"a\x00b",), b"a\x00b\n"),
        ((b"a\n",), b"a\n"),
        ((b"a\n", b"b"), b"a\nb\n"),
        ((b"a", b"\n"), b"a\n"),
        ((b"a\n", b""), b"a\n"),
        ((b"a", b""), b"a\n"),
    ],
)
def test_an_object_begins_on_a_line_of_its_own(chunks: tuple[bytes, ...], written: bytes) -> None:
    stream = io.BytesIO()
    told = CommandStream(stream)
    for chunk in chunks:
        told.write(chunk)
    assert stream.getvalue() == b"".join(chunks)
    told.end_line()
    told.end_line()
    assert stream.getvalue() == written


def test_what_cannot_be_written_is_a_failure_while_it_runs_and_none_of_its_own_after() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb", buffering=0) as stream:  # noqa: PTH123
        told = CommandStream(stream)
        with pytest.raises(HostError, match="output cannot be written: Broken pipe") as failed:
            told.write(b"said")
        assert failed.value.reason == "output"
        told.end_line()
