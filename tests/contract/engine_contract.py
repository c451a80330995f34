"""What every engine must do: one suite for the scripted fake and for each real engine.

The commands are few and fixed, so that a fake can answer them from a table (``ANSWERS``).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend.commands import BoundedFile
from backend.containers import (
    ContainerPlan,
    ExecPlan,
    InspectedMount,
    Limits,
    LoadedImage,
    Purpose,
    Tmpfs,
    VolumeMount,
    VolumePlan,
)
from backend.engine_store import differences
from backend.engines.protocol import Engine
from backend.runner import Command, Ending, spawn
from images.errors import HostError
from provenance.file_tree import image_tree, packed_tree
from provenance.layout import open_image
from tests.fakes.layouts import make_image

LABEL = "agent-image-builder.test"
AGENT = (1000, 1000)
LINES = ("sh", "-c", "echo out; echo err >&2; exit 7")
ECHO = ("cat",)
MISSING = ("no-such-program-in-the-image",)
INIT = "/usr/bin/catatonit"


def plan_for(
    loaded: LoadedImage, *, main: tuple[str, ...] = ("timeout", "-k5", "60", "cat")
) -> ContainerPlan:
    """A hardened container whose PID 1 echoes its input."""
    token = secrets.token_hex(8)
    return ContainerPlan(
        purpose=Purpose.PROBE,
        image=loaded,
        name=f"agent-image-builder-contract-{token}",
        labels=((LABEL, token),),
        entrypoint=(INIT,),
        arguments=("--", "timeout", "-k5", "60", "cat"),
        user=(997, 997),
        environment=(("GREETING", "hello there"),),
        tmpfs=(Tmpfs(path="/tmp", size=4 * 1024 * 1024),),
        limits=Limits(cpus=0.5, memory=128 * 1024 * 1024, pids=100),
    )


@contextlib.contextmanager
def created(engine: Engine, plan: ContainerPlan) -> Iterator[str]:
    """A created container, removed by id afterwards."""
    container = engine.create(plan)
    try:
        yield container
    finally:
        engine.remove(container)
        assert engine.inspect(container) is None


@contextlib.contextmanager
def running(engine: Engine, plan: ContainerPlan) -> Iterator[str]:
    """A container whose PID 1 has answered; it ends with the block."""
    with created(engine, plan) as container:
        argv, environment = engine.attach_argv(container)
        seen = bytearray()
        command = Command(argv=argv, environment=environment, deadline=120)
        with spawn(command, on_stdout=seen.extend) as tether:
            os.write(tether.stdin, b"ping\n")
            until = time.monotonic() + 30
            while seen != b"ping\n":
                assert tether.wait(0.02) is None
                assert time.monotonic() < until
            yield container
            tether.close_stdin()
            assert tether.wait(10) is not None


def execute(*argv: str) -> ExecPlan:
    """A command as the agent."""
    return ExecPlan(argv=argv, user=AGENT, working_dir="/")


class EngineContract:
    """Subclasses give the fixtures ``engine`` and ``loaded``."""

    def test_identity_is_told_by_the_engine(self, engine: Engine) -> None:
        facts = engine.facts()
        assert facts.product == engine.product
        assert facts.version[0].isdigit()
        assert facts.api_version
        assert facts.storage_driver
        assert facts == engine.facts()

    def test_an_image_is_found_by_its_digest_and_loaded_once(
        self, engine: Engine, loaded: LoadedImage, tmp_path: Path
    ) -> None:
        assert engine.find_image(loaded.image) == loaded
        assert engine.load(loaded.image, tmp_path) == loaded
        assert loaded.id in (loaded.image.settings.digest, loaded.image.digest)

    def test_another_image_is_not_found_until_loaded_and_gone_when_removed(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        config: dict[str, object] = {"Labels": {"unique": secrets.token_hex(8)}}
        image = open_image(tmp_path / "layout", make_image(tmp_path / "layout", config=config))
        assert engine.find_image(image) is None
        loaded = engine.load(image, tmp_path)
        assert engine.find_image(image) == loaded
        engine.remove_image(loaded)
        assert engine.find_image(image) is None
        engine.remove_image(loaded)

    def test_a_created_container_has_not_started_and_is_as_planned(
        self, engine: Engine, loaded: LoadedImage
    ) -> None:
        plan = plan_for(loaded)
        with created(engine, plan) as container:
            found = engine.inspect(container)
            assert found is not None
            assert (found.id, found.name, found.image_id) == (container, plan.name, loaded.id)
            assert (found.running, found.exit_code, found.status) == (False, None, "created")
            assert (found.user, found.network_mode, found.log_driver) == ("997:997", "none", "none")
            assert (found.privileged, found.read_only_root) == (False, True)
            assert (found.capabilities_added, found.capabilities_dropped) == ((), ("ALL",))
            assert found.security_options == ("no-new-privileges",)
            assert (found.entrypoint, found.command) == ((INIT,), ("--", "timeout", "-k5", "60", "cat"))
            assert "GREETING=hello there" in found.environment
            assert dict(plan.labels).items() <= dict(found.labels).items()
            assert [path for path, _ in found.tmpfs] == ["/tmp"]
            assert (found.published_ports, found.devices, found.unplanned) == ((), (), ())

    def test_what_is_packed_of_a_created_container_is_the_image(
        self, engine: Engine, loaded: LoadedImage, tmp_path: Path
    ) -> None:
        tar, planned = tmp_path / "packed.tar", image_tree(loaded.image)
        with created(engine, plan_for(loaded)) as container:
            assert engine.pack(container, BoundedFile(tar, 1 << 30))
            assert not engine.pack(container, BoundedFile(tmp_path / "short.tar", tar.stat().st_size - 1))
            found = engine.inspect(container)
        assert found is not None
        assert not found.running
        with tar.open("rb") as stream:
            packed = packed_tree(stream, "packed")
        assert list(differences(planned, packed, engine.product)) == []
        assert planned.keys() <= packed.keys()
        path = next(path for path, node in planned.items() if node.content)
        packed[path] = replace(packed[path], content="0" * 64)
        assert list(differences(planned, packed, engine.product)) == [f"/{path} (content)"]

    def test_only_the_labelled_are_listed_in_every_state(self, engine: Engine, loaded: LoadedImage) -> None:
        one, two = plan_for(loaded), plan_for(loaded)
        with created(engine, one) as created_one, running(engine, two) as running_two:
            assert engine.list_labelled(LABEL, one.labels[0][1]) == (created_one,)
            assert engine.list_labelled(LABEL, two.labels[0][1]) == (running_two,)
            assert engine.list_labelled(LABEL, "nobody") == ()

    def test_a_name_collision_is_an_error_and_leaves_the_first_alone(
        self, engine: Engine, loaded: LoadedImage
    ) -> None:
        plan = plan_for(loaded)
        with created(engine, plan) as container:
            with pytest.raises(HostError):
                engine.create(replace(plan, labels=((LABEL, "second"),)))
            assert engine.inspect(container) is not None
            assert engine.list_labelled(LABEL, "second") == ()

    def test_a_refused_plan_creates_nothing(self, engine: Engine, loaded: LoadedImage) -> None:
        plan = plan_for(loaded)
        for wrong in (
            replace(plan, user=(0, 0)),
            replace(plan, read_only_root=False),
            replace(plan, name="UPPER case"),
            replace(plan, labels=(*plan.labels, ("a", "line\nbreak"))),
        ):
            with pytest.raises(HostError):
                engine.create(wrong)
        assert engine.list_labelled(LABEL, plan.labels[0][1]) == ()

    def test_it_runs_while_its_pipe_is_held(self, engine: Engine, loaded: LoadedImage) -> None:
        with created(engine, plan_for(loaded)) as container:
            argv, environment = engine.attach_argv(container)
            with spawn(Command(argv=argv, environment=environment, deadline=60)) as tether:
                until = time.monotonic() + 20
                while not (found := engine.inspect(container)) or not found.running:
                    assert time.monotonic() < until
                tether.close_stdin()
                assert tether.wait(10) is not None
            found = engine.inspect(container)
            assert found is not None
            assert (found.running, found.exit_code, found.status) == (False, 0, "exited")

    def test_a_command_gives_both_streams_and_its_exit_code(
        self, engine: Engine, loaded: LoadedImage
    ) -> None:
        live = bytearray()
        with running(engine, plan_for(loaded)) as container:
            outcome = engine.exec(container, execute(*LINES), on_stdout=live.extend)
        assert outcome.ending is Ending.EXITED
        assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (7, b"out\n", b"err\n")
        assert live == b"out\n"

    def test_a_command_reads_its_input_unchanged(self, engine: Engine, loaded: LoadedImage) -> None:
        everything = bytes(range(256)) * 400
        with running(engine, plan_for(loaded)) as container:
            assert engine.exec(container, execute(*ECHO), stdin=everything).stdout == everything

    @pytest.mark.parametrize(("limit", "ending"), [(1000, Ending.EXITED), (999, Ending.OVERFLOWED)])
    def test_what_a_command_says_can_go_to_a_file_that_is_bounded(
        self, engine: Engine, loaded: LoadedImage, tmp_path: Path, limit: int, ending: Ending
    ) -> None:
        file = BoundedFile(tmp_path / "output", limit)
        with running(engine, plan_for(loaded)) as container:
            outcome = engine.exec(container, execute(*ECHO), stdin=b"x" * 1000, stdout_to=file)
        assert (outcome.ending, outcome.ok) == (ending, limit == 1000)
        assert file.path.read_bytes() == b"x" * limit

    def test_a_missing_command_is_an_outcome(self, engine: Engine, loaded: LoadedImage) -> None:
        with running(engine, plan_for(loaded)) as container:
            outcome = engine.exec(container, execute(*MISSING))
        assert outcome.ending is Ending.EXITED
        assert outcome.exit_code in (126, 127)

    def test_a_command_in_a_container_that_does_not_run_is_not_ok(
        self, engine: Engine, loaded: LoadedImage
    ) -> None:
        with created(engine, plan_for(loaded)) as container:
            assert not engine.exec(container, execute(*ECHO)).ok
            found = engine.inspect(container)
            assert found is not None
            assert not found.running

    def test_start_attached_pipes_bytes_through_pid_1(
        self, engine: Engine, loaded: LoadedImage, tmp_path: Path
    ) -> None:
        data = bytes(range(256)) * 100
        with created(engine, plan_for(loaded)) as container:
            outcome = engine.start_attached(
                container, stdin=data, on_stdout=None, on_stderr=None, deadline=30
            )
            assert (outcome.ok, outcome.stdout) == (True, data)
        with created(engine, plan_for(loaded)) as container:
            outcome = engine.start_attached(
                container,
                stdin=data,
                on_stdout=None,
                on_stderr=None,
                deadline=30,
                stdout_path=tmp_path / "output",
            )
            assert (outcome.ok, outcome.stdout) == (True, b"")
            assert (tmp_path / "output").read_bytes() == data

    def test_a_volume_is_made_once_listed_by_its_label_and_removed(
        self, engine: Engine, loaded: LoadedImage
    ) -> None:
        token = secrets.token_hex(8)
        plan = VolumePlan(name=f"agent-image-builder-contract-{token}", labels=((LABEL, token),))
        assert engine.inspect_volume(plan.name) is None
        engine.create_volume(plan)
        try:
            found = engine.inspect_volume(plan.name)
            assert found is not None
            assert (found.name, found.labels, found.options) == (plan.name, plan.labels, ())
            assert engine.list_volumes(LABEL, token) == (plan.name,)
            assert engine.list_volumes(LABEL, "nobody") == ()
            with pytest.raises(HostError):
                engine.create_volume(replace(plan, labels=((LABEL, "somebody else's"),)))
            mounted = replace(
                plan_for(loaded),
                purpose=Purpose.LAUNCH,
                named_volumes=(VolumeMount(name=plan.name, target="/tmp/here", writable=True),),
            )
            with created(engine, mounted) as container:
                read = engine.inspect(container)
                assert read is not None
                assert [mount for mount in read.mounts if mount.kind != "tmpfs"] == [
                    InspectedMount(kind="volume", source=plan.name, target="/tmp/here", writable=True)
                ]
        finally:
            engine.remove_volume(plan.name)
        assert engine.inspect_volume(plan.name) is None
        assert engine.list_volumes(LABEL, token) == ()
        engine.remove_volume(plan.name)

    def test_remove_ends_what_runs_and_may_be_repeated(self, engine: Engine, loaded: LoadedImage) -> None:
        plan = plan_for(loaded)
        container = engine.create(plan)
        engine.start(container)
        engine.remove(container)
        assert engine.inspect(container) is None
        assert engine.list_labelled(LABEL, plan.labels[0][1]) == ()
        engine.remove(container)
