"""What lies behind a private network's one public address: a resolver, a model's provider by TLS, a proxy."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.real.private_network import ADDRESS, RESOLVER, SIX
from tests.real.scripted_oauth import MODEL_HOST, TOKEN_HOST, Accounts

DOMAIN: Final = "example.test"
MODEL: Final = f"model.{DOMAIN}"
LOGIN: Final = "someone:dummy-proxy-word"
_A, _AAAA = 1, 28


@dataclass
class Internet:
    """``names``: what the resolver says, each time it is asked; ``asked``: every name that it was asked for.

    ``heard``: host and path of each request to the provider. ``stray``: connections to what no run may reach.
    ``proxied``: targets and logins that the proxy was given. ``task``: a shell command that the provider has
    whoever asks it run once, if he can; it says a word otherwise, and afterwards. ``accounts``: who may ask
    the provider, by a login; None lets everybody. ``bodies``: what each request to a model held.
    """

    ca: Path
    names: dict[str, Callable[[], tuple[str, ...]]]
    asked: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    proxied: list[tuple[str, bool]] = field(default_factory=list)
    task: str = ""
    accounts: Accounts | None = None
    bodies: list[bytes] = field(default_factory=list)


@contextlib.contextmanager
def internet(folder: Path, *, model: str = MODEL, task: str = "") -> Iterator[Internet]:
    """All of it while this lasts. ``model``: the provider's name."""
    made = Internet(folder / "ca.pem", {model: lambda: (ADDRESS, SIX)}, task=task)
    context = _tls(folder, made.ca, model)
    with contextlib.ExitStack() as stack:
        for address in (ADDRESS, SIX):
            stack.enter_context(_serving(_Provider(made, address, context)))
        stack.enter_context(_listening(made, (ADDRESS, 3128), _proxy))
        for place in (("127.0.0.1", 443), ("127.0.0.1", 80), (ADDRESS, 80), (ADDRESS, 8443)):
            stack.enter_context(_listening(made, place, _stray))
        stack.enter_context(_resolving(made))
        yield made


class _Provider(ThreadingHTTPServer):
    """Answers as the Messages interface does, with a stream; whatever else is asked for is not there."""

    daemon_threads = True

    def __init__(self, made: Internet, address: str, context: ssl.SSLContext) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, 443), _Request)
        self.made = made
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is its own affair."""


class _Request(BaseHTTPRequestHandler):
    server: _Provider
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def do_GET(self) -> None:
        self._note()
        self._reply(404, b"{}", "application/json")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self._note()
        accounts = self.server.made.accounts
        if accounts is not None and self.path == "/v1/oauth/token":
            return self._reply(*accounts.answer(body), "application/json")
        if accounts is not None and not accounts.knows(self.headers.get("authorization", "")):
            refusal = {"type": "error", "error": {"type": "authentication_error", "message": "not logged in"}}
            return self._reply(401, json.dumps(refusal).encode(), "application/json")
        if self.path.partition("?")[0] != "/v1/messages":
            return self._reply(404, b"{}", "application/json")
        self.server.made.bodies.append(body)
        return self._reply(200, _answer(_act(body, self.server.made.task)), "text/event-stream")

    def _note(self) -> None:
        host = self.headers.get("host", "").removesuffix(":443")
        self.server.made.heard.append(f"{host}{self.path.partition('?')[0]}")

    def _reply(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _act(body: bytes, task: str) -> tuple[str, str]:
    """The asking agent's own shell tool and the task, until it says what came of it; empty otherwise."""
    asked = json.loads(body) if task else {}
    names = [tool["name"] for tool in asked.get("tools", ()) if tool.get("name", "").lower() == "bash"]
    if not names or '"tool_result"' in json.dumps(asked["messages"]):
        return "", ""
    return names[0], task


def _answer(act: tuple[str, str]) -> bytes:
    name, task = act
    says = {"type": "text_delta", "text": "scripted answer"}
    begun: dict[str, object] = {"type": "text", "text": ""}
    if name:
        given = json.dumps({"command": task, "description": "as scripted"})
        says = {"type": "input_json_delta", "partial_json": given}
        begun = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    events: tuple[tuple[str, dict[str, object]], ...] = (
        ("message_start", {"message": message}),
        ("content_block_start", {"index": 0, "content_block": begun}),
        ("content_block_delta", {"index": 0, "delta": says}),
        ("content_block_stop", {"index": 0}),
        (
            "message_delta",
            {
                "delta": {"stop_reason": "tool_use" if name else "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 2},
            },
        ),
        ("message_stop", {}),
    )
    lines = (f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n" for kind, more in events)
    return "".join(lines).encode()


@contextlib.contextmanager
def _serving(server: ThreadingHTTPServer) -> Iterator[None]:
    with server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def _listening(
    made: Internet, place: tuple[str, int], talk: Callable[[Internet, socket.socket, str], None]
) -> Iterator[None]:
    with socket.create_server(place) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    arguments = (made, listener.accept()[0], f"{place[0]}:{place[1]}")
                    threading.Thread(target=one, args=arguments, daemon=True).start()

        def one(made: Internet, stream: socket.socket, where: str) -> None:
            with stream, contextlib.suppress(OSError):
                talk(made, stream, where)

        threading.Thread(target=serve, daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


def _stray(made: Internet, stream: socket.socket, where: str) -> None:
    made.stray.append(where)
    stream.close()


def _proxy(made: Internet, stream: socket.socket, where: str) -> None:
    """Every name that it is asked for is the provider."""
    del where
    head = b""
    while b"\r\n\r\n" not in head and (chunk := stream.recv(4096)):
        head += chunk
    target = head.split(b" ")[1].decode()
    known = b"Proxy-Authorization: Basic " + base64.b64encode(LOGIN.encode()) + b"\r\n" in head
    made.proxied.append((target, known))
    with socket.create_connection((ADDRESS, 443)) as far:
        stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        back = threading.Thread(target=_pump, args=(far, stream), daemon=True)
        back.start()
        _pump(stream, far)
        back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def _resolving(made: Internet) -> Iterator[None]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((RESOLVER, 53))
        over = threading.Event()
        server.settimeout(0.2)

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    asked, where = server.recvfrom(4096)
                    server.sendto(_resolved(made, asked), where)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _resolved(made: Internet, asked: bytes) -> bytes:
    labels, at = [], 12
    while size := asked[at]:
        labels.append(asked[at + 1 : at + 1 + size].decode("ascii", "replace").lower())
        at += 1 + size
    name, question = ".".join(labels), asked[12 : at + 5]
    (kind,) = struct.unpack("!H", asked[at + 1 : at + 3])
    if kind == _A:  # a resolver asks for both kinds each time: one of them counts
        made.asked.append(name)
    known = made.names[name]() if name in made.names and kind in (_A, _AAAA) else ()
    answers = [one for one in known if (":" in one) == (kind == _AAAA)]
    body = b""
    for one in answers:
        raw = socket.inet_pton(socket.AF_INET6 if ":" in one else socket.AF_INET, one)
        body += struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(raw)) + raw
    code = 0 if name in made.names else 3
    return asked[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(answers), 0, 0) + question + body


def _tls(folder: Path, ca: Path, model: str) -> ssl.SSLContext:
    """A certificate for the provider and every name below the domain; nobody else knows its authority."""
    now, pem = datetime.now(UTC), serialization.Encoding.PEM
    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def begun(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named("Scripted CA"))
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
        return (
            builder.public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(identifier, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )

    root = begun("Scripted CA", authority)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    hosts = (f"*.{DOMAIN}", TOKEN_HOST, MODEL_HOST, model)
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in dict.fromkeys(hosts)])
    leaf = begun(DOMAIN, own).add_extension(names, critical=False)
    ca.write_bytes(root.sign(authority, hashes.SHA256()).public_bytes(pem))
    chain, key = folder / "own.pem", folder / "own.key"
    chain.write_bytes(leaf.sign(authority, hashes.SHA256()).public_bytes(pem))
    key.write_bytes(own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    return context
