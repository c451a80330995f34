"""A hostile agent inside real containers: what it finds, what it cannot change, and that its time is bounded.

Few and short, since each runs on every engine. A neighbour of the same state root lives through all of them.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from backend.admission import admit
from backend.agent_command import Output
from backend.death_watch import hostile_plan
from backend.journal import Boundary
from backend.launch import launch
from backend.leased import Leased, adopt_leased, open_leased
from backend.records import LaunchEnding
from backend.recovery import RecoveryPlan, recover
from backend.requests import LaunchRequest, Supervision
from images.errors import LaunchReason, LaunchRefused, StateError
from tests.attacks import Position, attack
from tests.fakes.kills import DyingJournal, When
from tests.fakes.locks import AMD64
from tests.real.conftest import Evidence
from tests.real.test_launch import LIMITS, Ground, ground, open_journal, world

__all__ = ["ground", "world"]

pytestmark = pytest.mark.real

LEASE = 5  # seconds
# The lease, one turn of PID 1's loop, the whole seconds of uptime, and what a busy machine adds.
LEASE_BOUND = LEASE + 6.0
GONE_BOUND = 5.0
HOSTILE = hostile_plan().argv[2]
DAEMONS = """
trap '' HUP INT TERM QUIT
( ( trap '' HUP TERM; while :; do sleep 1; done ) & ) </dev/null >/dev/null 2>&1
setsid sh -c "trap '' HUP TERM; while :; do sleep 1; done" </dev/null >/dev/null 2>&1 &
"""


def leased(ground: Ground, **changes: Any) -> LaunchRequest:
    """A request for a leased container with a short lease."""
    given = {"command": (), "supervision": Supervision.LEASED, "lease_seconds": LEASE, **changes}
    return ground.request(**given)


@pytest.fixture(scope="module")
def neighbour(ground: Ground) -> Iterator[Leased]:
    """Another worker's container, of the same state root: nobody may touch it."""
    with ground.control() as controller:
        held = open_leased(controller, ground.admitted, leased(ground, lease_seconds=600, deadline=1800.0))
        held.run(("sh", "-c", "echo its own >/workspace/file; (sleep 1700 &) >/dev/null 2>&1"), 30.0)
        yield held
        said = bytearray()
        counts = "cat /workspace/file; for one in /proc/[0-9]*/comm; do cat $one; done 2>/dev/null"
        end = held.run(("sh", "-c", counts), 30.0, Output(on_stdout=said.extend))
        assert end.exit_code == 0
        assert said.startswith(b"its own\n")
        assert said.count(b"sleep\n") >= 1
        assert held.close().observed.ending is LaunchEnding.COMPLETED


@pytest.fixture
def left(ground: Ground, neighbour: Leased) -> Iterator[Callable[[], tuple[str, ...]]]:
    """What is there beside the neighbour; nothing at the end."""

    def others() -> tuple[str, ...]:
        found = ground.left()
        assert neighbour.container in found
        return tuple(one for one in found if one != neighbour.container)

    yield others
    assert others() == ()
    found = ground.engine.inspect(neighbour.container)
    assert found is not None
    assert found.running


def recovered(ground: Ground) -> RecoveryPlan:
    with open_journal(ground) as journal:
        return recover(
            ground.engine, journal, ground.root / "leases", ground.state_id, lambda: datetime.now(UTC)
        )


def gone_after(ground: Ground, container: str, bound: float) -> float:
    began = time.monotonic()
    while (found := ground.engine.inspect(container)) is not None and found.running:
        assert time.monotonic() - began < bound, f"still there after {bound} s"
        time.sleep(0.05)
    return time.monotonic() - began


def in_child(work: Callable[[], None]) -> int:
    """The id of a process that does it and never returns; whoever starts it ends it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return child


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def attacking(ground: Ground, **changes: Any) -> tuple[LaunchRequest, int, str]:
    """A launch whose command is the attack, in a process of its own; returns once the attack runs."""
    # What was there before it is attacked: its own daemons come after.
    script = f"seconds=60\n{HOSTILE.replace('sleep 0.5', f'{DAEMONS}sleep 0.5')}"
    request = ground.request("sh", "-c", script, **changes)
    reader, writer = os.pipe()

    def work() -> None:
        with ground.control() as controller:
            output = Output(on_stdout=lambda chunk: void(os.write(writer, chunk)))
            launch(controller, ground.admitted, request, output)

    child = in_child(work)
    os.close(writer)
    said = b""
    while b"hostile-agent-ready" not in said:
        chunk = os.read(reader, 65536)
        assert chunk, "the attack did not start"
        said += chunk
    os.close(reader)
    assert b"stopped " not in said
    assert b"killed " not in said
    (container,) = (
        one
        for one in ground.left()
        if (found := ground.engine.inspect(one)) is not None
        and dict(found.labels)["agent-image-builder.run"] == request.run_id
    )
    return request, child, container


def void(_: int) -> None:
    """What a callback gives back."""


@attack(by=Position.AGENT)
def test_an_attack_ends_with_its_controller(
    ground: Ground, left: Callable[[], tuple[str, ...]], evidence: Evidence
) -> None:
    """STOPs and KILLs all that it sees, holds PID 1's descriptors, daemonises, ignores TERM."""
    request, child, container = attacking(ground)
    os.kill(child, signal.SIGKILL)
    seconds = gone_after(ground, container, GONE_BOUND)
    assert ended(child) == -signal.SIGKILL
    evidence(f"{ground.engine.product}: under attack, gone {seconds:.2f} s after SIGKILL of the controller")
    assert recovered(ground).close == (f"{request.run_id}.1",)
    assert recovered(ground).nothing
    assert left() == ()


def test_an_attack_ends_at_the_deadline_inside_while_its_controller_sleeps(
    ground: Ground, left: Callable[[], tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped controller neither lets the pipe go nor counts its own time limit."""
    monkeypatch.setattr("backend.plan.WATCH_MARGIN", 5.0)
    _, child, container = attacking(ground, deadline=3.0)
    os.kill(child, signal.SIGSTOP)
    gone_after(ground, container, 3.0 + 5.0 + 5.0 + GONE_BOUND)
    os.kill(child, signal.SIGKILL)
    ended(child)
    assert len(recovered(ground).remove) <= 1
    assert recovered(ground).nothing
    assert left() == ()


FORGE = r"""
forge() {
    trap '' HUP TERM
    while :; do
        for item in /run/lease/renewed /run/lease /run; do
            ( echo 4000000000 >$item; echo 4000000000 >>$item ) && echo wrote $item
            rm -rf $item && echo removed $item
            mv $item /tmp/taken && echo moved $item
            ln -sf /tmp/mine $item && echo linked $item
            chmod 777 $item && echo opened $item
        done
        ( : >/run/lease/other ) && echo made
        for pid in 1 $(ls /proc | grep '^[0-9]'); do
            if [ "$(stat -c %u /proc/$pid)" != "$(id -u)" ]; then
                kill -STOP $pid && echo stopped $pid
                kill -KILL $pid && echo killed $pid
            fi
        done
        sleep 0.3
    done 2>/dev/null
}
( forge >/tmp/forged & ) </dev/null >/dev/null 2>&1
"""


def test_an_agent_cannot_keep_a_leased_container_alive(
    ground: Ground, left: Callable[[], tuple[str, ...]], evidence: Evidence
) -> None:
    said = bytearray()
    with ground.control() as controller:
        held = open_leased(controller, ground.admitted, leased(ground))
        with held.kept():
            began = time.monotonic()
            assert held.run(("sh", "-c", DAEMONS + FORGE), 30.0).exit_code == 0
            time.sleep(max(0.0, LEASE + 2 - (time.monotonic() - began)))  # kept longer than one lease
            shown = held.run(("cat", "/tmp/forged"), 30.0, Output(on_stdout=said.extend))
            assert (shown.exit_code, bytes(said)) == (0, b"")
        seconds = gone_after(ground, held.container, LEASE_BOUND)
        evidence(
            f"{ground.engine.product}: a lease of {LEASE} s, gone {seconds:.2f} s after the last renewal"
        )
        record = held.close()
    assert record.observed.ending is LaunchEnding.CONTAINER_LOST
    assert left() == ()


def killed(ground: Ground, request: LaunchRequest, boundary: Boundary, when: When = When.AFTER) -> None:
    """A leased launch in a process that is killed there: opened, and closed."""

    def work() -> None:
        with ground.control() as controller:
            dying: Any = DyingJournal(controller.journal, boundary, when)
            held = open_leased(dataclasses.replace(controller, journal=dying), ground.admitted, request)
            held.close()

    assert ended(in_child(work)) == -signal.SIGKILL


def test_a_leased_container_survives_its_controller_and_is_adopted(
    ground: Ground, left: Callable[[], tuple[str, ...]]
) -> None:
    """While its lease is fresh recovery leaves it alone; a new controller goes on with it, and ends it."""
    request = leased(ground, lease_seconds=60)
    killed(ground, request, Boundary.COMMANDED)
    (container,) = left()
    assert recovered(ground).nothing
    leases, said = ground.root / "leases", bytearray()
    with ground.control() as controller:
        held = adopt_leased(controller, ground.admitted, request, leases)
        with pytest.raises(StateError, match="its controller lives"):
            adopt_leased(controller, ground.admitted, request, leases)
        assert recovered(ground).nothing
        end = held.run(("sh", "-c", "id -u; exit 4"), 30.0, Output(on_stdout=said.extend))
        assert (end.exit_code, bytes(said), held.container) == (4, b"1000\n", container)
        record = held.close()
    assert record.observed.ending is LaunchEnding.COMPLETED
    assert recovered(ground).nothing


def test_a_leased_container_that_nobody_adopts_ends_and_is_reaped(
    ground: Ground, left: Callable[[], tuple[str, ...]]
) -> None:
    request = leased(ground)
    killed(ground, request, Boundary.COMMANDED)
    (container,) = left()
    gone_after(ground, container, LEASE_BOUND)
    done = recovered(ground)
    assert [one.container_id for one in done.remove] == [container]
    assert done.close == (f"{request.run_id}.1",)
    assert recovered(ground).nothing
    assert left() == ()


LOOK = r"""
for item in /var/run/docker.sock /run/docker.sock /run/podman /run/containerd /run/user /run/dbus /root/.ssh \
    /root/.docker /home/agent/.ssh /home/agent/.gitconfig /home/agent/.docker /home/agent/.config \
    /host /mnt/* /media/* /dev/mem /dev/kmsg /dev/sd* /dev/vd* /dev/loop* /dev/fuse /dev/kvm /dev/net; do
    [ -e "$item" ] && echo "found $item"
done
find / -xdev -type s 2>/dev/null
for program in docker podman buildctl sudo; do command -v $program; done
(cat /proc/1/environ) 2>/dev/null && echo 'environment of PID 1'
ls -l /proc/1/cwd /proc/1/root/ >/dev/null 2>&1 && echo 'files of PID 1'
for item in /proc/1/mem /proc/kcore /proc/kmsg; do
    [ -z "$(head -c 1 $item 2>/dev/null | tr '\0' x)" ] || echo "read $item"
done
for item in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger \
    /proc/sys/vm/drop_caches /sys/kernel/uevent_helper /sys/fs/cgroup/*/release_agent \
    /sys/fs/cgroup/cgroup.procs /proc/1/oom_score_adj; do
    (echo x >$item) 2>/dev/null && echo "wrote $item"
done
mknod /tmp/disk b 8 0 2>/dev/null && echo 'made a device'
mkdir /tmp/here && mount -t tmpfs none /tmp/here 2>/dev/null && echo mounted
mount -o remount,rw / 2>/dev/null && echo 'remounted /'
unshare -Ur true 2>/dev/null && echo 'new user namespace'
unshare -m true 2>/dev/null && echo 'new mount namespace'
unshare -Urm sh -c '
    mount -o remount,rw / && echo "remounted /"
    mount -o remount,rw /sys && echo "remounted /sys"
    umount /proc/sys && echo "uncovered /proc/sys"
    mknod /tmp/disk b 8 0 && echo "made a device"
    for item in /etc/x /opt/x /source/x /proc/sys/kernel/core_pattern /proc/sysrq-trigger /run/x; do
        (echo x >$item) && echo "wrote $item"
    done
    kill -STOP 1 && echo "stopped PID 1"
' 2>/dev/null
chroot / true 2>/dev/null && echo chroot
su -c true 2>/dev/null && echo su
grep -h '^Cap' /proc/self/status | grep -v '0000000000000000$'
env | cut -d= -f1 | grep -vxE 'HOME|HOSTNAME|LANG|LOGNAME|PATH|PWD|OLDPWD|SHLVL|_|TERM|USER|container'
true
"""


@attack(by=Position.AGENT)
def test_what_a_hostile_agent_finds_is_nothing(
    ground: Ground, left: Callable[[], tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No socket, host HOME, token, SSH agent, capability or device; no way to mount, trace or write /proc."""
    for name in ("SSH_AUTH_SOCK", "GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "DOCKER_AUTH_CONFIG"):
        monkeypatch.setenv(name, "/of/the/host")
    record, said = ground.shell(LOOK)
    # Podman's own seccomp profile lets anybody make a user namespace; what is tried within it is refused too.
    allowed = {"new user namespace"} if ground.engine.product == "podman" else set()
    assert (record.exit_code, set(said.splitlines()) - allowed) == (0, set())
    inside = record.observed.inside
    assert inside is not None
    assert inside.process.capabilities == inside.init.capabilities == frozenset()
    assert left() == ()


BOMBS = {
    "processes": "bomb() { bomb | bomb & }; bomb; sleep 60",
    "memory": "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done",
    "memory file systems": 'for place in /tmp /workspace "$HOME" /dev/shm; do'
    " while head -c 16777216 /dev/zero >>$place/flood; do :; done; done; exit 9",
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_bomb_is_bounded_or_its_launch_is_refused(
    ground: Ground, left: Callable[[], tuple[str, ...]], evidence: Evidence, name: str
) -> None:
    """Run only where each limit reads back as effective from inside."""
    if not ground.probe.limits_enforced:
        refused_without_acceptance(ground)
        evidence(f"{ground.engine.product}: flood of {name}: accepted, not enforced; not run")
        return
    began = time.monotonic()
    record, _ = ground.shell(BOMBS[name], deadline=8.0)
    assert time.monotonic() - began < 60
    assert record.exit_code != 0
    inside = record.observed.inside
    assert inside is not None
    assert (inside.limits.memory, inside.limits.pids) == (LIMITS.memory, LIMITS.pids)
    assert left() == ()
    evidence(f"{ground.engine.product}: flood of {name}: bounded, {record.observed.ending.value}")


def refused_without_acceptance(ground: Ground) -> None:
    """The same image on the same host, under a policy that accepts nothing by name."""
    verified = ground.admitted.verified
    strict = dataclasses.replace(verified.policy, accept=())
    with pytest.raises(LaunchRefused) as caught:
        admit(verified, strict, ground.probe, facts=ground.engine.facts(), platform=AMD64, host=())
    assert caught.value.reason == LaunchReason.LIMITS_NOT_ENFORCED
