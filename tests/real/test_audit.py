"""The layer audit on the real image: all of it accounted for, and a builder that lies is found out."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import zstandard

from builder.bootstrap import Bootstrapped
from builder.building.base_check import read_base
from builder.resources import resource
from builder.state import State, open_state
from builder.storage.store import ContentStore
from images.digests import Digest
from images.errors import ExitCode
from images.key import content_key, summarise
from images.lock import Lock
from images.lockfile import parse_lock
from images.oci import MEDIA_CONFIG, MEDIA_LAYER_ZSTD, OciImage
from images.render import LABEL_KEY, BuildContext, render
from provenance.audit.report import DifferenceKind, Origin
from provenance.audit.run import audit_image
from provenance.keys import PrivateKey, load_private_key
from provenance.layout import Rehash, list_images, open_image, open_layer
from provenance.layout_writing import add_manifest, write_blob
from provenance.policy import load_policy
from provenance.policy_model import Role
from provenance.referrers import add_lock, add_referrer
from provenance.scan.accept import accept
from provenance.signing import sign
from provenance.statements import BuildFacts, detection_statement, provenance_statement, scan_statement
from tests.fakes.audited import Made, entry_bytes
from tests.fakes.locks import AMD64
from tests.fakes.proved import BUILT, detected, report_on
from tests.real.conftest import ROOT
from tests.real.layouts import copy_state
from tests.real.tiny import make_tiny
from tests.results import check_printed

pytestmark = pytest.mark.real

BUILDER = Path(sys.executable).with_name("builder")
PROJECT = ROOT / ".state/project"
CONFIG = ROOT / ".state/config/agent-image-builder"


@dataclass(frozen=True)
class Real:
    """The image of the kept project's lock, and what it was rendered from."""

    state: State
    lock: Lock
    context: BuildContext
    image: OciImage


@pytest.fixture(scope="module")
def real(kept_state: State) -> Real:
    lock = parse_lock((PROJECT / "builder.lock").read_bytes())
    base = open_image(kept_state.layout, lock.base.image(AMD64).manifest, AMD64)
    context = render(lock, AMD64, resource("Containerfile.in").read_text(), read_base(base))
    images = [
        open_image(kept_state.layout, one.digest, rehash=Rehash.BYTES)
        for one in list_images(kept_state.layout)
    ]
    built = [one for one in images if dict(one.settings.labels).get(LABEL_KEY) == content_key(lock, AMD64)]
    assert built, "no image of the kept project's lock: run the README's first command"
    return Real(kept_state, lock, context, built[0])


@pytest.fixture
def copy(real: Real, tmp_path: Path) -> Iterator[Path]:
    """A copy of the state that a test may damage."""
    target = tmp_path / "state"
    copy_state(real.state.root, target)
    yield target
    shutil.rmtree(target)


def verify(state: Path, digest: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(BUILDER), "verify", digest, "--lock", str(PROJECT / "builder.lock"), *words]
    done = subprocess.run(
        [*argv, "--state", str(state), "--config-dir", str(CONFIG)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    check_printed(words, done.stdout)
    return done


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    return {check["id"]: check for check in json.loads(done.stdout)["checks"]}


def test_every_entry_of_the_real_image_has_an_origin(real: Real) -> None:
    store = ContentStore(real.state.store)
    report = audit_image(
        real.image,
        real.lock.base.image(AMD64),
        real.context,
        lambda artifact: store.open(artifact.integrity, artifact.id),
    )
    assert report.differences == ()
    assert report.ok
    counts = dict(report.origins)
    assert counts.keys() == set(Origin) - {Origin.REPLAYED}  # it has no toolchain
    assert counts[Origin.ARTIFACT] > 10_000
    assert report.entries == sum(counts.values())
    assert {placed.script.rpartition("@")[0] for placed in report.scripts} == {
        "npm:@anthropic-ai/claude-code",
        "npm:opencode-ai",
    }


def test_names_that_need_records_come_out_of_the_real_build_as_expected(
    engine_name: str, kept_state: State, bootstrapped: Bootstrapped, tmp_path: Path
) -> None:
    """Long and foreign names, empty files, odd modes: BuildKit's tar is what the strict reader expects."""
    long = "/".join(["a-rather-long-directory-name"] * 9)
    files = {
        f"package/{long}/index.js": (b"long\n", 0o644),
        f"package/{'n' * 200}": (b"", 0o600),
        "package/grüße/日本語.txt": (b"foreign\n", 0o444),
        "package/run me": (b"#!/bin/sh\n", 0o711),
    }
    tiny = make_tiny(engine_name, kept_state, bootstrapped, tmp_path)
    project = tiny.project("audited", changes={"npm:chalk@5.6.2": files})
    built = tiny.builder("build", cwd=project)
    assert built.returncode == 0, built.stderr[-3000:]
    done = tiny.builder("verify", "--json", cwd=project)
    assert done.returncode == 0, done.stderr[-3000:]
    assert checks(done)["audit"]["status"] == "passed"
    assert json.loads(done.stdout)["audit"]["differenceCount"] == 0


# --- a builder that lies: it may write anything into a layer, and signs it with its own key


Edit = Callable[[bytearray], None]


def layer_of(real: Real, path: str) -> int:
    """The number of the topmost layer that plans this path's directory."""
    for number, plan in enumerate(real.context.plans, len(real.image.manifest.layers) - 1):
        if f"/{path}".startswith(plan.target):
            return number - len(real.context.plans)
    return len(real.image.manifest.layers) - 1


def member(tar: bytearray, path: str) -> tarfile.TarInfo:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return archive.getmember(path)


def flip_byte(path: str) -> Edit:
    def edit(tar: bytearray) -> None:
        found = member(tar, path)
        assert found.isreg()
        assert found.size
        tar[found.offset_data + found.size // 2] ^= 1

    return edit


def set_field(path: str, start: int, value: bytes) -> Edit:
    """Change a header's field, with the checksum corrected."""

    def edit(tar: bytearray) -> None:
        at = member(tar, path).offset
        tar[at + start : at + start + len(value)] = value
        tar[at + 148 : at + 156] = b"        "
        tar[at + 148 : at + 156] = b"%06o\0 " % sum(tar[at : at + 512])

    return edit


def add_entry(real: Real, made: Made) -> Edit:
    def edit(tar: bytearray) -> None:
        tar[-1024:] = entry_bytes(replace(made, mtime=real.context.epoch)) + bytes(1024)

    return edit


def lie(real: Real, state: Path, edits: dict[int, list[Edit]]) -> str:
    """An image whose layers were edited, with right digests and the builder's own signed evidence."""
    layout = open_state(state).layout
    config = json.loads(real.image.settings.raw)
    manifest = json.loads(real.image.manifest.raw)
    for number, changes in edits.items():
        with open_layer(real.image, number) as stream:
            tar = bytearray(stream.read())
        for change in changes:
            change(tar)
        raw = zstandard.ZstdCompressor(level=1).compress(tar)
        manifest["layers"][number] |= write_blob(layout, raw, MEDIA_LAYER_ZSTD).to_json()
        config["rootfs"]["diff_ids"][number] = str(Digest.of(tar))
    manifest["config"] |= write_blob(layout, json.dumps(config).encode(), MEDIA_CONFIG).to_json()
    image = open_image(layout, add_manifest(layout, json.dumps(manifest).encode()).digest)
    prove(real, image)
    return str(image.digest)


def prove(real: Real, image: OciImage) -> None:
    key: PrivateKey = load_private_key(CONFIG / "keys/builder.key", None)
    policy = load_policy(CONFIG / "policy.toml")
    entry = next(one for one in policy.trust if one.role is Role.BUILDER)
    facts = BuildFacts(
        image_name="examples/agents",
        builder_id=min(entry.ids),
        builder_version="0",
        started=BUILT,
        finished=BUILT,
        invocation="urn:uuid:00000000-0000-4000-8000-0000000000bb",
    )
    clean = accept(report_on(image), image)
    seen = detected(clean, real.lock)
    add_lock(image, (PROJECT / "builder.lock").read_bytes())
    summary = summarise(real.lock, AMD64)
    for statement in (
        provenance_statement(seen, summary, facts),
        scan_statement(clean, facts),
        detection_statement(seen, facts),
    ):
        add_referrer(image, sign(statement, key))


def test_one_byte_that_the_builder_changed_and_signed(real: Real, copy: Path) -> None:
    """Everything else holds: digests, signatures, scan, configuration. Only the audit can tell."""
    path = "opt/agents/pi/node_modules/@mariozechner/pi-coding-agent/dist/cli.js"
    digest = lie(real, copy, {layer_of(real, path): [flip_byte(path)]})
    done = verify(copy, digest, "--json", "--attest")
    assert done.returncode == ExitCode.VERIFY, done.stderr[-3000:]
    found = checks(done)
    assert [name for name, check in found.items() if check["status"] == "failed"] == ["audit"]
    assert (
        f"changed: {path}: other bytes than those of npm:@mariozechner/pi-coding-agent"
        in (found["audit"]["message"])
    )
    document = json.loads(done.stdout)
    assert document["attested"] == ""
    assert document["audit"]["differenceCount"] == 1


def test_a_change_in_every_layer_is_found_and_named(real: Real, copy: Path) -> None:
    node, native = "opt/node/bin/node", "opt/agents/opencode/node_modules/opencode-ai/bin/opencode.exe"
    claude, pi = "opt/agents/claude-code", "opt/agents/pi/node_modules"
    top = len(real.image.manifest.layers) - 1
    wanted = {
        (DifferenceKind.EXTRA, "workspace/.envrc"): ("workspace", Made("workspace/.envrc", content=b"x")),
        (DifferenceKind.CHANGED, node): (node, flip_byte(node)),
        (DifferenceKind.EXTRA, f"{claude}/x"): (claude, Made(f"{claude}/x", content=b"x")),
        (DifferenceKind.WHITEOUT, f"{claude}/.wh.y"): (claude, Made(f"{claude}/.wh.y")),
        (DifferenceKind.CHANGED, native): (native, set_field(native, 100, b"0004755")),
        (DifferenceKind.CHANGED, f"{pi}/.bin/pi"): (pi, set_field(f"{pi}/.bin/pi", 157, b"/tmp/x\0")),
        (DifferenceKind.CHANGED, "usr/local/bin/claude"): ("usr", flip_byte("usr/local/bin/claude")),
        (DifferenceKind.CHANGED, "etc/passwd"): ("etc", set_field("etc/passwd", 108, b"0001750")),
    }
    edits: dict[int, list[Edit]] = {}
    for place, change in wanted.values():
        number = {"workspace": top - len(real.context.plans) - 1}.get(place, layer_of(real, place))
        edits.setdefault(number, []).append(add_entry(real, change) if isinstance(change, Made) else change)
    assert len(edits) == real.context.image.new_layers
    image = open_image(open_state(copy).layout, Digest(lie(real, copy, edits)))
    store = ContentStore(real.state.store)
    report = audit_image(
        image,
        real.lock.base.image(AMD64),
        real.context,
        lambda artifact: store.open(artifact.integrity, artifact.id),
    )
    found = {(one.kind, one.path) for one in report.differences}
    # A hard link to the set-id binary shares its mode.
    linked = {path for _, path in found if path.startswith("opt/agents/opencode/")} - {native}
    assert found - {(DifferenceKind.CHANGED, path) for path in linked} == set(wanted)


# --- where the store is not


def test_without_the_store_an_audit_is_attested_or_not_performed(real: Real, copy: Path) -> None:
    made = verify(copy, str(real.image.digest), "--attest", "--json")
    assert made.returncode == 0, made.stderr[-3000:]
    assert checks(made)["audit"]["status"] == "passed"
    plan = real.context.plans[-1]
    ContentStore(copy / "store").path_of(plan.placed[0].artifact.integrity).unlink()
    later = verify(copy, str(real.image.digest), "--json")
    assert later.returncode == 0, later.stderr[-3000:]
    audit = checks(later)["audit"]
    assert audit["status"] == "not performed"
    for word in ("attested by sha256:", "not run here", plan.placed[0].artifact.id, "builder lock"):
        assert word in audit["message"]
