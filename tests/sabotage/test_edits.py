"""The sabotage list names places and tests that exist, so that it cannot rot unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sabotage.edits import EDITS, Edit

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.file}: {edit.old.strip()}")
def test_an_edit_has_one_place_and_one_test(edit: Edit) -> None:
    assert (ROOT / edit.file).read_text().count(edit.old) == 1
    path, _, name = edit.test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()


def test_each_edit_is_listed_once() -> None:
    assert len({(edit.file, edit.old) for edit in EDITS}) == len(EDITS)
