"""A registry that a test runs on this machine: pull only, over what a layout holds."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from images.digests import Digest
from images.oci import MEDIA_MANIFEST
from provenance.layout import blob_path

TOKEN = "anonymous-dummy"


class Registry(ThreadingHTTPServer):
    """The distribution API over a layout, with anonymous tokens; ``answers`` overrides a path's end.

    Every repository is ``team/`` and one word, and has all that the layout has; if ``open``, for everybody.
    """

    daemon_threads = True

    def __init__(self, layout: Path) -> None:
        super().__init__(("0.0.0.0", 0), Handler)  # noqa: S104  (containers reach it by the host's address)
        self.layout = layout
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.paths: list[str] = []
        self.open = False

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
        if not self.server.open and self.headers.get("authorization") != f"Bearer {TOKEN}":
            realm = f'Bearer realm="http://{self.server.address}/token",service="test",scope="pull"'
            return self.reply(401, {"www-authenticate": realm}, b"")
        for end, answer in self.server.answers.items():
            if self.path.endswith(end):
                return self.reply(*answer)
        found = re.fullmatch(r"/v2/team/[a-z-]+/(manifests|blobs)/(sha256:[0-9a-f]{64})", self.path)
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


@contextlib.contextmanager
def serving(layout: Path) -> Iterator[Registry]:
    """A running registry; stopped when the block ends."""
    server = Registry(layout)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
