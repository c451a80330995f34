"""A user with a registry: base and tools come by digest, hashed again, and build; nothing is compiled."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.engines.protocol import Engine
from backend.ownership import LABEL_STATE
from backend.tools import build_container
from builder.bootstrap import Bootstrapped
from builder.init import find_ca_bundle
from builder.state import State, open_state
from images.digests import Digest
from images.errors import ExitCode
from images.oci import Platform
from provenance.layout import blob_path, list_images, open_image, read_blob
from provenance.layout_writing import add_manifest, init_layout
from tests.real.registry import Registry, serving
from tests.real.spine import PROJECT
from tests.results import check_printed

pytestmark = pytest.mark.real
BUILDER = Path(sys.executable).with_name("builder")
AMD64 = Platform("linux", "amd64")
KEYS = ("base", "build_container", "resolver")


@dataclass(frozen=True, kw_only=True)
class User:
    """Somebody's state, configuration and project, and the registry that settings.toml names."""

    engine: str
    home: Path
    state: State
    registry: Registry
    tools: Path  # first on the PATH: its compilers write a mark and fail

    def give(self, **digests: Digest) -> None:
        """Write settings.toml."""
        lines = ["schema = 1", f'engine = "{self.engine}"']
        if (bundle := find_ca_bundle()) is not None:
            lines.append(f'ca_bundle = "{bundle}"')
        if (npmrc := Path.home() / ".npmrc").is_file():
            lines.append(f'npmrc = "{npmrc}"')
        lines += [
            f'{key} = "{self.registry.address}/team/{key.replace("_", "-")}@{digest}"'
            for key, digest in digests.items()
        ]
        config = self.home / "config"
        config.mkdir(mode=0o700, exist_ok=True)
        (config / "settings.toml").write_text("\n".join(lines) + "\n")
        (config / "settings.toml").chmod(0o600)

    def builder(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Type a command."""
        project = self.home / "project"
        project.mkdir(exist_ok=True)
        places = ("--state", str(self.state.root), "--config-dir", str(self.home / "config"))
        done = subprocess.run(
            [str(BUILDER), *words, *places],
            cwd=project,
            env={**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
        )
        check_printed(words, done.stdout)
        return done

    def done(self, *words: str) -> str:
        """Type a command that succeeds."""
        done = self.builder(*words)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def compiled(self) -> list[str]:
        """Marks of compilers, and what bootstrap keeps when it has built programs."""
        return [path.name for path in (*self.tools.glob("*.called"), *self.state.bootstrap.glob("go*"))]

    def pulled(self) -> list[str]:
        """The manifests that the registry gave out, by digest."""
        return re.findall(r"/manifests/(\S+)", "\n".join(self.registry.paths))


@pytest.fixture
def user(engine_name: str, engine: Engine, kept_state: State, tmp_path: Path) -> Iterator[User]:
    """A fresh state, and a registry into which the bootstrapped images are pushed."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("go", "gcc", "cc", "make"):
        (tools / name).write_text(f"#!/bin/sh\n: >{tools}/{name}.called\nexit 1\n")
        (tools / name).chmod(0o755)
    pushed = tmp_path / "pushed"
    init_layout(pushed)
    with ExitStack() as opened:
        registry = opened.enter_context(serving(pushed))
        state = open_state(tmp_path / "state")
        copy = kept_state.bootstrap / "bootstrap.lock"
        if copy.exists():  # pins had vanished: the images of the kept state are those of the copy
            shutil.copy(copy, state.bootstrap)
        yield User(engine=engine_name, home=tmp_path, state=state, registry=registry, tools=tools)
        assert engine.list_labelled(LABEL_STATE, state.id) == ()


def push(user: User, kept_state: State, digest: Digest) -> Digest:
    """As `skopeo copy` or `crane push` does, by hard links."""
    _copy(kept_state, digest, user.registry.layout)
    return digest


def _copy(kept_state: State, digest: Digest, into: Path) -> None:
    image = open_image(kept_state.layout, digest)
    for blob in (image.manifest.config, *image.manifest.layers):
        target = blob_path(into, blob.digest)
        if not target.exists():
            os.link(blob_path(kept_state.layout, blob.digest), target)
    add_manifest(into, image.manifest.raw, media_type=image.manifest.media_type)


def link_folder(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, copy_function=os.link, dirs_exist_ok=True)


def test_base_and_build_container_from_a_registry_build_an_image_and_nothing_is_compiled(
    user: User, kept_state: State, bootstrapped: Bootstrapped, engine: Engine, tmp_path: Path
) -> None:
    base, container = bootstrapped.base, bootstrapped.build_container
    user.give(base=push(user, kept_state, base), build_container=push(user, kept_state, container))
    _copy(kept_state, bootstrapped.resolver, user.state.layout)
    found = json.loads(user.done("bootstrap", "--json"))
    assert found["images"] == {
        "base": base,
        "build_container": container,
        "resolver": bootstrapped.resolver,
    }
    assert set(user.pulled()) == {base, container}
    for digest in (base, container):
        assert open_image(user.state.layout, digest, AMD64).digest == digest
    # No program and no package; the operator's own authorities, where this machine needs them.
    kept = {path.name for path in user.state.bootstrap.iterdir() if path.suffix != ".lock"}
    assert kept <= {"authorities.pem"}

    # Started by hand: what came is a build container.
    loaded = engine.load(open_image(user.state.layout, container), tmp_path)
    with (
        user.state.staging("test") as private,
        build_container(engine, loaded, private, (("agent-image-builder.test", user.state.id),)) as running,
    ):
        assert running.is_running()  # it answered `buildctl debug workers`

    # And by the program: lock, build, on a machine that has nothing but the resolver.
    link_folder(kept_state.store, user.state.store)
    user.done("init", "--unencrypted-keys")
    config = user.home / "project/builder.toml"
    assert f'base = "{user.registry.address}/team/base@{base}"' in config.read_text()
    config.write_text(_only_pi(config.read_text()))
    shutil.copy(PROJECT / "builder.lock", config.parent)  # Pi keeps its tree
    user.done("lock")
    lock = user.home / "project/builder.lock"
    told = _told_version(engine, loaded.id)
    assert json.loads(lock.read_text())["recipe"]["buildkit"] == told
    digest = user.done("build").strip()
    assert open_image(user.state.layout, Digest(digest), AMD64).manifest.layers[0].digest == (
        open_image(user.state.layout, base, AMD64).manifest.layers[0].digest
    )
    assert user.compiled() == []

    # A lock for another BuildKit than the container's.
    text = lock.read_text()
    lock.write_text(re.sub(r'("buildkit": ?"v)[0-9.]+"', r'\g<1>0.0.1"', text))
    assert lock.read_text() != text
    refused = user.builder("build", "--json")
    error = json.loads(refused.stdout)["error"]
    assert (refused.returncode, error["reason"]) == (ExitCode.USAGE, "stale-lock")
    assert error["hint"] == "builder lock"
    assert "BuildKit v0.0.1" in error["what"]


def _only_pi(text: str) -> str:
    text = re.sub(r'^(claude-code|opencode) = ".*"\n', "", text, flags=re.MULTILINE)
    text = re.sub(r"^install-scripts = .*$", "install-scripts = []", text, flags=re.MULTILINE)
    return text.replace('agent = "claude-code"', 'agent = "pi"')


def _told_version(engine: Engine, image: Digest) -> str:
    """From the raw answer, not from the code under test."""
    words = ("run", "--rm", "--network=none", "--entrypoint=buildkitd", image.removeprefix("sha256:"))
    said = subprocess.run([engine.product, *words, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[2]


def test_bootstrap_makes_the_resolver_alone_when_the_rest_is_given(
    user: User, kept_state: State, bootstrapped: Bootstrapped
) -> None:
    """From packages and wheels; those that the kept state has downloaded already are taken from there."""
    for name in ("apt", "debs", "wheels"):
        link_folder(kept_state.bootstrap / name, user.state.bootstrap / name)
    user.give(
        base=push(user, kept_state, bootstrapped.base),
        build_container=push(user, kept_state, bootstrapped.build_container),
    )
    user.done("bootstrap")
    assert {image.digest for image in list_images(user.state.layout)} == {
        bootstrapped.base,
        bootstrapped.build_container,
        bootstrapped.resolver,
    }
    assert user.compiled() == []


def test_a_resolver_of_ones_own(user: User, kept_state: State, bootstrapped: Bootstrapped) -> None:
    """Pulled by the bootstrapped one, which then has nothing to do; or taken from a layout, without any."""
    push(user, kept_state, bootstrapped.resolver)
    document: dict[str, Any] = json.loads(read_blob(user.registry.layout, bootstrapped.resolver))
    document["annotations"] = {"org.opencontainers.image.vendor": "a team with a registry"}
    raw = json.dumps(document).encode()
    own = add_manifest(user.registry.layout, raw, media_type=document["mediaType"]).digest
    user.give(resolver=own, base=push(user, kept_state, bootstrapped.base), build_container=bootstrapped.base)

    done = user.builder("lock", "--config", str(_any_project(user, bootstrapped)))
    assert (done.returncode, "hint: builder bootstrap" in done.stderr) == (ExitCode.USAGE, True)
    assert user.registry.paths == []

    _copy(kept_state, bootstrapped.resolver, user.state.layout)
    user.done("bootstrap")
    assert own in user.pulled()
    assert open_image(user.state.layout, own).digest == own

    shutil.rmtree(user.state.layout)
    user.registry.paths.clear()
    user.done("bootstrap", "--from", str(user.registry.layout))
    assert open_image(user.state.layout, own).digest == own
    assert user.registry.paths == []
    assert user.compiled() == []


def _any_project(user: User, bootstrapped: Bootstrapped) -> Path:
    path = user.home / "any.toml"
    path.write_text(
        f"""schema = 1
[image]
name = "team/agents"
base = "{user.registry.address}/team/base@{bootstrapped.base}"
[agents]
pi = "0.73.1"
[node]
version = "22.23.5"
"""
    )
    return path


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        ((404, {}, b"{}"), ExitCode.PIN, "not-found"),
        ((429, {"retry-after": "17"}, b""), ExitCode.NETWORK, "rate-limited"),
        ((403, {}, b""), ExitCode.NETWORK, "auth"),
        ((200, {}, b"{}"), ExitCode.NETWORK, "wrong-digest"),
    ],
)
def test_what_a_registry_does_wrong_is_told_by_name_and_nothing_is_kept(  # noqa: PLR0917  (fixtures)
    answer: tuple[int, dict[str, str], bytes],
    code: ExitCode,
    reason: str,
    user: User,
    kept_state: State,
    bootstrapped: Bootstrapped,
) -> None:
    _copy(kept_state, bootstrapped.resolver, user.state.layout)
    container = push(user, kept_state, bootstrapped.build_container)
    _copy(kept_state, bootstrapped.base, user.state.layout)
    user.give(base=bootstrapped.base, build_container=container)
    user.registry.answers[f"/build-container/manifests/{container}"] = answer
    done = user.builder("bootstrap", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["reason"]) == (code, reason), done.stderr
    assert container not in {image.digest for image in list_images(user.state.layout)}
    assert not [path for path in user.registry.paths if "latest" in path or "/tags/" in path]
    assert user.compiled() == []
