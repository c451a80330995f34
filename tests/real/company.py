"""A company's network on this machine: registries on loopback that only a proxy with a login reaches.

Names under corp.test resolve nowhere, so what reaches them went through the proxy. Every login is a dummy.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import json
import re
import select
import socket
import socketserver
import ssl
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from images.digests import Digest
from images.oci import MEDIA_MANIFEST
from provenance.layout import blob_path
from tests.fakes.registry import Package, package, sri, usual_packages
from tests.fakes.tarballs import File, packages, tarball

DOMAIN: Final = "corp.test"
NPM, PYPI, DEBIAN, IMAGES = (f"{name}.{DOMAIN}" for name in ("npm", "pypi", "debian", "registry"))
USER: Final = "someone"
DEB: Final = b"!<arch>\n not a package that anybody opens\n"
SIMPLE_JSON: Final = "application/vnd.pypi.simple.v1+json"
PROVENANCE: Final = "/integrity/company-tool/1.0.0/company_tool-1.0.0-py3-none-any.whl/provenance"
METADATA: Final = "Metadata-Version: 2.1\nName: company-tool\nVersion: 1.0.0\n"  # of the one wheel


@dataclass(frozen=True)
class Logins:
    """One password for each door, with letters that mean something in an address, a file or base64."""

    proxy: str = "dummy-proxy@pass:word/1"
    npm: str = "dummy-npm-token+value=1"
    pypi: str = "dummy-pypi-password-1"
    debian: str = "dummy-debian-password-1"
    images: str = "dummy-registry-pass:word-1"
    bearer: str = "dummy-bearer-of-the-registry-1"

    def all(self) -> tuple[str, ...]:
        """Each value that must show nowhere."""
        return (self.proxy, self.npm, self.pypi, self.debian, self.images, self.bearer)


def forms(value: str) -> set[bytes]:
    """How a value may lie in a file: plain, percent-encoded, in base64 at each alignment, with its user."""
    raw = value.encode()
    found = {raw, quote(value, safe="").encode(), quote(value).encode(), json.dumps(value)[1:-1].encode()}
    for text in (raw, f"{USER}:{value}".encode()):
        for shift in range(3):
            encoded = base64.b64encode(b"\0" * shift + text)
            found.add(encoded[4 if shift else 0 :].rstrip(b"=")[:-1])
    return {form for form in found if len(form) > 8}


Send = Callable[["Handler"], None]


class Company(ThreadingHTTPServer):
    """All registries behind one TLS port of loopback. ``answers``: end of a path -> what happens instead."""

    daemon_threads = True

    def __init__(self, layout: Path, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.layout = layout
        self.logins: tuple[Logins, ...] = (Logins(),)
        self.answers: dict[str, Send] = {}
        self.requests: list[str] = []  # host and path
        self.ca = folder / "company-ca.pem"
        self.packages, self.tarballs = _npm_packages()
        self.wheel = _wheel()
        self.statements: dict[str, bytes] = {}  # of publishers, by path: what npm and PyPI offer then
        self.socket = _tls(folder, self.ca).wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self.proxy = Proxy(self)

    def knows(self, kind: str, authorization: str) -> bool:
        """Is this one of the logins of a door?"""
        for login in self.logins:
            value = getattr(login, kind)
            basic = base64.b64encode(f"{USER}:{value}".encode()).decode()
            if authorization in (f"Bearer {value}", f"Basic {basic}"):
                return True
        return False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    """One request to one of the registries."""

    server: Company

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def do_GET(self) -> None:
        host = self.headers.get("host", "").partition(":")[0]
        path = unquote(self.path)
        self.server.requests.append(f"{host}{path}")
        for end, send in self.server.answers.items():
            if path.endswith(end):
                return send(self)
        serve = {NPM: self.npm, PYPI: self.pypi, DEBIAN: self.debian, IMAGES: self.images}
        return serve[host](path) if host in serve else self.reply(404)

    do_HEAD = do_GET  # noqa: N815  (the name that the server calls)

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(body)

    def admitted(self, kind: str, challenge: str) -> bool:
        if self.server.knows(kind, self.headers.get("authorization", "")):
            return True
        self.reply(401, www_authenticate=challenge)
        return False

    def npm(self, path: str) -> None:
        if not self.admitted("npm", "Bearer"):
            return
        tarball = self.server.tarballs.get(path.removeprefix("/tarballs/"))
        if (raw := tarball or self.server.statements.get(path)) is not None:
            return self.reply(200, raw)
        document = self.server.packages.get(path[1:])
        if document is None:
            return self.reply(404, b"{}")
        self.reply(200, json.dumps(document).encode(), content_type="application/json")

    def pypi(self, path: str) -> None:
        if not self.admitted("pypi", 'Basic realm="index"'):
            return
        name, raw = self.server.wheel
        if path == "/simple/company-tool/":
            sums = [hashlib.sha256(part).hexdigest() for part in (raw, METADATA.encode())]
            if self.server.statements:
                return self.reply(200, _simple_json(name, sums), content_type=SIMPLE_JSON)
            link = (
                f'<a href="/files/{name}#sha256={sums[0]}" data-core-metadata="sha256={sums[1]}">{name}</a>'
            )
            page = f"<!DOCTYPE html><html><body>{link}</body></html>".encode()
            return self.reply(200, page, content_type="text/html")
        files = {f"/files/{name}": raw, f"/files/{name}.metadata": METADATA.encode()}
        found = (files | self.server.statements).get(path)
        self.reply(404) if found is None else self.reply(200, found)

    def debian(self, path: str) -> None:
        if not self.admitted("debian", 'Basic realm="mirror"'):
            return
        found = _debian_files().get(path)
        self.reply(404) if found is None else self.reply(200, found)

    def images(self, path: str) -> None:
        if path.startswith("/token?"):
            if self.admitted("images", 'Basic realm="token"'):
                self.reply(200, json.dumps({"token": self.server.logins[0].bearer}).encode())
            return
        realm = f'Bearer realm="https://{IMAGES}/token",service="test",scope="pull"'
        if not self.admitted("bearer", realm):
            return
        found = re.fullmatch(r"/v2/team/[a-z-]+/(manifests|blobs)/(sha256:[0-9a-f]{64})", path)
        file = blob_path(self.server.layout, Digest(found[2])) if found else None
        if file is None or not file.is_file():
            return self.reply(404, b"{}")
        return self.reply(200, file.read_bytes(), content_type=MEDIA_MANIFEST)


class Proxy(socketserver.ThreadingTCPServer):
    """CONNECT with a login. ``hosts``: which names it lets through; ``reaches``: which of them it finds."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, company: Company) -> None:
        super().__init__(("0.0.0.0", 0), _Tunnel)  # noqa: S104  (containers reach it by the host's address)
        self.company = company
        self.lets = self.reaches = re.compile(rf"[a-z]+\.{re.escape(DOMAIN)}:443")
        self.tunnels: list[str] = []

    @property
    def address(self) -> str:
        """As containers behind any kind of NAT reach it."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # no packet is sent
            return f"{probe.getsockname()[0]}:{self.server_address[1]}"

    def url(self, login: Logins | None) -> str:
        """As an operator writes it."""
        userinfo = f"{USER}:{quote(login.proxy, safe='')}@" if login else ""
        return f"http://{userinfo}{self.address}"


class _Tunnel(socketserver.BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = self.request.recv(4096)
            if not chunk:
                return
            head += chunk
        asked = re.match(rb"CONNECT (\S+) HTTP", head)
        target = asked[1].decode() if asked else ""
        self.server.tunnels.append(target)
        login = re.search(rb"(?i)^proxy-authorization: (.+?)\r$", head, re.MULTILINE)
        answer = self._answer(target, login[1].decode() if login else "")
        self.request.sendall(f"HTTP/1.1 {answer}\r\n\r\n".encode())
        if answer.startswith("200"):
            self._carry()

    def _answer(self, target: str, login: str) -> str:
        if not self.server.company.knows("proxy", login):
            return '407 Login\r\nproxy-authenticate: Basic realm="proxy"\r\ncontent-length: 0'
        if not self.server.lets.fullmatch(target):
            return "403 No\r\ncontent-length: 0"
        return "200 Yes" if self.server.reaches.fullmatch(target) else "502 Where\r\ncontent-length: 0"

    def _carry(self) -> None:
        with socket.create_connection(self.server.company.server_address[:2]) as inside:  # type: ignore[arg-type]
            other = {self.request: inside, inside: self.request}
            with contextlib.suppress(OSError):
                while True:
                    for ready in select.select(list(other), [], [], 60)[0]:
                        chunk = ready.recv(1 << 16)
                        if not chunk:
                            return
                        other[ready].sendall(chunk)


@contextlib.contextmanager
def open_company(layout: Path, folder: Path) -> Iterator[Company]:
    """Running registries over the images of ``layout``, and their proxy; stopped when the block ends."""
    with Company(layout, folder) as company, company.proxy as proxy:
        threads = [threading.Thread(target=one.serve_forever, args=(0.1,)) for one in (company, proxy)]
        for thread in threads:
            thread.start()
        try:
            yield company
        finally:
            for one in (company, proxy):
                one.shutdown()
            for thread in threads:
                thread.join()


def status(code: int, **headers: str) -> Send:
    """Answers with this status."""
    return lambda handler: handler.reply(code, b"{}", **headers)


def wrong_bytes(handler: Handler) -> None:
    """Something else of no meaning."""
    handler.reply(200, b"{}")


def other_bytes(handler: Handler) -> None:
    """As many as there should be, but others: a disk that lies."""
    digest = Digest(handler.path.rpartition("/")[2])
    handler.reply(200, b"x" * blob_path(handler.server.layout, digest).stat().st_size)


def truncated(handler: Handler) -> None:
    """Promises more than it sends."""
    handler.send_response(200)
    handler.send_header("content-length", "100000")
    handler.end_headers()
    handler.wfile.write(b"x" * 1000)


def silent(seconds: float = 60.0) -> Send:
    """Accepts, and says nothing."""
    return lambda _handler: time.sleep(seconds)


def trickle(handler: Handler) -> None:
    """One byte, and then one more, for ever."""
    handler.send_response(200)
    handler.send_header("content-length", "100000")
    handler.end_headers()
    with contextlib.suppress(OSError):
        for _ in range(1000):
            handler.wfile.write(b"x")
            time.sleep(0.5)


def _npm_packages() -> tuple[dict[str, Package], dict[str, bytes]]:
    """Documents by name, tarballs by file: agents and a server that know their versions and no more."""
    manifests = dict(usual_packages())
    manifests.update(dict([package("@example/server-files", "1.2.3", bin={"server-files": "dist/index.js"})]))
    documents: dict[str, Package] = {}
    tarballs: dict[str, bytes] = {}
    files = {spec.partition(":")[2]: found for spec, found in packages().items()}
    for spec, manifest in manifests.items():
        name, version = manifest["name"], manifest["version"]
        if name == "@anthropic-ai/claude-code":
            manifest["scripts"] = {"postinstall": "sh ./install.sh"}
        top = "pi" if name.endswith("pi-coding-agent") else "package"
        own: dict[str, File] = {f"{top}/package.json": (json.dumps(manifest).encode(), 0o644)}
        raw = tarball({**files.get(spec, {}), **own})
        file = f"{name.replace('/', '-')}-{version}.tgz"
        tarballs[file] = raw
        dist = {"tarball": f"https://{NPM}/tarballs/{file}", "integrity": sri(raw)}
        entry = documents.setdefault(name, {"name": name, "dist-tags": {}, "versions": {}})
        entry["versions"][version] = {**manifest, "dist": dist}
        entry["dist-tags"]["latest"] = version
    return documents, tarballs


def _wheel() -> tuple[str, bytes]:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = "company_tool-1.0.0.dist-info"
        archive.writestr("company_tool.py", "")
        archive.writestr(f"{info}/METADATA", METADATA)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return "company_tool-1.0.0-py3-none-any.whl", out.getvalue()


def _simple_json(name: str, sums: list[str]) -> bytes:
    """The index's page about its one project, in the form that can name a provenance object."""
    file = {
        "filename": name,
        "url": f"/files/{name}",
        "hashes": {"sha256": sums[0]},
        "core-metadata": {"sha256": sums[1]},
        "provenance": f"https://{PYPI}{PROVENANCE}",
    }
    document = {
        "meta": {"api-version": "1.3"},
        "name": "company-tool",
        "versions": ["1.0.0"],
        "files": [file],
    }
    return json.dumps(document).encode()


def _debian_files() -> dict[str, bytes]:
    stanza = (
        "Package: company-tool\nVersion: 1.0\nArchitecture: amd64\nMaintainer: A <a@example.test>\n"
        f"Filename: pool/company-tool.deb\nSize: {len(DEB)}\nSHA256: {hashlib.sha256(DEB).hexdigest()}\n\n"
    ).encode()
    packed = gzip.compress(stanza, mtime=0)
    listed = "".join(
        f" {hashlib.sha256(raw).hexdigest()} {len(raw)} main/binary-amd64/{name}\n"
        for name, raw in (("Packages", stanza), ("Packages.gz", packed))
    )
    release = f"Suite: stable\nCodename: stable\nArchitectures: amd64\nComponents: main\nSHA256:\n{listed}"
    return {
        "/dists/stable/Release": release.encode(),
        "/dists/stable/main/binary-amd64/Packages": stanza,
        "/dists/stable/main/binary-amd64/Packages.gz": packed,
        "/pool/company-tool.deb": DEB,
    }


def _tls(folder: Path, ca: Path) -> ssl.SSLContext:
    """A certificate for every name here, of an authority that nobody else knows."""
    now = datetime.now(UTC)

    def certificate(
        name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        def called(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        builder = x509.CertificateBuilder().subject_name(called(name)).issuer_name(called(issuer))
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        return (
            builder.not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(identifier, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )

    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = certificate("Company CA", authority, "Company CA", authority)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    names = x509.SubjectAlternativeName([x509.DNSName(f"*.{DOMAIN}"), x509.DNSName(DOMAIN)])
    leaf = certificate(DOMAIN, own, "Company CA", authority).add_extension(names, critical=False)
    pem = serialization.Encoding.PEM
    ca.write_bytes(root.sign(authority, hashes.SHA256()).public_bytes(pem))
    chain, key = folder / "company.pem", folder / "company.key"
    chain.write_bytes(leaf.sign(authority, hashes.SHA256()).public_bytes(pem))
    key.write_bytes(own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    return context
