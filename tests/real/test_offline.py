"""A team without a network: one archive, a fresh state, other keys; and collecting beside builds."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builder.bootstrap import Bootstrapped
from builder.state import State
from images.errors import ExitCode
from tests.fakes.tarballs import POSTINSTALL
from tests.real.tiny import BUILDER, Tiny, make_tiny
from tests.results import check

pytestmark = pytest.mark.real

# No interface but a loopback that is down; engines are reached by their sockets.
ALONE = ("unshare", "--net", "--")
SLOW = f"echo sleeping; sleep 15; {POSTINSTALL}"


@pytest.fixture(scope="module")
def tiny(
    engine_name: str, kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> Tiny:
    return make_tiny(engine_name, kept_state, bootstrapped, tmp_path_factory.mktemp("tiny"))


@dataclass(frozen=True)
class Handed:
    """What a member built and exported."""

    project: Path
    digest: str
    archive: Path


@pytest.fixture(scope="module")
def handed(tiny: Tiny) -> Handed:
    project = tiny.project("handed")
    built = tiny.builder("build", cwd=project)
    assert built.returncode == 0, built.stderr[-3000:]
    archive = tiny.root / "handed.tar"
    done = tiny.builder("store", "export", str(archive), "--json", cwd=project)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)["exported"]
    assert found["image"] == built.stdout.strip()
    assert found["evidence"] >= 4
    return Handed(project, found["image"], archive)


def mate_of(tiny: Tiny, root: Path) -> Tiny:
    """Somebody else: nothing of his is there yet."""
    root.mkdir()
    return Tiny(tiny.engine, root, tiny.bootstrapped)


def alone(mate: Tiny, *words: str, cwd: Path) -> dict[str, Any]:
    done = mate.builder(*words, "--json", cwd=cwd, prefix=ALONE)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def trust(tiny: Tiny, mate: Tiny) -> None:
    """What a team agrees on by other ways than an archive: whose builds are believed."""
    shutil.copy(tiny.config / "keys/builder.pub", mate.config / "keys/exporter.pub")
    text = (tiny.config / "policy.toml").read_text()
    (builder_id,) = re.findall(r'^builder_ids = \["(.+)"\]$', text, re.MULTILINE)
    policy = mate.config / "policy.toml"
    text = policy.read_text().replace("serial = 1\n", "serial = 2\n", 1)
    entry = f'role = "builder"\nkind = "key"\nkey = "keys/exporter.pub"\nbuilder_ids = ["{builder_id}"]\n'
    policy.write_text(f"{text}\n[[trust]]\n{entry}")


def test_a_teammate_without_a_network_verifies_builds_and_runs(
    tiny: Tiny, handed: Handed, tmp_path: Path
) -> None:
    mate = mate_of(tiny, tmp_path / "mate")
    project = mate.root / "project"
    shutil.copytree(handed.project, project)  # what the team's repository has
    interfaces = subprocess.run([*ALONE, "cat", "/proc/net/dev"], capture_output=True, text=True, check=True)
    assert [line.split(":")[0].strip() for line in interfaces.stdout.splitlines()[2:]] == ["lo"]

    came = alone(mate, "store", "import", str(handed.archive), cwd=project)["imported"]
    assert (came["image"], came["changed"]) == (handed.digest, True)
    mate.config.mkdir(mode=0o700)
    (mate.config / "settings.toml").write_text("schema = 1\n" + "\n".join(came["settings"]) + "\n")
    alone(mate, "init", str(project), "--unencrypted-keys", cwd=mate.root)
    assert mate.state_id != tiny.state_id

    # Nothing came with trust in it: the exporter's key is a stranger's until the policy says otherwise.
    before = mate.builder("verify", cwd=project, prefix=ALONE)
    assert before.returncode == ExitCode.VERIFY, before.stderr[-3000:]
    trust(tiny, mate)
    verified = alone(mate, "verify", "--attest", cwd=project)
    assert verified["verified"]
    assert verified["digest"] == handed.digest
    statuses = {check["id"]: check["status"] for check in verified["checks"]}
    assert statuses["audit"] == "passed"
    assert verified["attested"]

    known = alone(mate, "build", cwd=project)
    assert (known["digest"], known["reused"]) == (handed.digest, True)
    again = alone(mate, "build", "--no-cache", cwd=project)
    assert (again["digest"], again["reused"]) == (handed.digest, False)
    ran = mate.builder("run", "--agent", "claude-code", cwd=project, prefix=ALONE)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout == "2.1.328 (Claude Code)\n"
    assert not alone(mate, "store", "import", str(handed.archive), cwd=project)["imported"]["changed"]
    assert mate.containers() == []
    assert mate.staged() == []


def test_a_disk_that_is_full_in_the_middle(handed: Handed, tmp_path: Path) -> None:
    """On a disk of its own, in a mount namespace: exit 9, and nothing of it is left there."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = (
        'mount -t tmpfs -o size=24m,mode=700 tmpfs "$1" && code=0; shift\n'
        '"$@" || code=$?\n'
        f'find "{disk}" -type f -size +64k; exit $code'
    )
    command = [str(BUILDER), "store", "import", str(handed.archive), "--state", str(disk / "state")]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(disk), *command, "--config-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == ExitCode.STATE, done.stderr[-3000:]
    assert "No space left on device" in done.stderr
    assert "hint: df -h" in done.stderr
    assert done.stdout == ""


def test_builds_with_shared_artifacts_beside_a_collection_that_spares_nothing(tiny: Tiny) -> None:
    """Two keys at once, most artifacts shared; `builder gc` without a grace starts in the middle of both."""
    one, two = tiny.project("one", script=SLOW), tiny.project("two", script=f"{SLOW}; true")
    loose = tiny.state / "store/sha256/00" / ("0" * 62)
    loose.parent.mkdir(parents=True, exist_ok=True)
    loose.write_bytes(b"nobody's")
    with contextlib.ExitStack() as opened:
        said = [opened.enter_context((project / "said").open("w")) for project in (one, two)]
        builds = [
            opened.enter_context(
                subprocess.Popen(
                    tiny.argv("build", "--json", "--verbose"),
                    cwd=project,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                )
            )
            for project, stderr in zip((one, two), said, strict=True)
        ]
        until = time.monotonic() + 240
        while not all("sleeping" in (project / "said").read_text() for project in (one, two)):
            assert time.monotonic() < until
            assert all(build.poll() in (None, 0) for build in builds)
            time.sleep(0.05)
        collected = tiny.builder("gc", "--grace", "0", "--keep", "0", "--json", cwd=one)
        assert collected.returncode == 0, collected.stderr[-3000:]
        assert "somebody works in this state just now" in collected.stderr
        # It waited for both, so both are at their end by now, or nearly.
        answers = [check(json.loads(build.communicate(timeout=120)[0])) for build in builds]
        assert [build.returncode for build in builds] == [0, 0]
        assert answers[0]["digest"] != answers[1]["digest"]
    removed = json.loads(collected.stdout)["gc"]["removed"]
    assert not loose.exists()
    assert "artifact" in {item["thing"] for item in removed}
    # The projects' locks hold image, artifacts and base: everything is still proved, audit included.
    for project, answer in zip((one, two), answers, strict=True):
        done = tiny.builder("verify", "--json", cwd=project)
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout)["digest"] == answer["digest"]
    again = tiny.builder("gc", "--grace", "0", "--keep", "0", "--json", cwd=one)
    assert json.loads(again.stdout)["gc"]["removed"] == []
    assert tiny.containers() == []
    assert tiny.staged() == []
