"""The command line from outside: exit codes, one JSON object, a way on for every failure, no traceback."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from builder import cli
from builder.cli import WAYS_ON, main_inner
from builder.cli.verbs import VERBS
from images.errors import (
    BuilderError,
    BuildFailed,
    CredentialFound,
    ExitCode,
    HostError,
    Interrupted,
    KeyUnusable,
    LaunchReason,
    LaunchRefused,
    NetworkFailed,
    NetworkReason,
    PinError,
    StateError,
    Terminated,
    UsageError,
    VerifyFailed,
)

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs/reference/schemas/result.schema.json").read_text())
SECRET = "ghp_" + "0123456789abcdefghij" * 2
FAILURES = (
    UsageError("x"),
    HostError("x"),
    PinError("x"),
    BuildFailed("x"),
    CredentialFound("x"),
    VerifyFailed("x"),
    LaunchRefused(LaunchReason.POLICY, "x"),
    StateError("x"),
    NetworkFailed(NetworkReason.AUTH, "x"),
    KeyUnusable("x"),
    Interrupted("x"),
    Terminated("x"),
)


@pytest.fixture(autouse=True)
def own_process_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """main_inner scrubs the environment and takes SIGTERM: both are put back."""
    before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.clear()
    os.environ.update(before)
    signal.signal(signal.SIGTERM, handler)


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **more}


def fail_with(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    def perform(_invocation: object) -> None:
        raise failure

    monkeypatch.setattr(cli, "perform", perform)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda f: type(f).__name__)
def test_every_failure_has_its_code_a_way_on_and_one_object(
    failure: BuilderError, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, failure)
    assert main_inner(["show", "--json"], environment(tmp_path)) == failure.code
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    jsonschema.validate(found, SCHEMA)
    assert found["error"]["code"] == failure.code
    assert "error: x" in printed.err
    assert "hint: " in printed.err


def test_there_is_a_way_on_for_every_failure_code() -> None:
    assert set(WAYS_ON) == set(ExitCode) - {ExitCode.DONE, ExitCode.RUN_FAILED}


@pytest.mark.parametrize("failure", FAILURES, ids=lambda f: type(f).__name__)
def test_in_run_every_failure_of_ours_is_125_with_its_reason(
    failure: BuilderError, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, failure)
    assert main_inner(["run", "--", "true"], environment(tmp_path)) == ExitCode.RUN_FAILED
    assert f"reason: {failure.reason}" in capsys.readouterr().err
    assert main_inner(["run", "--dry-run", "--", "true"], environment(tmp_path)) == failure.code


def test_bad_usage_of_run_is_125_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main_inner(["run", "--no-such-option"], environment(tmp_path))
    assert ended.value.code == ExitCode.RUN_FAILED
    with pytest.raises(SystemExit) as ended:
        main_inner(["show", "--no-such-option"], environment(tmp_path))
    assert ended.value.code == ExitCode.USAGE
    assert "hint: " in capsys.readouterr().err


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())
    assert main_inner(["show"], environment(tmp_path)) == ExitCode.INTERRUPTED


def test_a_bug_leaves_a_redacted_report_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fail_with(monkeypatch, RuntimeError(f"it held {SECRET}"))
    assert main_inner(["show"], environment(tmp_path)) == ExitCode.BUG
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert SECRET not in printed
    (report,) = tmp_path.glob("builder-bug-*.txt")
    assert "RuntimeError" in report.read_text()
    assert SECRET not in report.read_text()
    assert report.stat().st_mode & 0o077 == 0


def test_no_credential_reaches_a_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = UsageError(f"bad {SECRET}", where=f"https://user:{SECRET}@x.test/", hint=f"use {SECRET}")
    fail_with(monkeypatch, failure)
    main_inner(["show", "--json"], environment(tmp_path))
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err


def test_the_debug_switch_of_a_library_that_prints_environments_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main_inner(["show"], environment(tmp_path, PYTHON_ON_WHALES_DEBUG="1"))
    assert code == ExitCode.HOST
    assert "unset PYTHON_ON_WHALES_DEBUG" in capsys.readouterr().err


def test_children_inherit_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    fail_with(monkeypatch, UsageError("x"))
    main_inner(["show"], environment(tmp_path, ANTHROPIC_API_KEY=SECRET))
    assert SECRET not in os.environ.values()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_teaches(verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main_inner([verb, "--help"], environment(tmp_path))
    assert ended.value.code == 0
    assert f"usage: builder {verb}" in capsys.readouterr().out
