"""Real registries by other people, started for a test: distribution v3, Debian's, one with referrers."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.real.programs import go_program

MODULE: Final = Path(__file__).parent / "distribution"
USER: Final = "someone"
PASSWORD: Final = "dummy-registry-password"
BCRYPT: Final = "$2b$04$fJxiWqH4qpaZq70WvoW5U.UWB.Iiwl6qtuwygtPCdTl.EFGx0Cz1C"  # of it


def own_address() -> str:
    """The host's own address, as containers behind any kind of NAT reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # no packet is sent
        return str(probe.getsockname()[0])


def build(cache: pytest.Cache, go_of: Path) -> Path:
    """The registries of the pinned modules."""
    return go_program(cache, MODULE, ".", go_of, "registry")


def debian(cache: pytest.Cache) -> Path:
    """Debian's docker-registry, out of its signed package. Not installed: that would start a daemon of it."""
    folder = Path(cache.mkdir("docker-registry"))
    binary = folder / "usr/bin/docker-registry"
    if not binary.exists():
        for attempt in ("download", "update and download"):
            if attempt != "download":
                subprocess.run(["apt-get", "-qq", "update"], check=False)
            done = subprocess.run(["apt-get", "-qq", "download", "docker-registry"], cwd=folder, check=False)
            if done.returncode == 0:
                break
        (package,) = folder.glob("docker-registry_*.deb")
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    return binary


@dataclass(frozen=True, slots=True)
class Running:
    """``address``: HOST:PORT. ``data``: where it keeps everything. ``ca``: who signed its certificate."""

    address: str
    data: Path
    log: Path
    ca: Path | None = None

    def blob_files(self) -> list[Path]:
        """Every blob it has."""
        return sorted((self.data / "docker/registry/v2/blobs").glob("sha256/*/*/data"))


@contextlib.contextmanager
def serving(binary: Path, folder: Path, *, login: bool = False, host: str = "") -> Iterator[Running]:
    """A running registry over ``folder``; ``login``: by TLS, for one user. It is gone when the block ends.

    ``host``: an address of this machine, else the one that containers reach.
    """
    folder.mkdir()
    host = host or own_address()
    port = _free_port(host)
    lines = [
        "version: 0.1",
        "log: {level: info}",
        f"storage: {{filesystem: {{rootdirectory: {folder / 'data'}}}, delete: {{enabled: true}}}}",
    ]
    ca = None
    tls = ""
    if login:
        ca = folder / "ca.pem"
        _certificate(folder, host)
        (folder / "htpasswd").write_text(f"{USER}:{BCRYPT}\n")
        tls = f", tls: {{certificate: {folder / 'cert.pem'}, key: {folder / 'key.pem'}}}"
        lines.append(f"auth: {{htpasswd: {{realm: test, path: {folder / 'htpasswd'}}}}}")
    lines.append(f'http: {{addr: "{host}:{port}"{tls}}}')
    (folder / "config.yml").write_text("\n".join(lines) + "\n")
    with _process([str(binary), "serve", str(folder / "config.yml")], folder / "log", host, port):
        yield Running(f"{host}:{port}", folder / "data", folder / "log", ca)


@contextlib.contextmanager
def serving_referrers(binary: Path, folder: Path) -> Iterator[Running]:
    """A registry in memory that knows the referrers API."""
    folder.mkdir()
    host = own_address()
    port = _free_port(host)
    with _process([str(binary), "referrers", f"{host}:{port}"], folder / "log", host, port):
        yield Running(f"{host}:{port}", folder, folder / "log")


@contextlib.contextmanager
def _process(argv: list[str], log: Path, host: str, port: int) -> Iterator[None]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "OTEL_TRACES_EXPORTER": "none"}
    with log.open("wb") as out, subprocess.Popen(argv, env=environment, stdout=out, stderr=out) as process:
        try:
            until = time.monotonic() + 30
            while time.monotonic() < until and process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
                    break
                time.sleep(0.05)
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.kill()


def _free_port(host: str) -> int:
    """These programs tell nobody which port they took."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _certificate(folder: Path, host: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registry of a test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    for file in ("ca.pem", "cert.pem"):
        (folder / file).write_bytes(pem)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
