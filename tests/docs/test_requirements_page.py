"""docs/reference/requirements.md has one line for each requirement, and names tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_reports_page import ROOT, functions_in

PAGE = (ROOT / "docs/reference/requirements.md").read_text()
ROWS = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| **")]
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+::\w+)`", PAGE)))
LAST = {"N": 5, "I": 10, "P": 2, "R": 15, "B": 10, "S": 7}
SHOWN = {"fake", "real", "fake, real", "doc", "none"}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    assert function.startswith("test_")
    assert function in functions_in(ROOT / path)


def test_each_requirement_has_one_line() -> None:
    found = [re.match(r" \*\*([A-Z]\d+)\*\* \S", cells[0]) for cells in ROWS]
    assert [one[1] if one else None for one in found] == [
        f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)
    ]


@pytest.mark.parametrize("cells", ROWS, ids=lambda cells: cells[0].split("**")[1])
def test_what_is_shown_is_held_by_a_test_of_that_kind_or_said_to_be_untested(cells: list[str]) -> None:
    assert len(cells) == 3
    kind, _, said = cells[1].strip().partition("; ")
    tests = re.findall(r"`(tests/[^`]+)`", cells[2])
    assert kind in SHOWN
    assert set(tests) <= set(NAMED)
    # The contract runs against the fake and each real engine.
    of_both = [name for name in tests if name.startswith("tests/contract/")]
    real = [name for name in tests if name.startswith("tests/real/")] + of_both
    fake = [name for name in tests if not name.startswith("tests/real/")] + of_both
    assert ("real" in kind) is bool(real)
    assert "fake" not in kind or fake
    if kind == "none":
        assert "*untested*" in said
    if kind == "doc":
        assert "](" in said
    assert "untested" not in said or "*untested*" in said
