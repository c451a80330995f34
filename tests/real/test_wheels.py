"""A server and tools from PyPI, an archive, a toolchain with python3: locked, built twice, audited, run."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from builder.bootstrap import Bootstrapped
from builder.state import State
from builder.storage.store import ContentStore
from images.digests import Integrity
from images.errors import ExitCode
from images.lockfile import lock_bytes, parse_lock
from tests.fakes.credentials import token
from tests.real.desk import Desk, greeting, inside, make_desk
from tests.real.spine import refused

pytestmark = pytest.mark.real

KIT = {
    "kit-1.2/bin/kit": (b"#!/bin/sh\ncat /opt/archives/kit/kit-1.2/share/words\n", 0o755),
    "kit-1.2/share/words": (b"it works\n", 0o600),
}
TOML = """\
schema = 1

[image]
name = "tests/wheels"
base = "debian-minimal@BASE"

[agents]
pi = "0.73.1"

[node]
version = "22.23.5"

[toolchain]
debian = ["python3"]
pypi = { uv = "0.13.9", idna = "3.20" }

[mcp]
fetch = { pypi = "mcp-server-fetch", version = "2026.10.24", args = ["--ignore-robots-txt"] }

[archives]
kit = { sha256 = "KIT", bins = { kit = "kit-1.2/bin/kit" } }
"""


def pack(folder: Path, files: dict[str, tuple[bytes, int]]) -> tuple[Path, str]:
    """A tar.gz, and its SHA-256."""
    path = folder / "kit.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, (content, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), mode, 1
            archive.addfile(member, io.BytesIO(content))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def desk(
    engine_name: str, kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> Desk:
    root = tmp_path_factory.mktemp("wheels")
    kit, sha256 = pack(root, KIT)
    toml = TOML.replace("BASE", str(bootstrapped.base)).replace("KIT", sha256)
    made = make_desk(engine_name, kept_state, root, toml)
    refused(made.type("lock"), ExitCode.PIN, "archives.kit", f"sha256:{sha256}", "builder store add FILE")
    made.builder("store", "add", str(kit))
    made.builder("lock")
    return made


@pytest.fixture(scope="module")
def built(desk: Desk) -> str:
    digest = desk.builder("build").strip()
    said = desk.type("verify", "--attest", digest, "--lock", "builder.lock")
    assert said.returncode == 0, said.stderr[-4000:]
    assert "passed: layer audit" in said.stderr
    return digest


def test_everything_runs_offline_as_the_agent_and_nothing_can_be_written(desk: Desk, built: str) -> None:
    """S-01: what was locked is what starts; what is on the PATH is what builder.toml names."""
    said = inside(
        desk,
        built,
        "uv --version; idna bücher.example; kit;"
        f"{greeting('/opt/mcp/fetch/run')}"
        "find /opt/mcp /opt/tools /opt/archives ! -type l \\( -writable -o ! -uid 0 \\) | head -3;"
        "find /opt/mcp /opt/tools -name '*.pyc' -o -name __pycache__ -o -name INSTALLER;"
        "find /opt/mcp /opt/tools -name direct_url.json;"
        "command -v mcp-server-fetch; cd /opt/archives/kit/kit-1.2; stat -c '%a %n' bin/kit share/words",
    )
    lines = said.splitlines()
    assert lines[0].startswith("uv 0.13.9")
    assert lines[1:3] == ["xn--bcher-kva.example", "it works"]
    assert json.loads(lines[3])["result"]["serverInfo"]["version"] == "2026.10.24"
    assert lines[4:] == ["755 bin/kit", "644 share/words"]


def test_a_second_cold_build_is_the_same_and_a_second_lock_too(desk: Desk, built: str) -> None:
    before = (desk.project / "builder.lock").read_bytes()
    desk.builder("lock")
    assert (desk.project / "builder.lock").read_bytes() == before
    assert desk.builder("build", "--no-cache").strip() == built


def test_outdated_knows_the_new_kinds(desk: Desk) -> None:
    pins = {pin["name"]: pin for pin in json.loads(desk.builder("outdated", "--json"))["pins"]}
    for name in ("toolchain.pypi.uv", "toolchain.pypi.idna", "mcp.fetch"):
        assert pins[name]["standing"] in ("current", "outdated", "ahead"), pins[name]
        assert pins[name]["newest"]


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (('uv = "0.13.9"', 'uv = "0.13.99999"'), ExitCode.PIN, ("toolchain.pypi.uv", "--upgrade")),
        (('idna = "3.20"', 'pywin32 = "306"'), ExitCode.PIN, ("pywin32==306", "no wheel", "linux/amd64")),
        (('idna = "3.20"', 'certifi = "2022.5.18"'), ExitCode.PIN, ("certifi 2022.5.18 is yanked",)),
        (('debian = ["python3"]\n', ""), ExitCode.USAGE, ("python3", 'debian = ["python3"]')),
    ],
)
def test_what_cannot_be_had_is_named(
    desk: Desk, built: str, change: tuple[str, str], code: ExitCode, said: tuple[str, ...]
) -> None:
    path = desk.project / "builder.toml"
    text = path.read_text()
    assert change[0] in text
    before = (desk.project / "builder.lock").read_bytes()
    try:
        path.write_text(text.replace(*change))
        refused(desk.type("lock"), code, *said)
    finally:
        path.write_text(text)
    assert (desk.project / "builder.lock").read_bytes() == before
    desk.builder("lock", "--check")


def test_a_credential_in_an_archive_stops_the_build(desk: Desk, built: str, tmp_path: Path) -> None:
    planted = {**KIT, "kit-1.2/share/notes": (b"see " + token() + b"\n", 0o644)}
    kit, sha256 = pack(tmp_path, planted)
    path, lock = desk.project / "builder.toml", desk.project / "builder.lock"
    text, locked = path.read_text(), lock.read_bytes()
    old = hashlib.sha256((desk.root / "kit.tar.gz").read_bytes()).hexdigest()
    try:
        path.write_text(text.replace(old, sha256))
        desk.builder("store", "add", str(kit))
        desk.builder("lock")
        done = desk.type("build")
        refused(done, ExitCode.CREDENTIAL, "anthropic-oauth", "opt/archives/kit/kit-1.2/share/notes")
        assert token().decode() not in done.stdout + done.stderr
    finally:
        path.write_text(text)
        lock.write_bytes(locked)
    assert desk.builder("build").strip() == built


def test_a_credential_in_a_wheel_stops_the_build(desk: Desk, built: str) -> None:
    """The wheel is another one than the index has; the lock says so, and the store has it."""
    path, store = desk.project / "builder.lock", ContentStore(desk.state / "store")
    locked = path.read_bytes()
    lock = parse_lock(locked)
    idna = next(one for one in lock.artifacts if one.name == "idna" and "idna" in dict(one.bins))
    with store.open(idna.integrity, "idna") as file:
        raw = io.BytesIO(file.read())
    with zipfile.ZipFile(raw, "a") as wheel:
        wheel.writestr("idna/notes.txt", b"see " + token() + b"\n")
    planted = Integrity("sha256", hashlib.sha256(raw.getvalue()).hexdigest())
    store.put(io.BytesIO(raw.getvalue()), planted, what="idna", limit=1 << 24)
    changed = replace(idna, integrity=planted, size=len(raw.getvalue()))
    artifacts = tuple(changed if one is idna else one for one in lock.artifacts)
    try:
        path.write_bytes(lock_bytes(replace(lock, artifacts=artifacts)))
        done = desk.type("build")
        place = "opt/tools/idna/lib/python3.11/site-packages/idna/notes.txt"
        refused(done, ExitCode.CREDENTIAL, "anthropic-oauth", place)
        assert token().decode() not in done.stdout + done.stderr
    finally:
        path.write_bytes(locked)
