"""The process runner against hostile children."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.runner import ChildLimits, Command, Ending, Outcome, run, spawn

ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}


def command(
    *argv: str,
    deadline: float = 20.0,
    stdin: bytes | Path | int | Iterator[bytes] | None = None,
    capture: int = 1 << 20,
    grace: float = 0.3,
    stdout_path: Path | None = None,
    stdout_limit: int = 1 << 30,
    working_dir: Path = Path("/"),
    hold_stdin: bool = False,
) -> Command:
    return Command(
        argv=argv,
        environment=ENVIRONMENT,
        deadline=deadline,
        stdin=stdin,
        capture=capture,
        grace=grace,
        stdout_path=stdout_path,
        stdout_limit=stdout_limit,
        working_dir=working_dir,
        hold_stdin=hold_stdin,
    )


def python(source: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", source, *arguments)


def is_alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def gone_within(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_both_pipes_and_the_exit_code_are_kept() -> None:
    outcome = run(command("sh", "-c", "echo out; echo err >&2; exit 7"))
    assert outcome == Outcome(ending=Ending.EXITED, exit_code=7, stdout=b"out\n", stderr=b"err\n")
    assert not outcome.ok


def test_a_signal_is_a_negative_exit_code() -> None:
    assert run(command("sh", "-c", "kill -9 $$")).exit_code == -9


def test_only_the_given_environment_arrives() -> None:
    outcome = run(Command(argv=("env",), environment={"PATH": os.defpath, "ONE": "1"}, deadline=10))
    assert sorted(outcome.stdout.splitlines()) == sorted([f"PATH={os.defpath}".encode(), b"ONE=1"])


def test_input_is_empty_unless_given() -> None:
    assert run(command("cat")).stdout == b""


def test_all_byte_values_pass_unchanged() -> None:
    everything = bytes(range(256)) * 1000
    assert run(command("cat", stdin=everything)).stdout == everything


def test_input_from_a_file_a_descriptor_and_an_iterator(tmp_path: Path) -> None:
    source = tmp_path / "input"
    source.write_bytes(b"abc")
    assert run(command("cat", stdin=source)).stdout == b"abc"
    with source.open("rb") as stream:
        assert run(command("cat", stdin=stream.fileno())).stdout == b"abc"
        assert not stream.closed
    assert (
        run(command("cat", stdin=iter((b"a", b"", b"b" * 300_000, b"c")))).stdout
        == b"a" + b"b" * 300_000 + b"c"
    )


@pytest.mark.parametrize(("hold", "seen"), [(False, b"abc0"), (True, b"abc124")])
def test_input_that_is_held_open_does_not_end(hold: bool, seen: bytes) -> None:
    script = "head -c 3; timeout 0.5 cat; printf $?"
    outcome = run(command("sh", "-c", script, stdin=b"abc", hold_stdin=hold))
    assert (outcome.ok, outcome.stdout) == (True, seen)


def test_a_child_that_reads_no_input_is_not_a_failure() -> None:
    assert run(command("true", stdin=b"x" * 10_000_000)).ok


def test_a_child_that_closes_early_and_works_on_is_waited_for() -> None:
    started = time.monotonic()
    outcome = run(command("sh", "-c", "exec <&- >&- 2>&-; sleep 0.5; exit 3", stdin=b"x" * 1_000_000))
    assert outcome.exit_code == 3
    assert time.monotonic() - started >= 0.5


def test_floods_on_both_pipes_do_not_block_and_are_counted() -> None:
    size = 20_000_000
    flood = "import os,sys\nb=b'x'*100000\nfor _ in range(200): os.write(2,b); os.write(1,b)"
    seen = {"out": 0, "err": 0}

    def out(chunk: bytes) -> None:
        seen["out"] += len(chunk)

    def err(chunk: bytes) -> None:
        seen["err"] += len(chunk)

    outcome = run(command(*python(flood), capture=1000), on_stdout=out, on_stderr=err)
    assert outcome.ok
    assert seen == {"out": size, "err": size}
    assert (len(outcome.stdout), len(outcome.stderr)) == (1000, 1000)
    assert outcome.stdout_truncated
    assert outcome.stderr_truncated


def test_much_on_one_pipe_before_anything_on_the_other() -> None:
    outcome = run(command(*python("import os\nos.write(2,b'e'*1_000_000)\nos.write(1,b'done')")))
    assert (outcome.stdout, len(outcome.stderr)) == (b"done", 1_000_000)


def test_a_hundred_megabytes_without_a_newline_in_bounded_memory() -> None:
    seen = 0

    def count(chunk: bytes) -> None:
        nonlocal seen
        assert len(chunk) <= 1 << 16
        seen += len(chunk)

    outcome = run(command("head", "-c", "100000000", "/dev/zero", capture=10), on_stdout=count)
    assert (outcome.ok, seen, len(outcome.stdout)) == (True, 100_000_000, 10)


def test_the_end_of_the_output_is_never_lost() -> None:
    for _ in range(20):
        outcome = run(command("sh", "-c", "head -c 60000 /dev/zero; printf END"))
        assert outcome.stdout.endswith(b"END")
        assert len(outcome.stdout) == 60_003


def test_a_slow_consumer_loses_nothing() -> None:
    seen = bytearray()

    def slow(chunk: bytes) -> None:
        time.sleep(0.01)
        seen.extend(chunk)

    run(command("head", "-c", "2000000", "/dev/zero"), on_stdout=slow)
    assert len(seen) == 2_000_000


def test_a_consumer_that_fails_ends_the_child() -> None:
    pids: list[int] = []

    def fail(chunk: bytes) -> None:
        pids.append(int(chunk))
        raise LookupError("the reader has gone")

    with pytest.raises(LookupError):
        run(command("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.1; done"), on_stdout=fail)
    assert gone_within(pids[0], 1)


def test_an_input_that_fails_ends_the_child() -> None:
    def broken() -> Iterator[bytes]:
        yield b"first"
        raise LookupError("the source has gone")

    with pytest.raises(LookupError):
        run(command("cat", stdin=broken()))


def test_time_out_is_an_outcome_and_keeps_what_came_before() -> None:
    outcome = run(command("sh", "-c", "echo before; sleep 60", deadline=0.4))
    assert (outcome.ending, outcome.stdout) == (Ending.TIMED_OUT, b"before\n")
    assert "0.4 s" in outcome.detail


def test_ignored_term_is_followed_by_kill_on_the_whole_group() -> None:
    source = "trap '' TERM; sleep 60 & echo $!; wait; wait"
    started = time.monotonic()
    outcome = run(command("sh", "-c", source, deadline=0.4, grace=0.3))
    assert outcome.ending is Ending.TIMED_OUT
    assert outcome.exit_code == -9
    assert time.monotonic() - started < 5
    assert gone_within(int(outcome.stdout.split()[0]), 1)


def test_term_lets_a_child_clean_up() -> None:
    outcome = run(command("sh", "-c", "trap 'echo bye; exit 5' TERM; sleep 60 & wait", deadline=0.4, grace=5))
    assert (outcome.ending, outcome.exit_code, outcome.stdout) == (Ending.TIMED_OUT, 5, b"bye\n")


def test_cancel_is_an_outcome() -> None:
    until = time.monotonic() + 0.3
    outcome = run(command("sleep", "60"), cancelled=lambda: time.monotonic() > until)
    assert outcome.ending is Ending.CANCELLED
    assert outcome.exit_code == -15


def test_a_grandchild_in_the_group_that_holds_the_pipe_is_ended() -> None:
    started = time.monotonic()
    outcome = run(command("sh", "-c", "(trap '' TERM; sleep 60) & echo $!; exit 0"))
    assert outcome.ok
    assert time.monotonic() - started < 5
    assert gone_within(int(outcome.stdout), 1)


def test_a_grandchild_outside_the_group_that_holds_the_pipe_is_not_waited_for() -> None:
    started = time.monotonic()
    outcome = run(command("sh", "-c", "setsid sh -c 'echo $$; sleep 4' & sleep 0.2; echo done"))
    assert outcome.ok
    assert time.monotonic() - started < 3
    assert outcome.stdout.endswith(b"done\n")


def test_missing_things_are_outcomes(tmp_path: Path) -> None:
    missing = run(command("no-such-program-anywhere"))
    assert (missing.ending, missing.exit_code) == (Ending.NOT_FOUND, None)
    assert "no-such-program-anywhere" in missing.detail
    nowhere = run(command("true", working_dir=tmp_path / "vanished"))
    assert nowhere.ending is Ending.NOT_FOUND
    assert "vanished" in nowhere.detail
    assert run(command("cat", stdin=tmp_path / "no-input")).ending is Ending.NOT_FOUND


def test_what_the_kernel_refuses_is_an_outcome_that_repeats_no_argument(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not executable")
    assert run(command(str(plain))).ending is Ending.NOT_STARTED
    for outcome in (run(command("echo", "private" * 400_000)), run(command("echo", "private\0"))):
        assert outcome.ending is Ending.NOT_STARTED
        assert "private" not in outcome.detail


def test_a_127_kilobyte_argument_arrives_whole() -> None:
    long = "é" * 63_500
    assert run(command("printf", "%s", long)).stdout.decode() == long


def test_output_to_a_private_file_is_bounded(tmp_path: Path) -> None:
    target = tmp_path / "output"
    outcome = run(command("head", "-c", "3000000", "/dev/zero", stdout_path=target))
    assert (outcome.ok, outcome.stdout, outcome.stdout_truncated) == (True, b"", False)
    assert target.stat().st_size == 3_000_000
    assert target.stat().st_mode & 0o777 == 0o600
    flooded = run(command("cat", "/dev/zero", stdout_path=target, stdout_limit=100_000))
    assert flooded.ending is Ending.OVERFLOWED
    assert target.stat().st_size == 100_000
    # Also by one that has ended before anybody looks, and never at the limit itself.
    for limit, ending in ((100, Ending.EXITED), (99, Ending.OVERFLOWED)):
        quick = run(command("printf", "%100s", "x", stdout_path=target, stdout_limit=limit))
        assert (quick.ending, quick.ok) == (ending, limit == 100)
        assert target.stat().st_size == limit


def test_output_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert run(command("echo", "x", stdout_path=tmp_path / "link")).ending is Ending.NOT_STARTED
    assert not (tmp_path / "elsewhere").exists()


def test_no_descriptor_leaks_into_a_child_or_stays_open() -> None:
    listing = python("import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:4])")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert run(command(*listing)).stdout == b"[0, 1, 2, 3]\n"  # 3 is the listing itself
    run(command("no-such-program-anywhere"))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_one_child_does_not_delay_another() -> None:
    with spawn(command("sleep", "60")):
        started = time.monotonic()
        assert run(command("true")).ok
        assert time.monotonic() - started < 2


def test_a_spawned_child_lives_until_its_input_is_closed() -> None:
    chunks: list[bytes] = []
    with spawn(command("cat"), on_stdout=chunks.append) as child:
        os.write(child.stdin, b"hello")
        assert child.wait(0.3) is None
        child.close_stdin()
        outcome = child.wait(5)
    assert outcome is not None
    assert (outcome.ok, outcome.stdout, chunks) == (True, b"hello", [b"hello"])


def test_a_spawned_child_is_ended_with_its_group() -> None:
    child = spawn(command("sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait; wait"))
    time.sleep(0.3)
    outcome = child.end()
    assert (outcome.ending, outcome.exit_code) == (Ending.CANCELLED, -9)
    assert gone_within(int(outcome.stdout), 1)
    assert child.end() == outcome


def test_what_a_callback_of_a_spawned_child_raises_is_raised_where_it_is_asked_for() -> None:
    def fail(chunk: bytes) -> None:
        raise LookupError(chunk)

    child = spawn(command("sh", "-c", "echo $$; exec sleep 60"), on_stdout=fail)
    with pytest.raises(LookupError) as caught:
        child.wait(5)
    assert gone_within(int(caught.value.args[0]), 2)
    assert child.end().ending is Ending.CANCELLED


def test_a_second_interrupt_during_the_grace_still_kills_the_group() -> None:
    pids: list[int] = []

    def interrupt_twice(chunk: bytes) -> None:
        pids.append(int(chunk))
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(command("sh", "-c", "trap '' TERM; echo $$; sleep 60", grace=30), on_stdout=interrupt_twice)
    assert gone_within(pids[0], 1)


def test_no_repr_shows_what_a_child_is_told_or_says() -> None:
    private = Command(
        argv=("sh", "-c", "cat; echo dummy-secret >&2"),
        environment={"PATH": os.defpath, "TOKEN": "dummy-secret"},
        deadline=10,
        stdin=b"dummy-secret",
    )
    outcome = run(private)
    assert b"dummy-secret" in outcome.stdout + outcome.stderr
    assert "dummy-secret" not in repr(private) + repr(outcome)


def test_a_spawned_child_that_cannot_start_is_an_outcome() -> None:
    with spawn(command("no-such-program-anywhere")) as child:
        outcome = child.wait(0)
    assert outcome is not None
    assert outcome.ending is Ending.NOT_FOUND


def test_a_spawned_child_sees_the_end_of_input_when_its_parent_is_killed(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    parent = (
        "import os,signal,sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from backend.runner import Command, spawn\n"
        f"argv = ('sh', '-c', 'cat; touch {flag}')\n"
        f"child = spawn(Command(argv=argv, environment={ENVIRONMENT!r}, deadline=60))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run(command(sys.executable, "-c", parent)).exit_code == -9
    until = time.monotonic() + 5
    while not flag.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert flag.exists()


MIB = 1024 * 1024
LIMITS = ChildLimits(memory=100 * MIB, cpu_seconds=1, file_bytes=MIB)


def limited(*argv: str, limits: ChildLimits = LIMITS) -> Outcome:
    return run(Command(argv=argv, environment=ENVIRONMENT, deadline=30, limits=limits))


@pytest.mark.parametrize(
    ("source", "ends_by"),
    [
        ("b = bytearray(300 << 20)", None),
        ("while True: pass", -signal.SIGKILL),
        (
            "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); "
            "open('%s', 'wb').write(bytes(2 << 20))",
            -signal.SIGXFSZ,
        ),
    ],
)
def test_memory_time_and_file_size_are_limited(tmp_path: Path, source: str, ends_by: int | None) -> None:
    argv = python(source.replace("%s", str(tmp_path / "file")))
    outcome = limited(*argv)
    assert not outcome.ok
    assert outcome.exit_code == ends_by or (ends_by is None and b"MemoryError" in outcome.stderr)
    large = ChildLimits(memory=1 << 30, cpu_seconds=1, file_bytes=1 << 30)
    assert limited(*argv, limits=large).ok is (ends_by != -signal.SIGKILL)


def test_a_grandchild_has_the_limits_too() -> None:
    outcome = limited("/bin/sh", "-c", "sh -c 'ulimit -d; ulimit -c; ulimit -f'")
    assert outcome.stdout.split() == [b"102400", b"0", b"2048"]


def test_the_limits_do_not_hide_that_a_program_is_missing() -> None:
    outcome = limited("/no/such/program")
    assert (outcome.ending, outcome.exit_code) == (Ending.NOT_FOUND, None)
    assert outcome.detail == "/no/such/program: no such program"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGPIPE, signal.SIGTERM])
def test_every_end_by_signal_is_told(number: signal.Signals) -> None:
    outcome = run(command(*python(f"import os, resource, signal\n{NO_CORE}\nos.kill(os.getpid(), {number})")))
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, -number)


NO_CORE = "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); signal.signal(signal.SIGPIPE, signal.SIG_DFL)"


def test_all_byte_values_but_zero_pass_in_an_argument() -> None:
    everything = bytes(range(1, 256)) * 10
    assert run(command("printf", "%s", os.fsdecode(everything))).stdout == everything


def test_the_cap_hides_no_byte_from_the_live_callback(tmp_path: Path) -> None:
    source = tmp_path / "bytes"
    source.write_bytes(bytes(range(256)) * 2000)
    for capture in (0, 1, 1000):
        seen = bytearray()
        outcome = run(command("cat", str(source), capture=capture), on_stdout=seen.extend)
        assert bytes(seen) == source.read_bytes()
        assert outcome.stdout == source.read_bytes()[:capture]
        assert outcome.stdout_truncated


def test_a_child_that_stops_itself_is_still_killed() -> None:
    outcome = run(command("sh", "-c", "kill -STOP $$; echo never", deadline=0.4, grace=0.2))
    assert (outcome.ending, outcome.exit_code, outcome.stdout) == (Ending.TIMED_OUT, -9, b"")


@pytest.mark.parametrize("ending", [Ending.TIMED_OUT, Ending.CANCELLED])
def test_a_flood_delays_no_end(ending: Ending) -> None:
    started = time.monotonic()
    deadline, cancel_at = (0.5, 60.0) if ending is Ending.TIMED_OUT else (60.0, started + 0.5)
    outcome = run(
        command("cat", "/dev/zero", deadline=deadline, capture=10),
        cancelled=lambda: time.monotonic() > cancel_at if ending is Ending.CANCELLED else False,
    )
    assert outcome.ending is ending
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("ending", [Ending.TIMED_OUT, Ending.CANCELLED])
def test_an_end_while_the_child_reads_none_of_its_input(ending: Ending) -> None:
    pulled = 0

    def endless() -> Iterator[bytes]:
        nonlocal pulled
        while True:
            pulled += 1
            yield b"x" * 65536

    until = time.monotonic() + 0.4
    outcome = run(
        command("sh", "-c", "trap '' TERM; sleep 60", stdin=endless(), deadline=0.4, grace=0.2)
        if ending is Ending.TIMED_OUT
        else command("sleep", "60", stdin=endless()),
        cancelled=lambda: ending is Ending.CANCELLED and time.monotonic() > until,
    )
    assert outcome.ending is ending
    assert pulled < 100, "the input is pulled as the child reads, and not ahead"


def test_a_flood_from_outside_the_group_does_not_hold_us() -> None:
    """Its leader has gone; what left the session goes on writing for ever, until nobody reads."""
    started = time.monotonic()
    outcome = run(command("sh", "-c", "setsid sh -c 'echo $$; exec cat /dev/zero' & sleep 0.2", capture=64))
    assert outcome.ok
    assert time.monotonic() - started < 5
    assert gone_within(int(outcome.stdout.split(b"\n")[0]), 2)


def test_children_of_children_in_the_group_that_multiply_on_term_are_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    source = f"trap 'sleep 60 & echo $! >>{pids}; sleep 60 & echo $! >>{pids}' TERM; echo $$ >>{pids}\n"
    outcome = run(command("sh", "-c", source + "while :; do sleep 0.05; done", deadline=0.4, grace=0.3))
    assert outcome.ending is Ending.TIMED_OUT
    found = [int(line) for line in pids.read_text().split()]
    assert len(found) == 3
    assert all(gone_within(pid, 1) for pid in found)


def test_a_working_directory_that_vanishes_under_the_child_or_under_us(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    assert run(command("sh", "-c", f"rmdir {gone} && echo on", working_dir=gone)).stdout == b"on\n"
    ours = (
        f"import os, sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom backend.runner import Command, run\n"
        f"os.mkdir({str(gone)!r}); os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})\n"
        "done = run(Command(argv=('echo', 'on'), environment={'PATH': os.defpath}, deadline=10))\n"
        "sys.exit(0 if done.stdout == b'on\\n' else 1)"
    )
    assert run(command(sys.executable, "-c", ours)).exit_code == 0


ROOT = Path(__file__).resolve().parents[3]
MEASURED = """
import os, resource, sys
sys.path.insert(0, {root!r})
from backend.runner import Command, run
flood = "head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2"
command = Command(argv=("sh", "-c", flood), environment={{"PATH": os.defpath}}, deadline=60, capture=1 << 20)
run(Command(argv=("sh", "-c", "echo 1"), environment={{"PATH": os.defpath}}, deadline=60))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
seen = [0, 0]
def out(chunk): seen[0] += len(chunk)
def err(chunk): seen[1] += len(chunk)
done = run(command, on_stdout=out, on_stderr=err)
assert done.ok and seen == [50_000_000, 50_000_000], (done, seen)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_hundred_megabytes_cost_no_memory() -> None:
    """Measured from outside, in a process of its own: two captures of 1 MiB and a chunk of each pipe."""
    done = run(command(sys.executable, "-c", MEASURED.format(root=str(ROOT))))
    assert done.ok, done.stderr
    assert int(done.stdout) < 8 * 1024  # kB


STARVED = """
import errno, os, resource, selectors, sys, threading
sys.path.insert(0, {root!r})
from backend.runner import Command, Ending, run, spawn
def children():
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found += open(f"/proc/{{name}}/stat").read().rpartition(")")[2].split()[1] == str(os.getpid())
            except OSError:
                pass
    return found
# Before Python 3.11.4, Popen itself leaves the pipes open that it had made when the kernel refused the next.
popen_leaks = sys.version_info < (3, 11, 4)
command = Command(argv=("sleep", "30"), environment={{"PATH": os.defpath}}, deadline=0.1, grace=0.1)
run(command)
endings = []
for free in range(16):
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + free, 4096))
    endings.append(run(command).ending)
    with spawn(command) as child:
        child.wait(0.5)
    endings.append(child.end().ending)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
    assert children() == 0, free
    assert len(os.listdir("/proc/self/fd")) == open_now or popen_leaks, free
open_now = len(os.listdir("/proc/self/fd"))
def check(ending):
    assert ending is Ending.NOT_STARTED
    assert children() == 0
    assert len(os.listdir("/proc/self/fd")) == open_now
def refuse(*_):
    raise OSError(errno.EMFILE, "no descriptor")
def no_thread(self):
    raise RuntimeError("can't start new thread")
for module, name in ((selectors, "DefaultSelector"), (os, "set_blocking")):  # others took the last
    kept = getattr(module, name)
    setattr(module, name, refuse)
    check(run(command).ending)
    check(spawn(command).end().ending)
    setattr(module, name, kept)
kept, os.dup = os.dup, refuse
check(spawn(command).end().ending)
os.dup = kept
threading.Thread.start = no_thread
check(spawn(command).end().ending)
assert set(endings) == {{Ending.NOT_STARTED, Ending.TIMED_OUT}}, endings
"""


def test_without_descriptors_or_threads_a_child_is_not_started_and_none_is_left() -> None:
    """However far the start came before the kernel refused."""
    done = run(command(sys.executable, "-c", STARVED.format(root=str(ROOT)), deadline=60))
    assert done.ok, done.stderr.decode()
