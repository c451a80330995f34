"""The bootstrap images on a real machine: made twice to the same digest, and run without any privilege."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend.containers import ContainerPlan, ExecPlan, Network, Purpose
from backend.engines.protocol import Engine
from backend.tools import BuildContainer, build_container
from builder.bootstrap import Bootstrapped, Host, lock_in_use
from builder.bootstrap.lock import BootstrapLock, load_lock
from builder.bootstrap.making import Job, made
from builder.bootstrap.rootfs import Mode
from builder.resources import resource
from builder.roles import Role
from builder.state import State
from provenance.layout import open_image, open_layer

pytestmark = pytest.mark.real

LABELS = (("agent-image-builder.test", "bootstrap"),)


@pytest.fixture(scope="module")
def lock(kept_state: State) -> BootstrapLock:
    return load_lock(lock_in_use(kept_state.bootstrap / "bootstrap.lock"))


# An ordinary user's way in each run; as root the README's first command has just gone the other.
@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[pytest.mark.long] if mode is Mode.ROOT else []) for mode in Mode]
)
def test_the_base_comes_out_as_locked_however_it_is_made(
    kept_state: State, lock: BootstrapLock, tmp_path: Path, mode: Mode
) -> None:
    host = Host(environment=dict(os.environ), cache=kept_state.bootstrap)
    job = Job(layout=tmp_path / "layout", host=host, lock=lock, modules=resource("bootstrap"), mode=mode)
    before = os.umask(0o077)
    try:
        with made(job, Role.BASE) as (image, _):
            assert image.pins == replace(lock.pins(Role.BASE), asked=image.pins.asked)
    finally:
        os.umask(before)


@pytest.fixture(scope="module")
def buildkit(
    engine: Engine, kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BuildContainer]:
    image = open_image(kept_state.layout, bootstrapped.build_container)
    loaded = engine.load(image, tmp_path_factory.mktemp("load"))
    with kept_state.staging("test") as private, build_container(engine, loaded, private, LABELS) as running:
        yield running


def inside(engine: Engine, container: str, *argv: str) -> str:
    plan = ExecPlan(argv=argv, user=(1000, 1000), working_dir="/")
    outcome = engine.exec(container, plan)
    assert outcome.ok, outcome
    return outcome.stdout.decode()


def test_the_build_container_has_no_privilege_and_no_network(
    engine: Engine, buildkit: BuildContainer
) -> None:
    found = engine.inspect(buildkit.container)
    assert found is not None
    assert found.privileged is False
    assert found.capabilities_added == ()
    assert found.devices == ()
    assert found.network_mode == "none"
    status = inside(engine, buildkit.container, "cat", "/proc/self/status")
    assert "CapEff:\t0000000000000000" in status
    # One line for each interface after two of headings: nothing but the loopback.
    assert len(inside(engine, buildkit.container, "cat", "/proc/net/dev").splitlines()) == 3


def test_buildkit_answers_with_the_locked_version_and_a_fast_snapshotter(
    engine: Engine, buildkit: BuildContainer, lock: BootstrapLock
) -> None:
    said = inside(engine, buildkit.container, "buildctl", "debug", "workers", "-v")
    (version,) = {program.version for program in lock.go.programs if program.name == "buildkitd"}
    assert f"github.com/moby/buildkit {version}" in said
    assert "worker.snapshotter:\t\toverlayfs" in said or "worker.snapshotter:\toverlayfs" in said
    assert "process-mode:\tsandbox" in said


def test_the_id_mappers_carry_v2_file_capabilities(engine: Engine, buildkit: BuildContainer) -> None:
    said = inside(engine, buildkit.container, "getcap", "/usr/bin/newuidmap", "/usr/bin/newgidmap")
    assert said == "/usr/bin/newuidmap cap_setuid=ep\n/usr/bin/newgidmap cap_setgid=ep\n"


def test_the_base_holds_what_every_image_needs(
    engine: Engine, kept_state: State, bootstrapped: Bootstrapped, tmp_path: Path
) -> None:
    loaded = engine.load(open_image(kept_state.layout, bootstrapped.base), tmp_path)
    plan = ContainerPlan(
        purpose=Purpose.PROBE,
        image=loaded,
        name="agent-image-builder-test-base",
        labels=LABELS,
        entrypoint=(bootstrapped.init, "--"),
        arguments=("sh", "-c", "timeout 5 git --version && tar --version && cat /etc/debian_version"),
        user=(997, 997),
        network=Network.NONE,
    )
    container = engine.create(plan)
    try:
        outcome = engine.start_attached(container, stdin=None, on_stdout=None, on_stderr=None, deadline=60.0)
    finally:
        engine.remove(container)
    assert outcome.ok, outcome
    assert outcome.stdout.startswith(b"git version 2.")


FORBIDDEN = re.compile(
    r"etc/apt/sources\.list.*|etc/machine-id|etc/resolv\.conf|etc/hostname|etc/ssh/ssh_host.*|.*/authorized_keys"
    r"|etc/(passwd|shadow|group|gshadow)-|var/lib/apt/lists/.+|var/cache/apt/.+|dev/.+"
    r"|usr/local/share/ca-certificates/.+"
)


@pytest.mark.parametrize("role", Role)
def test_no_image_tells_of_its_making(kept_state: State, lock: BootstrapLock, role: Role) -> None:
    image = open_image(kept_state.layout, lock.pins(role).manifest)
    with open_layer(image, 0) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            # apt's own empty directory for more lists of sources stays.
            assert member.name == "etc/apt/sources.list.d" or not FORBIDDEN.fullmatch(member.name), (
                member.name
            )
            assert member.isreg() or member.isdir() or member.issym() or member.islnk(), member.name
            assert member.mtime == lock.epoch, member.name
            assert not (member.name.startswith("var/log/") and member.isreg()), member.name
    assert image.settings.labels == ()
    assert image.settings.environment[0].startswith("PATH=")
