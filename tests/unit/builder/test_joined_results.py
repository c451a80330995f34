"""The summary that joins several pytest runs: it counts all, fails with any, and names what is untested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GOOD = '<testcase classname="a" name="one"/><testcase classname="a" name="two"/>'
BAD = '<testcase classname="a" name="three"><failure message="assert 1 == 2">long</failure></testcase>'
BROKEN = '<testcase classname="a" name="four"><error message="failed on teardown">long</error></testcase>'
SKIPPED = '<testcase classname="a" name="five"><skipped message="not here"/></testcase>'


def asked(*names: str) -> str:
    lines = "".join(f'<property name="asked" value="{name}"/>' for name in names)
    return f'<properties>{lines}<property name="evidence" value="what it ran on"/></properties>'


def joined(folder: Path, **files: str) -> tuple[int, str]:
    for name, body in files.items():
        text = f'<testsuites><testsuite name="pytest">{body}</testsuite></testsuites>'
        (folder / f"{name}.xml").write_text(text)
    words = ("-m", "pytest", "-q", "-p", "tests.joined", "-p", "no:cacheprovider")
    paths = [str(folder / f"{name}.xml") for name in files]
    done = subprocess.run(
        [sys.executable, *words, *paths], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_all_are_counted_in_the_last_line(tmp_path: Path) -> None:
    code, said = joined(tmp_path, unit=GOOD, docker=asked("docker") + GOOD + SKIPPED)
    assert code == 0
    last = said.strip().splitlines()[-1]
    assert last.startswith("4 passed, 1 skipped in ")
    assert "evidence: what it ran on" in said


def test_one_that_failed_anywhere_fails_all(tmp_path: Path) -> None:
    code, said = joined(tmp_path, unit=GOOD + BAD, docker=asked("docker") + GOOD + BROKEN)
    assert code == 1
    assert said.strip().splitlines()[-1].startswith("2 failed, 4 passed in ")
    assert "in unit.xml: assert 1 == 2" in said
    assert "in docker.xml: failed on teardown" in said


def test_a_run_without_results_is_no_success(tmp_path: Path) -> None:
    assert joined(tmp_path, unit=GOOD, docker="")[0] not in (0, 5)
    (tmp_path / "cut").mkdir()
    assert joined(tmp_path / "cut", unit=GOOD + "<testcase")[0] not in (0, 5)


def test_what_nobody_asked_for_is_untested(tmp_path: Path) -> None:
    _, said = joined(tmp_path, docker=asked("docker") + GOOD, rootless=asked("podman", "long") + GOOD)
    assert "untested: engine docker-rootless (not asked for" in said
    assert said.count("untested: ") == 1
