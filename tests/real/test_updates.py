"""Moving pins against the real registry: what is newer, both files moved, a vanished pin, two real images."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.digests import Digest
from images.errors import ExitCode
from provenance.layout import blob_path
from tests.real.layouts import copy_state
from tests.real.registry import Registry, serving
from tests.real.spine import ROOT, Spine, refused

pytestmark = pytest.mark.real

OLD = "0.73.0"  # of Pi: still there, and not the newest


@pytest.fixture(scope="module")
def state(spine: Spine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy whose store and leases these tests may fill."""
    parent = tmp_path_factory.mktemp("updates", numbered=True)
    copy = parent / "state" / "agent-image-builder"
    copy.parent.mkdir(mode=0o700)
    copy_state(spine.state, copy)
    yield copy
    shutil.rmtree(parent)


@pytest.fixture
def project(spine: Spine, tmp_path: Path) -> Path:
    """Only Pi, at an older version, with a comment beside it; no lock."""
    text = (spine.project / "builder.toml").read_text()
    for name in ("claude-code", "opencode"):
        text = re.sub(rf"^{name} = .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^agent = .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^install-scripts = .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r'^pi = "[^"]*"', f'pi = "{OLD}"  # the small one', text, flags=re.MULTILINE)
    (tmp_path / "builder.toml").write_text(text)
    return tmp_path


def pinned(project: Path) -> str:
    return str(tomllib.loads((project / "builder.toml").read_text())["agents"]["pi"])


def test_a_pin_moves_with_its_lock_and_the_difference_is_shown(
    spine: Spine, state: Path, project: Path
) -> None:
    locked = spine.builder("lock", cwd=project, state=state)
    assert locked.returncode == 0, locked.stderr[-2000:]
    shutil.copy(project / "builder.lock", project / "before.lock")

    told = spine.builder("outdated", "--json", cwd=project, state=state)
    assert told.returncode == 0, told.stderr[-2000:]
    pins = {pin["name"]: pin for pin in json.loads(told.stdout)["pins"]}
    assert set(pins) == {"pi", "node", "base"}
    assert (pins["pi"]["pinned"], pins["pi"]["standing"]) == (OLD, "outdated")
    assert pins["node"]["newest"].startswith("22.")
    assert pins["base"]["standing"] == "current"
    assert json.loads(told.stdout)["warnings"] == []

    before = (project / "builder.toml").read_text()
    moved = spine.builder("lock", "--upgrade", "pi", cwd=project, state=state)
    assert moved.returncode == 0, moved.stderr[-2000:]
    newest = pins["pi"]["newest"]
    assert (project / "builder.toml").read_text() == before.replace(f'"{OLD}"', f'"{newest}"')
    assert spine.builder("lock", "--check", cwd=project, state=state).returncode == 0

    shown = spine.builder("diff", "before.lock", "builder.toml", cwd=project, state=state)
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert f"~ npm @mariozechner/pi-coding-agent {OLD} -> {newest}" in shown.stdout.splitlines()
    assert f"~ agents.pi: {OLD} -> {newest}" in shown.stdout.splitlines()


def test_a_vanished_pin_is_named_and_the_script_moves_it(spine: Spine, state: Path, project: Path) -> None:
    path = project / "builder.toml"
    text = path.read_text().replace(f'"{OLD}"', '"0.73.999"')
    text = re.sub(r"debian-minimal@sha256:[0-9a-f]{64}", "debian-minimal@sha256:" + "0" * 64, text)
    path.write_text(text)
    gone = spine.builder("lock", "--json", cwd=project, state=state)
    refused(gone, ExitCode.PIN)
    error = json.loads(gone.stdout)["error"]
    assert (error["reason"], error["pin"]) == ("not-found", "base")
    assert path.read_text() == text
    assert not (project / "builder.lock").exists()

    done = subprocess.run(
        [
            str(ROOT / "tools/lock-or-upgrade"),
            "--engine",
            spine.engine,
            "--state",
            str(state),
            "--config-dir",
            str(spine.config),
        ],
        cwd=project,
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.fullmatch(r"sha256:[0-9a-f]{64}\n", done.stdout)
    assert "the pin of base in " in done.stderr
    assert "the pin of pi in " in done.stderr
    assert pinned(project) not in (OLD, "0.73.999")
    assert "# the small one" in path.read_text()
    assert spine.builder("lock", "--check", cwd=project, state=state).returncode == 0


def test_an_upgrade_that_cannot_be_locked_changes_nothing(spine: Spine, state: Path, project: Path) -> None:
    before = (project / "builder.toml").read_text()
    failed = spine.builder("lock", "--upgrade", "pi=0.73.999", cwd=project, state=state)
    refused(failed, ExitCode.PIN, "agents.pi", "--upgrade pi")
    assert (project / "builder.toml").read_text() == before
    assert [path.name for path in project.iterdir()] == ["builder.toml"]


def test_cfg_06_a_tag_that_moved_on_is_said_and_the_pin_stays(
    spine: Spine, state: Path, project: Path
) -> None:
    path = project / "builder.toml"
    (digest,) = re.findall(r"debian-minimal@(sha256:[0-9a-f]{64})", path.read_text())
    with serving(state / "layout") as registry:
        named = f"{registry.address}/team/base:12@{digest}"
        path.write_text(path.read_text().replace(f"debian-minimal@{digest}", named))
        before = path.read_text()
        raw = blob_path(state / "layout", Digest(digest)).read_bytes()
        base, warnings = told_of_base(spine, state, project, registry, raw)
        assert (base["standing"], base["note"]) == ("current", "")
        base, warnings = told_of_base(spine, state, project, registry, raw + b" ")
        assert (base["standing"], base["newest"]) == ("outdated", str(Digest.of(raw + b" ")))
        assert any("names another image now" in warning for warning in warnings)
    assert path.read_text() == before


def told_of_base(
    spine: Spine, state: Path, project: Path, registry: Registry, raw: bytes
) -> tuple[dict[str, str], list[str]]:
    """What ``outdated`` says when the tag names these bytes."""
    registry.answers["/manifests/12"] = (200, {}, raw)
    told = spine.builder("outdated", "--json", cwd=project, state=state)
    assert told.returncode == 0, told.stderr[-2000:]
    document = json.loads(told.stdout)
    return next(pin for pin in document["pins"] if pin["name"] == "base"), document["warnings"]


def test_the_base_against_the_image_that_stands_on_it(spine: Spine) -> None:
    base = json.loads((spine.project / "builder.lock").read_text())["base"]["requested"]
    shown = spine.builder("diff", base, spine.digest, "--json")
    assert shown.returncode == 0, shown.stderr[-2000:]
    image = json.loads(shown.stdout)["diff"]["image"]
    assert image["layers"]["removed"] == []
    assert image["layers"]["kept"]
    files = {change["field"]: change for change in image["files"]}
    assert files["etc/agent-image.json"]["before"] is None
    assert "user" in {change["field"] for change in image["fields"]}
    assert json.loads(spine.builder("diff", spine.digest, spine.digest, "--json").stdout)["diff"]["same"]
