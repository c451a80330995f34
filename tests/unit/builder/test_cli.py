"""The command line from outside: exit codes, one JSON object, a way on for every failure, no traceback."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from backend.engines.select import UNDECIDED
from builder import cli
from builder.cli import WAYS_ON, main_inner
from builder.cli.arguments import parse_arguments
from builder.cli.documents.host import DoctorDocument
from builder.cli.documents.runs import RunsDocument
from builder.cli.invocation import Result, make_invocation
from builder.cli.options.parser import BadUsage
from builder.cli.session import client_environment
from builder.cli.verbs import VERBS, build_verb
from builder.report import in_words
from builder.workshop import Workshop
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
from images.lockfile import lock_bytes
from provenance.signing import KeySigner
from tests.fakes.command_lines import LEAST_WORDS
from tests.fakes.evidence import key
from tests.fakes.locks import AMD64, ARM64, BUILDER_TOML, make_lock

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
    hangup = signal.getsignal(signal.SIGHUP)
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.clear()
    os.environ.update(before)
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGHUP, hangup)


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


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("json_output", [False, True], ids=["people", "programs"])
def test_bad_usage_of_a_verb_names_the_verb_s_own_help(
    verb: str, json_output: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = LEAST_WORDS.get(verb, ())
    code = main_inner([verb, *words, "--no-such-option", *["--json"][:json_output]], environment(tmp_path))
    assert code == (ExitCode.RUN_FAILED if verb == "run" else ExitCode.USAGE)
    out, err = capsys.readouterr()
    hint = f"builder {verb}{' add' if verb == 'store' else ''} --help"
    assert f"hint: {hint}" in err
    if not json_output:
        assert not out
        return
    found = json.loads(out)
    assert (found["command"], found["ok"]) == (verb, False)
    assert found["error"] == {
        "code": int(code),
        "reason": "usage",
        "what": "unrecognized arguments: --no-such-option",
        "where": "",
        "hint": hint,
    }


def test_a_usage_error_without_a_way_on_names_the_verb_s_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fail_with(monkeypatch, UsageError("--keep: a number"))
    assert main_inner(["gc"], environment(tmp_path)) == ExitCode.USAGE
    assert "hint: builder gc --help" in capsys.readouterr().err


def test_json_is_one_object_that_says_which_schema_it_follows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "perform", lambda _invocation: Result(document=RunsDocument(launches=())))
    assert main_inner(["runs", "--json"], environment(tmp_path)) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out) == {
        "schema": "https://agent-image-builder.example/result/v1",
        "command": "runs",
        "ok": True,
        "result": "https://agent-image-builder.example/schemas/runs/v1",
        "launches": [],
    }


BAD = DoctorDocument(engine=None, required_mode=False, lines=())


@pytest.mark.parametrize("json_output", [False, True], ids=["people", "programs"])
def test_a_bad_answer_is_a_failure_and_an_answer(
    json_output: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Whoever reads `ok` alone must not take an image for verified."""
    bad = Result(document=BAD, line="a line", failure=HostError(f"it cannot, {SECRET}"))
    monkeypatch.setattr(cli, "perform", lambda _invocation: bad)
    assert main_inner(["doctor", *["--json"][:json_output]], environment(tmp_path)) == ExitCode.HOST
    out, err = capsys.readouterr()
    assert "error: it cannot, " in err
    assert f"hint: {WAYS_ON[ExitCode.HOST]}" in err
    assert SECRET not in out + err
    if not json_output:
        assert out == ""
        return
    found = json.loads(out)
    assert (found["ok"], found["required_mode"], found["error"]["code"]) == (False, False, ExitCode.HOST)
    assert found["result"] == BAD.KIND.identity


def test_an_empty_list_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main_inner(["runs"], environment(tmp_path)) == ExitCode.DONE
    assert capsys.readouterr() == ("", "nothing was launched with this state\n")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"cpus": 2.0, "pids": 512}, "cpus=2 pids=512"),
        (["claude", "--version"], "claude --version"),
        (True, "yes"),
        (7200.0, "7200"),
        ([], "none"),
        ({}, "none"),
        (None, "none"),
        ("1000:1000", "1000:1000"),
    ],
)
def test_values_are_shown_in_no_programming_language(value: object, said: str) -> None:
    assert in_words(value) == said


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


BUILDER = (sys.executable, "-c", "from builder.cli import main; main()")


def shell(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A script in which ``builder`` is this program, as a process of its own."""
    text = f'builder() {{ {shlex.join(BUILDER)} "$@"; }}\n{script}'
    return subprocess.run(
        ["bash", "-c", text],
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        ("<&-", 0),
        (">&-", 0),
        ("2>&-", 0),
        ("<&- >&- 2>&-", 0),
        ("2>/dev/full", 0),
        (">/dev/full", int(ExitCode.STATE)),
        (">/dev/full 2>/dev/full", int(ExitCode.STATE)),
        ("2>&1 | true", 0),
        ("| true", 0),
        ("2> >(true)", 0),
    ],
)
def test_whatever_becomes_of_the_standard_streams_the_exit_code_is_the_answer(
    redirection: str, code: int, tmp_path: Path
) -> None:
    lock = tmp_path / "builder.lock"
    lock.write_bytes(lock_bytes(make_lock()))
    ended = shell(tmp_path, f"builder diff --json {lock} {lock} {redirection}; exit ${{PIPESTATUS[0]}}")
    assert (ended.returncode, "Traceback" in ended.stderr, "Exception" in ended.stderr) == (
        code,
        False,
        False,
    )


def test_closed_descriptors_are_not_given_to_files(tmp_path: Path) -> None:
    ended = shell(
        tmp_path,
        f"exec 3>&1; {sys.executable} -c 'from builder.cli.streams import open_standard_streams as o; "
        'import os; o(); os.write(3, str(os.open("/", os.O_RDONLY)).encode())\' <&- >&- 2>&-',
    )
    assert int(ended.stdout) > 3


@pytest.mark.parametrize("verb", ["show", "lock --check", "run --dry-run"])
def test_a_working_directory_that_is_gone(verb: str, tmp_path: Path) -> None:
    ended = shell(tmp_path, f"mkdir gone && cd gone && rmdir ../gone && builder {verb}")
    assert ended.returncode == ExitCode.USAGE
    assert "working directory" in ended.stderr
    assert "hint: cd " in ended.stderr


@pytest.mark.parametrize("home", ["", "relative", "/nonexistent"])
def test_a_home_that_is_no_absolute_path_makes_nothing_in_the_working_directory(
    home: str, tmp_path: Path
) -> None:
    main_inner(["lock", "--check"], {"HOME": home})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path)])
@pytest.mark.parametrize("argument", ["--config", "--passphrase-file"])
def test_what_is_no_file_is_refused_and_not_waited_for(
    make: Callable[[Path], None], argument: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "it")
    (tmp_path / "it").chmod(0o600) if (tmp_path / "it").exists() else None
    verb = ["build"] if argument == "--config" else ["init", "--state", str(tmp_path / "state")]
    assert main_inner([*verb, argument, "it"], environment(tmp_path)) in (ExitCode.USAGE, ExitCode.KEY)
    printed = capsys.readouterr().err
    assert "it: " in printed
    assert "hint: " in printed


@pytest.mark.parametrize("number", ["-1", "77", "99999999999999999999"])
def test_a_passphrase_descriptor_that_is_none(number: str, tmp_path: Path) -> None:
    assert main_inner(["init", f"--passphrase-fd={number}"], environment(tmp_path)) == ExitCode.KEY


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ((errno.ENOENT, "state/staging/lock-1/result.tar"), ExitCode.STATE),
        ((errno.ENOTDIR, "state/staging/lock-1/result.tar"), ExitCode.STATE),
        ((errno.ENOENT, "state/result.tar"), ExitCode.BUG),  # its folder is there: whoever wants it is wrong
        ((errno.ENOSPC, "state/result.tar"), ExitCode.STATE),
        ((errno.EIO, "state/staging/lock-1/result.tar"), ExitCode.STATE),
        ((errno.EISDIR, "state/staging/lock-1/result.tar"), ExitCode.BUG),
        ((errno.ENOENT, "elsewhere/lock-1/result.tar"), ExitCode.BUG),
    ],
)
def test_a_state_that_goes_away_under_a_command_is_no_bug(
    failure: tuple[int, str],
    code: ExitCode,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "state").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    number, place = failure
    fail_with(monkeypatch, OSError(number, os.strerror(number), str(tmp_path / place)))
    assert main_inner(["show", "--state", str(tmp_path / "state")], environment(tmp_path)) == code
    said = capsys.readouterr().err
    assert ("a bug" in said) is (code is ExitCode.BUG)
    assert "hint: " in said
    assert code is ExitCode.BUG or str(tmp_path / place) in said


@pytest.mark.parametrize("peer", ["api.anthropic.com", "https://api.anthropic.com:443", "*:443", ""])
def test_what_runs_may_reach_is_a_host_and_a_port(
    peer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["init", str(tmp_path / "project"), "--unencrypted-keys", "--base", f"a@sha256:{'0' * 64}"]
    assert main_inner([*words, f"--allow={peer}"], environment(tmp_path)) == ExitCode.USAGE
    assert "--allow: " in capsys.readouterr().err
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize("reason", [UNDECIDED, "engine-identity"])
def test_init_writes_nothing_before_it_is_known_which_engine_is_meant(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No engine is no reason to write nothing; two are, since what is written names one."""

    def two(_workshop: Workshop) -> None:
        raise HostError(
            "docker and podman both answer; choose one", hint="use --engine docker", reason=reason
        )

    monkeypatch.setattr(Workshop, "connect", two)
    words = ["init", str(tmp_path / "project"), "--unencrypted-keys", "--base", f"a@sha256:{'0' * 64}"]
    code = main_inner([*words, "--config-dir", str(tmp_path / "config")], environment(tmp_path))
    assert code == (ExitCode.HOST if reason == UNDECIDED else 0)
    said = capsys.readouterr().err
    assert "both answer" in said
    assert ("hint: use --engine docker" in said) is (reason == UNDECIDED)
    assert (tmp_path / "config/policy.toml").exists() is (reason != UNDECIDED)


@pytest.mark.parametrize("code", ["\x1b[2J", "\r", "\x07", "\x9b31m", "\u202e", "\x00"])
def test_no_terminal_code_of_a_file_reaches_the_terminal(
    code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, UsageError(f"a{code}b", where=f"w{code}", hint=f"h{code}"))
    main_inner(["show"], environment(tmp_path))
    assert code not in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_is_an_orderly_end(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def perform(_invocation: object) -> None:
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    monkeypatch.setattr(cli, "perform", perform)
    assert main_inner(["show"], environment(tmp_path)) == ExitCode.TERMINATED


def test_who_is_to_survive_a_hangup_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As nohup starts it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    fail_with(monkeypatch, UsageError("x"))
    main_inner(["show"], environment(tmp_path))
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_no_client_is_found_in_the_project(tmp_path: Path) -> None:
    options = parse_arguments(["show"])
    invocation = make_invocation(options, {"HOME": str(tmp_path), "PATH": "::.:bin:/usr/bin:"})
    assert client_environment(invocation)["PATH"] == "/usr/bin"


def test_s_10_an_image_of_another_platform_is_not_built_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """binfmt #215, buildx #1170: an emulated Node crashes at random. There is neither key nor engine here."""
    monkeypatch.setattr(build_verb, "host_platform", lambda: ARM64)
    (tmp_path / "builder.toml").write_text(BUILDER_TOML)
    assert main_inner(["build"], environment(tmp_path)) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "image.platforms: builder.toml declares no linux/arm64" in said
    assert "an image is built on its own platform only" in said
    assert 'hint: add "linux/arm64" to image.platforms, then builder lock' in said


@pytest.mark.parametrize(("year", "told"), [(2020, True), (2120, False)])
def test_a_build_under_an_ended_policy_says_so_before_it_begins(
    year: int,
    told: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = SimpleNamespace(valid_until=datetime(year, 1, 1, tzinfo=UTC), path=tmp_path / "policy.toml")

    def build(*_: object) -> None:
        raise HostError("the build begins")

    monkeypatch.setattr(build_verb, "host_platform", lambda: AMD64)
    monkeypatch.setattr(build_verb, "policy_of", lambda *_, **__: policy)
    monkeypatch.setattr(build_verb, "build", build)
    monkeypatch.setattr(build_verb, "signer_of", lambda *_: nullcontext(KeySigner(key("builder"))))
    for name in ("open_workshop", "signer_id"):
        monkeypatch.setattr(build_verb, name, lambda *_: "urn:uuid:0")
    (tmp_path / "builder.toml").write_text(BUILDER_TOML)
    words = ["build", "--config", str(tmp_path / "builder.toml")]
    assert main_inner(words, environment(tmp_path)) == ExitCode.HOST
    said = capsys.readouterr().err
    assert ("the policy ended on 2020-01-01" in said) is told
    assert said.index("the build begins") > 0


@pytest.mark.parametrize(
    "words",
    [
        ["gc", "--state", ""],
        ["verify", "--config-dir="],
        ["run", "--policy", ""],
        ["store", "add", ""],
        ["store", "add", "--state", "", "x"],
        ["export", "in-toto", ""],
    ],
)
def test_an_empty_path_is_not_the_working_directory(words: list[str]) -> None:
    """A variable that is not set would else choose the policy, the state and the keys."""
    with pytest.raises(BadUsage, match="an empty path"):
        parse_arguments(words)


def test_another_engine_is_refused_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main_inner(["bootstrap", "--engine", "lxc"], {"HOME": str(tmp_path)})
    assert code == ExitCode.USAGE
    assert "invalid choice: 'lxc'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [["run", "--dry"], ["build", "--no-c"], ["gc", "--dry"], ["lock", "--conf", "x"]]
)
def test_an_option_is_taken_by_its_whole_name_alone(words: list[str]) -> None:
    """Half of one would mean something else with the next option that begins so."""
    with pytest.raises(BadUsage, match=words[1]):
        parse_arguments(words)
