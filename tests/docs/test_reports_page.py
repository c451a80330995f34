"""docs/reference/public-reports.md names tests that exist, and each test that bears a report's name."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/public-reports.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| **")]
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+::\w+)`", PAGE)))
CASES = {f"CFG-{n}" for n in ("01", "02", "06", "09", "11", "14", "15")}
CASES |= {f"BLD-{n}" for n in ("01", "02", "04", "05", "06", "12")} | {
    f"CRD-{n}" for n in ("02", "04", "05", "07")
}
CASES |= {
    f"S-{n}"
    for n in ("01", "06", "07", "09", "10", "11", "14", "15", "17", "20", "21", "24", "25", "26", "27")
}
CASES |= {f"RUN-{n}" for n in ("02", "03", "04", "06", "09", "11", "12", "14")} | {
    f"PRV-{n}" for n in ("01", "06", "08", "09")
}


@cache
def functions_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    assert function.startswith("test_")
    assert function in functions_in(ROOT / path)


def test_each_case_has_a_row_with_a_report_and_a_test() -> None:
    found = {}
    for row in ROWS:
        cells = row.strip("|").split(" | ")
        assert len(cells) == 3, row
        case = re.match(r" \*\*([A-Z]+-\d\d)\*\* [\w.-]+/[\w.-]+#\d+[, ]?.*: .+", cells[0])
        assert case, row
        found[case[1]] = re.findall(r"`(tests/[^`]+)`", cells[2])
    assert set(found) == CASES
    assert [case for case, tests in found.items() if not tests or not set(tests) <= set(NAMED)] == []


def test_no_test_that_bears_the_name_of_a_report_is_forgotten() -> None:
    bearing = {
        f"{path.relative_to(ROOT)}::{name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in functions_in(path)
        if re.match(r"test_(?:cfg|bld|crd|prv|run|s)_\d\d_", name)
    }
    assert bearing
    assert sorted(bearing - set(NAMED)) == []
