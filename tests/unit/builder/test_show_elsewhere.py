"""`builder show --as`: a plan of what a launch would find proved, and of nothing else; without an engine."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from backend.elsewhere.showing import Form
from builder import verifying
from builder.cli import main_inner
from builder.cli.invocation import Invocation
from images.errors import ExitCode
from provenance.marks import pin_marks
from tests.fakes.admitted import NOW, launch_world
from tests.fakes.proved import World


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def now(_invocation: Invocation) -> datetime:
        return NOW

    def no_base(_plans: object) -> None:  # the tests' base holds no tools; real tests compare with a plan
        return None

    monkeypatch.setattr(Invocation, "now", now)
    monkeypatch.setattr(verifying, "_compare_config", no_base)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    return state


@pytest.fixture
def world(state: Path) -> World:
    return launch_world(state)


def show(world: World, *words: str) -> int:
    places = ("--state", str(world.root), "--config-dir", str(world.policy.path.parent))
    pin_marks(world.root / "marks.json", world.policy)
    return main_inner(["show", str(world.image.digest), *words, *places], {"PATH": "/nowhere"})


@pytest.mark.parametrize("form", list(Form))
def test_a_proved_image_is_shown_without_an_engine(
    world: World, form: Form, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(world, "--as", form.value) == ExitCode.DONE
    printed = capsys.readouterr().out
    assert "not admitted by builder" in printed.splitlines()[0]
    assert str(world.image.digest) in printed
    assert show(world, "--as", form.value, "--json") == ExitCode.DONE
    document = json.loads(capsys.readouterr().out)
    assert document["text"] == printed
    assert (document["image"], document["form"]) == (str(world.image.digest), form.value)


def test_what_no_verifier_signed_is_not_shown(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(World, "attest", lambda _world: SimpleNamespace(passed=True))
    assert show(launch_world(state), "--as", "docker") == ExitCode.VERIFY
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "hint: builder verify" in shown.err
    assert "--attest" in shown.err
