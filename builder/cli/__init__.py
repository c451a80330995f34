"""The command line: the only reader of the environment, the clock and the process exit."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from types import FrameType

from builder.cli.arguments import parse_arguments, split_tail
from builder.cli.documents import RESULT_SCHEMA, Document
from builder.cli.invocation import Invocation, Result, make_invocation
from builder.cli.lost_state import lost_state
from builder.cli.options.parser import BadUsage
from builder.cli.streams import open_standard_streams
from builder.cli.verbs import perform
from builder.report import ProgressStyle, Reporter, mute, visible
from images.errors import (
    BuilderError,
    ExitCode,
    HostError,
    Interrupted,
    PinError,
    StateError,
    Terminated,
    UsageError,
)
from images.redaction import redact

# What to do next, where nothing nearer to the fault said so: every failure ends with a way on.
WAYS_ON = {
    ExitCode.BUG: "please send what you typed and what was printed",
    ExitCode.USAGE: "builder --help",
    ExitCode.HOST: "builder doctor",
    ExitCode.PIN: "builder outdated",
    ExitCode.BUILD: "builder build --verbose",
    ExitCode.CREDENTIAL: "builder scan DIGEST",
    ExitCode.VERIFY: "builder build, if the image should be here and whole",
    ExitCode.REFUSED: "builder run --dry-run",
    ExitCode.STATE: "df -h; builder doctor",
    ExitCode.NETWORK: "try again; builder doctor",
    ExitCode.KEY: "builder init",
    ExitCode.INTERRUPTED: "type the command again",
    ExitCode.TERMINATED: "type the command again",
}


def main() -> None:
    """Entry point of ``builder``: the one place that ends the process."""
    open_standard_streams()
    sys.exit(main_inner(sys.argv[1:], dict(os.environ)))


def main_inner(argv: list[str], environment: dict[str, str]) -> int:
    """Run one command; returns the exit code. Tests call this."""
    try:
        options = parse_arguments(argv)
        invocation = make_invocation(options, environment)
    except (BadUsage, BuilderError) as broken:
        return _before_invocation(argv, broken)
    _scrub_environment(environment)
    signal.signal(signal.SIGTERM, _terminated)
    # A terminal that goes away ends us in the same orderly way, unless whoever started us wants us to stay.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _terminated)
    try:
        if "PYTHON_ON_WHALES_DEBUG" in environment:
            raise HostError(  # noqa: TRY301  (it must end like every other error)
                "PYTHON_ON_WHALES_DEBUG is set; it prints the environment of every engine call",
                hint="unset PYTHON_ON_WHALES_DEBUG",
            )
        result = perform(invocation)
    except (KeyboardInterrupt, _Termination) as signalled:
        kind = Interrupted if isinstance(signalled, KeyboardInterrupt) else Terminated
        return _failed(invocation, kind(f"{kind.default_reason}; nothing was left half-done"))
    except BuilderError as broken:
        return _failed(invocation, broken)
    except Exception as bug:  # noqa: BLE001  (a bug: a redacted report instead of a traceback)
        lost = lost_state(bug, invocation.state_root)
        return _failed(invocation, lost) if lost else _bug(invocation, bug)
    return _deliver(invocation, result)


def _deliver(invocation: Invocation, result: Result[Document]) -> int:
    """The result on standard output. Whoever closed it does not want it; a disk that is full is a failure."""
    try:
        if invocation.json_output:
            _print_json(_answer(invocation, result))
        elif result.line and result.failure is None:
            print(visible(result.line), flush=True)
    except BrokenPipeError:
        mute(sys.stdout)
    except OSError as broken:
        mute(sys.stdout)
        why = f"the result cannot be written: {broken.strerror}"
        return _failed(invocation, StateError(why, where="standard output", hint="df -h, and type it again"))
    if result.failure is None:
        return result.code
    _with_a_way_on(invocation, result.failure)
    invocation.reporter.error(result.failure)
    return result.failure.code


def _answer(invocation: Invocation, result: Result[Document]) -> dict[str, object]:
    found = {"schema": RESULT_SCHEMA, "command": invocation.command, "ok": result.failure is None}
    if result.failure is not None:
        _with_a_way_on(invocation, result.failure)
        found["error"] = _error(result.failure.code, result.failure)
    return {**found, **result.document.to_json()}


def _before_invocation(argv: list[str], why: BadUsage | BuilderError) -> int:
    """Bad usage, or a place to work in that is none: said as every failure is, by the words as they are."""
    broken = UsageError(why.message, hint=f"{why.command} --help") if isinstance(why, BadUsage) else why
    words, _ = split_tail(argv)
    command = words[0] if words and not words[0].startswith("-") else ""
    # In run, our failures are 125 whatever they are: other codes belong to the command inside.
    owns = command == "run" and "--dry-run" not in words
    code = ExitCode.RUN_FAILED if owns else broken.code
    broken.hint = broken.hint or WAYS_ON[broken.code]
    if "--json" in words:
        _print_failure(command, code, broken)
    Reporter().error(broken)
    return code


def _failed(invocation: Invocation, broken: BuilderError) -> int:
    code = ExitCode.RUN_FAILED if invocation.owns_exit_code else broken.code
    _with_a_way_on(invocation, broken)
    if invocation.json_output:
        _print_failure(invocation.command, code, broken)
    invocation.reporter.error(broken)
    if invocation.owns_exit_code and invocation.reporter.style is not ProgressStyle.JSON:
        invocation.reporter.note(
            "reason", f"{broken.reason} (exit {int(code)}: the command did not end by itself)"
        )
    return code


def _with_a_way_on(invocation: Invocation, broken: BuilderError) -> None:
    if not broken.hint and broken.code is ExitCode.USAGE:
        broken.hint = f"builder {invocation.command} --help"
    broken.hint = broken.hint or WAYS_ON[broken.code]


def _error(code: ExitCode, broken: BuilderError) -> dict[str, object]:
    error: dict[str, object] = {
        "code": int(code),
        "reason": broken.reason,
        "what": redact(broken.what),
        "where": redact(broken.where),
        "hint": redact(broken.hint),
    }
    if isinstance(broken, PinError) and broken.pin:
        error["pin"] = broken.pin
    return error


def _print_failure(command: str, code: ExitCode, broken: BuilderError) -> None:
    error = _error(code, broken)
    try:
        _print_json({"schema": RESULT_SCHEMA, "command": command, "ok": False, "error": error})
    except OSError:  # the exit code and standard error say it too
        mute(sys.stdout)


def _bug(invocation: Invocation, bug: Exception) -> int:
    """Write a redacted report and name it: an unexpected failure must not print what it held."""
    text = redact("".join(traceback.format_exception(bug)))
    what = f"a bug in builder: {type(bug).__name__}"
    try:
        handle, name = tempfile.mkstemp(prefix="builder-bug-", suffix=".txt")
        with os.fdopen(handle, "w") as report:
            report.write(text)
    except OSError as unwritten:
        broken = BuilderError(f"{what}; no report could be written: {unwritten.strerror}")
    else:
        hint = "please send this report with the command you typed"
        broken = BuilderError(f"{what}; a redacted report was written", where=name, hint=hint)
    return _failed(invocation, broken)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise _Termination


class _Termination(BaseException):
    """SIGTERM on its way out: like KeyboardInterrupt, no ``except`` for failures may take it for one."""


def _scrub_environment(environment: dict[str, str]) -> None:
    """Keep only what children need: libraries below us hand the whole environment on."""
    kept = {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR", "XDG_RUNTIME_DIR", "PYTHONPATH"}
    for name in environment:
        if name not in kept:
            os.environ.pop(name, None)


def _print_json(document: dict[str, object]) -> None:
    # A CI service may read along: "##[name]" in a line is a command there; written like this it is none.
    print(json.dumps(document, sort_keys=True).replace("##", "#\\u0023"), flush=True)
