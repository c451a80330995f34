"""Candidates at home: one rename publishes, one rename withdraws, and what a killed withdrawal left goes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from backend.workspace.candidates import finish_withdrawals, place_of, published, withdraw
from images.errors import StateError


class Killed(BaseException):
    """Nobody handles it, as nobody handles SIGKILL."""


@pytest.fixture
def candidates(tmp_path: Path) -> Path:
    for launch in ("run.1", "run.2"):
        (place_of(tmp_path, launch) / "objects").mkdir(parents=True)
        (place_of(tmp_path, launch) / "HEAD").write_text("ref: refs/heads/x\n")
    return tmp_path


def test_withdrawn_and_gone_already_is_success(candidates: Path) -> None:
    for _ in range(2):
        withdraw(candidates, "run.1")
        assert published(candidates) == ("run.2",)
        assert [path.name for path in candidates.iterdir()] == ["run.2.git"]


def test_a_withdrawal_that_is_killed_half_way_has_withdrawn_it_whole(
    candidates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is half there is ever listed; recovery removes the rest."""

    def dies(place: Path) -> None:
        (place / "HEAD").unlink()
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", dies)
        with pytest.raises(Killed):
            withdraw(candidates, "run.1")
    assert published(candidates) == ("run.2",)
    assert len(list(candidates.iterdir())) == 2
    finish_withdrawals(candidates)
    finish_withdrawals(candidates)
    assert [path.name for path in candidates.iterdir()] == ["run.2.git"]
    finish_withdrawals(candidates / "never made")


def test_two_that_remove_the_same_do_each_other_no_harm(
    candidates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, first = shutil.rmtree, [True]

    def meanwhile(place: Path, *given: Any) -> None:
        if first:
            first.clear()
            real(place)
            raise FileNotFoundError(place)
        real(place, *given)

    monkeypatch.setattr(shutil, "rmtree", meanwhile)
    withdraw(candidates, "run.1")
    assert [path.name for path in candidates.iterdir()] == ["run.2.git"]


def test_one_that_cannot_be_removed_is_told(candidates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(place: Path) -> None:
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(StateError):
        withdraw(candidates, "run.1")
