"""What the engines really do with our plans: hardening, time limits, removal, streams, tools, death watch."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import signal
import socket
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend.containers import ExecPlan, LoadedImage, ReadOnlyBind
from backend.death_watch import hostile_plan, watch_controller_killed
from backend.engines.calls import ContainerCalls
from backend.engines.protocol import Engine
from backend.engines.select import connect
from backend.inside import inside_argv, read_inside
from backend.probe import GONE_SECONDS, ProbeName, ProbeState, probe_host
from backend.runner import Command, Ending, run, spawn
from backend.tools import build_container, run_resolver
from builder.bootstrap import Bootstrapped
from builder.resolve.exchange import SCRIPTS
from builder.resources import resource
from builder.state import State
from images.errors import HostError
from images.oci import OciImage
from provenance.layout import open_image
from tests.contract.engine_contract import AGENT, INIT, LABEL, created, execute, plan_for, running

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
BLOCK_SECONDS = 120.0


@pytest.fixture(scope="module")
def base(kept_state: State, bootstrapped: Bootstrapped) -> OciImage:
    return open_image(kept_state.layout, bootstrapped.base)


@pytest.fixture(scope="module")
def loaded(engine: Engine, base: OciImage, tmp_path_factory: pytest.TempPathFactory) -> LoadedImage:
    return engine.load(base, tmp_path_factory.mktemp("load"))


@pytest.fixture
def labels(engine: Engine) -> Iterator[tuple[tuple[str, str], ...]]:
    token = secrets.token_hex(8)
    yield ((LABEL, token),)
    assert engine.list_labelled(LABEL, token) == ()


def script(text: str) -> ExecPlan:
    return execute("sh", "-c", text)


def test_the_hardening_is_what_the_kernel_shows_inside(
    engine: Engine, loaded: LoadedImage, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    source.chmod(0o755)
    (source / "file").write_text("original")
    plan = replace(plan_for(loaded), read_only_binds=(ReadOnlyBind(source=source, target="/source"),))
    with running(engine, plan) as container:
        answer = engine.exec(container, execute(*inside_argv("n0nce", "sh", ("/tmp", "/", "/source"))))
        found = read_inside(answer.stdout, "n0nce")
        writes = engine.exec(container, script("touch /new; echo x >/source/file; touch /usr/bin/new; id -u"))
    assert (set(found.process.uids), set(found.init.uids)) == ({1000}, {997})
    assert found.process.capabilities == found.init.capabilities == frozenset()
    assert found.process.no_new_privileges
    assert found.init.no_new_privileges
    assert found.process.seccomp == found.init.seccomp == 2
    assert found.interfaces == ("lo",)
    assert found.init_argv[0] == INIT
    assert dict(found.writable) == {"/tmp": True, "/": False, "/source": False}
    assert writes.stdout == b"1000\n"
    assert writes.stderr.count(b"Read-only file system") == 3
    assert (source / "file").read_text() == "original"
    mounts = {mount.target: mount for mount in found.mounts}
    assert "size=4096k" in mounts["/tmp"].super_options
    assert "noexec" in mounts["/tmp"].options
    assert "size=65536k" in mounts["/dev/shm"].super_options


def test_nothing_of_the_host_s_environment_enters(
    engine_name: str, loaded: LoadedImage, tmp_path: Path
) -> None:
    proxy = "http://user:dummy-password@proxy.invalid"
    ambient = {**os.environ, "HTTP_PROXY": proxy, "SECRET_TOKEN": "dummy"}
    engine = connect(engine_name, tmp_path / "client", ambient)
    with running(engine, plan_for(loaded)) as container:
        seen = engine.exec(container, script("env; cat /proc/1/environ")).stdout.decode()
        found = engine.inspect(container)
    assert found is not None
    for text in (seen, str(found)):
        assert "dummy" not in text
        assert "PROXY" not in text.upper()


def test_no_engine_socket_and_no_host_path_is_inside(engine: Engine, loaded: LoadedImage) -> None:
    look = script("ls /var/run /run /home /root 2>/dev/null; command -v docker podman")
    with running(engine, plan_for(loaded)) as container:
        found = engine.exec(container, look).stdout.decode()
    assert ".sock" not in found
    assert "docker" not in found
    assert "podman" not in found


def test_a_tar_with_numeric_owners_goes_into_a_volume_before_the_start(
    engine: Engine, loaded: LoadedImage, tmp_path: Path
) -> None:
    packed = tmp_path / "in.tar"
    with tarfile.open(packed, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, uid, mode in (("mine", 1000, 0o600), ("watch", 997, 0o600), ("run.sh", 1000, 0o755)):
            member = tarfile.TarInfo(name)
            member.size, member.uid, member.gid, member.mode = 5, uid, uid, mode
            tar.addfile(member, io.BytesIO(b"hello"))
    with created(engine, replace(plan_for(loaded), volumes=("/data",))) as container:
        engine.copy_in(container, "/data", packed)
        found = engine.inspect(container)
        argv, environment = engine.attach_argv(container)
        with spawn(Command(argv=argv, environment=environment, deadline=60)):
            until = time.monotonic() + 20
            while not (now := engine.inspect(container)) or not now.running:
                assert time.monotonic() < until
            look = script("cd /data && cat mine; cat watch; stat -c '%n %u:%g %a' mine watch run.sh")
            outcome = engine.exec(container, look)
    assert found is not None
    assert [(mount.kind, mount.target) for mount in found.mounts] == [("volume", "/data")]
    assert outcome.stdout.decode() == "hellomine 1000:1000 600\nwatch 997:997 600\nrun.sh 1000:1000 755\n"
    assert b"Permission denied" in outcome.stderr
    assert not any(Path(mount.source).exists() for mount in found.mounts)


def test_a_time_out_ends_the_client_and_kill_as_the_agent_ends_the_rest(
    engine: Engine, loaded: LoadedImage
) -> None:
    endless = "trap '' TERM; while :; do echo >>/tmp/alive; sleep 0.05; done"
    stubborn = f"trap '' TERM; setsid sh -c \"{endless}\" & wait"
    with running(engine, plan_for(loaded)) as container:
        outcome = engine.exec(container, script(stubborn), deadline=1.0)
        assert outcome.ending is Ending.TIMED_OUT
        read = script("wc -c </tmp/alive; sleep 0.4; wc -c </tmp/alive")
        before = engine.exec(container, read).stdout.split()
        assert len(set(before)) == 2, "the command inside outlives its client"
        engine.exec(container, script("kill -KILL -1"))
        after = engine.exec(container, read).stdout.split()
        assert len(set(after)) == 1
        found = engine.inspect(container)
        assert found is not None
        assert found.running


def test_large_and_odd_streams_pass_whole(engine: Engine, loaded: LoadedImage) -> None:
    seen = {"out": 0, "err": 0}

    def out(chunk: bytes) -> None:
        seen["out"] += len(chunk)

    def err(chunk: bytes) -> None:
        seen["err"] += len(chunk)

    flood = script("head -c 1000000 /dev/zero >&2; head -c 200000000 /dev/zero; printf END; exit 5")
    with running(engine, plan_for(loaded)) as container:
        outcome = engine.exec(container, flood, on_stdout=out, on_stderr=err, deadline=BLOCK_SECONDS)
        raw = engine.exec(container, script("printf '\\377\\376\\000\\n'"))
    assert outcome.exit_code == 5
    assert seen == {"out": 200_000_003, "err": 1_000_000}
    assert outcome.stdout_truncated
    assert raw.stdout == b"\xff\xfe\x00\n"


def test_a_consumer_that_stops_reading_ends_the_client(engine: Engine, loaded: LoadedImage) -> None:
    def enough(chunk: bytes) -> None:
        raise LookupError

    with running(engine, plan_for(loaded)) as container:
        with pytest.raises(LookupError):
            engine.exec(container, script("cat /dev/zero"), on_stdout=enough)
        assert engine.exec(container, script("kill -KILL -1")).ending is Ending.EXITED


def test_the_same_name_can_be_used_again_at_once(engine: Engine, loaded: LoadedImage) -> None:
    plan = plan_for(loaded)
    for _ in range(10):
        container = engine.create(plan)
        engine.start(container)
        engine.remove(container)
    assert engine.list_labelled(*plan.labels[0]) == ()


def test_two_removers_at_once_both_succeed(engine: Engine, loaded: LoadedImage) -> None:
    for _ in range(3):
        container = engine.create(plan_for(loaded))
        engine.start(container)
        failures: list[HostError] = []

        def remove(which: str, failed: list[HostError]) -> None:
            try:
                engine.remove(which)
            except HostError as broken:
                failed.append(broken)

        threads = [threading.Thread(target=remove, args=(container, failures)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert engine.inspect(container) is None


CONTROLLER = """
import os, sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from backend.engines.select import connect
from backend.runner import Command, spawn
engine = connect({name!r}, Path({home!r}), dict(os.environ))
argv, environment = engine.attach_argv({container!r})
tether = spawn(Command(argv=argv, environment=environment, deadline=600))
os.write(tether.stdin, b"x")
print("holding", flush=True)
time.sleep(600)
"""


def _gone_after_kill(engine: Engine, engine_name: str, container: str, home: Path) -> float:
    """SIGKILL a real controller while a hostile agent is at work; seconds until the container is gone."""
    source = CONTROLLER.format(root=str(ROOT), name=engine_name, home=str(home), container=container)
    held, ready = threading.Event(), threading.Event()

    def said(chunk: bytes) -> None:
        if b"holding" in chunk:
            held.set()

    def attacking(chunk: bytes) -> None:
        if b"hostile-agent-ready" in chunk:
            ready.set()

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    controller = spawn(
        Command(argv=(sys.executable, "-c", source), environment=environment, deadline=600), on_stdout=said
    )
    with controller:
        assert held.wait(30), controller.end().stderr.decode()
        argv, client = engine.exec_argv(container, hostile_plan())
        until = time.monotonic() + 20
        while not (found := engine.inspect(container)) or not found.running:
            assert time.monotonic() < until
        with spawn(Command(argv=argv, environment=client, deadline=60), on_stdout=attacking):
            assert ready.wait(30)
            assert controller.pid is not None
            os.kill(controller.pid, signal.SIGKILL)
            began = time.monotonic()
            while (found := engine.inspect(container)) is not None and found.running:
                assert time.monotonic() - began < GONE_SECONDS
            return time.monotonic() - began


def test_the_container_is_gone_when_its_controller_is_killed(
    engine: Engine, engine_name: str, loaded: LoadedImage, tmp_path: Path
) -> None:
    for _ in range(3):
        with created(engine, plan_for(loaded)) as container:
            _gone_after_kill(engine, engine_name, container, tmp_path / "client")


def test_with_one_uid_the_proof_fails(engine: Engine, loaded: LoadedImage) -> None:
    """The negative control: the same attack on a container whose PID 1 runs as the agent does its harm."""
    plan = replace(plan_for(loaded), user=AGENT, arguments=("--", "timeout", "-k5", "15", "cat"))
    with created(engine, plan) as container:
        watched = watch_controller_killed(engine, container, bound=3.0)
    assert watched.harm


def test_the_probe_tells_what_this_engine_holds(
    engine: Engine, base: OciImage, tmp_path: Path, labels: tuple[tuple[str, str], ...]
) -> None:
    found = probe_host(engine, base, init=INIT, staging=tmp_path, labels=labels)
    facts = engine.facts()
    not_held = {line.name for line in found.not_held}
    rootful = {ProbeName.ROOTLESS, ProbeName.USER_NAMESPACE}
    limits = {ProbeName.MEMORY_LIMIT, ProbeName.PIDS_LIMIT, ProbeName.CPU_LIMIT}
    assert not_held <= rootful | limits
    assert (rootful <= not_held) == (not facts.rootless)
    assert found.limits_enforced == (facts.cgroup_driver != "none")
    assert found.held(ProbeName.SHARED_FILES) == (not facts.remote)
    assert all(found.line(name).state is not ProbeState.NOT_HELD for name in limits)


@pytest.fixture(scope="module")
def build_image_loaded(
    engine: Engine, kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> LoadedImage:
    image = open_image(kept_state.layout, bootstrapped.build_container)
    return engine.load(image, tmp_path_factory.mktemp("load"))


@pytest.fixture
def short() -> Iterator[Path]:
    """A private directory whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="b") as name:
        yield Path(name)


def test_the_build_container_has_no_privilege_no_network_and_leaves_nothing(
    engine: Engine,
    build_image_loaded: LoadedImage,
    short: Path,
    labels: tuple[tuple[str, str], ...],
) -> None:
    private = short / "b"
    private.mkdir(mode=0o700)
    look = ExecPlan(argv=inside_argv("n0nce", "buildctl", ("/",)), user=(1000, 1000), working_dir="/")
    with build_container(engine, build_image_loaded, private, labels) as built:
        found = engine.inspect(built.container)
        inside = read_inside(engine.exec(built.container, look).stdout, "n0nce")
        assert built.is_running()
        # The directory is closed to what the build runs, where that is not our own uid. Where it is, it can
        # be opened again, and what is put there is nobody's socket: ours lies outside.
        assert built.endpoint == f"unix://{private}/s"
        add = ExecPlan(argv=("touch", "/run/private/new"), user=(1000, 1000), working_dir="/")
        if engine.product == "docker":
            assert not engine.exec(built.container, add, deadline=30).ok
        lure = ExecPlan(
            argv=("sh", "-c", "chmod 777 /run/private; ln -sf /nowhere /run/private/s"),
            user=(1000, 1000),
            working_dir="/",
        )
        assert engine.exec(built.container, lure, deadline=30).ok is (engine.product == "podman")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(private / "s"))
    assert found is not None
    assert (found.privileged, found.capabilities_added, found.network_mode) == (False, (), "none")
    assert (found.published_ports, found.devices) == ((), ())
    assert inside.interfaces == ("lo",)
    assert inside.process.capabilities <= {"CapBnd"}
    assert isinstance(engine, ContainerCalls)
    volumes = [mount.source for mount in found.mounts if mount.kind == "volume"]
    assert len(volumes) == 1
    assert not any(Path(source).exists() for source in volumes)


BUILD_CONTROLLER = """
import os, sys, time
from pathlib import Path
from backend.engines.select import connect
from backend.tools import build_container
from images.digests import Digest
from provenance.layout import open_image
product, layout, digest, folder, label, value = sys.argv[1:]
engine = connect(product, Path(folder, "client"), dict(os.environ))
loaded = engine.find_image(open_image(Path(layout), Digest(digest)))
private = Path(folder, "b")
private.mkdir(mode=0o700)
with build_container(engine, loaded, private, ((label, value),)) as built:
    print(built.container, flush=True)
    time.sleep(600)
"""


def test_the_build_container_ends_with_its_controller(
    engine: Engine, build_image_loaded: LoadedImage, tmp_path: Path, labels: tuple[tuple[str, str], ...]
) -> None:
    image = build_image_loaded.image
    arguments = (engine.product, str(image.layout), str(image.digest), str(tmp_path), *labels[0])
    said = bytearray()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = Command(
        argv=(sys.executable, "-c", BUILD_CONTROLLER, *arguments), environment=environment, deadline=600
    )
    with spawn(command, on_stdout=said.extend) as controller:
        until = time.monotonic() + 60
        while len(said) < 65:
            assert controller.wait(0.05) is None, controller.end().stderr.decode()
            assert time.monotonic() < until
        container = said.decode().strip()
        assert controller.pid is not None
        os.kill(controller.pid, signal.SIGKILL)
        began = time.monotonic()
        while (found := engine.inspect(container)) is not None and found.running:
            assert time.monotonic() - began < GONE_SECONDS
    with contextlib.suppress(HostError):
        engine.remove(container)
    assert engine.inspect(container) is None


def test_the_resolver_gets_its_job_by_pipe_and_gives_its_result_by_pipe(
    engine: Engine,
    kept_state: State,
    bootstrapped: Bootstrapped,
    tmp_path: Path,
    labels: tuple[tuple[str, str], ...],
) -> None:
    image = engine.load(open_image(kept_state.layout, bootstrapped.resolver), tmp_path)
    job = tmp_path / "job"
    job.mkdir()
    (job / "secret").write_text("dummy-secret")
    (job / "resolve.mjs").write_text(
        "import { readFileSync, readdirSync } from 'node:fs';\n"
        "process.stderr.write('progress\\n');\n"
        "process.stdout.write(readFileSync('/run/job/secret') + readFileSync('/proc/mounts', 'utf8'));\n"
        "process.exit(4);\n"
    )
    packed = run(
        Command(
            argv=("tar", "--numeric-owner", "--owner=0", "--group=0", "-c", "-C", str(job), "."),
            environment={"PATH": os.defpath},
            deadline=30,
        )
    )
    progress = bytearray()
    outcome = run_resolver(
        engine,
        image,
        job=packed.stdout,
        stdout_path=tmp_path / "result",
        on_progress=progress.extend,
        deadline=60,
        labels=labels,
    )
    assert (outcome.exit_code, bytes(progress)) == (4, b"progress\n")
    result = (tmp_path / "result").read_text()
    assert result.startswith("dummy-secret")
    assert " /run/job tmpfs " in result


# What gpgv says of signatures by keys that are alive, have expired, were revoked; and of a false one.
SAID_BY_GPGV = f"""\
[GNUPG:] NEWSIG old@test
[GNUPG:] EXPKEYSIG {"A" * 16} old <old@test>
[GNUPG:] VALIDSIG {"A" * 40} 2020-02-01 1580515200 0 4 0 22 8 01 {"A" * 40}
[GNUPG:] NEWSIG new@test
[GNUPG:] GOODSIG {"B" * 16} new [GNUPG:] VALIDSIG <new@test>
[GNUPG:] VALIDSIG {"C" * 40} 2026-11-29 1795988936 0 4 0 22 8 01 {"B" * 40}
[GNUPG:] NEWSIG revoked@test
[GNUPG:] REVKEYSIG {"0" * 16} revoked <revoked@test>
[GNUPG:] VALIDSIG {"0" * 40} 2026-11-29 1795988936 0 4 0 22 8 01 {"0" * 40}
[GNUPG:] NEWSIG bad@test
[GNUPG:] BADSIG {"D" * 16} bad <bad@test>
"""


def test_only_a_good_signature_of_a_key_that_is_alive_counts(
    engine: Engine,
    kept_state: State,
    bootstrapped: Bootstrapped,
    tmp_path: Path,
    labels: tuple[tuple[str, str], ...],
) -> None:
    """gpgv calls a signature valid whatever became of its key since."""
    image = engine.load(open_image(kept_state.layout, bootstrapped.resolver), tmp_path)
    ask = (
        "import { goodSigners } from './debian.mjs';\n"
        f"process.stdout.write(goodSigners({json.dumps(SAID_BY_GPGV)}).join(' '));\n"
    )
    job = io.BytesIO()
    with tarfile.open(fileobj=job, mode="w") as archive:
        scripts = {name: resource(name).read_bytes() for name in SCRIPTS}
        for name, content in {**scripts, "resolve.mjs": ask.encode()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    outcome = run_resolver(
        engine,
        image,
        job=job.getvalue(),
        stdout_path=tmp_path / "result",
        on_progress=lambda _chunk: None,
        deadline=60,
        labels=labels,
    )
    assert outcome.ok
    assert (tmp_path / "result").read_text() == "B" * 40


def test_a_resolver_that_hangs_is_ended_and_gone(
    engine: Engine,
    kept_state: State,
    bootstrapped: Bootstrapped,
    tmp_path: Path,
    labels: tuple[tuple[str, str], ...],
) -> None:
    image = engine.load(open_image(kept_state.layout, bootstrapped.resolver), tmp_path)
    job = io.BytesIO()
    with tarfile.open(fileobj=job, mode="w") as archive:
        script = b"setInterval(() => {}, 1000)"
        member = tarfile.TarInfo("resolve.mjs")
        member.size = len(script)
        archive.addfile(member, io.BytesIO(script))
    began = time.monotonic()
    outcome = run_resolver(
        engine,
        image,
        job=job.getvalue(),
        stdout_path=tmp_path / "result",
        on_progress=lambda _chunk: None,
        deadline=3,
        labels=labels,
    )
    assert not outcome.ok
    assert time.monotonic() - began < 40
