"""One MCP server and one Skill beside one agent: locked, built, audited, started inside with no network."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from builder.bootstrap import Bootstrapped
from builder.building.base_check import read_base
from builder.resources import resource
from builder.state import State
from builder.storage.store import ContentStore
from images.digests import Digest
from images.errors import ExitCode
from images.lockfile import parse_lock
from images.render import render
from provenance.layout import open_image
from tests.fakes.credentials import token
from tests.fakes.locks import AMD64
from tests.real.accounting import unaccounted
from tests.real.desk import Desk, greeting, inside, make_desk
from tests.real.spine import ROOT, refused

pytestmark = pytest.mark.real

TOML = """\
schema = 1

[image]
name = "tests/kinds"
base = "debian-minimal@BASE"

[agents]
pi = "0.73.1"

[node]
version = "22.23.5"

[mcp]
filesystem = { npm = "@modelcontextprotocol/server-filesystem", version = "2026.8.31", args = ["/workspace"] }

[skills]
code-review = "skills/code-review"
"""


def skill_of(desk: Desk) -> Path:
    return desk.project / "skills/code-review"


@pytest.fixture(scope="module")
def desk(
    engine_name: str, kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> Desk:
    toml = TOML.replace("BASE", str(bootstrapped.base))
    made = make_desk(engine_name, kept_state, tmp_path_factory.mktemp("kinds"), toml)
    shutil.copytree(ROOT / "examples/full/skills", made.project / "skills")
    made.builder("lock")
    return made


@pytest.fixture(scope="module")
def built(desk: Desk) -> str:
    digest = desk.builder("build").strip()
    said = desk.type("verify", "--attest", digest, "--lock", "builder.lock")
    assert said.returncode == 0, said.stderr[-4000:]
    assert "passed: layer audit" in said.stderr
    return digest


def test_every_entry_is_accounted_for(desk: Desk, built: str) -> None:
    lock = parse_lock((desk.project / "builder.lock").read_bytes())
    base = open_image(desk.state / "layout", lock.base.image(AMD64).manifest, AMD64)
    context = render(lock, AMD64, resource("Containerfile.in").read_text(), read_base(base))
    image = open_image(desk.state / "layout", Digest(built), AMD64)
    below = len(base.manifest.layers)
    assert unaccounted(image, below, context, ContentStore(desk.state / "store")) == []


def test_the_server_answers_offline_and_no_agent_knows_of_it(desk: Desk, built: str) -> None:
    """S-01: it starts what was locked, resolves nothing, and is on for nobody."""
    answer = inside(desk, built, greeting("/opt/mcp/filesystem/run"))
    result = json.loads(answer.splitlines()[-1])
    assert result["id"] == 1
    assert "tools" in result["result"]["capabilities"]
    said = inside(
        desk,
        built,
        "grep -rsl /opt/mcp /etc /home /usr/local /opt/builder /opt/agents;"
        "command -v mcp-server-filesystem; find / -xdev -name .mcp.json;"
        "find /opt/mcp /opt/skills ! -type l \\( -writable -o ! -uid 0 \\) | head -3;"
        "stat -c '%a %n' /opt/skills/code-review/SKILL.md /opt/skills/code-review/scripts/*",
    )
    assert said.split("\n") == [
        "/etc/agent-image.json",
        "644 /opt/skills/code-review/SKILL.md",
        "755 /opt/skills/code-review/scripts/changed-files.sh",
        "",
    ]


def test_umask_and_owner_of_a_checkout_change_neither_lock_nor_key(desk: Desk, built: str) -> None:
    """CFG-11: another checkout of the same Skill is the same image, found without an engine."""
    before = (desk.project / "builder.lock").read_bytes()
    for path in (skill_of(desk), *skill_of(desk).rglob("*")):
        path.chmod(path.stat().st_mode & 0o700)
        if os.geteuid() == 0:
            os.chown(path, 1234, 4321)
    desk.builder("lock", "--check")
    desk.builder("lock")
    assert (desk.project / "builder.lock").read_bytes() == before
    assert desk.builder("build").strip() == built


def test_a_changed_skill_makes_the_lock_stale_and_a_credential_in_it_stops_everything(
    desk: Desk, built: str
) -> None:
    """CRD-04: nothing that lies there by accident is sent, and nothing is printed of it."""
    page = skill_of(desk) / "SKILL.md"
    text = page.read_text()
    try:
        page.write_text(text + "\nMore.\n")
        for words in (("lock", "--check"), ("build",)):
            refused(desk.type(*words), ExitCode.USAGE, "skills.code-review: SKILL.md changed")
        page.write_bytes(text.encode() + token())
        for words in (("lock",), ("lock", "--check"), ("build",)):
            done = desk.type(*words)
            refused(done, ExitCode.CREDENTIAL, "anthropic-oauth", "skills/code-review/SKILL.md")
            assert token().decode() not in done.stdout + done.stderr
    finally:
        page.write_text(text)
    (skill_of(desk) / ".env").write_text("A=b\n")
    try:
        refused(desk.type("lock"), ExitCode.USAGE, "skills/code-review/.env")
    finally:
        (skill_of(desk) / ".env").unlink()
    assert desk.builder("build").strip() == built
