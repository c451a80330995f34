"""A registry on this machine that does everything right, until a test replaces an answer."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from images.digests import Digest
from images.oci import MEDIA_INDEX
from tests.real.registries import own_address

REPOSITORY: Final = "/v2/team/agents"
Send = Callable[["Handler"], object]


class ScriptedRegistry(ThreadingHTTPServer):
    """``answers``: (method, pattern of the path) -> what happens instead; None from it: as usual.

    ``api``: it knows the referrers API, with ``page`` of them a page. ``conditional``: it honours If-Match.
    ``seen``: method, path and the login of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((own_address(), 0), Handler)
        self.answers: list[tuple[str, str, Send]] = []
        self.seen: list[tuple[str, str, str]] = []
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.api = True
        self.page = 1000
        self.filters = True
        self.conditional = False
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{self.server_address[0]!s}:{self.server_address[1]}"

    def instead(self, method: str, pattern: str, send: Send) -> None:
        """What happens at each request of this method whose path matches."""
        self.answers.append((method, pattern, send))

    def paths(self, method: str) -> list[str]:
        """What was asked, in order."""
        return [path for verb, path, _ in self.seen if verb == method]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ScriptedRegistry
    body: bytes

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def reply(self, status: int, body: bytes = b"", **headers: str) -> bool:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(body)
        return True

    def answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        self.server.seen.append((self.command, self.path, self.headers.get("authorization", "")))
        self.body = b""
        early = [
            send
            for method, pattern, send in self.server.answers
            if method == f"early {self.command}" and re.search(pattern, self.path)
        ]
        if any(send(self) is not None for send in early):
            self.close_connection = True
            return
        self.body = self.rfile.read(length)
        for method, pattern, send in list(self.server.answers):
            if method == self.command and re.search(pattern, self.path) and send(self) is not None:
                return
        path = self.path.partition("?")[0].removeprefix(REPOSITORY)
        for pattern, act in (
            (r"/manifests/(.+)", self.manifest),
            (r"/referrers/(.+)", self.referrers),
            (r"/blobs/uploads/(.*)", self.upload),
            (r"/blobs/(sha256:.+)", self.blob),
        ):
            if found := re.fullmatch(pattern, path):
                act(found[1])
                return
        self.reply(404)

    do_GET = do_HEAD = do_PUT = do_POST = answer  # noqa: N815  (the names that the server calls)

    def blob(self, digest: str) -> None:
        raw = self.server.blobs.get(digest)
        self.reply(404) if raw is None else self.reply(200, raw)

    def upload(self, session: str) -> None:
        if self.command == "POST":
            self.reply(202, location=f"{REPOSITORY}/blobs/uploads/session?state=a%2Bb")
            return
        del session
        digest = self.path.rpartition("digest=")[2].replace("%3A", ":")
        if "state=a%2Bb&" not in self.path or Digest.of(self.body) != digest:
            self.reply(400)
            return
        self.server.blobs[digest] = self.body
        self.reply(201, docker_content_digest=digest)

    def manifest(self, reference: str) -> None:
        server = self.server
        with server.lock:
            if self.command == "PUT":
                self._put_manifest(reference)
                return
            digest = server.tags.get(reference, reference)
            raw = server.manifests.get(digest)
            self.reply(404) if raw is None else self.reply(200, raw, etag=f'"{digest}"')

    def _put_manifest(self, reference: str) -> None:
        server, digest = self.server, str(Digest.of(self.body))
        now = server.tags.get(reference)
        if server.conditional and not reference.startswith("sha256:"):
            wanted, none = self.headers.get("if-match"), self.headers.get("if-none-match")
            if (wanted and wanted != f'"{now}"') or (none and now):
                self.reply(412)
                return
        server.manifests[digest] = self.body
        if not reference.startswith("sha256:"):
            server.tags[reference] = digest
        subject = json.loads(self.body).get("subject")
        said = {"oci_subject": subject["digest"]} if subject and server.api else {}
        self.reply(201, docker_content_digest=digest, **said)

    def listed(self, subject: str) -> list[dict[str, Any]]:
        found = []
        for digest, raw in self.server.manifests.items():
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                document = json.loads(raw)
                if document["subject"]["digest"] == subject:
                    kind = document.get("artifactType", "")
                    found.append(
                        {
                            "mediaType": document["mediaType"],
                            "digest": digest,
                            "size": len(raw),
                            "artifactType": kind,
                        }
                    )
        return found

    def referrers(self, subject: str) -> None:
        if not self.server.api:
            self.reply(404)
            return
        found, headers = self.listed(subject), {}
        asked = re.search(r"artifactType=([^&]+)", self.path)
        if asked and self.server.filters:
            kind = asked[1].replace("%2F", "/").replace("%2B", "+")
            found = [one for one in found if one["artifactType"] == kind]
            headers["oci_filters_applied"] = "artifactType"
        start = int((re.search(r"from=(\d+)", self.path) or ["0", "0"])[1])
        end = start + self.server.page
        if end < len(found):
            path = re.sub(r"&from=\d+", "", self.path)
            headers["link"] = f'<{path}&from={end}>; rel="next"'
        self.reply(200, index_of(found[start:end]), **headers)


def index_of(entries: list[dict[str, Any]]) -> bytes:
    """An index of these."""
    return json.dumps({"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": entries}).encode()


@contextlib.contextmanager
def scripted_registry() -> Iterator[ScriptedRegistry]:
    """A running one; stopped when the block ends."""
    server = ScriptedRegistry()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
