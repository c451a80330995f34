"""Raw progress: plain lines, the failed step, and nothing untrusted passed on as it came."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.building.progress import BuildProgress
from tests.fakes.credentials import pem

TOKEN = "ghp_" + "a" * 36


def vertex(name: str, digest: str = "sha256:a", **more: object) -> bytes:
    return json.dumps({"vertexes": [{"digest": digest, "name": name, **more}]}).encode() + b"\n"


def log(text: bytes, digest: str = "sha256:a") -> bytes:
    data = base64.b64encode(text).decode()
    return json.dumps({"logs": [{"vertex": digest, "stream": 1, "data": data}]}).encode() + b"\n"


def progress_of(*chunks: bytes) -> tuple[BuildProgress, list[str]]:
    lines: list[str] = []
    progress = BuildProgress(lines.append)
    for chunk in chunks:
        progress.take(chunk)
    progress.close()
    return progress, lines


def test_steps_are_told_once_each_time_they_change() -> None:
    name = '[pi 2/3] RUN --network=none     --mount=type=tmpfs,target=/tmp     ["sh"]'
    _, lines = progress_of(
        vertex(name),
        vertex(name, started="1"),
        log(b"step: one\nstep: t"),
        log(b"wo\n"),
        vertex(name, started="1", completed="2"),
        vertex(name, started="1", completed="2"),
        vertex("[x]", "sha256:b", started="1", completed="2", cached=True),
    )
    assert lines == [
        '[pi 2/3] RUN ["sh"]',
        "step: one",
        "step: two",
        '[pi 2/3] RUN ["sh"]: done',
        "[x]",
        "[x]: unchanged",
    ]


def test_the_culprit_is_named_not_its_victims() -> None:
    progress, _ = progress_of(
        vertex("victim", "sha256:v", started="1", completed="2", error="context canceled"),
        vertex("culprit", "sha256:c", started="1"),
        *(log(b"line %d\n" % n, "sha256:c") for n in range(30)),
        vertex("culprit", "sha256:c", started="1", completed="2", error="exit code: 3"),
    )
    assert progress.failed_step == "culprit"
    assert progress.last_lines() == (*(f"line {n}" for n in range(10, 30)), "exit code: 3")


def test_what_is_no_document_is_buildx_speaking() -> None:
    progress, lines = progress_of(b"ERROR: no builder\n", b'{"vertexes": 3}\n[1]\n', b"last words")
    assert progress.failed_step == ""
    assert progress.last_lines() == ("ERROR: no builder", "[1]", "last words")
    assert lines == list(progress.last_lines())


@pytest.mark.parametrize(
    "said",
    [
        (vertex("s", started="1"), log(f"token {TOKEN}\n".encode())),
        (vertex(f"RUN echo {TOKEN}", started="1"),),
        (vertex("s", started="1", completed="2", error=f"token {TOKEN}"),),
        (f"buildx: token {TOKEN}\n".encode(),),
    ],
    ids=["output", "name", "error", "no document"],
)
def test_a_credential_is_not_passed_on_wherever_it_is_said(said: tuple[bytes, ...]) -> None:
    progress, lines = progress_of(*said)
    assert "[redacted]" in "".join((*lines, *progress.last_lines()))
    assert TOKEN not in "".join((*lines, *progress.last_lines()))


def test_a_private_key_over_many_lines_and_pieces_is_not_passed_on() -> None:
    key = pem("rsa")
    said = b"before\n" + key + b"after\n"
    progress, lines = progress_of(
        vertex("s", started="1"), *(log(said[at : at + 100]) for at in range(0, len(said), 100))
    )
    assert lines[1:] == ["before", "[redacted]", "after"]
    assert key.splitlines()[1].decode() not in "".join((*lines, *progress.last_lines()))


def test_control_characters_are_not_passed_on() -> None:
    _, lines = progress_of(vertex("s", started="1"), log(b"\x1b[2Jgone\x07\xff\n"), b"\x1b]0;x\n")
    assert all(line.isprintable() for line in lines)


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_in_any_pieces(chunks: list[bytes]) -> None:
    progress, lines = progress_of(*chunks)
    assert all(line.isprintable() and len(line) <= 400 for line in (*lines, *progress.last_lines()))
