"""The wheel owns exactly four import names, and carries what the command needs at run time."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    out = tmp_path_factory.mktemp("wheel")
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(out), versions=["standard"]))
    assert sys.version_info >= (3, 11)
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_exactly_four_names(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "images",
        "provenance",
        "backend",
        "builder",
    }


def test_resources_travel(names: list[str]) -> None:
    assert "builder/resources/Containerfile.in" in names
    assert "builder/resources/bootstrap/bootstrap.lock" in names
