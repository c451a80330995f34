"""Pull the bootstrap base by digest from a registry on this machine, through the resolver's container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.resolve.exchange import Progress, Resolver, Secrets, in_container
from builder.resolve.pulling import pull
from builder.state import State
from builder.storage.store import ContentStore
from images.config import parse_base
from images.digests import Digest
from images.errors import BuilderError, NetworkFailed, PinError
from images.oci import Platform
from provenance.layout import blob_path, list_images, open_image
from provenance.layout_writing import init_layout
from tests.fakes.layouts import make_image
from tests.real.registry import TOKEN, Registry, serving

pytestmark = pytest.mark.real
AMD64 = Platform("linux", "amd64")
LABELS = (("agent-image-builder.test", f"pull-{os.getpid()}"),)


@pytest.fixture
def registry(kept_state: State) -> Iterator[Registry]:
    with serving(kept_state.layout) as server:
        yield server


@pytest.fixture(scope="module")
def loaded(engine: Engine, kept_state: State, bootstrapped: Bootstrapped) -> LoadedImage:
    image = open_image(kept_state.layout, bootstrapped.resolver)
    found = engine.find_image(image)
    if found is not None:
        return found
    with kept_state.staging("load") as staging:
        return engine.load(image, staging)


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    init_layout(tmp_path / "layout")
    return tmp_path / "layout"


@pytest.fixture
def resolver(engine: Engine, loaded: LoadedImage, tmp_path: Path) -> Iterator[Resolver]:
    heard: list[Progress] = []
    yield Resolver(
        run=in_container(engine, loaded, LABELS),
        secrets=Secrets(),
        store=ContentStore(tmp_path),
        staging=tmp_path,
        on_progress=heard.append,
    )
    assert engine.list_labelled(*LABELS[0]) == ()


def pull_base(registry: Registry, digest: Digest, resolver: Resolver, layout: Path) -> None:
    pull(parse_base(f"{registry.address}/team/base@{digest}"), (AMD64,), resolver, layout)


def refused(registry: Registry, digest: Digest, resolver: Resolver, layout: Path) -> BuilderError:
    with pytest.raises(BuilderError) as found:
        pull_base(registry, digest, resolver, layout)
    assert list_images(layout) == ()
    assert TOKEN not in str(found.value)
    return found.value


def test_a_base_by_digest(
    registry: Registry, bootstrapped: Bootstrapped, resolver: Resolver, layout: Path
) -> None:
    pull_base(registry, bootstrapped.base, resolver, layout)
    assert open_image(layout, bootstrapped.base, AMD64).digest == bootstrapped.base
    assert not any("/tags/" in path or ":latest" in path for path in registry.paths)


def test_cfg_06_gone(
    registry: Registry, bootstrapped: Bootstrapped, resolver: Resolver, layout: Path
) -> None:
    del bootstrapped
    error = refused(registry, Digest.of(b"gone"), resolver, layout)
    assert isinstance(error, PinError)
    assert error.reason == "not-found"
    assert [path for path in registry.paths if "/manifests/" in path] == [
        f"/v2/team/base/manifests/{Digest.of(b'gone')}"
    ] * 2  # once without a token


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((429, {"retry-after": "17"}, b""), "rate-limited"),
        ((403, {}, b""), "auth"),
        ((200, {}, b"{}"), "wrong-digest"),
    ],
)
def test_s_09_each_failure_has_its_reason(  # noqa: PLR0917  (fixtures)
    answer: tuple[int, dict[str, str], bytes],
    reason: str,
    registry: Registry,
    bootstrapped: Bootstrapped,
    resolver: Resolver,
    layout: Path,
) -> None:
    registry.answers[str(bootstrapped.base)] = answer
    error = refused(registry, bootstrapped.base, resolver, layout)
    assert isinstance(error, NetworkFailed)
    assert error.reason == reason
    if reason == "rate-limited":
        assert "wait 17 seconds" in error.hint


def test_a_challenge_of_another_origin_is_not_answered(
    registry: Registry, bootstrapped: Bootstrapped, kept_state: State, resolver: Resolver, layout: Path
) -> None:
    """A registry may redirect to a storage of others; that one has no say in where a login goes."""
    registry.open = True
    with serving(kept_state.layout) as storage:
        target = f"http://{storage.address}/v2/team/base/manifests/{bootstrapped.base}"
        registry.answers[str(bootstrapped.base)] = (307, {"location": target}, b"")
        error = refused(registry, bootstrapped.base, resolver, layout)
        assert isinstance(error, NetworkFailed)
        assert error.reason == "auth"
        assert [path.partition("?")[0] for path in storage.paths] == [
            target.removeprefix(f"http://{storage.address}")
        ]


def test_a_layer_that_breaks_off(
    registry: Registry, bootstrapped: Bootstrapped, kept_state: State, resolver: Resolver, layout: Path
) -> None:
    layer = open_image(kept_state.layout, bootstrapped.base, AMD64).manifest.layers[0]
    raw = blob_path(kept_state.layout, layer.digest).read_bytes()
    registry.answers[str(layer.digest)] = (200, {"content-length": str(len(raw))}, raw[:1000])
    error = refused(registry, bootstrapped.base, resolver, layout)
    assert isinstance(error, NetworkFailed)
    assert error.reason == "truncated"


def test_a_server_that_ends_each_connection_before_all_is_read(
    registry: Registry, bootstrapped: Bootstrapped, resolver: Resolver, layout: Path, tmp_path: Path
) -> None:
    """A fast server has sent everything and is gone while the slow side still reads: that is no failure."""
    del bootstrapped
    many = tuple({f"file-{number}": os.urandom(16 << 20)} for number in range(8))
    source = tmp_path / "source"
    digest = make_image(source, many)
    registry.layout = source
    pull_base(registry, digest, resolver, layout)
    assert open_image(layout, digest, AMD64).digest == digest
