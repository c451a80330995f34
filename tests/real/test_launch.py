"""Real launches of a small proved image: what runs, what is refused, and that nothing is ever left."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backend.agent_command import Output
from backend.containers import ContainerPlan, ContainerStatus
from backend.detect import detect
from backend.engines.protocol import Engine
from backend.journal import Boundary
from backend.launch import launch
from backend.ownership import hold_lease
from backend.records import LaunchEnding
from backend.recovery import RecoveryPlan, recover
from backend.requests import LaunchRequest
from builder.running import reap, running
from builder.state import State
from images.errors import Interrupted, LaunchReason, LaunchRefused
from provenance.layout import open_image
from provenance.scan.accept import accept
from tests.fakes.kills import KILLS, OF_A_LAUNCH, OF_A_RECOVERY, DyingJournal, When
from tests.fakes.proved import report_on
from tests.real.ground import LIMITS, Ground, ground, open_journal, world

__all__ = ["ground", "world"]

pytestmark = pytest.mark.real


def test_a_command_runs_hardened_and_is_recorded(ground: Ground) -> None:
    record, said = ground.shell("id -u; id -g; echo $HOME; pwd; cat /proc/1/comm; exit 7")
    assert said.split()[:4] == ["1000", "1000", "/home/agent", "/workspace"]
    assert said.split()[4] in ("catatonit", "tini", "dumb-init")
    assert record.exit_code == 7
    assert record.observed.ending is LaunchEnding.COMPLETED
    inside = record.observed.inside
    assert inside is not None
    if ground.probe.limits_enforced:
        assert (inside.limits.memory, inside.limits.pids) == (LIMITS.memory, LIMITS.pids)
    assert record.statement.is_only_about(ground.world.image.digest)
    assert ground.left() == ()


def test_an_agent_by_name(ground: Ground) -> None:
    said = bytearray()
    ground.run(ground.request(agent="pi", arguments=("--print", "two words")), Output(on_stdout=said.extend))
    assert said == b"pi was given: --print two words\n"


@pytest.mark.parametrize("code", [0, 1, 125, 126, 127, 137, 255])
def test_every_exit_code_is_the_commands_own(ground: Ground, code: int) -> None:
    record, _ = ground.shell(f"exit {code}")
    assert record.exit_code == code


def test_bytes_arrive_whole_and_in_order(ground: Ground) -> None:
    out, err = bytearray(), bytearray()
    script = "head -c 1000000 /dev/zero | tr '\\0' e >&2; head -c 20000000 /dev/zero | tr '\\0' x"
    script += "; printf '\\377end'"
    record = ground.run(
        ground.request("sh", "-c", script), Output(on_stdout=out.extend, on_stderr=err.extend)
    )
    assert bytes(out) == b"x" * 20_000_000 + b"\xffend"
    assert bytes(err) == b"e" * 1_000_000
    assert record.observed.stdout_bytes == 20_000_004


def test_a_missing_program_is_refused_before_it_runs(ground: Ground) -> None:
    with pytest.raises(LaunchRefused) as caught:
        ground.run(ground.request("no-such-tool"))
    assert caught.value.reason == LaunchReason.COMMAND_MISSING
    assert ground.left() == ()


def test_what_the_agent_finds_inside(ground: Ground) -> None:
    script = """
    for item in /var/run/docker.sock /run/docker.sock /run/podman /run/user /root/.ssh /home/agent/.ssh; do
        [ -e "$item" ] && echo "found $item"
    done
    for item in / /etc /opt /usr/bin /source /var/tmp /run; do
        (: >"$item/x") 2>/dev/null && echo "wrote to $item"
    done
    for item in "$HOME" /tmp /workspace; do : >"$item/x" || echo "cannot write to $item"; done
    env | cut -d= -f1 | sort | tr '\\n' ' '
    (echo 1 >/proc/sys/kernel/printk) 2>/dev/null && echo sysctl
    (echo c >/proc/sysrq-trigger) 2>/dev/null && echo sysrq
    kill -STOP 1 2>/dev/null && echo stopped
    (exec 9<>/proc/1/fd/0) 2>/dev/null && echo held
    true
    """
    record, said = ground.shell(script)
    assert record.exit_code == 0
    names = set(said.split())
    assert names - {"container"} == {"HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "TERM", "USER"}


def test_a_deadline_ends_the_work_itself(ground: Ground) -> None:
    script = """
    trap '' HUP INT TERM
    (trap '' HUP TERM; while :; do date >>/workspace/log; sleep 0.1; done) &
    command -v setsid >/dev/null && setsid sh -c "trap '' TERM; sleep 60" &
    echo started
    sleep 60
    """
    began = time.monotonic()
    record, said = ground.shell(script, deadline=2.0)
    assert "started" in said
    assert record.observed.ending is LaunchEnding.TIMED_OUT
    assert record.exit_code is None
    assert time.monotonic() - began < 20
    assert ground.left() == ()


def test_an_interruption_leaves_nothing(ground: Ground) -> None:
    def interrupt(_: bytes) -> None:
        raise Interrupted("Ctrl-C")

    request = ground.request("sh", "-c", "echo now; sleep 60")
    with pytest.raises(Interrupted), ground.control() as controller:
        launch(controller, ground.admitted, request, Output(on_stdout=interrupt))
    assert ground.left() == ()
    with open_journal(ground) as journal:
        assert journal.passed(f"{request.run_id}.1")[-2:] == (Boundary.REMOVED, Boundary.RECORDED)


def test_a_cancellation_from_another_thread(ground: Ground) -> None:
    stop = threading.Event()
    output = Output(on_stdout=lambda _: stop.set(), cancelled=stop.is_set)
    began = time.monotonic()
    record = ground.run(ground.request("sh", "-c", "trap '' TERM; echo now; sleep 60"), output)
    assert record.observed.ending is LaunchEnding.INTERRUPTED
    assert time.monotonic() - began < 30
    assert ground.left() == ()


def test_out_of_memory_is_seen(ground: Ground) -> None:
    if not ground.probe.limits_enforced:
        with_no_limit, _ = ground.shell("exit 1")
        assert with_no_limit.observed.out_of_memory is None
        return
    record, _ = ground.shell("x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done")
    assert record.exit_code == 137
    assert record.observed.out_of_memory is True


def test_orphans_are_reaped_by_pid_1(ground: Ground) -> None:
    """More than the limit of processes: where it binds, those that stayed would end the loop."""
    script = """
    i=0; while [ $i -lt 400 ]; do (true & ) ; i=$((i+1)); done
    sleep 1
    for item in /proc/[0-9]*/status; do
        while read -r name value _; do
            [ "$name" = State: ] && [ "$value" = Z ] && echo zombie
        done <"$item"
    done 2>/dev/null
    true
    """
    record, said = ground.shell(script)
    assert record.exit_code == 0
    assert "zombie" not in said


class Tampering:
    """The engine, with one plan changed on its way in: what a broken or lying engine does."""

    def __init__(self, engine: Engine, change: dict[str, Any]) -> None:
        self._engine = engine
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def create(self, plan: ContainerPlan) -> str:
        return self._engine.create(dataclasses.replace(plan, **self._change))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"environment": (("EXTRA", "1"),)}, LaunchReason.READ_BACK),
        ({"user": (1000, 1000)}, LaunchReason.READ_BACK),
        ({"tmpfs": ()}, LaunchReason.READ_BACK),
        ({"extra_groups": (4,)}, LaunchReason.READ_BACK),
        ({"arguments": ("sleep", "60")}, LaunchReason.READ_BACK),
    ],
)
def test_a_container_that_is_not_as_planned_never_starts(
    ground: Ground, change: dict[str, Any], reason: LaunchReason
) -> None:
    engine: Any = Tampering(ground.engine, change)
    with ground.control(engine) as controller, pytest.raises(LaunchRefused) as caught:
        launch(controller, ground.admitted, ground.request("true"))
    assert caught.value.reason == reason
    assert ground.left() == ()


def test_another_image_under_the_verified_one_never_starts(ground: Ground, tmp_path: Path) -> None:
    other = ground.engine.load(ground.world.base, tmp_path)
    engine: Any = Tampering(ground.engine, {"image": other, "entrypoint": ("/usr/bin/catatonit",)})
    with ground.control(engine) as controller, pytest.raises(LaunchRefused) as caught:
        launch(controller, ground.admitted, ground.request("true"))
    assert caught.value.reason == LaunchReason.IMAGE_ID
    assert ground.left() == ()


def test_after_sigkill_the_container_is_gone_and_one_recovery_is_enough(ground: Ground) -> None:
    request = ground.request("sh", "-c", "trap '' TERM HUP; echo started; sleep 300")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with ground.control() as controller:
                launch(
                    controller,
                    ground.admitted,
                    request,
                    Output(on_stdout=lambda chunk: void(os.write(writer, chunk))),
                )
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 100) == b"started\n"
    os.close(reader)
    (container,) = ground.left()
    began = time.monotonic()
    os.kill(child, signal.SIGKILL)
    while (found := ground.engine.inspect(container)) is not None and found.running:
        assert time.monotonic() - began < 5, "the container outlives its controller"
        time.sleep(0.02)
    os.waitpid(child, 0)
    with open_journal(ground) as journal:
        again = [
            recover(
                ground.engine, journal, ground.root / "leases", ground.state_id, lambda: datetime.now(UTC)
            )
            for _ in range(2)
        ]
        assert [one.container_id for one in again[0].remove] == [container]
        assert again[0].close == (f"{request.run_id}.1",)
        assert again[1].nothing
        assert journal.passed(f"{request.run_id}.1")[-2:] == (Boundary.COMMANDED, Boundary.RECOVERED)
    assert ground.left() == ()


def killed(ground: Ground, request: LaunchRequest, boundary: Boundary, when: When) -> None:
    """A launch in a process that is killed there."""
    child = os.fork()
    if child == 0:
        try:
            with ground.control() as controller:
                dying: Any = DyingJournal(controller.journal, boundary, when)
                launch(dataclasses.replace(controller, journal=dying), ground.admitted, request)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def recovered(ground: Ground, journal: Any) -> RecoveryPlan:
    return recover(ground.engine, journal, ground.root / "leases", ground.state_id, lambda: datetime.now(UTC))


@pytest.mark.parametrize(("boundary", "when"), OF_A_LAUNCH)
def test_sigkill_at_every_boundary_leaves_nothing_after_one_recovery(
    ground: Ground, boundary: Boundary, when: When
) -> None:
    expected = KILLS[boundary, when]
    request = ground.request("sh", "-c", "sleep 1")
    killed(ground, request, boundary, when)
    launch_id = f"{request.run_id}.1"
    left = ground.left()
    assert len(left) == expected.container
    with open_journal(ground) as journal:
        passed = journal.passed(launch_id)
        assert (boundary in passed) is (when is When.AFTER)
        first, second = recovered(ground, journal), recovered(ground, journal)
        assert tuple(one.container_id for one in first.remove) == left
        assert first.close == ((launch_id,) if expected.closes else ())
        assert second.nothing
        assert (journal.bundle(launch_id) is not None) is (
            (boundary, when) == (Boundary.RECORDED, When.AFTER)
        )
        assert [one for one in journal.removals() if one.container_id in left] == list(first.remove)
        after = journal.passed(launch_id)
        assert after == ((*passed, Boundary.RECOVERED) if expected.closes else passed)
    assert ground.left() == ()


@pytest.mark.parametrize("place", [*OF_A_RECOVERY, ("audit", When.BEFORE), ("audit", When.AFTER)])
def test_sigkill_of_a_recovery_is_finished_by_the_next(
    ground: Ground, place: tuple[Boundary | str, When]
) -> None:
    """A line of the audit is written before its container is removed."""
    request = ground.request("sh", "-c", "sleep 1")
    killed(ground, request, Boundary.COMMANDED, When.AFTER)
    (container,) = ground.left()
    child = os.fork()
    if child == 0:
        try:
            with open_journal(ground) as journal:
                recovered(ground, DyingJournal(journal, *place))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with open_journal(ground) as journal:
        first, second = recovered(ground, journal), recovered(ground, journal)
        assert first.nothing is (place == (Boundary.RECOVERED, When.AFTER))
        assert second.nothing
        assert [one.container_id for one in journal.removals()].count(container) == 1
        assert journal.passed(f"{request.run_id}.1").count(Boundary.RECOVERED) == 1
    assert ground.left() == ()


def test_ps_and_reap_of_a_killed_launch(ground: Ground) -> None:
    """What the commands are made of, on a real engine: a killed launch beside a living one."""
    request = ground.request("sh", "-c", "sleep 1")
    killed(ground, request, Boundary.STARTED, When.AFTER)
    with open_journal(ground) as journal:
        state = State(root=ground.root, id=ground.state_id)
        (row,) = running(state, ground.engine, journal)
        assert row.entry is not None
        assert (row.entry.intent.run_id, row.alive) == (request.run_id, False)
        assert row.found.supervision == "tethered"
        assert row.found.status in (ContainerStatus.RUNNING, ContainerStatus.EXITED)
        would = reap(state, ground.engine, journal, lambda: datetime.now(UTC), dry_run=True)
        assert ground.left() == (row.found.container_id,)
        done = reap(state, ground.engine, journal, lambda: datetime.now(UTC), dry_run=False)
        assert done.plan == would.plan
        assert running(state, ground.engine, journal) == ()
        assert reap(state, ground.engine, journal, lambda: datetime.now(UTC), dry_run=False).plan.nothing


def void(_: int) -> None:
    """What a callback gives back."""


def test_detection_under_the_same_hardening(ground: Ground, tmp_path: Path) -> None:
    image = open_image(ground.world.layout, ground.world.image.digest)
    pins = [(agent.name, agent.version) for agent in ground.world.lock.agents]
    with hold_lease(ground.root / "leases", ground.state_id) as owner:
        found = detect(ground.engine, accept(report_on(image), image), pins, owner=owner, staging=tmp_path)
    assert [(one.name, one.reported) for one in found.agents] == [(n.value, v) for n, v in pins]
    assert "uid 0: refused" in found.root_behaviour[0]
    assert "uid 1000: accepted" in found.root_behaviour[1]
    assert ground.left() == ()
