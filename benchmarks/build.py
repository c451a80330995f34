"""Measure the build of a locked image: cold, warm, one agent bumped; or cold beside a naive build.

    python benchmarks/build.py --state DIR --lock builder.lock [--engine docker|podman] [--naive]

``--naive`` compares with ``npm install -g`` of the same versions on the same base, the same BuildKit and
compression. It needs a network and the npm registry, which no build of ours does: its container is started
here, by hand.
Prints one JSON object; times in seconds, sizes in bytes. Ratios hold within one run on one machine only.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from backend.engines.select import connect
from backend.runner import Command, Outcome, run
from backend.tools import BuildContainer, build_container
from builder.building.base_check import read_base
from builder.building.buildkit import build_image
from builder.building.buildx import take_buildx
from builder.building.memory import state_bytes
from builder.resources import resource
from builder.state import State, open_state
from builder.storage.store import ContentStore
from images.digests import Integrity
from images.lock import Artifact, ArtifactKind, Lock
from images.lockfile import parse_lock
from images.oci import OciImage
from images.render import BuildContext, render
from provenance.layout import list_images, open_image

LABELS = (("agent-image-builder.benchmark", "build"),)


@dataclasses.dataclass(frozen=True)
class Bench:
    state: State
    lock: Lock
    base: OciImage
    engine: Engine
    tool: LoadedImage
    buildx: Path
    root: Path

    def context(self, lock: Lock) -> BuildContext:
        platform = lock.platforms[0]
        return render(lock, platform, resource("Containerfile.in").read_text(), read_base(self.base))

    def build(
        self, context: BuildContext, store: ContentStore, container: BuildContainer, name: str
    ) -> OciImage:
        staging = self.root / name
        staging.mkdir(mode=0o700)
        return build_image(
            context,
            self.base,
            store=store,
            container=container,
            buildx=self.buildx,
            staging=staging,
            on_line=lambda _: None,
        )

    @contextmanager
    def container(self) -> Iterator[BuildContainer]:
        size = state_bytes(self.context(self.lock), self.base, self.engine.facts())
        with (
            tempfile.TemporaryDirectory(prefix="b") as private,
            build_container(self.engine, self.tool, Path(private), LABELS, state_bytes=size) as running,
        ):
            yield running


@contextmanager
def open_bench(state_root: Path, lock_path: Path, engine_name: str) -> Iterator[Bench]:
    """What a build of this lock needs, in a staging directory of this state."""
    lock = parse_lock(lock_path.read_bytes(), where=str(lock_path))
    state = open_state(state_root.resolve())
    with tempfile.TemporaryDirectory(prefix="bench-", dir=state.root / "staging") as name:
        root = Path(name)
        engine = connect(engine_name, root / "client", dict(os.environ))
        tool = open_image(state.layout, lock.tools.build_container)
        (root / "load").mkdir()
        yield Bench(
            state=state,
            lock=lock,
            base=open_image(state.layout, lock.base.image(lock.platforms[0]).manifest),
            engine=engine,
            tool=engine.load(tool, root / "load"),
            buildx=take_buildx(tool, root),
            root=root,
        )


@dataclasses.dataclass
class Clock:
    """Seconds of named parts."""

    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        print(f"{name} ...", file=sys.stderr)
        begun = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - begun, 2)
        print(f"{name}: {self.seconds[name]} s", file=sys.stderr)


def size(image: OciImage) -> int:
    return sum(layer.size for layer in image.manifest.layers)


def measure(bench: Bench, clock: Clock) -> dict[str, object]:
    """Cold in a fresh container, then warm and bumped in the same one; each checked like any build."""
    store = ContentStore(bench.state.store)
    context = bench.context(bench.lock)
    bumped_store, bumped_lock = bump(bench)
    with bench.container() as container:
        with clock.part("cold"):
            cold = bench.build(context, store, container, "cold")
        with clock.part("warm"):
            warm = bench.build(context, store, container, "warm")
        assert warm.digest == cold.digest
        with clock.part("bumped"):
            bumped = bench.build(bench.context(bumped_lock), bumped_store, container, "bumped")
        begun = time.monotonic()
    clock.seconds["remove the build container"] = round(time.monotonic() - begun, 2)
    with bench.container() as container, clock.part("cold again"):
        again = bench.build(context, store, container, "again")
    assert again.digest == cold.digest
    layers = {layer.digest for layer in cold.manifest.layers}
    changed = [layer.size for layer in bumped.manifest.layers if layer.digest not in layers]
    return {
        "digest": cold.digest,
        "bytes": size(cold),
        "layers": [layer.size for layer in cold.manifest.layers],
        "bumped": {
            "bytes_changed": sum(changed),
            "bytes_changed_of_its_layer": round(sum(changed) / max(changed), 3),
            "time_of_cold": round(clock.seconds["bumped"] / clock.seconds["cold"], 3),
        },
    }


def bump(bench: Bench) -> tuple[ContentStore, Lock]:
    """The same lock with another root package of the last agent: its package.json differs by a space."""
    agent = bench.lock.agents[-1]
    old = bench.lock.artifact(agent.root)
    store = ContentStore(bench.root / "store")
    source = ContentStore(bench.state.store)
    for artifact in bench.lock.artifacts:
        if artifact.id != old.id:
            with source.open(artifact.integrity, artifact.id) as file:
                store.put(file, artifact.integrity, what=artifact.id, limit=1 << 32)
    with source.open(old.integrity, old.id) as file:
        raw = _with_a_space(file.read())
    integrity = Integrity("sha512", hashlib.sha512(raw).hexdigest())
    store.put(io.BytesIO(raw), integrity, what=old.id, limit=1 << 32)
    changed = dataclasses.replace(old, integrity=integrity, size=len(raw))
    artifacts: tuple[Artifact, ...] = tuple(
        changed if artifact.id == old.id else artifact for artifact in bench.lock.artifacts
    )
    return store, dataclasses.replace(bench.lock, artifacts=artifacts)


def _with_a_space(raw: bytes) -> bytes:
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz") as old,
        tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as new,
    ):
        for member in old:
            file = old.extractfile(member) if member.isreg() else None
            content = file.read() if file else b""
            if member.name.count("/") == 1 and member.name.endswith("/package.json"):
                content += b" "
                member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    return out.getvalue()


NAIVE = """\
FROM base
COPY --from=node / /opt/node-package/
RUN --mount=type=secret,id=ca,target=/run/ca.pem --mount=type=secret,id=npmrc,target=/root/.npmrc \\
    export NODE_EXTRA_CA_CERTS=/run/ca.pem PATH=/opt/node-package/bin:$PATH; \\
    node /opt/node-package/npm/bin/npm-cli.js install -g --prefix /usr/local {packages}
"""


def measure_naive(bench: Bench, clock: Clock) -> dict[str, object]:
    """``npm install -g`` on the same base through the same BuildKit, which this time has a network."""
    packages = " ".join(f"{agent.package}@{agent.version}" for agent in bench.lock.agents)
    work = bench.root / "naive"
    context = work / "context"
    context.mkdir(parents=True)
    (context / "Containerfile").write_text(NAIVE.format(packages=packages))
    _unpack_node(bench, work / "node")
    with bench.container() as container, clock.part("cold"):
        cold = bench.build(bench.context(bench.lock), ContentStore(bench.state.store), container, "cold")
    with _networked(bench) as networked, clock.part("naive"):
        _naive_build(bench, networked, work, context)
    found = list_images(work / "output")[0]
    image = open_image(work / "output", found.digest)
    return {
        "bytes": size(cold),
        "bytes_naive": size(image),
        "bytes_ours_of_naive": round(size(cold) / size(image), 3),
        "time_ours_of_naive": round(clock.seconds["cold"] / clock.seconds["naive"], 3),
    }


def _unpack_node(bench: Bench, target: Path) -> None:
    """Node from the store, and npm from the machine that measures: a naive image gets both from its base."""
    node = next(item for item in bench.lock.artifacts if item.kind is ArtifactKind.NODE)
    with (
        ContentStore(bench.state.store).open(node.integrity, node.id) as file,
        tarfile.open(fileobj=file, mode="r:gz") as archive,
    ):
        for member in archive:
            member.name = member.name.split("/", 1)[-1]
            archive.extract(member, target, filter="data")
    npm = Path(
        run(Command(argv=("npm", "root", "-g"), environment=dict(os.environ), deadline=30))
        .stdout.decode()
        .strip()
    )
    copied = run(
        Command(
            argv=("cp", "-aL", str(npm / "npm"), str(target / "npm")),
            environment=dict(os.environ),
            deadline=60,
        )
    )
    assert copied.ok, copied.stderr


@contextmanager
def _networked(bench: Bench) -> Iterator[str]:
    """The endpoint of a build container with the engine's ordinary network; docker only, and only here."""
    options = ("--security-opt=seccomp=unconfined", "--security-opt=systempaths=unconfined", "--pull=never")
    with tempfile.TemporaryDirectory(prefix="n") as private:
        # Reached as ours is, so that the way in makes no difference.
        sockets = Path(private, "b")
        sockets.mkdir()
        sockets.chmod(0o777)
        bind = f"--mount=type=bind,source={sockets},target=/run/private"
        listen = ("--addr=unix:///run/user/1000/buildkit/buildkitd.sock", "--addr=unix:///run/private/s")
        started = _docker("run", "--detach", *options, bind, str(bench.tool.id), *listen)
        container = started.stdout.decode().strip()
        try:
            time.sleep(5)
            yield f"unix://{sockets}/s"
        finally:
            _docker("rm", "--force", "--volumes", container)


def _docker(*words: str) -> Outcome:
    command = Command(argv=("docker", *words), environment=dict(os.environ), deadline=600)
    outcome = run(command)
    assert outcome.ok, outcome.stderr
    return outcome


def _naive_build(bench: Bench, endpoint: str, work: Path, context: Path) -> None:
    environment = {**os.environ, "BUILDX_CONFIG": str(work / "buildx")}
    buildx = str(bench.buildx)
    create = ("create", "--name=naive", "--driver=remote", endpoint)
    made = run(Command(argv=(buildx, *create), environment=environment, deadline=60))
    assert made.ok, (made.ending, made.stderr)
    npmrc = Path(os.environ.get("NPM_CONFIG_USERCONFIG", Path.home() / ".npmrc"))
    authority = Path(os.environ.get("NODE_EXTRA_CA_CERTS", "/etc/ssl/certs/ca-certificates.crt"))
    secrets = [f"--secret=id=ca,src={authority}"]
    if npmrc.is_file():
        secrets.append(f"--secret=id=npmrc,src={npmrc}")
    output = (
        f"type=oci,dest={work / 'output'},tar=false,oci-mediatypes=true,compression=zstd,compression-level=3"
    )
    built = run(
        Command(
            argv=(
                buildx,
                "build",
                "--builder=naive",
                "--progress=plain",
                "--provenance=false",
                f"--build-context=base=oci-layout://{bench.base.layout}@{bench.base.digest}",
                f"--build-context=node={work / 'node'}",
                *secrets,
                f"--output={output}",
                f"--file={context / 'Containerfile'}",
                str(context),
            ),
            environment=environment,
            deadline=1800,
        )
    )
    assert built.ok, built.stderr[-4000:].decode("utf-8", "replace")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--engine", choices=("docker", "podman"), default="docker")
    parser.add_argument("--naive", action="store_true")
    asked = parser.parse_args()
    clock = Clock()
    with open_bench(asked.state, asked.lock, asked.engine) as bench:
        result = measure_naive(bench, clock) if asked.naive else measure(bench, clock)
    print(json.dumps({"cpus": os.cpu_count(), "seconds": clock.seconds, **result}, indent=2))


if __name__ == "__main__":
    main()
