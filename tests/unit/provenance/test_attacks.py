"""One test for each published attack on tools of this kind that can be made on us now."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from images.digests import Digest
from images.errors import ExitCode, UsageError, VerifyFailed
from images.lockfile import lock_bytes
from images.oci import MEDIA_INDEX, MEDIA_MANIFEST
from provenance.checks import CheckId, Status
from provenance.expectations import Expectation
from provenance.layout import blob_path, open_image, read_index, read_manifest
from provenance.layout_writing import add_manifest, import_image, init_layout, write_blob
from provenance.predicates import PROVENANCE_TYPE, SCAN_TYPE, VSA_TYPE
from provenance.referrers import LOCK_TYPE, add_referrer, read_referrers
from provenance.statements import PAYLOAD_TYPE
from provenance.verify import VerificationReport
from tests.attacks import Position, attack
from tests.fakes.evidence import attach_raw, edit_bundle, forge, key, signed, statement_bytes
from tests.fakes.layouts import make_image, overwrite
from tests.fakes.policies import TRUST
from tests.fakes.proved import BASE_FILES, CONFIG, NAME, NOW, World, facts_of, make_world, proved_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture
def proved(tmp_path: Path) -> World:
    return proved_world(tmp_path)


def refused(report: VerificationReport, check: CheckId) -> None:
    """This check denies the permit, with the documented exit code."""
    assert report.check(check).status is Status.FAILED
    assert report.verified is None
    with pytest.raises(VerifyFailed) as caught:
        report.require()
    assert caught.value.code is ExitCode.VERIFY


@attack(1, by=Position.REGISTRY)
def test_01_only_statements_of_another_predicate_type(world: World) -> None:
    """GHSA-vjxv-45g9-9296 (cosign): any attestation passed for the one asked for."""
    for kind in (
        "https://slsa.dev/provenance/v0.2",
        "https://slsa.dev/provenance/v1.1",
        "https://spdx.dev/Document",
    ):
        made = world.bundles()["provenance"].statement
        predicate = json.loads(made.raw)["predicate"]
        raw = statement_bytes(world.image.digest, kind, predicate)
        attach_raw(world.layout, world.image.digest, signed(raw, key("builder")).raw)
    refused(world.verify(), CheckId.SIGNATURE)


@attack(2, by=Position.BUILDER_KEY)
@pytest.mark.parametrize(
    "payload", [b"", b"{}", b"[]", b"not json", b'{"_type":"https://in-toto.io/Statement/v1"}', b"\xff\xfe"]
)
def test_02_a_signed_payload_that_is_no_statement(world: World, payload: bytes) -> None:
    """GHSA-w6c6-c85g-mmv6 (cosign): the parse error was ignored in the new bundle format."""
    world.prove(without=("provenance",))
    attach_raw(world.layout, world.image.digest, forge(payload, key("builder")))
    report = world.verify()
    refused(report, CheckId.SIGNATURE)
    assert len(report.ignored) == 1


@attack(2, by=Position.BUILDER_KEY)
def test_02b_a_statement_whose_type_differs_from_its_predicate(world: World) -> None:
    made = world.prove(without=("provenance",))
    raw = statement_bytes(
        world.image.digest, PROVENANCE_TYPE, json.loads(made["scan"].statement.raw)["predicate"]
    )
    attach_raw(world.layout, world.image.digest, signed(raw, key("builder")).raw)
    refused(world.verify(), CheckId.PREDICATE)


@attack(3, by=Position.BUILDER_KEY)
def test_03_provenance_or_a_failed_summary_is_no_approval(world: World) -> None:
    """Seen with cosign verify: an image whose only referrer was a FAILED summary passed."""
    made = world.prove(without=("scan", "detection"))
    refused(world.admit(), CheckId.SIGNATURE)
    for name in ("scan", "detection"):
        add_referrer(world.image, made[name])
    refused(world.admit(), CheckId.SUMMARY)
    predicate = {
        "verifier": {"id": next(iter(world.policy.trust[1].ids))},
        "timeVerified": "2026-12-01T00:00:00Z",
        "resourceUri": f"oci:{NAME}@{world.image.digest}",
        "policy": {"uri": "urn:x", "digest": {"sha256": world.policy.digest.hex}},
        "inputAttestations": [{"digest": {"sha256": one.statement.digest.hex}} for one in made.values()],
        "verificationResult": "FAILED",
        "verifiedLevels": ["FAILED"],
    }
    raw = statement_bytes(world.image.digest, VSA_TYPE, predicate)
    attach_raw(world.layout, world.image.digest, signed(raw, key("verifier")).raw)
    refused(world.admit(), CheckId.SUMMARY)


@attack(4, 14, by=Position.REGISTRY)
@pytest.mark.parametrize("field", ["integratedTime", "logIndex", "inclusionPromise"])
def test_04_14_a_log_entry_of_another_artifact_or_time(world: World, field: str) -> None:
    """GHSA-8gw7-4j42-w388, GHSA-whqx-f9j3-ch6m (cosign), GHSA-hhfg-fwrw-87w7 (sigstore): not bound."""
    made = world.prove(without=("provenance",))
    raw = edit_bundle(made["provenance"].raw, verificationMaterial__tlogEntries=[{field: "1"}])
    attach_raw(world.layout, world.image.digest, raw)
    report = world.verify()
    refused(report, CheckId.SIGNATURE)
    assert "tlogEntries beside a key is not checked" in report.ignored[0]


@attack(6, by=Position.REGISTRY)
def test_06_no_attestation_at_all_or_none_that_matches(world: World) -> None:
    """GO-2025-3467 (gh): zero attestations exited with 0."""
    refused(world.verify(), CheckId.SIGNATURE)
    attach_raw(world.layout, world.image.digest, b"")
    attach_raw(world.layout, world.image.digest, forge(b"{}", key("stranger")))
    refused(world.verify(), CheckId.SIGNATURE)


@attack(7, by=Position.BUILDER_KEY)
@pytest.mark.parametrize("builder_id", ["", "urn:uuid:other", "*", ".*"])
def test_07_a_builder_id_not_paired_with_the_signer(world: World, builder_id: str) -> None:
    """SLSA: only signer and builder together are trusted; BuildKit's own id is empty."""
    world.prove(without=("provenance",))
    attach_raw(world.layout, world.image.digest, world.bundles(facts_of(builder_id or "x"))["provenance"].raw)
    refused(world.verify(), CheckId.SIGNER)


@attack(7, by=Position.BUILDER_KEY)
def test_07b_an_empty_builder_id(world: World) -> None:
    made = world.prove(without=("provenance",))
    document = json.loads(made["provenance"].statement.raw)
    document["predicate"]["runDetails"]["builder"]["id"] = ""
    attach_raw(world.layout, world.image.digest, signed(json.dumps(document).encode(), key("builder")).raw)
    refused(world.verify(), CheckId.PREDICATE)


@attack(8, by=Position.BUILDER_KEY)
def test_08_a_statement_about_index_config_or_layer(world: World) -> None:
    """cosign #3552, #786, ratify #101: what was signed is not what is started."""
    made = world.prove(without=("provenance",))
    document = json.loads(made["provenance"].statement.raw)
    entry = next(one for one in read_index(world.layout).manifests if one.digest == world.image.digest)
    listed = dict(entry.to_json()) | {"platform": {"os": "linux", "architecture": "amd64"}}
    raw = json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode()
    index = add_manifest(world.layout, raw, media_type=MEDIA_INDEX).digest
    manifest = world.image.manifest
    for subject in (
        index,
        manifest.config.digest,
        manifest.layers[0].digest,
        world.image.settings.diff_ids[0],
    ):
        document["subject"] = [{"name": "_", "digest": {"sha256": subject.hex}}]
        bundle = signed(json.dumps(document).encode(), key("builder")).raw
        attach_raw(world.layout, world.image.digest, bundle)
        refused(world.verify(), CheckId.SUBJECT)
        refused(world.verify(digest=index), CheckId.SUBJECT)


@attack(8, by=Position.BUILDER_KEY)
@pytest.mark.parametrize("extra", ["two subjects", "two digests", "upper case", "another algorithm"])
def test_08b_a_subject_that_matches_in_part(world: World, extra: str) -> None:
    """cosign takes any digest of any subject that matches, in any case."""
    made = world.prove(without=("provenance",))
    document = json.loads(made["provenance"].statement.raw)
    ours, other = world.image.digest.hex, Digest.of(b"x").hex
    document["subject"] = {
        "two subjects": [{"digest": {"sha256": other}}, {"digest": {"sha256": ours}}],
        "two digests": [{"digest": {"sha256": ours, "sha512": "0" * 128}}],
        "upper case": [{"digest": {"sha256": ours.upper()}}],
        "another algorithm": [{"digest": {"sha256": other, "gitCommit": ours}}],
    }[extra]
    attach_raw(world.layout, world.image.digest, signed(json.dumps(document).encode(), key("builder")).raw)
    refused(world.verify(), CheckId.SUBJECT)


@attack(10, by=Position.REGISTRY)
def test_10_a_tag_never_names_an_image() -> None:
    """GHSA-m3cq-xcx9-3gvm, CVE-2026-122321 (kyverno): the tag moved between verification and launch."""
    for text in ("team/agents:latest", "latest", "sha256:abc", "SHA256:" + "0" * 64, "sha512:" + "0" * 128):
        with pytest.raises(UsageError, match="not a digest"):
            Digest(text)


@attack(10, by=Position.LAYOUT_WRITER)
def test_10b_an_annotation_that_names_or_tags_an_image_chooses_nothing(proved: World) -> None:
    evil = make_image(proved.layout, (BASE_FILES, {"evil": b"x"}), config=CONFIG)
    raw = read_manifest(proved.layout, evil).raw
    add_manifest(
        proved.layout,
        raw,
        media_type=MEDIA_MANIFEST,
        annotations=(("org.opencontainers.image.ref.name", str(proved.image.digest)),),
    )
    assert proved.admit().require().image.digest == proved.image.digest
    refused(proved.verify(digest=evil), CheckId.SIGNATURE)


@attack(11, by=Position.REGISTRY)
def test_11_other_content_under_the_digest_that_was_asked_for(proved: World, tmp_path: Path) -> None:
    """GHSA-3hfq-cx9j-923w (kyverno): the registry answered with another image."""
    evil = make_image(tmp_path / "evil", (BASE_FILES, {"evil": b"x"}), config=CONFIG)
    lie = blob_path(tmp_path / "evil", evil).read_bytes()
    (blob_path(tmp_path / "evil", proved.image.digest)).write_bytes(lie)
    init_layout(tmp_path / "ours")
    with pytest.raises(VerifyFailed, match="not those of its digest"):
        import_image(tmp_path / "evil", proved.image.digest, tmp_path / "ours")
    assert read_index(tmp_path / "ours").manifests == ()
    overwrite(blob_path(proved.layout, proved.image.digest), lie)
    refused(proved.admit(), CheckId.CONTENT)


@attack(13, by=Position.STRANGER)
@pytest.mark.parametrize(
    "entry",
    [
        'kind = "keyless"',
        'kind = "keyless"\nidentity = "https://ci.example/x"\ntrusted_root = "keys/builder.pub"',
        'kind = "keyless"\nidentity = ".*"\nissuer = "https://x.example"\ntrusted_root = "keys/builder.pub"',
        'kind = "key"\nissuer = "https://x.example"',
    ],
)
def test_13_identities_are_not_half_checked(proved: World, entry: str) -> None:
    """cosign matches identity patterns anywhere in the text; sigstore accepts an identity without issuer."""
    with pytest.raises(UsageError):
        proved.with_policy(trust=TRUST.replace('kind = "key"', entry, 1))


@attack(15, by=Position.BUILDER_KEY)
def test_15_a_key_past_its_end_without_a_trusted_time(proved: World) -> None:
    """GHSA-wqqc-jjcq-vfxm (sigstore-go): an expired key still verified."""
    ended = proved.with_policy(trust=TRUST.replace("2027-11-29", "2026-12-01"))
    just_before = datetime(2026, 12, 1, tzinfo=UTC)
    assert ended.verify(now=just_before).ok
    refused(ended.verify(now=just_before.replace(second=1)), CheckId.SIGNATURE)


@attack(17, by=Position.REGISTRY)
def test_17_an_older_lock_or_policy_after_a_newer_one(proved: World) -> None:
    """CVE-2022-29173 (go-tuf): rollback. The policy decides by explicit minima, never by what is newest."""
    older = lock_bytes(replace(proved.lock, node_version="22.0.0"))
    moved_on = proved.with_policy(expect={NAME: Digest.of(older)})
    refused(moved_on.admit(), CheckId.PARAMETERS)
    revoked = proved.with_policy(more=f'revoked = {{ digests = ["{proved.image.digest}"] }}\n')
    refused(revoked.admit(), CheckId.REVOKED)
    aged = proved.with_policy(more='max_age = "1d"\n')
    refused(aged.verify(now=NOW), CheckId.AGE)


@attack(20, by=Position.BUILDER_KEY)
@pytest.mark.parametrize(
    "payload_type",
    ["application/json", "application/vnd.in-toto", "application/vnd.in-toto.provenance+json", ""],
)
def test_20_a_right_signature_over_another_payload_type(world: World, payload_type: str) -> None:
    """DSSE: the type is signed so that it can be checked."""
    made = world.prove(without=("provenance",))
    raw = forge(made["provenance"].statement.raw, key("builder"), payload_type)
    attach_raw(world.layout, world.image.digest, raw)
    report = world.verify()
    refused(report, CheckId.SIGNATURE)
    assert PAYLOAD_TYPE in report.ignored[0]


@attack(23, by=Position.REGISTRY)
def test_23_annotations_that_lie_have_no_effect(world: World) -> None:
    """The type on the envelope's outside is nobody's signature."""
    made = world.prove(without=("provenance",))
    lie = (
        ("dev.sigstore.bundle.predicateType", PROVENANCE_TYPE),
        ("in-toto.io/predicate-type", PROVENANCE_TYPE),
    )
    attach_raw(world.layout, world.image.digest, made["scan"].raw, annotations=lie)
    refused(world.verify(), CheckId.SIGNATURE)
    truth = (("dev.sigstore.bundle.predicateType", SCAN_TYPE), ("vnd.docker.reference.digest", "sha256:0"))
    attach_raw(world.layout, world.image.digest, made["provenance"].raw, annotations=truth)
    assert world.verify().ok


@attack(23, by=Position.LAYOUT_WRITER)
def test_23b_types_in_index_json_that_lie_have_no_effect(proved: World) -> None:
    path = proved.layout / "index.json"
    document = json.loads(path.read_bytes())
    for entry in document["manifests"]:
        entry["artifactType"] = "application/vnd.oci.empty.v1+json"
        entry["annotations"] = {"vnd.docker.reference.type": "attestation-manifest"}
    path.write_text(json.dumps(document))
    assert proved.admit().ok


@attack(26, by=Position.BUILD_CONTAINER)
def test_26_an_unsigned_attestation_manifest_never_counts(world: World) -> None:
    """BuildKit attaches bare statements, unsigned, as layers of a manifest for platform unknown."""
    made = world.prove(without=("provenance",))
    bare = made["provenance"].statement.raw
    for artifact_type in ("application/vnd.docker.attestation.manifest.v1+json", PAYLOAD_TYPE):
        attach_raw(world.layout, world.image.digest, bare, artifact_type=artifact_type)
    attach_raw(world.layout, world.image.digest, bare)
    report = world.verify()
    refused(report, CheckId.SIGNATURE)
    assert len(report.ignored) == 1


@attack(27, by=Position.BUILD_CONTAINER)
def test_27_hints_about_the_source_are_no_evidence(world: World) -> None:
    """Unknown fields, as SLSA's extensions are, neither count for anything nor against it."""
    made = world.prove(without=("provenance",))
    document = json.loads(made["provenance"].statement.raw)
    document["predicate"]["runDetails"]["metadata"]["buildkit_metadata"] = {"vcs": {"source": "https://x/y"}}
    document["annotations"] = {"trusted": True}
    attach_raw(world.layout, world.image.digest, signed(json.dumps(document).encode(), key("builder")).raw)
    assert world.verify().ok
    refused(world.verify(expectation=Expectation("x/y", lock_bytes(world.lock))), CheckId.PARAMETERS)


# --- their siblings


@attack(by=Position.REGISTRY)
def test_a_flood_of_invalid_referrers_neither_helps_nor_breaks(proved: World) -> None:
    for number in range(40):
        attach_raw(proved.layout, proved.image.digest, b"x" * number)
        attach_raw(proved.layout, proved.image.digest, forge(b"%d" % number, key("stranger")))
    report = proved.admit()
    assert report.ok
    assert len(report.ignored) == 80


@attack(by=Position.REGISTRY)
def test_a_flood_beyond_all_bounds_is_refused(proved: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provenance.referrers.MAX_REFERRERS", 20)
    for number in range(20):
        attach_raw(proved.layout, proved.image.digest, b"%d" % number)
    refused(proved.admit(), CheckId.CONTENT)


def test_a_referrer_with_several_or_no_blobs_or_an_index_as_one(proved: World) -> None:
    subject = read_manifest(proved.layout, proved.image.digest)
    layers = [write_blob(proved.layout, b"%d" % n, "x").to_json() for n in range(2)]
    for listed in (layers, []):
        document = {
            "schemaVersion": 2,
            "artifactType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "config": layers[0],
            "layers": listed,
            "subject": {"mediaType": MEDIA_MANIFEST, "digest": str(subject.digest), "size": 1},
        }
        add_manifest(proved.layout, json.dumps(document).encode())
    report = proved.admit()
    assert report.ok
    assert len(report.ignored) == 2


@attack(by=Position.VERIFIER_KEY)
def test_a_statement_signed_by_the_verifiers_key_about_the_build_is_no_build(world: World) -> None:
    """One stolen key is not enough: the verifier's key makes no provenance, the builder's no summary."""
    for bundle in world.bundles(signer="verifier").values():
        attach_raw(world.layout, world.image.digest, bundle.raw)
    refused(world.admit(), CheckId.PREDICATE)


@attack(by=Position.LAYOUT_WRITER)
def test_a_lock_attached_by_a_stranger_is_believed_by_digest_only(world: World) -> None:
    """Whichever lies first: only the expected digest chooses."""
    stranger = lock_bytes(replace(world.lock, node_version="1.0.0"))
    attach_raw(world.layout, world.image.digest, stranger, artifact_type=LOCK_TYPE)
    attach_raw(world.layout, world.image.digest, b"no lock at all", artifact_type=LOCK_TYPE)
    world.prove()
    assert world.verify().require().lock == world.lock


def test_the_same_statement_under_two_signatures_counts_once(proved: World) -> None:
    """ECDSA signatures differ each time: the identity of a statement is its payload's."""
    for bundle in proved.bundles().values():
        attach_raw(proved.layout, proved.image.digest, bundle.raw)
    attached = read_referrers(proved.layout, proved.image.digest).bundles
    assert len(attached) == 2 * 3 + 1 + 1  # with the summary, and a bill of materials once
    assert len(proved.admit().inputs) == 4


def test_an_image_that_is_itself_a_referrer_is_refused(world: World) -> None:
    manifest = json.loads(world.image.manifest.raw)
    manifest["subject"] = {"mediaType": MEDIA_MANIFEST, "digest": str(world.base.digest), "size": 1}
    digest = add_manifest(world.layout, json.dumps(manifest).encode()).digest
    again = replace(world, image=open_image(world.layout, digest))
    again.prove()
    refused(again.verify(), CheckId.CONFIG)
