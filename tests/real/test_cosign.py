"""Another tool, by other people, says the same of our bundles as we do; and we of its."""

from __future__ import annotations

from pathlib import Path

import pytest

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
from tests.real.programs import attest_blob, import_key, typed

pytestmark = pytest.mark.real

TYPES = {
    PROVENANCE_TYPE: "slsaprovenance1",
    SCAN_TYPE: SCAN_TYPE,
    DETECTION_TYPE: DETECTION_TYPE,
    VSA_TYPE: VSA_TYPE,
    SBOM_TYPE: "cyclonedx",
}


@pytest.fixture
def proved(tmp_path: Path) -> World:
    made = make_world(tmp_path / "world")
    made.prove(sbom=True)
    assert made.attest().passed
    return made


def verdict(cosign: Path, home: Path, bundle: bytes, *, kind: str, digest: Digest, signer: str) -> bool:
    """What `cosign verify-blob-attestation` says."""
    home.mkdir(exist_ok=True)
    (home / "bundle.json").write_bytes(bundle)
    (home / "key.pub").write_bytes(key(signer).public.pem)
    done = typed(
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
    import_key(cosign, home, pkcs8("builder"))
    image = Digest.of(b"image")
    made = attest_blob(cosign, home, statement_bytes(image, SCAN_TYPE, {"ruleset": 1}))
    opened = open_bundle(made, "cosign's bundle")
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
