"""docs/reference/engines.md names each flag of the golden files and each line of the probe, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from backend.engines.client import CALL_SECONDS
from backend.probe import GONE_SECONDS, HostCheck, ProbeName

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "engines.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_flag_of_create_is_explained_and_no_other() -> None:
    golden = (ROOT / "tests" / "unit" / "backend" / "golden").glob("*.txt")
    used = set()
    for path in golden:
        for line in path.read_text().splitlines():
            if re.fullmatch(r"(sha256:)?[0-9a-f]{64}", line):  # the image: what follows is the command
                break
            if line.startswith("--"):
                used.add(line.split("=", 1)[0])
    first_column = [row.split("|")[1] for row in section("What create is given").splitlines() if "|" in row]
    explained = {flag for cell in first_column for flag in re.findall(r"`(--[a-z-]+)`", cell)}
    assert explained == used


def test_every_line_of_the_probe_is_explained_and_no_other() -> None:
    first_column = [row.split("|")[1] for row in section("What is probed").splitlines() if "|" in row]
    explained = [name for cell in first_column for name in re.findall(r"`([a-z-]+)`", cell)]
    assert explained == [name.value for name in ProbeName]


def test_every_line_about_the_host_is_explained_and_no_other() -> None:
    first_column = [
        row.split("|")[1] for row in section("What is asked of the host").splitlines() if "|" in row
    ]
    explained = [name for cell in first_column for name in re.findall(r"`([a-z-]+)`", cell)]
    assert explained == [name.value for name in HostCheck]


def test_the_figures_are_the_code_s() -> None:
    assert f"{CALL_SECONDS:g} s" in section("What the clients get to see")
    assert f"gone within {GONE_SECONDS:g} s" in section("What is probed")
