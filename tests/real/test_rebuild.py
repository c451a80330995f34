"""The same lock gives the same digest wherever it is built, and a policy can ask that others confirmed it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from builder.bootstrap import Bootstrapped
from builder.state import State
from images.errors import ExitCode
from tests.conftest import products_asked
from tests.fakes.tarballs import POSTINSTALL
from tests.real.layouts import referrer_blobs
from tests.real.tiny import ELSEWHERE, TONGUE, Tiny, make_tiny

pytestmark = pytest.mark.real


# One more file at another place each time, whose content nobody can object to: it is a locked one.
UNSTEADY = f"{POSTINSTALL} && ln package.json bin/$(cat /proc/sys/kernel/random/uuid)"


@pytest.fixture(scope="module")
def tiny(
    engine_name: str, kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> Tiny:
    return make_tiny(engine_name, kept_state, bootstrapped, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def built(tiny: Tiny) -> Path:
    """A built project, whose image nobody changes."""
    project = tiny.project("steady")
    assert tiny.builder("build", cwd=project).returncode == 0
    return project


def asking(tiny: Tiny, count: int, serial: int) -> Path:
    """A configuration whose policy asks for rebuilds."""
    config = tiny.root / f"config-{serial}"
    shutil.copytree(tiny.config, config)
    policy = config / "policy.toml"
    policy.write_text(policy.read_text().replace("serial = 1", f"serial = {serial}\nmin_rebuilds = {count}"))
    return config


def test_a_rebuild_elsewhere_is_the_same_and_its_statement_counts(
    tiny: Tiny, built: Path, request: pytest.FixtureRequest
) -> None:
    config = asking(tiny, 1, 2)
    done = tiny.builder("verify", cwd=built, config=config)
    assert done.returncode == ExitCode.VERIFY
    assert "check 18 (rebuilt by others) failed: 0 of 1 asked for" in done.stderr
    assert "hint: builder verify --sign-rebuild sha256:" in done.stderr
    # A build cannot supply it, so it is not made again for that.
    again = tiny.builder("build", "--json", cwd=built, config=config)
    assert json.loads(again.stdout)["reused"] is True

    done = tiny.builder(
        *("verify", "--sign-rebuild", "--json"),
        cwd=built,
        config=config,
        prefix=ELSEWHERE,
        environment={**os.environ, **TONGUE},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert answer["digest"] == json.loads(again.stdout)["digest"]
    assert answer["rebuilt"]["engine"].startswith(tiny.engine)
    assert answer["rebuilt"]["statement"].startswith("sha256:")
    check = answer["checks"][17]
    assert (check["id"], check["status"]) == ("rebuilds", "passed")
    assert check["message"].startswith("1 of 1 asked for by sha256:")
    for other in products_asked(request.config):
        if other != tiny.engine:
            done = tiny.builder("verify", "--rebuild", cwd=built, config=config, engine=other)
            assert done.returncode == 0, done.stderr[-3000:]
            assert f"rebuilt: the same digest, {answer['digest']}" in done.stderr
    assert tiny.containers() == []
    assert tiny.staged() == []


def test_a_build_that_is_another_each_time_is_named_and_not_signed(tiny: Tiny) -> None:
    """BLD-12: not hidden, not retried, and not only 'differs': which layer, which path, what of it."""
    project = tiny.project("unsteady", script=UNSTEADY)
    digest = tiny.builder("build", cwd=project).stdout.strip()
    before = list(referrer_blobs(tiny.state / "layout", digest))
    images = len(json.loads((tiny.state / "layout/index.json").read_bytes())["manifests"])
    done = tiny.builder("verify", "--sign-rebuild", "--json", cwd=project)
    assert done.returncode == ExitCode.VERIFY
    error = json.loads(done.stdout)["error"]
    assert error["reason"] == "rebuild-differs"
    what = error["what"]
    home = "opt/agents/claude-code/node_modules/@anthropic-ai/claude-code/bin/"
    name = "[0-9a-f-]{36}"
    assert re.search(rf"\n  layer 3: sha256:\w+, then sha256:\w+\n    [+-] {home}{name}", what), what
    assert len(re.findall(rf"\n    [+-] {home}{name}", what)) == 2
    assert what.count("\n  layer") == 1
    assert list(referrer_blobs(tiny.state / "layout", digest)) == before
    assert len(json.loads((tiny.state / "layout/index.json").read_bytes())["manifests"]) == images
    assert tiny.containers() == []
    assert tiny.staged() == []


def test_what_is_not_verified_is_not_built_again(tiny: Tiny, built: Path) -> None:
    both = tiny.builder("verify", "--attest", "--sign-rebuild", cwd=built)
    assert both.returncode == ExitCode.USAGE
    missing = tiny.builder("verify", "--rebuild", cwd=tiny.project("never", script=f"true; {POSTINSTALL}"))
    assert missing.returncode == ExitCode.USAGE
    assert "no image of this lock was built here" in missing.stderr
    # The same lock, so the same image; but nobody signed that it is this one.
    other = tiny.builder("verify", "--rebuild", cwd=tiny.project("stranger"))
    assert other.returncode == ExitCode.VERIFY
    assert "warning: not built again: the image is not verified" in other.stderr
    assert "expected 'team/stranger'" in other.stderr
    assert "build …" not in other.stderr
