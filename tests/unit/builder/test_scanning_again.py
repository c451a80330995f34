"""Who may leave out a layer that was found clean before: a build, and nobody who looks a second time."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from builder import verifying
from builder.building import scanning
from builder.building.bench import Bench, scan_for_credentials
from provenance.expectations import Expectation
from tests.attacks import Position, attack
from tests.fakes.proved import report_on
from tests.fakes.states import make_team, memory_of, said

ROOT = Path(__file__).resolve().parents[3]


def test_only_the_build_remembers_layers() -> None:
    made = {
        path.relative_to(ROOT).as_posix()
        for layer in ("provenance", "backend", "builder")
        for path in (ROOT / layer).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "LayerMemory"
    }
    assert made == {"builder/building/pipeline.py"}


@attack(by=Position.LAYOUT_WRITER)
def test_a_verification_reads_every_byte_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who made a build remember a layer as clean still meets the second look, which remembers nothing."""
    team, asked = make_team(tmp_path), []

    def scan_image(image: object, **how: object) -> object:
        asked.append(how["memory"])
        return report_on(team.image)

    monkeypatch.setattr(scanning, "scan_image", scan_image)
    chosen = verifying.Chosen(team.image.digest, Expectation(lock=team.raw_lock), None)
    verifying._rescan(chosen, team.workshop.store)(team.image)
    assert asked == [None]


def test_a_second_build_says_which_layers_it_did_not_scan_again(tmp_path: Path) -> None:
    team = make_team(tmp_path)
    bench = cast(Bench, SimpleNamespace(workshop=team.workshop))
    count = len(team.image.manifest.layers)
    reports = [scan_for_credentials(bench, team.image, team.lock, memory_of(team)).report for _ in range(2)]
    assert reports[0] == reports[1]
    assert said(team.workshop).count("in an earlier build") == 1
    assert f"MB, {count} layers of it in an earlier build, ruleset" in said(team.workshop)
