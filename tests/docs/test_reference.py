"""Reference pages say what the program says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from backend.network.attempts import MAX_CARRIED, MAX_REFUSED, Decision
from backend.network.bounds import DEFAULT_BOUNDS
from backend.requests import LaunchClass
from builder.cli.documents import RESULT_SCHEMA, Answer
from builder.cli.documents.collected import GcDocument
from builder.cli.documents.launches import LaunchedDocument
from builder.cli.documents.scanned import ScannedDocument
from builder.cli.verbs import VERBS
from images.digests import Digest
from images.errors import ExitCode, LaunchReason, NetworkReason
from images.relay import RELAY_PORT
from provenance.policy import Mode
from provenance.scan.report import ScanReport
from provenance.scan.report_json import report_document
from tests import results
from tests.docs import command_line, result_schemas

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", (REFERENCE / "exit-codes.md").read_text(), re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(int(c), c.name.lower()) for c in ExitCode]


def test_network_reasons() -> None:
    text = (REFERENCE / "exit-codes.md").read_text()
    assert all(f"`{reason.value}`" in text for reason in NetworkReason)


def test_launch_refusals() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", (REFERENCE / "launch-refusals.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(reason.value for reason in LaunchReason)


def test_decisions_about_the_network() -> None:
    table = (REFERENCE / "network.md").read_text().partition("## Decisions")[2]
    rows = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert rows == [decision.value for decision in Decision]


def test_the_bounds_of_the_network_are_those_that_are_written() -> None:
    text = (REFERENCE / "network.md").read_text()
    for written in (
        f"{DEFAULT_BOUNDS.connections} connections",
        f"{DEFAULT_BOUNDS.attempts:,} attempts",
        f"{DEFAULT_BOUNDS.octets >> 30} GiB",
        f"{DEFAULT_BOUNDS.head_seconds:.0f} seconds",
        f"{DEFAULT_BOUNDS.connect_seconds:.0f} seconds",
        f"{DEFAULT_BOUNDS.idle_seconds / 60:.0f} minutes",
        f"or for {DEFAULT_BOUNDS.half_closed_seconds / 60:.0f} once one side had ended",
        f"{MAX_CARRIED:,} carried and {MAX_REFUSED} refused",
        f"`http://127.0.0.1:{RELAY_PORT}`",
    ):
        assert written in text


def test_the_command_line_page_is_the_programs_own_help() -> None:
    assert command_line.PAGE.read_text() == command_line.render(), "run: python -m tests.docs.command_line"


@pytest.mark.parametrize("name", results.kinds())
def test_the_schemas_of_results_are_those_of_the_types(name: str) -> None:
    made = result_schemas.render(name)
    jsonschema.Draft202012Validator.check_schema(json.loads(made))
    assert results.page(name).read_text() == made, "run: python -m tests.docs.result_schemas"


def test_every_command_is_listed_with_its_schemas() -> None:
    assert result_schemas.TABLE.read_text() == result_schemas.render_page()
    assert result_schemas.render_page().count("](schemas/") >= len(results.kinds())


def test_every_result_has_a_schema_and_every_schema_a_use() -> None:
    """A verb that returns anything else does not pass mypy; a kind that nothing returns is a dead page."""
    said = {verb: {document.KIND.name for document in found} for verb, found in results.possible().items()}
    assert set(said) == set(VERBS)
    assert all(said.values())
    assert set().union(*said.values()) == set(results.kinds())
    for verb, found in results.possible().items():
        assert {document.KIND.command for document in found} == {verb}
    files = {"result", "builder", "scan-report", "export", "export-manifest"}
    assert {path.name.removesuffix(".schema.json") for path in results.SCHEMAS.iterdir()} == files | {
        *results.kinds()
    }


def test_what_gives_a_verdict_is_named_on_the_page() -> None:
    verdicts = {one.KIND.command for one in results.kinds().values() if one.KIND.answer is Answer.VERDICT}
    (line,) = (line for line in result_schemas.TABLE.read_text().splitlines() if "It has both where" in line)
    assert set(re.findall(r"`([a-z]+)`", line)) - {"result", "error"} == verdicts


def test_the_codes_in_the_schema_of_failures() -> None:
    schema = json.loads(results.page("result").read_text())
    assert set(schema["properties"]["error"]["properties"]["code"]["enum"]) == set(ExitCode) - {ExitCode.DONE}


OBJECT = {"schema": RESULT_SCHEMA, "command": "gc"}
ERROR = {"code": 9, "reason": "state", "what": "x", "where": "", "hint": "df -h"}


@pytest.mark.parametrize(
    "wrong",
    [
        OBJECT | {"ok": True},
        OBJECT | {"ok": True, "result": "gc"},
        OBJECT | {"ok": False},
        OBJECT | {"ok": False, "error": ERROR | {"code": 0}},
        OBJECT | {"ok": False, "error": ERROR, "digest": "x"},
        OBJECT | {"ok": True, "error": ERROR, "result": GcDocument.KIND.identity},
        {"command": "gc", "ok": False, "error": ERROR},
    ],
)
def test_what_no_command_may_print(wrong: dict[str, Any]) -> None:
    results.check(OBJECT | {"ok": False, "error": ERROR})
    with pytest.raises(jsonschema.ValidationError):
        results.check(wrong)


LAUNCHED = {
    **OBJECT,
    "command": "run",
    "ok": True,
    **LaunchedDocument(
        launch="a.1",
        run="a",
        step=1,
        launch_class=LaunchClass.EXECUTE,
        image=Digest.of(b""),
        engine="podman",
        mode=Mode.REQUIRED,
        exit_code=3,
        statement=Digest.of(b""),
        exported=None,
    ).to_json(),
}


def test_a_result_is_held_to_its_own_schema() -> None:
    said = {"dry_run": False, "freed": 0, "removed": [], "held": []}
    good = OBJECT | {"ok": True, "result": GcDocument.KIND.identity, "gc": said}
    results.check_printed(["gc", "--json"], json.dumps(good))
    results.check_printed(["run", "--json", "--", "x"], f"said\n{json.dumps(LAUNCHED)}\n")
    results.check_printed(["run", "--", "x", "--json"], "said\n")
    for wrong in (good | {"gc": said | {"freed": -1}}, good | {"command": "ps"}, good | {"error": ERROR}):
        with pytest.raises(jsonschema.ValidationError):
            results.check_printed(["gc", "--json"], json.dumps(wrong))


def test_a_clean_verdict_and_a_bad_one() -> None:
    """The report inside is held to its own schema, which nobody has to fetch."""
    report = report_document(
        ScanReport(
            subject="x",
            ruleset=1,
            ruleset_digest=Digest.of(b""),
            engine="e",
            coverage=(),
            findings=(),
            cleared=(),
            opened=0,
            opened_bytes=0,
            opaque=(),
            opaque_count=0,
            incomplete=(),
        )
    )
    base = {"schema": RESULT_SCHEMA, "command": "scan", **ScannedDocument(report={**report}).to_json()}
    results.check(base | {"ok": True})
    results.check(base | {"ok": False, "error": ERROR | {"code": 6}})
    for wrong in (
        {"ok": False},
        {"ok": True, "error": ERROR},
        {"ok": True, "report": {**report, "ruleset": -1}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            results.check(base | wrong)
