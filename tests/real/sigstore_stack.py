"""A sigstore of the test's own, of the real servers: in a network namespace where only loopback is."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from builder.state import State
from tests.real.sigstore_pki import CT, FULCIO, OIDC, REKOR, TSA, Pki

MODULE: Final = Path(__file__).parent / "sigstore"
PROGRAMS: Final = {
    "fulcio": "github.com/sigstore/fulcio",
    "tesseract": "github.com/transparency-dev/tesseract/cmd/tesseract/posix",
    "rekor": "github.com/sigstore/rekor-tiles/v2/cmd/rekor-server/posix",
    "tsa": "github.com/sigstore/timestamp-authority/v2/cmd/timestamp-server",
}
_BUILD_LIMIT: Final = 2400  # seconds for one of them; minutes on two idle cores for all
_READY: Final = {"tesseract": f"{CT}/healthz", "rekor": f"{REKOR}/healthz", "tsa": f"{TSA}/ping"}
_LOOPBACK_UP: Final = (
    "import fcntl, socket, struct\n"
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x1 | 0x8 | 0x40))\n"
)
_ASK: Final = (
    "import sys, time, urllib.request\n"
    "end = time.monotonic() + 60\n"
    "while True:\n"
    "    try:\n"
    "        sys.exit(urllib.request.urlopen(sys.argv[1], timeout=5).status != 200)\n"
    "    except OSError as broken:\n"
    "        if time.monotonic() > end: sys.exit(f'{sys.argv[1]}: {broken}')\n"
    "        time.sleep(0.05)\n"
)


def build_programs(cache: Path, state: State) -> Path:
    """The folder with the four servers, of the modules that go.mod and go.sum pin: minutes, once.

    By the Go that bootstrap took out of its pinned wheel; who has that version needs no wheel.
    """
    sums = hashlib.sha256((MODULE / "go.sum").read_bytes()).hexdigest()[:16]
    folder = cache / sums
    folder.mkdir(exist_ok=True)
    pinned = sorted(state.bootstrap.glob("go-toolchain/*/go/bin/go"))
    go = str(pinned[0]) if pinned else shutil.which("go")
    for name, package in PROGRAMS.items():
        if (folder / name).exists():
            continue
        assert go, "no Go: neither bootstrap's nor one on the PATH"
        made = folder / f"{name}.new"
        subprocess.run(
            [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(made), package],
            cwd=MODULE,
            check=True,
            timeout=_BUILD_LIMIT,
            env=os.environ | {"GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0", "GOGC": "400"},
        )
        made.rename(folder / name)
    return folder


@dataclass
class Stack:
    """The servers, each of which can be stopped, and the way into their network."""

    programs: Path
    root: Path
    holder: int  # a process in the namespace
    pki: Pki = field(default_factory=Pki)
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def inside(self, *argv: str) -> list[str]:
        """This command in the namespace; it dies with whoever starts it."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        enter = ["nsenter", f"--target={self.holder}", "--net", *user, "--"]
        return ["setpriv", "--pdeathsig=KILL", *enter, *argv]

    def python(self) -> str:
        """An interpreter whose network is the namespace's."""
        path = self.root / "python"
        path.write_text("#!/bin/sh\nexec " + " ".join(self.inside(sys.executable)) + ' "$@"\n')
        path.chmod(0o755)
        return str(path)

    def start(self, name: str) -> None:
        """Start one server and wait until it answers."""
        log = (self.root / f"{name}.log").open("ab")
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.root)}
        self.servers[name] = subprocess.Popen(
            self.inside(*self._argv(name)), cwd=self.root, env=environment, stdout=log, stderr=log
        )
        log.close()
        address = {"issuers": f"{OIDC}/ci/keys", "fulcio": f"{FULCIO}/healthz"}.get(name) or _READY[name]
        asked = self.inside(sys.executable, "-c", _ASK, f"http://127.0.0.1:{address}")
        done = subprocess.run(asked, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, f"{done.stderr}\n{(self.root / f'{name}.log').read_text()[-2000:]}"

    def stop(self, name: str) -> None:
        """End one server at once."""
        server = self.servers.pop(name)
        server.kill()
        server.wait(30)

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """As long as this holds, that server is gone."""
        self.stop(name)
        try:
            yield
        finally:
            self.start(name)

    def _argv(self, name: str) -> list[str]:
        at, pki = "127.0.0.1", self.root / "pki"
        program = str(self.programs / name)
        if name == "issuers":
            served = f"--directory={pki / 'issuers'}"
            return [sys.executable, "-m", "http.server", str(OIDC), f"--bind={at}", served]
        if name == "tesseract":
            return [
                program,
                f"--http_endpoint={at}:{CT}",
                f"--private_key={pki / 'ct.key'}",
                "--origin=ct.lab.example",
                "--path_prefix=ct.lab.example",
                f"--storage_dir={self.root / 'ct'}",
                f"--roots_pem_file={pki / 'root.pem'}",
                "--ext_key_usages=CodeSigning",
                "--batch_max_age=50ms",
                "--checkpoint_interval=200ms",
            ]
        if name == "rekor":
            return [
                *(program, "serve", f"--http-address={at}", f"--http-port={REKOR}"),
                *(f"--grpc-address={at}", "--grpc-port=18013", "--http-metrics-port=18023"),
                *("--hostname=rekor.lab.example", f"--storage-dir={self.root / 'rekor'}"),
                *(f"--signer-filepath={pki / 'rekor.key'}", "--batch-max-age=50ms"),
                "--checkpoint-interval=200ms",
            ]
        if name == "tsa":
            return [
                *(program, "serve", f"--host={at}", f"--port={TSA}", "--timestamp-signer=file"),
                f"--file-signer-key-path={pki / 'stamping.key'}",
                f"--certificate-chain-path={pki / 'stamps.pem'}",
                "--disable-ntp-monitoring",  # it would ask public time servers
            ]
        return [
            *(program, "serve", f"--config-path={pki / 'fulcio.yaml'}", "--ca=fileca"),
            *(f"--fileca-cert={pki / 'authority.pem'}", f"--fileca-key={pki / 'issuing.key'}"),
            *("--fileca-key-passwd=", "--fileca-watch=false", "--log_type=prod"),
            *(f"--ct-log-url=http://{at}:{CT}/ct.lab.example", "--ct-log-origin=ct.lab.example"),
            f"--ct-log-public-key-path={pki / 'ct.pub'}",
            *(f"--host={at}", f"--port={FULCIO}", f"--grpc-host={at}", "--grpc-port=18012"),
            "--metrics-port=18022",
        ]


@contextmanager
def running_stack(programs: Path, root: Path) -> Iterator[Stack]:
    """All servers, in a namespace of their own; ended with it."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    hold = ["setpriv", "--pdeathsig=KILL", "unshare", "--net", *user, "--", "sleep", "3600"]
    holder = subprocess.Popen(hold)
    stack = Stack(programs, root, holder.pid)
    try:
        _wait_for_namespace(holder)
        subprocess.run(stack.inside(sys.executable, "-c", _LOOPBACK_UP), check=True, timeout=60)
        stack.pki.write(root / "pki")
        for name in ("ct", "rekor"):
            (root / name).mkdir()
        for name in ("issuers", "tesseract", "rekor", "tsa", "fulcio"):
            stack.start(name)
        yield stack
    finally:
        for name in tuple(stack.servers):
            stack.stop(name)
        holder.kill()
        holder.wait(30)


def _wait_for_namespace(holder: subprocess.Popen[bytes]) -> None:
    """Until it sleeps in there: before, it is still in ours."""
    end = time.monotonic() + 30
    while Path(f"/proc/{holder.pid}/comm").read_text().strip() != "sleep":
        assert holder.poll() is None, "no network namespace can be made here"
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="session")
def sigstore(
    request: pytest.FixtureRequest, kept_state: State, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """The running servers."""
    programs = build_programs(request.config.cache.mkdir("sigstore"), kept_state)
    with running_stack(programs, tmp_path_factory.mktemp("sigstore")) as stack:
        yield stack
