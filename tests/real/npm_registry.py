"""An npm registry that a test runs on this machine: packages, signatures and times as the test wants them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import unquote

from tests.fakes.registry import Package, sri, tarball

SHORT = "application/vnd.npm.install-v1+json"  # metadata without times, as the public registry gives it
STATEMENTS = "-/npm/v1/attestations/"
LONG_AGO = "2020-01-01T00:00:00.000Z"


@dataclass
class Shelf:
    """``packages``: name@version -> package.json; without more said of it unsigned, and from long ago."""

    packages: dict[str, Package]
    latest: dict[str, str] = field(default_factory=dict)
    signatures: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    published: dict[str, str] = field(default_factory=dict)
    statements: dict[str, bytes] = field(default_factory=dict)  # name@version -> of its publisher
    asked: list[str] = field(default_factory=list)  # paths

    def metadata(self, name: str, address: str, *, whole: bool) -> bytes | None:
        """The document about one package; None when there is none."""
        found = {one["version"]: one for one in self.packages.values() if one["name"] == name}
        if not found:
            return None
        document: dict[str, Any] = {
            "name": name,
            "dist-tags": {"latest": self.latest.get(name, max(found))},
            "versions": {
                version: {**one, "dist": self._dist(f"{name}@{version}", address)}
                for version, one in found.items()
            },
        }
        if whole:
            document["time"] = {
                version: self.published.get(f"{name}@{version}", LONG_AGO) for version in found
            }
        return json.dumps(document).encode()

    def _dist(self, spec: str, address: str) -> Package:
        data = tarball(self.packages[spec])
        signed = {"signatures": self.signatures[spec]} if spec in self.signatures else {}
        stated = {}
        if spec in self.statements:
            # An address that is nobody's: npm asks its own registry, and so do we.
            stated = {"attestations": {"url": f"https://elsewhere.example/{spec}", "provenance": {}}}
        return {
            **stated,
            "integrity": sri(data),
            "shasum": hashlib.sha1(data, usedforsecurity=False).hexdigest(),
            "tarball": f"http://{address}/-/{spec}.tgz",
            **signed,
        }


class Server(ThreadingHTTPServer):
    """The shelf over HTTP."""

    daemon_threads = True

    def __init__(self, address: str, shelf: Shelf) -> None:
        super().__init__((address, 0), _Handler)
        self.shelf = shelf

    @property
    def address(self) -> str:
        """Where containers of this machine reach it."""
        host, port = cast(tuple[str, int], self.server_address[:2])
        return f"{host}:{port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def do_GET(self) -> None:
        shelf, path = self.server.shelf, unquote(self.path.partition("?")[0]).removeprefix("/")
        if path.startswith("-/") and path.endswith(".tgz"):
            package = shelf.packages.get(path[2:-4])
            return self._reply(tarball(package) if package else None, "application/octet-stream")
        shelf.asked.append(path)
        if path.startswith(STATEMENTS):
            return self._reply(shelf.statements.get(path.removeprefix(STATEMENTS)), "application/json")
        whole = not self.headers.get("accept", "").startswith(SHORT)
        return self._reply(shelf.metadata(path, self.server.address, whole=whole), "application/json")

    def _reply(self, body: bytes | None, kind: str) -> None:
        self.send_response(404 if body is None else 200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body or b"")))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body or b"")


@contextlib.contextmanager
def serving(shelf: Shelf) -> Iterator[Server]:
    """A running registry on this machine's own address; stopped when the block ends."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # no packet is sent
        own = str(probe.getsockname()[0])
    server = Server(own, shelf)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
