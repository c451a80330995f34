"""The one process runner: every child of this product on the host is started here."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from backend.commands import (
    ChildLimits,
    Command,
    Ending,
    Failure,
    Hooks,
    OnChunk,
    Outcome,
    Sink,
    exit_handle,
    not_started,
)

__all__ = ["Child", "ChildLimits", "Command", "Ending", "Outcome", "run", "spawn"]

_CHUNK: Final = 1 << 16
_TICK: Final = 0.1  # seconds between two looks at ``cancelled``
_LEFTOVERS: Final = 0.5  # seconds that descendants in the group get once their leader has ended
_UNKILLABLE: Final = 10.0  # seconds after KILL until a child stuck in the kernel is given up


def run(
    command: Command,
    *,
    on_stdout: OnChunk | None = None,
    on_stderr: OnChunk | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Outcome:
    """Run to the end: own session, both pipes drained at once, TERM then KILL on the whole group.

    When the child ends, descendants left in its group are ended too, and a pipe that something outside the
    group still holds is not waited for. What a callback or ``stdin`` raises ends the child and is passed on.
    """
    with contextlib.ExitStack() as opened:
        started = _start(command, opened, hold_stdin=False)
        if isinstance(started, Outcome):
            return started
        supervision = _supervised(command, started, opened, Hooks(on_stdout, on_stderr, cancelled))
        return supervision if isinstance(supervision, Outcome) else supervision.to_the_end()


def spawn(command: Command, *, on_stdout: OnChunk | None = None, on_stderr: OnChunk | None = None) -> Child:
    """Start a long-lived child whose standard input is a pipe that we hold until :meth:`Child.close_stdin`.

    ``command.stdin`` must be None. The pipe closes by itself when this process dies, however it dies: that is
    what a tethered container watches. The callbacks run in the child's own thread.
    """
    return Child(command, on_stdout, on_stderr)


class Child:
    """A supervised child, with the same draining, limits and group kill as :func:`run`; a context manager."""

    def __init__(self, command: Command, on_stdout: OnChunk | None, on_stderr: OnChunk | None) -> None:
        if command.stdin is not None:
            raise ValueError("a spawned child's standard input is our pipe")
        self._stop = threading.Event()
        self._failure = Failure()
        self._outcome: Outcome | None = None
        self._stdin = -1
        self.pid: int | None = None
        self._thread: threading.Thread | None = None
        opened = contextlib.ExitStack()
        started = _start(command, opened, hold_stdin=True)
        if isinstance(started, Outcome):
            opened.close()
            self._outcome = started
            return
        self.pid = started.process.pid
        self._stdin = started.held_stdin
        supervision = _supervised(command, started, opened, Hooks(on_stdout, on_stderr, self._stop.is_set))
        # A daemon, so that a dying interpreter is not kept alive by the very child that watches it.
        self._thread = threading.Thread(target=self._supervise, args=(supervision, opened), daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            self._outcome = _abandoned(command, started, OSError(errno.EAGAIN, "no thread can be started"))
            opened.close()
            self.close_stdin()

    def _supervise(self, supervision: _Supervision | Outcome, opened: contextlib.ExitStack) -> None:
        with self._failure, opened:
            self._outcome = supervision if isinstance(supervision, Outcome) else supervision.to_the_end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def stdin(self) -> int:
        """The write end of the child's standard input; -1 once closed. It is in blocking mode."""
        return self._stdin

    def close_stdin(self) -> None:
        """Let the child see the end of its input."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def wait(self, seconds: float) -> Outcome | None:
        """The outcome, waiting at most that long; None while the child runs."""
        if self._thread is not None:
            self._thread.join(max(0.0, seconds))
        self._failure.pass_on()
        return self._outcome

    def end(self) -> Outcome:
        """Close the input, then TERM, then KILL on the group; the outcome. Idempotent.

        What a callback raised, which has ended the child already, is raised here and by :meth:`wait`, once.
        """
        self.close_stdin()
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._failure.pass_on()
        if self._outcome is None:
            self._outcome = Outcome(ending=Ending.CANCELLED, exit_code=None, detail="a callback failed")
        return self._outcome


@dataclass(frozen=True, slots=True)
class _Started:
    process: subprocess.Popen[bytes]
    feed: Iterator[bytes] | None
    output: int | None  # descriptor of stdout_path
    held_stdin: int


def _start(command: Command, opened: contextlib.ExitStack, *, hold_stdin: bool) -> _Started | Outcome:
    stdin, feed = _input(command, opened, hold_stdin=hold_stdin)
    if isinstance(stdin, Outcome):
        return stdin
    if command.limits is not None and not os.access(command.argv[0], os.X_OK):
        # prlimit would say so with an exit code of its own, like a program that ran.
        return Outcome(ending=Ending.NOT_FOUND, exit_code=None, detail=f"{command.argv[0]}: no such program")
    output = None
    try:
        if command.stdout_path is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            output = os.open(command.stdout_path, flags, 0o600)
            opened.callback(os.close, output)
        piped = subprocess.PIPE if command.terminal is None else command.terminal
        process = subprocess.Popen(
            command.started_argv,
            env=dict(command.environment),
            cwd=command.working_dir,
            stdin=stdin,
            stdout=piped,
            stderr=piped,
            bufsize=0,
            start_new_session=True,
            pass_fds=command.pass_fds,
        )
    except (OSError, ValueError) as refused:
        return not_started(command, refused)
    started = _Started(process, feed, output, -1)
    if hold_stdin and process.stdin is not None:
        try:
            started = replace(started, held_stdin=os.dup(process.stdin.fileno()))
        except OSError as refused:
            return _abandoned(command, started, refused)
        process.stdin.close()
    return started


def _supervised(
    command: Command, started: _Started, opened: contextlib.ExitStack, hooks: Hooks
) -> _Supervision | Outcome:
    try:
        return _Supervision(command, started, opened, hooks)
    except OSError as refused:
        return _abandoned(command, started, refused)


def _abandoned(command: Command, started: _Started, refused: OSError) -> Outcome:
    """It runs, and there is no descriptor or thread left to watch it with: it is ended, and never ran."""
    process = started.process
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()
    return not_started(command, refused)


def _input(
    command: Command, opened: contextlib.ExitStack, *, hold_stdin: bool
) -> tuple[int | Outcome, Iterator[bytes] | None]:
    source = command.stdin if command.terminal is None else command.terminal
    if hold_stdin and command.terminal is None:
        return subprocess.PIPE, None
    if isinstance(source, Path):
        try:
            return opened.enter_context(source.open("rb")).fileno(), None
        except OSError as refused:
            return not_started(command, refused), None
    if isinstance(source, int):
        return source, None
    if source is None:
        return subprocess.DEVNULL, None
    return subprocess.PIPE, iter((source,)) if isinstance(source, bytes) else source


class _Supervision:
    """One child from start to end: a loop over its pipes, its exit, the deadline and the shutdown ladder."""

    def __init__(
        self,
        command: Command,
        started: _Started,
        opened: contextlib.ExitStack,
        hooks: Hooks,
    ) -> None:
        self._command = command
        self._process = started.process
        self._cancelled = hooks.cancelled
        self._selector = opened.enter_context(selectors.DefaultSelector())
        self._ends_at = time.monotonic() + command.deadline
        self._ending = Ending.EXITED
        self._detail = ""
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._leader_gone = False
        self._feed = started.feed
        self._pending = memoryview(b"")
        self._stdout = Sink(command.stdout_bound, hooks.on_stdout, started.output)
        self._stderr = Sink(command.capture, hooks.on_stderr, None)
        self._open_pipes = 0
        for pipe, sink in ((self._process.stdout, self._stdout), (self._process.stderr, self._stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, sink)
                self._open_pipes += 1
        if self._process.stdin is not None and self._feed is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
            self._selector.register(self._process.stdin, selectors.EVENT_WRITE)
        self._exit_handle = exit_handle(self._process.pid)
        if self._exit_handle is not None:
            opened.callback(os.close, self._exit_handle)
            self._selector.register(self._exit_handle, selectors.EVENT_READ)

    def to_the_end(self) -> Outcome:
        try:
            while not self._finished():
                for key, _ in self._selector.select(self._patience()):
                    if isinstance(key.data, Sink):
                        self._read(key)
                    elif key.fileobj is self._process.stdin:
                        self._write()
                self._step()
        finally:
            self._sweep()
        if self._stdout.overflowed and self._ending is Ending.EXITED:  # before anybody saw it
            self._ending = Ending.OVERFLOWED
        return Outcome(
            ending=self._ending,
            exit_code=self._process.returncode,
            stdout=self._stdout.kept,
            stderr=self._stderr.kept,
            stdout_truncated=self._stdout.truncated,
            stderr_truncated=self._stderr.truncated,
            detail=self._detail or self._stdout.complaint,
        )

    def _finished(self) -> bool:
        if self._give_up_at is not None and time.monotonic() >= self._give_up_at:
            return True
        return self._leader_gone and self._open_pipes == 0

    def _patience(self) -> float:
        now = time.monotonic()
        moments = [m for m in (self._kill_at, self._give_up_at) if m is not None]
        if not moments:
            moments.append(self._ends_at)
        wait = max(0.0, min(moments) - now)
        looks = self._cancelled is not None or self._exit_handle is None
        return min(wait, _TICK if looks else 3600.0)

    def _step(self) -> None:
        """One rung of the ladder at most: notice the exit, begin to end the child, or kill it."""
        now = time.monotonic()
        if not self._leader_gone and self._leader_has_ended():
            self._leader_gone = True
            self._close_stdin()
            if self._exit_handle is not None:  # it stays readable, and would make the loop busy
                self._selector.unregister(self._exit_handle)
            self._signal(signal.SIGTERM)  # leftovers of its group
            soon = now + min(_LEFTOVERS, self._command.grace)
            self._kill_at = soon if self._kill_at is None else min(self._kill_at, soon)
        elif self._kill_at is None and self._give_up_at is None and not self._leader_gone:
            self._begin_to_end(now)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._signal(signal.SIGKILL)
            # A pipe held from outside the group is not waited for; an unkillable leader is, for a while.
            self._give_up_at = now + (0.05 if self._leader_gone else _UNKILLABLE)

    def _begin_to_end(self, now: float) -> None:
        if self._stdout.overflowed:
            self._ending = Ending.OVERFLOWED
        elif now >= self._ends_at:
            self._ending = Ending.TIMED_OUT
            self._detail = f"not done within {self._command.deadline:g} s"
        elif self._cancelled is not None and self._cancelled():
            self._ending = Ending.CANCELLED
        else:
            return
        self._signal(signal.SIGTERM)
        self._kill_at = now + self._command.grace

    def _leader_has_ended(self) -> bool:
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        # Left as a zombie until the sweep, so that its group id cannot become somebody else's.
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _read(self, key: selectors.SelectorKey) -> None:
        try:
            chunk = os.read(key.fd, _CHUNK)
        except BlockingIOError:
            return
        if chunk:
            key.data.take(chunk)
        else:
            self._selector.unregister(key.fileobj)
            self._open_pipes -= 1

    def _write(self) -> None:
        if not self._pending:
            chunk = next(self._feed, None) if self._feed is not None else None
            if chunk is None:
                self._end_of_input()
                return
            self._pending = memoryview(chunk)
        try:
            if self._process.stdin is not None and self._pending:
                self._pending = self._pending[os.write(self._process.stdin.fileno(), self._pending) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the child wants no more; its exit code says whether that is fine
            self._close_stdin()

    def _end_of_input(self) -> None:
        """Held: the pipe closes by itself when this process dies, and that is what the child watches."""
        if self._command.hold_stdin and self._process.stdin is not None:
            self._selector.unregister(self._process.stdin)
        else:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._process.stdin)
            self._process.stdin.close()

    def _sweep(self) -> None:
        """End what is left of the group, also when an exception left the loop, and reap the leader."""
        try:
            if not self._leader_gone and self._give_up_at is None:
                self._signal(signal.SIGTERM)
                until = time.monotonic() + self._command.grace
                while time.monotonic() < until and not self._leader_has_ended():
                    time.sleep(0.02)
        finally:  # a second Ctrl-C cuts the grace short, and nothing else
            self._signal(signal.SIGKILL)
            self._close_stdin()
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
            try:
                self._process.wait(_UNKILLABLE)
            except subprocess.TimeoutExpired:
                self._detail = f"process {self._process.pid} does not end even after KILL"
