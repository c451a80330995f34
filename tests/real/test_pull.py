"""Pull the bootstrap base by digest from a registry on this machine, through the resolver's container."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from builder.bootstrap import Bootstrapped
from builder.resolve import Progress, Resolver, Secrets, in_container
from builder.resolve.pulling import pull
from builder.state import State
from builder.store import ContentStore
from images.config import parse_base
from images.digests import Digest
from images.errors import BuilderError, NetworkFailed, PinError
from images.oci import MEDIA_MANIFEST, Platform
from provenance.layout import blob_path, list_images, open_image
from provenance.layout_writing import init_layout

pytestmark = pytest.mark.real
AMD64 = Platform("linux", "amd64")
LABELS = (("agent-image-builder.test", f"pull-{os.getpid()}"),)
TOKEN = "anonymous-dummy"


class Registry(ThreadingHTTPServer):
    """The distribution API over a layout, with anonymous tokens; ``answers`` overrides a path's end."""

    daemon_threads = True

    def __init__(self, layout: Path) -> None:
        super().__init__(("0.0.0.0", 0), Handler)  # noqa: S104  (containers reach it by the host's address)
        self.layout = layout
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.paths: list[str] = []

    @property
    def address(self) -> str:
        """The host's own address, as containers behind any kind of NAT reach it."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # no packet is sent
            return f"{probe.getsockname()[0]}:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Registry

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        if self.path.startswith("/token?"):
            return self.reply(200, {}, json.dumps({"token": TOKEN}).encode())
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            realm = f'Bearer realm="http://{self.server.address}/token",service="test",scope="pull"'
            return self.reply(401, {"www-authenticate": realm}, b"")
        for end, answer in self.server.answers.items():
            if self.path.endswith(end):
                return self.reply(*answer)
        found = re.fullmatch(r"/v2/team/base/(manifests|blobs)/(sha256:[0-9a-f]{64})", self.path)
        path = blob_path(self.server.layout, Digest(found[2])) if found else None
        if path is None or not path.is_file():
            return self.reply(404, {}, b"{}")
        return self.reply(200, {"content-type": MEDIA_MANIFEST}, path.read_bytes())

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)


@pytest.fixture
def registry(kept_state: State) -> Iterator[Registry]:
    server = Registry(kept_state.layout)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


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


def test_a_layer_that_breaks_off(
    registry: Registry, bootstrapped: Bootstrapped, kept_state: State, resolver: Resolver, layout: Path
) -> None:
    layer = open_image(kept_state.layout, bootstrapped.base, AMD64).manifest.layers[0]
    raw = blob_path(kept_state.layout, layer.digest).read_bytes()
    registry.answers[str(layer.digest)] = (200, {"content-length": str(len(raw))}, raw[:1000])
    error = refused(registry, bootstrapped.base, resolver, layout)
    assert isinstance(error, NetworkFailed)
    assert error.reason == "truncated"
