"""`builder scan` as a person types it: what it writes, and how it answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.cli import main_inner
from images.errors import ExitCode
from tests.fakes.credentials import Entry, make_layout, make_tar, token
from tests.unit.builder.test_cli import environment


def layout_of(tmp_path: Path, *entries: Entry) -> str:
    return str(make_layout(tmp_path, [make_tar(entries)]).layout)


def test_sarif_is_written_beside_the_answer_and_holds_no_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.sarif"
    words = ["scan", layout_of(tmp_path, Entry("app/key", token())), "--sarif", str(out), "--json"]
    assert main_inner(words, environment(tmp_path)) == ExitCode.CREDENTIAL
    assert json.loads(capsys.readouterr().out)["report"]["verdict"] == "found"
    log = json.loads(out.read_text())
    assert [result["ruleId"] for result in log["runs"][0]["results"]] == ["anthropic-oauth"]
    assert token().decode() not in out.read_text()


def test_sarif_to_a_place_that_cannot_be_written_is_an_error_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["scan", layout_of(tmp_path, Entry("a", b"x")), "--sarif", str(tmp_path / "no" / "x.sarif")]
    assert main_inner(words, environment(tmp_path)) == ExitCode.STATE
    assert "x.sarif" in capsys.readouterr().err
