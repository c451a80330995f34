"""Whatever may take over a second says so when it begins: each place that was found silent, by its step."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.journal import Boundary
from backend.launch import launch
from builder.launching import _tell
from builder.report import Reporter
from provenance.verify import VerifiedImage
from tests.fakes.admitted import admitted_of, bench, request
from tests.fakes.engine import said as scripted
from tests.fakes.states import make_team, said
from tests.unit.builder.test_gc import gc


def test_gc_looks_and_removes(tmp_path: Path) -> None:
    team = make_team(tmp_path)
    gc(team)
    words = said(team.workshop)
    assert "look for what nothing holds …" in words
    assert "things …" in words


def test_a_launch_tells_of_each_boundary_once_it_is_written_down(
    tmp_path: Path, verified: VerifiedImage
) -> None:
    heard: list[Boundary] = []
    with bench(tmp_path) as at:
        at.engine.answers[("true",)] = scripted()

        def crossed(boundary: Boundary) -> None:
            assert at.journal.passed("run.1")[-1] is boundary  # written first
            heard.append(boundary)

        object.__setattr__(at.controller, "crossed", crossed)
        launch(at.controller, admitted_of(verified), request())
    assert heard[0] is Boundary.INTENDED
    assert heard.index(Boundary.COMMANDED) < heard.index(Boundary.ENDED) < heard.index(Boundary.REMOVED)


@pytest.mark.parametrize("boundary", list(Boundary))
def test_people_hear_of_what_takes_time(boundary: Boundary, capsys: pytest.CaptureFixture[str]) -> None:
    _tell(Reporter(), boundary)
    words = capsys.readouterr().err
    assert words.endswith(" …\n") if boundary in (Boundary.INTENDED, Boundary.ENDED) else words == ""
