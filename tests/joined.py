"""Results that other pytest processes wrote as JUnit XML, as items of one more: its summary counts them all.

``python -m pytest -p tests.joined FILE.xml…``. Root and an ordinary user cannot share a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

ASKED: Final = "asked"  # a property for each engine and set that a run was asked for
EVIDENCE: Final = "evidence"  # a property for each line that says what a run was about
SEEN: Final = pytest.StashKey[list[tuple[str, str]]]()
ENGINE_NAMES: Final = ("docker", "docker-rootless", "podman")


class Results(pytest.File):
    """One run's file."""

    def collect(self) -> Iterator[pytest.Item]:
        """Its test cases; a run without any is an error."""
        root = ElementTree.parse(self.path).getroot()  # noqa: S314  (written by our own run a moment ago)
        seen = self.config.stash.setdefault(SEEN, [])
        seen += [(one.get("name", ""), one.get("value", "")) for one in root.iter("property")]
        cases = list(root.iter("testcase"))
        if not cases:
            raise self.CollectError(f"no test ran in {self.path.name}")
        for case in cases:
            name = f"{case.get('classname', '')}::{case.get('name', '')}"
            yield Result.from_parent(self, name=name, case=case)


class Result(pytest.Item):
    """One test case of another run."""

    def __init__(self, *, case: ElementTree.Element, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        self._case = case

    def runtest(self) -> None:
        """Ends as it ended there."""
        for kind in ("failure", "error", "skipped"):
            found = self._case.find(kind)
            if found is not None and kind == "skipped":
                pytest.skip(found.get("message", ""))
            if found is not None:
                raise EndedBadlyError(found.get("message", "") or (found.text or "")[-500:])

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:  # noqa: ARG002
        """In a few words: the run itself showed it in full."""
        return f"in {self.path.name}: {excinfo.value}"

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it was collected."""
        return self.path, None, self.name


class EndedBadlyError(Exception):
    """A test case that failed where it ran."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Results | None:
    return Results.from_parent(parent, path=file_path) if file_path.suffix == ".xml" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    seen = config.stash.get(SEEN, [])
    if not seen:
        return
    for name, value in dict.fromkeys(seen):  # two parts may run on one engine
        if name == EVIDENCE:
            terminalreporter.write_line(f"evidence: {value}")
    report_untested(terminalreporter, {value for name, value in seen if name == ASKED}, ENGINE_NAMES)


def report_untested(to: pytest.TerminalReporter, asked: set[str], engines: Iterable[str]) -> None:
    """Say what nobody asked for: untested is not passed."""
    for name in engines:
        if name not in asked:
            to.write_line(f"untested: engine {name} (not asked for; use --engine {name})")
    if "long" not in asked:
        to.write_line("untested: what is marked long (not asked for; use --long)")
