"""The build without an engine: a stand-in client records what it was told and does what each test wants."""

from __future__ import annotations

import base64
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.tools import BuildContainer
from builder.building.buildkit import build_image
from images.digests import Digest
from images.errors import BuildFailed, HostError
from images.oci import MEDIA_CONFIG, MEDIA_LAYER_ZSTD, MEDIA_MANIFEST, OciImage
from images.render import BuildContext, render
from provenance.layout import read_blob
from provenance.layout_writing import add_manifest, init_layout, write_blob
from tests.fakes.bases import base_facts, layer_tar, make_base
from tests.fakes.layouts import compressed
from tests.fakes.locks import AMD64
from tests.fakes.tarballs import TinySet, tiny_set
from tests.unit.images.test_render import TEMPLATE

# Answers `create` and `ls`; at `build` it runs the test's own script.
CLIENT = """#!/bin/sh
here={here}
printf '%s\\n' "$@" '==' >>"$here/argv"
env | sort >"$here/environment"
for word in "$@"; do
    case "$word" in
    create) echo build; exit 0 ;;
    ls) echo '{{"Name":"build","Driver":"remote"}}'; exit 0 ;;
    rm) exit 0 ;;
    build) . "$here/build.sh" ;;
    esac
done
exit 97
"""


@dataclasses.dataclass
class Bench:
    base: OciImage
    tiny: TinySet
    context: BuildContext
    root: Path
    running: Callable[[], bool]
    answering: Callable[[], bool] = lambda: True

    def client(self, script: str) -> None:
        program = self.root / "bin/docker"
        program.parent.mkdir()
        program.write_text(CLIENT.format(here=self.root))
        program.chmod(0o755)
        (self.root / "build.sh").write_text(script)

    def build(self, **more: object) -> OciImage:
        staging = self.root / "staging"
        staging.mkdir(mode=0o700)
        container = BuildContainer(
            name="b",
            container="0" * 64,
            endpoint="docker-container://b",
            environment={"PATH": f"{self.root / 'bin'}:/usr/bin:/bin", "DOCKER_HOST": "unix:///x.sock"},
            is_running=self.running,
            answers=lambda: self.running() and self.answering(),
        )
        return build_image(
            self.context,
            self.base,
            store=self.tiny.store,
            container=container,
            buildx=Path("/nowhere/buildx"),
            staging=staging,
            on_line=lambda _: None,
            **more,  # type: ignore[arg-type]
        )

    def build_call(self) -> list[str]:
        calls = (self.root / "argv").read_text().split("==\n")
        return next(call.splitlines() for call in calls if "\nbuildx\nbuild\n" in call)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    base = make_base(tmp_path / "base")
    tiny = tiny_set(tmp_path / "set", base, TEMPLATE)
    return Bench(base, tiny, render(tiny.lock, AMD64, TEMPLATE, base_facts()), tmp_path, lambda: True)


def raw(**document: object) -> str:
    return f"echo {base64.b64encode(json.dumps(document).encode()).decode()} | base64 -d >&2; echo >&2\n"


def write_result(bench: Bench, target: Path) -> Digest:
    """An image exactly as planned, in a layout."""
    init_layout(target)
    planned, base = bench.context.image, bench.base
    for layer in base.manifest.layers:
        write_blob(target, read_blob(base.layout, layer, 1 << 30), layer.media_type)
    tars = [layer_tar([(f"layer{n}", None, 0o755)]) for n in range(planned.new_layers)]
    ours = [write_blob(target, compressed(tar, MEDIA_LAYER_ZSTD), MEDIA_LAYER_ZSTD) for tar in tars]
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": planned.user,
            "Env": [f"{name}={value}" for name, value in planned.environment],
            "Labels": dict(planned.labels),
            "Entrypoint": list(planned.entrypoint),
            "Cmd": list(planned.command),
            "WorkingDir": planned.working_dir,
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [*base.settings.diff_ids, *(str(Digest.of(tar)) for tar in tars)],
        },
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "config": write_blob(target, json.dumps(settings).encode(), MEDIA_CONFIG).to_json(),
        "layers": [layer.to_json() for layer in (*base.manifest.layers, *ours)],
    }
    return add_manifest(target, json.dumps(manifest).encode(), media_type=MEDIA_MANIFEST).digest


def test_a_stage_alone_is_named_and_compared_with_no_plan(bench: Bench) -> None:
    """A replay's image is a stage's: its layers are what counts, not its configuration."""
    result = bench.root / "result"
    init_layout(result)
    for layer in bench.base.manifest.layers:
        write_blob(result, read_blob(bench.base.layout, layer, 1 << 30), layer.media_type)
    config = read_blob(bench.base.layout, bench.base.manifest.config, 1 << 20)
    write_blob(result, config, bench.base.manifest.config.media_type)
    add_manifest(result, bench.base.manifest.raw, media_type=MEDIA_MANIFEST)
    bench.client(f'cp -r {result}/. "$here/staging/output"; exit 0')
    assert bench.build(target="toolchain").digest == bench.base.digest
    assert "--target=toolchain" in bench.build_call()


def test_what_buildx_is_told(bench: Bench) -> None:
    result = bench.root / "result"
    digest = write_result(bench, result)
    bench.client(f'cp -r {result}/. "$here/staging/output"; exit 0')
    image = bench.build()
    assert image.digest == digest
    assert image.layout == bench.root / "staging/output"
    staging = bench.root / "staging"
    assert bench.build_call() == [
        f"--config={staging}/client",
        "buildx",
        "build",
        "--builder=build",
        "--progress=rawjson",
        "--network=none",
        "--provenance=false",
        "--sbom=false",
        "--platform=linux/amd64",
        "--build-arg=SOURCE_DATE_EPOCH=1767225600",
        f"--build-context=base=oci-layout://{staging}/base@{bench.base.digest}",
        f"--build-context=artifacts={staging}/artifacts",
        f"--file={staging}/context/Containerfile",
        f"--output=type=oci,dest={staging}/output,tar=false,oci-mediatypes=true,compression=zstd,compression-level=3",
        f"{staging}/context",
    ]


def test_the_clients_environment_is_closed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMBIENT_TOKEN", "canary")
    monkeypatch.setenv("DOCKER_HOST", "tcp://user:canary@elsewhere")
    bench.client('cp "$here/environment" "$here/at-build"; exit 1')
    with pytest.raises(BuildFailed):
        bench.build()
    # The last call (removal of the instance) and the build itself, which go different ways.
    for name in ("environment", "at-build"):
        found = dict(line.split("=", 1) for line in (bench.root / name).read_text().splitlines())
        assert "canary" not in str(found)
        assert set(found) - {"PWD", "OLDPWD", "SHLVL", "_"} == {
            "BUILDX_CONFIG",
            "DOCKER_CONFIG",
            "DOCKER_HOST",
            "HOME",
            "LC_ALL",
            "PATH",
            "TZ",
        }
    assert "canary" not in (bench.root / "argv").read_text()


def test_an_exit_code_is_no_evidence(bench: Bench) -> None:
    bench.client("exit 0")
    with pytest.raises(BuildFailed, match="output does not hold"):
        bench.build()


def test_two_images_are_not_one(bench: Bench) -> None:
    result = bench.root / "result"
    write_result(bench, result)
    make_base(result)
    bench.client(f'cp -r {result}/. "$here/staging/output"; exit 0')
    with pytest.raises(BuildFailed, match="2 images came out"):
        bench.build()


def test_another_image_than_planned_is_refused(bench: Bench) -> None:
    bench.client(f'cp -r {bench.base.layout}/. "$here/staging/output"; exit 0')
    with pytest.raises(BuildFailed, match="not what was planned") as caught:
        bench.build()
    assert caught.value.reason == "not-as-planned"


def test_a_failed_step_is_named_with_its_last_lines(bench: Bench) -> None:
    step = {"digest": "sha256:a", "name": "[pi 2/3] RUN x", "started": "1"}
    said = base64.b64encode(b"no such thing\n").decode()
    script = raw(vertexes=[step]) + raw(logs=[{"vertex": "sha256:a", "data": said}])
    bench.client(script + raw(vertexes=[{**step, "completed": "2", "error": "exit code: 1"}]) + "exit 1")
    with pytest.raises(BuildFailed, match="no such thing") as caught:
        bench.build()
    assert (caught.value.where, caught.value.reason) == ("[pi 2/3] RUN x", "build-step")


def test_a_failure_without_a_step_says_what_buildx_said(bench: Bench) -> None:
    bench.client("echo ERROR: no builder found >&2; exit 1")
    with pytest.raises(BuildFailed, match=r"exit code 1\n  ERROR: no builder found"):
        bench.build()


def test_a_lost_container_ends_the_build(bench: Bench) -> None:
    bench.client("sleep 60")
    begun = time.monotonic()
    bench.running = lambda: time.monotonic() - begun < 1.5
    with pytest.raises(BuildFailed) as caught:
        bench.build()
    assert caught.value.reason == "builder-lost"
    assert time.monotonic() - begun < 20


def test_a_build_that_failed_because_its_container_went_says_so(bench: Bench) -> None:
    bench.client('touch "$here/gone"; exit 1')
    bench.running = lambda: not (bench.root / "gone").exists()
    with pytest.raises(BuildFailed) as caught:
        bench.build()
    assert caught.value.reason == "builder-lost"


def test_a_container_that_went_is_told_from_a_failed_step_though_the_engine_has_not_noticed(
    bench: Bench,
) -> None:
    """buildx loses its socket before the engine's client hears that the container ended."""
    step = {"digest": "sha256:a", "name": "[pi 2/3] RUN x", "started": "1"}
    bench.client(raw(vertexes=[step]) + raw(vertexes=[{**step, "error": "closed"}]) + "exit 1")
    bench.answering = lambda: False
    with pytest.raises(BuildFailed) as caught:
        bench.build()
    assert (caught.value.reason, caught.value.where) == ("builder-lost", "[pi 2/3] RUN x")


def test_a_deadline_names_what_still_ran(bench: Bench) -> None:
    step = {"digest": "sha256:a", "name": "[pi 2/3] RUN x", "started": "1"}
    bench.client(raw(vertexes=[step]) + "sleep 60")
    with pytest.raises(BuildFailed, match=r"not done within 2 s; still running: \[pi 2/3\] RUN x") as caught:
        bench.build(deadline=2.0)
    assert caught.value.reason == "build-deadline"


def test_a_cancelled_build_says_so(bench: Bench) -> None:
    bench.client("sleep 60")
    with pytest.raises(BuildFailed) as caught:
        bench.build(cancelled=lambda: True)
    assert caught.value.reason == "cancelled"


def test_a_missing_client_is_named_before_anything_is_staged(bench: Bench) -> None:
    (bench.root / "bin").mkdir()
    path = str(bench.root / "bin")
    staging = bench.root / "staging"
    staging.mkdir()
    container = BuildContainer(
        name="b",
        container="0",
        endpoint="unix:///x",
        environment={"PATH": path},
        is_running=bench.running,
        answers=bench.answering,
    )
    with pytest.raises(HostError, match="docker client is not on the PATH"):
        build_image(
            bench.context,
            bench.base,
            store=bench.tiny.store,
            container=container,
            buildx=Path("/x"),
            staging=staging,
            on_line=lambda _: None,
        )
    assert list(staging.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'secret words' >&2; exit 3", "buildx ended with 3"),
        ("echo 'secret words'", "buildx made no sense"),
        ('echo \'{"Name": ["secret words"]}\'', "buildx made no sense"),
    ],
)
def test_an_unreachable_container_is_a_host_error(bench: Bench, script: str, message: str) -> None:
    bench.client("exit 0")
    (bench.root / "bin/docker").write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(HostError, match=message) as caught:
        bench.build()
    assert "secret" not in str(caught.value)
