"""The real image of the README: every entry accounted for, and what starts in it without a network."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.containers import ContainerPlan, ExecPlan, Limits, LoadedImage, Purpose, Tmpfs
from backend.engines.protocol import Engine
from backend.tools import TOOL_LABEL, created
from builder.building.base_check import read_base
from builder.resources import resource
from builder.state import State
from builder.storage.store import ContentStore
from images.key import content_key
from images.lockfile import parse_lock
from images.oci import OciImage
from images.render import LABEL_KEY, BuildContext, render
from provenance.layout import list_images, open_image
from tests.fakes.locks import AMD64
from tests.real.accounting import unaccounted
from tests.real.layouts import copy_state
from tests.real.spine import ROOT, Spine

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def context(kept_state: State) -> BuildContext:
    lock = parse_lock((ROOT / ".state/project/builder.lock").read_bytes())
    base = open_image(kept_state.layout, lock.base.image(AMD64).manifest, AMD64)
    built = render(lock, AMD64, resource("Containerfile.in").read_text(), read_base(base))
    assert built.key == content_key(lock, AMD64)
    return built


@pytest.fixture(scope="module")
def image(kept_state: State, context: BuildContext) -> OciImage:
    """The image with this key; whether it is proved is another test's matter."""
    found = [open_image(kept_state.layout, entry.digest) for entry in list_images(kept_state.layout)]
    return next(one for one in found if dict(one.settings.labels).get(LABEL_KEY) == context.key)


def test_every_entry_of_the_real_image_is_accounted_for(
    kept_state: State, context: BuildContext, image: OciImage
) -> None:
    below = len(image.manifest.layers) - context.image.new_layers
    assert unaccounted(image, below, context, ContentStore(kept_state.store)) == []


def test_one_binary_per_processor_level(context: BuildContext) -> None:
    for plan in context.plans:
        names = {item.artifact.name for item in plan.placed}
        assert not {name for name in names if f"{name}-baseline" in names}


@pytest.fixture(scope="module")
def running(engine: Engine, image: OciImage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image, hardened, with no network, its own user's home in memory."""
    loaded: LoadedImage = engine.load(image, tmp_path_factory.mktemp("load"))
    plan = ContainerPlan(
        purpose=Purpose.DETECT,
        image=loaded,
        name=f"agent-image-builder-test-{time.monotonic_ns()}",
        labels=((TOOL_LABEL, f"test-{time.monotonic_ns()}"),),
        entrypoint=(image.settings.entrypoint[0],),
        arguments=("--", "timeout", "300", "cat"),
        user=(997, 997),
        tmpfs=(
            Tmpfs(path="/tmp", size=1 << 28),
            Tmpfs(path="/home/agent", size=1 << 28, mode=0o700, uid=1000, gid=1000),
        ),
        limits=Limits(cpus=2, memory=2 << 30, pids=256) if engine.product == "docker" else None,
    )
    with created(engine, plan) as container:
        engine.start(container)
        yield container


def run_inside(engine: Engine, container: str, script: str, deadline: float = 60.0) -> tuple[int | None, str]:
    plan = ExecPlan(argv=("/bin/sh", "-c", script), user=(1000, 1000), environment=(("HOME", "/home/agent"),))
    outcome = engine.exec(container, plan, deadline=deadline)
    return outcome.exit_code, (outcome.stdout + outcome.stderr).decode("utf-8", "replace")


def test_accounts_and_owners_inside(engine: Engine, running: str) -> None:
    code, said = run_inside(
        engine,
        running,
        "id -un; id -u; getent passwd 997 | cut -d: -f1;"
        "find /opt /usr/local/bin /etc/agent-image.json ! -type l \\( -writable -o ! -uid 0 \\) | head -3;"
        "find /opt /usr/local -perm /6000 | head -3",
    )
    assert (code, said.split()) == (0, ["agent", "1000", "watch"])


def test_opencode_starts_without_a_network(engine: Engine, running: str) -> None:
    code, said = run_inside(engine, running, "cd /tmp && opencode models", deadline=40.0)
    assert code == 0, said
    assert re.search(r"^opencode/", said, re.MULTILINE)
    code, said = run_inside(engine, running, "ls -A ~/.cache/opencode ~/.config/opencode | grep node_modules")
    assert code == 1, said


def test_no_updater_changes_what_runs(engine: Engine, running: str) -> None:
    """CFG-15: whatever the updaters say, the files are the same afterwards, and so are the versions."""
    look = "for name in claude opencode pi; do $name --version 2>&1; done; find /opt /usr/local/bin -type f"
    look += " -exec sha256sum {} + | sort | sha256sum"
    _, before = run_inside(engine, running, look, deadline=120.0)
    for command in ("claude update", "opencode upgrade", "pi update"):
        run_inside(engine, running, f"cd /tmp && timeout 15 {command} </dev/null", deadline=30.0)
    _, after = run_inside(engine, running, look, deadline=120.0)
    assert len(before.split("\n")) >= 4
    assert before == after


@pytest.mark.long
def test_the_real_image_is_the_same_again(spine: Spine, tmp_path: Path) -> None:
    state = tmp_path / "state"
    copy_state(spine.state, state)
    done = spine.builder("verify", "--rebuild", state=state)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"rebuilt: the same digest, {spine.digest}" in done.stderr
    assert done.stdout.strip() == spine.digest
