"""`builder policy check` and `pin` from outside: exit codes, lines, one object with a schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.cli import main_inner
from builder.cli.invocation import Invocation
from builder.cli.verbs import policy_verb
from builder.state import State, open_state
from images.errors import ExitCode
from provenance.checks import CheckId
from provenance.marks import pin_marks
from provenance.policy import Policy
from provenance.policy_words import DECIDED_BY
from provenance.verify import Purpose, VerificationReport
from tests.fakes.locks import AMD64
from tests.fakes.proved import NOW, World, make_world
from tests.results import check as check_object

Type = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state")


@pytest.fixture
def world(state: State) -> World:
    made = make_world(state.root)
    made.prove()
    pin_marks(state.marks, made.policy)
    return made


@pytest.fixture
def type_policy(
    world: World,
    state: State,
    typed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Type:
    """Types a `builder policy`; the image of the world is judged as a launch does, without a real base."""

    def judged(*_: Any, **__: Any) -> VerificationReport:
        return world.verify(purpose=Purpose.ADMISSION, now=NOW)

    def type_it(*words: str, policy: Policy | None = None) -> tuple[int, str, str]:
        place = (policy or world.policy).path
        argv = ["policy", *words, "--state", str(state.root), "--policy", str(place)]
        code = main_inner(argv, {"HOME": str(typed), "PATH": "/usr/bin:/bin"})
        return code, *capsys.readouterr()

    monkeypatch.setattr(policy_verb, "verify_image", judged)
    monkeypatch.setattr(Invocation, "now", lambda _: NOW)
    monkeypatch.setattr(policy_verb, "host_platform", lambda: AMD64)
    return type_it


def test_a_policy_alone(type_policy: Type, world: World) -> None:
    code, out, err = type_policy("check")
    assert (code, out.strip()) == (ExitCode.DONE, str(world.policy.digest))
    assert "images may be launched under it" in err


def test_an_image_that_nobody_attested_is_not_admitted_and_who_decides_is_told(
    type_policy: Type, world: World
) -> None:
    code, out, err = type_policy("check", str(world.image.digest))
    assert (code, out) == (ExitCode.VERIFY, "")
    assert "19 failed: verification summary" in err
    assert "[trust.verifier_ids]" in err
    assert "no launch is admitted" in err
    world.attest()
    code, out, err = type_policy("check", str(world.image.digest))
    assert (code, out.strip()) == (ExitCode.DONE, str(world.policy.digest))
    assert f"an image may be launched under it: {world.image.digest}" in err


def test_the_object_has_every_check_and_a_schema(type_policy: Type, world: World) -> None:
    for words, code in (((), ExitCode.DONE), ((str(world.image.digest),), ExitCode.VERIFY)):
        done, out, _ = type_policy("check", *words, "--json")
        found = json.loads(out)
        assert check_object(found)["ok"] is found["admits"]
        assert (done, found["admits"]) == (code, code == ExitCode.DONE)
        assert [one["number"] for one in found["decisions"]] == (list(map(int, CheckId)) if words else [])
    decided = {one["number"]: tuple(one["decided_by"]) for one in found["decisions"]}
    assert decided == {int(check): DECIDED_BY.get(check, ()) for check in CheckId}


def test_an_ended_policy_refuses_everything(type_policy: Type, world: World, tmp_path: Path) -> None:
    ended = world.with_policy(lambda text: text.replace("2027-02-28", "2026-01-01"))
    code, _, err = type_policy("check", policy=ended.policy)
    assert code == ExitCode.VERIFY
    assert "REFUSES EVERYTHING: valid_until: the policy ended on 2026-01-01" in err
    assert "no launch is admitted of any image" in err


def test_nothing_is_written_by_a_check(type_policy: Type, state: State, world: World) -> None:
    before = {path: path.read_bytes() for path in state.root.rglob("*") if path.is_file()}
    type_policy("check", str(world.image.digest))
    assert {path: path.read_bytes() for path in state.root.rglob("*") if path.is_file()} == before


def test_pin_takes_no_image(type_policy: Type) -> None:
    assert type_policy("pin", "sha256:" + "0" * 64)[0] == ExitCode.USAGE
    assert type_policy("pin")[0] == ExitCode.DONE
