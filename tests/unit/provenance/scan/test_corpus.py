"""The seeded corpus: everything planted is found, and its clean twin is silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from provenance.scan.report import Verdict
from tests.corpus.planting import plant_image, recall
from tests.corpus.plants import plants

from .conftest import ScanImage


@pytest.mark.parametrize("seed", [1, 2])
def test_everything_planted_is_found(scan: ScanImage, tmp_path: Path, seed: int) -> None:
    planted = list(plants(seed, twin=False))
    image, documents = plant_image(tmp_path, planted)
    report = scan(image, documents=documents)
    found = recall(planted, report)
    assert {group: ids for group, ids in found.missed.items() if ids} == {}
    assert report.incomplete == ()
    assert report.opaque == ()
    assert sum(found.total.values()) > 400


@pytest.mark.parametrize("seed", [1, 2])
def test_the_clean_twin_is_silent(scan: ScanImage, tmp_path: Path, seed: int) -> None:
    planted = list(plants(seed, twin=True))
    image, documents = plant_image(tmp_path, planted)
    report = scan(image, documents=documents)
    assert report.findings == ()
    assert report.verdict is Verdict.CLEAN
