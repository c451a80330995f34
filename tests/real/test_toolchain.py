"""A Debian toolchain on a real engine: locked with its signer, built twice alike, audited, used inside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest
import zstandard

from builder.bootstrap import Bootstrapped
from builder.building.base_check import read_base
from builder.resources import resource
from builder.state import State
from builder.storage.store import ContentStore
from images.digests import Digest
from images.errors import ExitCode
from images.lock import EPOCH, ArtifactKind
from images.lockfile import parse_lock
from images.oci import MEDIA_LAYER_ZSTD, OciImage
from images.render import render
from provenance.audit.layertar import read_entries
from provenance.audit.report import AuditReport, Origin
from provenance.audit.run import audit_image
from provenance.audit.toolchain import ToolchainGiven, by_path
from provenance.layout import layer_tar, open_image
from provenance.layout_writing import add_manifest, write_blob
from tests.fakes.audited import Made, entry_bytes
from tests.fakes.locks import AMD64
from tests.real.desk import Desk, make_desk
from tests.real.spine import PROJECT, refused

pytestmark = pytest.mark.real

TOML = """\
schema = 1

[image]
name = "tests/toolchain"
base = "debian-minimal@BASE"

[agents]
pi = "0.73.1"

[node]
version = "22.23.5"

[toolchain]
debian = ["git", "make", "openssh-client", "ripgrep"]
"""


@pytest.fixture(scope="module")
def desk(
    engine_name: str, kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> Desk:
    toml = TOML.replace("BASE", str(bootstrapped.base))
    made = make_desk(engine_name, kept_state, tmp_path_factory.mktemp("toolchain"), toml)
    made.builder("lock")
    return made


@pytest.fixture(scope="module")
def built(desk: Desk) -> str:
    return desk.builder("build").strip()


def test_the_lock_says_who_signed_and_does_not_change(desk: Desk) -> None:
    path = desk.project / "builder.lock"
    lock = parse_lock(path.read_bytes())
    debs = {one.name: one for one in lock.artifacts if one.kind is ArtifactKind.DEB}
    assert {"make:amd64", "openssh-client:amd64", "ripgrep:amd64", "libfido2-1:amd64"} <= set(debs)
    assert all(len(one.signer) == 40 for one in debs.values())
    assert debs["make:amd64"].parents == ("toolchain.debian",)
    assert debs["libfido2-1:amd64"].parents == (debs["openssh-client:amd64"].id,)
    assert lock.toolchain is not None
    assert lock.toolchain.tree(AMD64).in_base == ("git",)
    before = path.read_bytes()
    # Of the old toolchain nothing is kept: apt resolves the same again.
    shutil.copy(PROJECT / "builder.lock", path)
    desk.builder("lock")
    assert path.read_bytes() == before
    desk.builder("lock", "--check")


def test_outdated_asks_apt_what_it_would_add_now(desk: Desk) -> None:
    """The lock was made a moment ago: nothing moved, unless the archive did between the two."""
    pins = {pin["name"]: pin for pin in json.loads(desk.builder("outdated", "--json"))["pins"]}
    found = pins["toolchain"]
    assert found["standing"] in ("current", "outdated"), found
    lock = parse_lock((desk.project / "builder.lock").read_bytes())
    versions = {one.name: one.version for one in lock.artifacts if one.kind is ArtifactKind.DEB}
    named = ("make", "openssh-client", "ripgrep")
    assert found["pinned"] == ",".join(f"{name}={versions[f'{name}:amd64']}" for name in named)


def test_a_package_that_does_not_exist_is_named(desk: Desk) -> None:
    path = desk.project / "builder.toml"
    text = path.read_text()
    try:
        path.write_text(text.replace('"ripgrep"', '"ripgrep", "no-such-package"'))
        refused(desk.type("lock"), ExitCode.PIN, "toolchain.debian", "no-such-package")
    finally:
        path.write_text(text)


@pytest.mark.long  # the replay below makes its layer again; test_wheels.py builds a toolchain cold twice
def test_a_second_cold_build_is_the_same_image(desk: Desk, built: str) -> None:
    assert desk.builder("build", "--no-cache").strip() == built


def test_the_layer_is_explained_by_packages_and_a_replay(desk: Desk, built: str) -> None:
    done = desk.type("verify", built, "--lock", "builder.lock", "--attest", "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)["audit"]
    assert report["differenceCount"] == report["unexplainedCount"] == 0
    replayed = set(report["replayed"])
    assert {"etc/group", "etc/ld.so.cache", "usr/bin/ssh-agent", "var/lib/dpkg/status"} <= replayed
    assert len(replayed) < 12


def test_its_tools_run_inside_and_its_accounts_are_there(desk: Desk, built: str) -> None:
    said = desk.builder(
        "run", built, "--lock", "builder.lock", "--",
        "sh", "-c", "rg --version; make --version; id -un; grep -c _ssh /etc/group; find /var/log -type f",
    )  # fmt: skip
    assert "ripgrep 1" in said
    assert "GNU Make" in said
    assert said.split("\n")[-3:] == ["agent", "1", ""]


# --- what is planted is found: the honest layer is what a replay makes of it


def layer_of(image: OciImage, number: int) -> bytes:
    return b"".join(bytes(chunk) for chunk in layer_tar(image, number))


def audited(desk: Desk, built: str, edit: Callable[[bytes], bytes], *, replay: bool = True) -> AuditReport:
    lock = parse_lock((desk.project / "builder.lock").read_bytes())
    base = open_image(desk.state / "layout", lock.base.image(AMD64).manifest, AMD64)
    facts = read_base(base)
    context = render(lock, AMD64, resource("Containerfile.in").read_text(), facts)
    image, number = open_image(desk.state / "layout", Digest(built), AMD64), len(base.manifest.layers)
    honest = layer_of(image, number)
    changed = edit(honest)
    layers = list(image.manifest.layers)
    diff_ids = list(image.settings.diff_ids)
    blob = zstandard.ZstdCompressor().compress(changed)
    layers[number] = write_blob(desk.state / "layout", blob, MEDIA_LAYER_ZSTD)
    diff_ids[number] = Digest.of(changed)
    document = json.loads(image.manifest.raw)
    settings = json.loads((desk.state / "layout/blobs/sha256" / image.settings.digest.hex).read_bytes())
    settings["rootfs"]["diff_ids"] = [str(one) for one in diff_ids]
    config = write_blob(
        desk.state / "layout", json.dumps(settings).encode(), image.manifest.config.media_type
    )
    document["config"] = config.to_json()
    document["layers"] = [layer.to_json() for layer in layers]
    planted = add_manifest(desk.state / "layout", json.dumps(document).encode())
    store = ContentStore(desk.state / "store")
    made = by_path(read_entries(iter([honest])))
    return audit_image(
        open_image(desk.state / "layout", planted.digest, AMD64),
        lock.base.image(AMD64),
        context,
        lambda artifact: store.open(artifact.integrity, artifact.id),
        toolchain=ToolchainGiven(facts.debian, (lambda: made) if replay else None),
    )


def swapped(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def apply(tar: bytes) -> bytes:
        assert len(old) == len(new)
        assert old in tar
        return tar.replace(old, new, 1)

    return apply


def added(tar: bytes) -> bytes:
    assert not any(tar[-1024:])
    more = Made("usr/bin/zz-planted", mode=0o755, mtime=EPOCH, content=b"#!/bin/sh\n")
    return tar[:-1024] + entry_bytes(more) + bytes(1024)


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        (
            "usr/bin/make",
            swapped(
                b"No targets specified and no makefile found", b"No targets specified and no MAKEFILE found"
            ),
        ),
        ("etc/ssh/ssh_config", swapped(b"#   ForwardAgent no\n", b"    ForwardAgent no\n")),
        ("var/lib/dpkg/status", swapped(b"\nPackage: ripgrep\n", b"\nPackage: ripgrey\n")),
        ("etc/group", swapped(b"\n_ssh:x:101:\n", b"\n_ssh:x:000:\n")),
        ("usr/bin/zz-planted", added),
    ],
)
def test_a_planted_byte_is_found(desk: Desk, built: str, path: str, edit: Callable[[bytes], bytes]) -> None:
    report = audited(desk, built, edit)
    assert not report.ok
    assert {one.path for one in report.differences} == {path}


def test_without_a_replay_the_few_are_listed_and_nothing_else(desk: Desk, built: str) -> None:
    report = audited(desk, built, bytes, replay=False)
    assert report.ok
    assert not report.complete
    assert report.unexplained_count == len(report.unexplained) < 12
    assert dict(report.origins)[Origin.ARTIFACT] > 10_000
