"""Answers of the resolver container, and a scan's request, with a list or a table where a word belongs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from backend.runner import Ending, Outcome
from builder.resolve.debian import _read_answer
from builder.resolve.exchange import Member, Resolver, Secrets, _event, exchange
from builder.resolve.tags import look_up
from builder.state import open_state
from builder.storage.references import read_references
from builder.storage.store import ContentStore
from images.config import parse_base
from images.credentials import Secret
from images.digests import Digest
from images.errors import HostError, UsageError
from provenance.scan.request import ScanRequest, Target, read_request
from tests.fakes.registry import tar

ODD: list[Any] = [[], {}, [[]], {"a": 1}, None, True, 1, 1.5, ["E404"]]


def resolver(folder: Path, answer: bytes) -> Resolver:
    def run(_job: bytes, result: Path, _said: object, _feed: object) -> Outcome:
        result.write_bytes(answer)
        return Outcome(ending=Ending.EXITED, exit_code=0)

    return Resolver(
        run=run, secrets=Secrets(), store=ContentStore(folder), staging=folder, on_progress=lambda _: None
    )


@pytest.mark.parametrize("code", ODD)
def test_the_code_of_a_tag(code: object, tmp_path: Path) -> None:
    said = tar({"manifests/1.json": b"{}", "result.json": json.dumps({"found": [code, ""]}).encode()})
    with pytest.raises(HostError, match="another form"):
        look_up(parse_base(f"registry.test/a:b@{Digest.of(b'x')}"), resolver(tmp_path, said))


@pytest.mark.parametrize("action", ODD)
def test_the_action_of_a_step(action: object) -> None:
    raw = json.dumps({"packages": [], "steps": [{"action": action, "names": []}]}).encode()
    with pytest.raises(HostError, match="another form"):
        _read_answer(Member("debian.json", len(raw), io.BytesIO(raw)))


@pytest.mark.parametrize("step", ODD)
def test_the_step_of_progress(step: object) -> None:
    assert _event(json.dumps({"step": step}).encode()) is None


def test_an_answer_that_is_no_tar_is_the_containers_failure(tmp_path: Path) -> None:
    for answer in (b"", b"\xff" * 1024, tar({"result.json": b"{}"})[:600]):
        with pytest.raises(HostError, match="another form"):
            exchange({}, resolver(tmp_path, answer), lambda _: None)


def request() -> dict[str, Any]:
    made = ScanRequest(target=Target.IMAGE, path=Path("/x"), digest=None, key=Secret(b"k" * 16))
    document: dict[str, Any] = json.loads(made.to_json())
    return document


@pytest.mark.parametrize("key", sorted(request()))
@pytest.mark.parametrize("value", [*ODD, "\u00e9", "without"])
def test_a_request_of_another_form_is_refused_without_its_key(key: str, value: object) -> None:
    document = request() | {key: value}
    if value == "without":
        del document[key]
    try:
        read_request(json.dumps(document).encode())
    except UsageError as refused:
        assert b"6b6b6b" not in str(refused).encode()  # noqa: PT017


def test_a_reference_of_other_bytes_still_holds_what_it_mentions(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    digest = Digest.of(b"x")
    (state.references / f"added-{'a' * 64}").write_bytes(b"\xff" + digest.encode())
    (found,) = read_references(state)
    assert found.mentioned == {digest}
