"""The README's first command, and then each way in which its result can be changed: refused by name."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.errors import ExitCode
from provenance.checks import CheckId
from tests.real.conftest import Evidence
from tests.real.layouts import copy_state, referrer_blobs, replace_blob
from tests.real.spine import BUILDER, Spine, refused

pytestmark = pytest.mark.real


@pytest.fixture
def copy(spine: Spine, tmp_path: Path) -> Iterator[Path]:
    """A copy of the state that a test may damage."""
    target = tmp_path / "state"
    copy_state(spine.state, target)
    yield target
    shutil.rmtree(target)


@pytest.fixture
def project(spine: Spine, tmp_path: Path) -> Path:
    """A copy of the project that a test may edit."""
    return Path(shutil.copytree(spine.project, tmp_path / "project"))


@pytest.fixture
def config(spine: Spine, tmp_path: Path) -> Path:
    """A copy of policy, settings and keys that a test may edit."""
    return Path(shutil.copytree(spine.config, tmp_path / "config"))


def containers(spine: Spine) -> str:
    """Of this state root alone: others on this machine are none of our business."""
    state_id = (spine.state / "state-id").read_text().split()[0]
    listed = subprocess.run(
        [spine.engine, "ps", "-aq", "--filter", f"label=agent-image-builder.state={state_id}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout


@pytest.fixture(autouse=True)
def nothing_is_left(spine: Spine) -> Iterator[None]:
    yield
    assert containers(spine) == ""


# -- the main job


def test_the_readme_command_shows_three_versions_from_inside_and_the_refusal(spine: Spine) -> None:
    for version in ("2.1.328 (Claude Code)", "uid=1000(agent)"):
        assert version in spine.output
    assert "mode: " in spine.output
    assert "not-verified" in spine.output
    assert "a changed copy refused" in spine.output


def test_verify_numbers_its_checks_and_counts_none_that_was_not_made(spine: Spine) -> None:
    done = spine.builder("verify", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found["verified"] is True
    assert [check["number"] for check in found["checks"]] == [int(one) for one in CheckId]
    states = {check["id"]: check["status"] for check in found["checks"]}
    assert states["rebuilds"] == "not performed"
    assert states["audit"] == states["content"] == states["scan"] == states["signature"] == "passed"


def test_the_exit_code_of_run_is_the_commands_own(spine: Spine) -> None:
    assert spine.builder("run", "--", "sh", "-c", "exit 7").returncode == 7
    assert spine.builder("run", "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_a_missing_command_is_ours_to_say(spine: Spine) -> None:
    refused(spine.builder("run", "--", "no-such-command"), ExitCode.RUN_FAILED, "command-missing")


def test_an_agent_is_run_by_its_launcher(spine: Spine) -> None:
    done = spine.builder("run", "--agent", "opencode", "--", "--version")
    assert (done.returncode, done.stdout.strip()) == (0, "1.18.33")


def test_what_reaches_standard_output_is_data_only(spine: Spine) -> None:
    done = spine.builder("run", spine.digest, "--lock", "builder.lock", "--", "printf", "a\\0b")
    assert done.stdout == "a\0b"


def test_for_programs_run_says_last_what_it_was(spine: Spine) -> None:
    done = spine.builder("run", "--json", "--", "sh", "-c", "printf 'a\n{}'; exit 7")
    *said, last = done.stdout.splitlines()
    assert (done.returncode, said) == (7, ["a", "{}"])
    found = json.loads(last)
    assert (found["ok"], found["exit_code"], found["image"]) == (True, 7, spine.digest)
    (shown,) = json.loads(spine.builder("show", found["launch"], "--json").stdout)["launches"]
    assert (shown["launch"]["exit_code"], shown["launch"]["statement"]) == (7, found["statement"])
    late = spine.builder("run", "--json", "--deadline", "1s", "--", "sh", "-c", "printf late; sleep 60")
    *said, last = late.stdout.splitlines()
    assert (late.returncode, said) == (ExitCode.RUN_FAILED, ["late"])
    assert json.loads(last)["error"]["reason"] == "deadline"
    plan = json.loads(spine.builder("run", "--dry-run", "--json", "--", "true").stdout)["plan"]
    assert (plan["class"], plan["command"][-1]) == ("execute", "true")


def test_each_verb_that_looks_has_a_schema_here(spine: Spine) -> None:
    """What is printed is held against it wherever a command is typed; some answers are bad ones."""
    for words in (
        ("show", spine.digest),
        ("build",),
        ("lock", "--check"),
        ("scan", spine.digest),
        ("ps",),
        ("runs",),
    ):
        assert json.loads(spine.builder(*words, "--json").stdout)["ok"], words
    examined = spine.builder("doctor", "--json")
    found = json.loads(examined.stdout)
    assert found["ok"] is found["required_mode"] is (examined.returncode == 0)


def without_a_network(spine: Spine, script: str) -> str:
    """What a script prints with no interface at all; the engine's socket is a file, and reachable."""
    words = ["--state", str(spine.state), "--config-dir", str(spine.config), "--engine", spine.engine]
    alone = "mount -t sysfs sysfs /sys; test \"$(ls /sys/class/net | tr -d '\\n')\" = lo"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", f"{alone} && {script}", str(BUILDER), *words],
        cwd=spine.project,
        env={**os.environ, "TZ": "Pacific/Kiritimati", "DIGEST": spine.digest},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_nothing_after_the_build_needs_a_network(spine: Spine) -> None:
    """Of the full image. That the build needs none either is shown by a small one in test_offline.py."""
    said = without_a_network(
        spine, '"$0" verify "$@" && "$0" run "$@" -- claude --version && "$0" scan "$DIGEST" "$@"'
    )
    assert "2.1.328 (Claude Code)" in said


@pytest.mark.long
def test_two_builds_are_one_image_and_nothing_after_fetch_needs_a_network(
    spine: Spine, evidence: Evidence
) -> None:
    """Cold both times: the build container keeps nothing. Another umask and time zone change nothing."""
    without_a_network(
        spine,
        'umask 077 && test "$("$0" build --no-cache "$@")" = "$DIGEST" && "$0" verify --attest "$@"',
    )
    evidence(f"{spine.engine}: full image {spine.digest}, built cold twice, verified")


# -- what was changed


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(bytes(content))


def manifest_of(state: Path, digest: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(blob(state, digest).read_bytes())
    return found


def blob(state: Path, digest: str) -> Path:
    return state / "layout/blobs/sha256" / digest.removeprefix("sha256:")


def damaged_layer(state: Path, digest: str) -> None:
    flip(blob(state, manifest_of(state, digest)["layers"][-2]["digest"]))  # type: ignore[index]


def damaged_base_layer(state: Path, digest: str) -> None:
    flip(blob(state, manifest_of(state, digest)["layers"][0]["digest"]))  # type: ignore[index]


def damaged_config(state: Path, digest: str) -> None:
    flip(blob(state, manifest_of(state, digest)["config"]["digest"]))  # type: ignore[index]


def damaged_manifest(state: Path, digest: str) -> None:
    flip(blob(state, digest))


def missing_layer(state: Path, digest: str) -> None:
    blob(state, manifest_of(state, digest)["layers"][-2]["digest"]).unlink()  # type: ignore[index]


def damaged_bundles(state: Path, digest: str) -> None:
    for path in referrer_blobs(state / "layout", digest):
        flip(path)


def truncated_index(state: Path, _digest: str) -> None:
    index = state / "layout/index.json"
    index.write_bytes(index.read_bytes()[:-20])


@pytest.mark.parametrize(
    "damage",
    [
        damaged_layer,
        damaged_base_layer,
        damaged_config,
        damaged_manifest,
        missing_layer,
        damaged_bundles,
    ],
)
def test_a_changed_image_is_neither_verified_nor_launched(
    spine: Spine, copy: Path, damage: Callable[[Path, str], None]
) -> None:
    damage(copy, spine.digest)
    words = (spine.digest, "--lock", "builder.lock")
    refused(spine.builder("verify", *words, state=copy), ExitCode.VERIFY)
    refused(spine.builder("run", *words, "--", "true", state=copy), ExitCode.RUN_FAILED, "not-verified")
    dry = spine.builder("run", *words, "--dry-run", "--", "true", state=copy)
    refused(dry, ExitCode.REFUSED)


def test_a_damaged_index_is_damaged_state_for_every_verb(spine: Spine, copy: Path) -> None:
    truncated_index(copy, spine.digest)
    words = (spine.digest, "--lock", "builder.lock")
    refused(spine.builder("verify", *words, state=copy), ExitCode.STATE, "index.json")
    refused(spine.builder("build", state=copy), ExitCode.STATE, "index.json")
    refused(spine.builder("run", *words, "--dry-run", "--", "true", state=copy), ExitCode.STATE)
    refused(spine.builder("run", *words, "--", "true", state=copy), ExitCode.RUN_FAILED, "reason: state")


def test_a_signed_statement_that_was_rewritten_does_not_count(spine: Spine, copy: Path) -> None:
    """The layout is whole again after the change: only the signature tells."""
    for path in referrer_blobs(copy / "layout", spine.digest):
        bundle = json.loads(path.read_bytes())
        if "dsseEnvelope" in bundle:
            signature = bundle["dsseEnvelope"]["signatures"][0]["sig"]
            bundle["dsseEnvelope"]["signatures"][0]["sig"] = signature[::-1].lstrip(
                "="
            ) + "=" * signature.count("=")
            replace_blob(copy / "layout", spine.digest, path, json.dumps(bundle).encode())
    refused(spine.builder("verify", spine.digest, "--lock", "builder.lock", state=copy), ExitCode.VERIFY)


def test_a_damaged_ledger_is_named_with_the_way_out(spine: Spine, copy: Path) -> None:
    (copy / "ledger.sqlite").write_bytes(b"not a database" * 100)
    refused(spine.builder("verify", state=copy), ExitCode.STATE, "ledger.sqlite")


def test_a_lying_ledger_proves_nothing(spine: Spine, copy: Path) -> None:
    """Another digest under our key: the base image has no evidence."""
    lock = json.loads((spine.project / "builder.lock").read_text())
    base = lock["base"]["requested"]
    with sqlite3.connect(copy / "ledger.sqlite") as database:
        assert database.execute("UPDATE image SET digest = ?", (base,)).rowcount >= 1
    refused(spine.builder("verify", state=copy), ExitCode.VERIFY)
    refused(spine.builder("run", "--", "true", state=copy), ExitCode.RUN_FAILED, "not-verified")


# -- lock and configuration


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_no_lock(spine: Spine, project: Path) -> None:
    (project / "builder.lock").unlink()
    for words in (("build",), ("verify",), ("lock", "--check")):
        refused(spine.builder(*words, cwd=project), ExitCode.USAGE, "builder.lock", "hint: builder lock")
    assert not (project / "builder.lock").exists()


def test_a_stale_lock_names_what_changed(spine: Spine, project: Path) -> None:
    edit(project / "builder.toml", 'opencode = "1.18.33"', 'opencode = "1.18.32"')
    before = (project / "builder.lock").read_bytes()
    for words in (("build",), ("lock", "--check")):
        refused(spine.builder(*words, cwd=project), ExitCode.USAGE, "agents.opencode", "hint: builder lock")
    assert (project / "builder.lock").read_bytes() == before


def test_an_edited_lock_is_refused(spine: Spine, project: Path) -> None:
    edit(project / "builder.lock", '"sha512:', '"sha512: ')
    refused(spine.builder("build", cwd=project), ExitCode.USAGE, "builder.lock")


def test_a_wrong_hash_in_the_lock_is_another_lock(spine: Spine, project: Path) -> None:
    """Canonical, but one digit of one integrity differs: the image is not of it, and the fetch is refused."""
    text = (project / "builder.lock").read_text()
    found = re.search(r'"sha512:([0-9a-f])', text)
    assert found
    other = "0" if found[1] != "0" else "1"
    (project / "builder.lock").write_text(text[: found.start(1)] + other + text[found.end(1) :])
    refused(spine.builder("verify", spine.digest, "--lock", str(project / "builder.lock")), ExitCode.VERIFY)
    refused(spine.builder("build", cwd=project), ExitCode.PIN, "not those that were pinned")


@pytest.mark.parametrize(
    "version", ["latest", "^1.18.0", "1.x", "*", "https://example.test/x.tgz", "file:../x"]
)
def test_only_exact_versions(spine: Spine, project: Path, version: str) -> None:
    edit(project / "builder.toml", "1.18.33", version)
    refused(spine.builder("lock", cwd=project), ExitCode.USAGE, "agents.opencode", "line")


def test_a_run_that_asks_for_more_network_than_the_policy_is_refused(spine: Spine, project: Path) -> None:
    edit(project / "builder.toml", "allow = []", 'allow = ["api.example.test:443"]')
    refused(spine.builder("run", "--", "true", cwd=project), ExitCode.RUN_FAILED, "network-ceiling")


# -- policy


def test_no_expectation_in_required_mode(spine: Spine, config: Path) -> None:
    edit(config / "policy.toml", 'mode = "development"', 'mode = "required"')
    refused(spine.builder("verify", spine.digest, config=config), ExitCode.VERIFY, "--lock")


def test_required_mode_refuses_a_rootful_engine(spine: Spine, config: Path, copy: Path) -> None:
    edit(config / "policy.toml", 'mode = "development"', 'mode = "required"')
    edit(config / "policy.toml", "serial = 1", "serial = 2")
    words = ("run", "--dry-run", "--", "true")
    attested = spine.builder("verify", "--attest", config=config, state=copy)
    assert attested.returncode == 0, attested.stderr[-2000:]
    refused(spine.builder(*words, config=config, state=copy), ExitCode.REFUSED, "its daemon runs as root")


def test_a_policy_under_the_project_is_refused(spine: Spine, project: Path) -> None:
    shutil.copytree(spine.config, project / "policy")
    refused(spine.builder("verify", config=project / "policy", cwd=project), ExitCode.USAGE, "approve itself")


def test_a_policy_that_others_can_write_is_refused(spine: Spine, config: Path) -> None:
    (config / "policy.toml").chmod(0o666)
    refused(spine.builder("verify", config=config), ExitCode.USAGE, "policy.toml", "chmod")


def test_a_policy_that_does_not_trust_the_engines_store_has_it_hashed_once(
    spine: Spine, config: Path, copy: Path
) -> None:
    edit(config / "policy.toml", "serial = 1\n", 'serial = 2\nengine_store = "rehash"\n')
    attested = spine.builder("verify", "--attest", config=config, state=copy)
    assert attested.returncode == 0, attested.stderr[-2000:]
    said = []
    for _ in range(2):
        done = spine.builder("run", "--", "true", config=config, state=copy)
        assert done.returncode == 0, done.stderr[-2000:]
        said.append("hash again what docker holds of the image" in done.stderr)
    assert said == [True, False]


def test_a_policy_of_a_stranger_believes_nothing_of_ours(spine: Spine, config: Path) -> None:
    """New keys, so that no signature of ours is by a trusted key."""
    shutil.rmtree(config / "keys")
    policy = (config / "policy.toml").read_text()
    (config / "policy.toml").unlink()
    fresh = spine.builder("init", "--unencrypted-keys", config=config)
    assert fresh.returncode == 0, fresh.stderr
    assert (config / "policy.toml").read_text() != policy
    refused(spine.builder("verify", config=config), ExitCode.VERIFY)
    refused(spine.builder("run", "--", "true", config=config), ExitCode.RUN_FAILED, "not-verified")


def test_an_older_policy_is_refused(spine: Spine, config: Path, copy: Path) -> None:
    edit(config / "policy.toml", "serial = 1", "serial = 5")
    attested = spine.builder("verify", "--attest", config=config, state=copy)
    assert attested.returncode == 0, attested.stderr[-2000:]
    assert spine.builder("run", "--", "true", config=config, state=copy).returncode == 0
    edit(config / "policy.toml", "serial = 5", "serial = 4")
    refused(spine.builder("verify", config=config, state=copy), ExitCode.VERIFY, "serial")


def test_nothing_of_ours_is_privileged(spine: Spine) -> None:
    """From inside a launch: no capability, no privileges to gain, no network, a read-only root, our uid."""
    script = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; ls /sys/class/net; touch /x 2>&1; id -u"
    done = spine.builder("run", "--", "sh", "-c", script)
    for line in ("CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"):
        assert line in done.stdout
    assert "NoNewPrivs:\t1" in done.stdout
    assert "Seccomp:\t2" in done.stdout
    assert "Read-only file system" in done.stdout
    assert done.stdout.split()[-1] == "1000"
