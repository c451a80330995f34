"""Verification: each check has its own answer, and any single thing that is wrong denies the permit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from images.config import AgentName
from images.digests import Digest
from images.errors import BuildFailed, CredentialFound, ExitCode, UsageError, VerifyFailed
from images.key import summarise
from images.lock import Lock
from images.lockfile import lock_bytes, lock_digest
from images.oci import MEDIA_INDEX, OciImage, Platform
from provenance.attest import attest
from provenance.checks import Check, CheckId, Status
from provenance.expectations import Expectation
from provenance.layout import blob_path, open_image, read_index, read_manifest
from provenance.layout_writing import add_manifest
from provenance.marks import pin_marks, raise_marks, read_marks
from provenance.referrers import LOCK_TYPE, add_lock, add_referrer, read_referrers
from provenance.scan.accept import accept
from provenance.scan.report import Finding, Place, PlaceKind
from provenance.signing import KeySigner, sign
from provenance.statements import DetectedAgent, detection_statement, provenance_statement, scan_statement
from provenance.verify import Purpose, VerificationReport, VerifyRequest, all_hold
from tests.attacks import Position, attack
from tests.fakes.evidence import attach_raw, key, signed
from tests.fakes.layouts import flip, make_image, overwrite
from tests.fakes.locks import AMD64
from tests.fakes.policies import HEAD, TRUST
from tests.fakes.proved import (
    BASE_FILES,
    CONFIG,
    NAME,
    NOW,
    World,
    detected,
    facts_of,
    make_world,
    proved_world,
    report_on,
)
from tests.fakes.sigstores import Sigstore

OTHER_ID = "urn:uuid:00000000-0000-4000-8000-00000000ffff"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture
def proved(tmp_path: Path) -> World:
    return proved_world(tmp_path)


def refused(report: VerificationReport, *which: CheckId) -> VerificationReport:
    """No permit, exit code 7, and exactly these checks failed."""
    assert report.verified is None
    with pytest.raises(VerifyFailed) as caught:
        report.require()
    assert caught.value.code is ExitCode.VERIFY
    assert caught.value.hint
    assert {one.id for one in report.checks if one.status is Status.FAILED} == set(which)
    return report


def agrees(image: OciImage, lock: Lock) -> None:
    """The configuration is the one that the lock plans."""
    assert image.platform in lock.platforms


# --- the right image


def test_a_proved_image_verifies_and_names_what_was_not_performed(proved: World) -> None:
    report = proved.verify()
    image = report.require()
    assert [check.id for check in report.checks] == list(CheckId)
    assert {check.id for check in report.checks if check.status is Status.NOT_PERFORMED} == {
        CheckId.AUDIT,
        CheckId.CONFIG,
        CheckId.AGE,
        CheckId.ROLLBACK,
        CheckId.RESCAN,
        CheckId.REBUILDS,
        CheckId.ARTIFACTS,
        CheckId.SBOM,
    }
    assert image.image.digest == proved.image.digest
    assert image.lock == proved.lock
    assert (image.image_name, image.lock_digest) == (NAME, lock_digest(proved.lock))
    assert image.content_key == summarise(proved.lock, AMD64).key
    assert report.ignored == ()


def test_everything_that_can_be_performed_is(proved: World) -> None:
    world = proved.with_policy(more='max_age = "90d"\n')
    pin_marks(world.root / "marks.json", world.policy)
    world.attest()
    report = world.admit(marks=world.root / "marks.json", rescan=report_on, compare_config=agrees)
    assert report.ok
    missing = {check.id for check in report.checks if check.status is not Status.PASSED}
    assert missing == {CheckId.AUDIT, CheckId.REBUILDS, CheckId.ARTIFACTS, CheckId.SBOM}


@attack(3, by=Position.BUILDER_KEY)
def test_admission_needs_the_verifiers_summary(world: World) -> None:
    world.prove()
    assert world.verify().ok
    assert world.verify().check(CheckId.SUMMARY).status is Status.NOT_PERFORMED
    refused(world.admit(), CheckId.SUMMARY)
    world.attest()
    verified = world.admit().require()
    assert verified.purpose is Purpose.ADMISSION
    assert verified.summary is not None


def test_verification_writes_nothing(proved: World) -> None:
    before = {path: path.stat().st_mtime_ns for path in proved.root.rglob("*")}
    proved.admit()
    assert {path: path.stat().st_mtime_ns for path in proved.root.rglob("*")} == before


def test_an_image_given_already_opened_is_not_hashed_again(proved: World) -> None:
    assert proved.admit(opened=open_image(proved.layout, proved.image.digest)).ok


def test_each_check_has_its_title(proved: World) -> None:
    for check in proved.verify().checks:
        assert check.id.title in str(check)
        assert check.message


# --- 1: content


@attack(11, by=Position.LAYOUT_WRITER)
def test_one_byte_of_any_blob_of_the_image_is_found(proved: World) -> None:
    manifest = proved.image.manifest
    for digest in (manifest.digest, manifest.config.digest, *(layer.digest for layer in manifest.layers)):
        path = blob_path(proved.layout, digest)
        original = path.read_bytes()
        flip(path, len(original) // 2)
        report = refused(proved.admit(), CheckId.CONTENT)
        assert digest.hex in report.check(CheckId.CONTENT).message
        overwrite(path, original)
    assert proved.admit().ok


@attack(by=Position.LAYOUT_WRITER)
def test_one_byte_of_any_bundle_or_lock_is_found(proved: World) -> None:
    checks = {
        "provenance/v1": {CheckId.SIGNATURE},
        "scan/v1": {CheckId.SIGNATURE},
        "detection/v1": {CheckId.SIGNATURE},
        "verification_summary/v1": {CheckId.SUMMARY},
        "": {CheckId.KEY},
    }
    for attached in read_index(proved.layout).manifests:
        if not attached.artifact_type:
            continue
        manifest = read_manifest(proved.layout, attached.digest)
        kind = dict(manifest.annotations).get("dev.sigstore.bundle.predicateType", "")
        expected = next(ids for name, ids in checks.items() if kind.endswith(name))
        for digest in (manifest.digest, manifest.layers[0].digest):
            path = blob_path(proved.layout, digest)
            original = path.read_bytes()
            flip(path, len(original) // 2)
            report = refused(proved.admit(), *expected)
            assert any(digest.hex in line for line in report.ignored)
            overwrite(path, original)
    assert proved.admit().ok


def test_a_bundle_changed_with_all_hashes_made_right_again_is_found(world: World) -> None:
    made = world.prove(without=("provenance",))
    forged = made["provenance"].raw.replace(b"eyJ", b"eyK", 1)
    assert forged != made["provenance"].raw
    attach_raw(world.layout, world.image.digest, forged)
    refused(world.verify(), CheckId.SIGNATURE)


def test_an_index_json_without_evidence_or_image_is_found(proved: World) -> None:
    path = proved.layout / "index.json"
    document = json.loads(path.read_bytes())
    original = path.read_bytes()
    for number, entry in enumerate(document["manifests"]):
        changed = document | {
            "manifests": [one for n, one in enumerate(document["manifests"]) if n != number]
        }
        path.write_text(json.dumps(changed))
        # The image itself is found by its digest; index.json only says what is attached.
        assert proved.admit().ok is ("artifactType" not in entry)
    for damaged in (b"", b"{", original[:-1], original.replace(b"sha256:", b"sha255:", 1)):
        path.write_bytes(damaged)
        refused(proved.admit(), CheckId.CONTENT)
    path.write_bytes(original)
    assert proved.admit().ok


def test_a_digest_that_is_not_there(world: World) -> None:
    report = refused(world.verify(digest=Digest.of(b"absent")), CheckId.CONTENT)
    assert report.check(CheckId.CONTENT).hint == "builder build"


def test_an_index_is_followed_to_the_platform_that_is_asked_for(proved: World) -> None:
    entry = next(one for one in read_index(proved.layout).manifests if one.digest == proved.image.digest)
    listed = dict(entry.to_json()) | {"platform": {"os": "linux", "architecture": "amd64"}}
    raw = json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode()
    index = add_manifest(proved.layout, raw, media_type=MEDIA_INDEX).digest
    assert proved.admit(digest=index).digest == proved.image.digest
    assert proved.admit(digest=index).ok
    refused(proved.admit(digest=index, platform=Platform("linux", "arm64")), CheckId.CONTENT)


# --- 2, 3, 4, 5: who says what about whom


def test_no_evidence_at_all(world: World) -> None:
    refused(world.verify(), CheckId.SIGNATURE)
    refused(world.admit(), CheckId.SIGNATURE)


@pytest.mark.parametrize("left_out", ["provenance", "scan", "detection"])
def test_each_statement_is_needed(world: World, left_out: str) -> None:
    world.prove(without=(left_out,))
    report = refused(world.verify(), CheckId.SIGNATURE)
    assert left_out in report.check(CheckId.SIGNATURE).message


@pytest.mark.parametrize("kind", ["provenance", "scan", "detection"])
@pytest.mark.parametrize("signer", ["stranger", "verifier", "launcher"])
def test_another_key_is_no_builder(world: World, kind: str, signer: str) -> None:
    world.prove(without=(kind,))
    add_referrer(world.image, world.bundles(signer=signer)[kind])
    stage = CheckId.SIGNATURE if signer == "stranger" else CheckId.PREDICATE
    refused(world.verify(), stage)


@pytest.mark.parametrize("kind", ["provenance", "scan", "detection"])
@pytest.mark.parametrize("builder_id", [OTHER_ID, OTHER_ID.upper(), "urn:x:y"])
def test_a_signer_that_calls_itself_something_else(world: World, kind: str, builder_id: str) -> None:
    world.prove(without=(kind,))
    add_referrer(world.image, world.bundles(facts_of(builder_id))[kind])
    report = refused(world.verify(), CheckId.SIGNER)
    assert "not paired" in report.check(CheckId.SIGNER).message


def test_a_key_past_its_end(proved: World) -> None:
    ended = proved.with_policy(trust=TRUST.replace("2027-11-29T00:00:00Z", "2026-11-30T00:00:00Z"))
    report = refused(ended.admit(), CheckId.SIGNATURE)
    assert "ended on 2026-11-30" in report.check(CheckId.SIGNATURE).message


def test_a_narrowed_key_signs_no_other_type(proved: World) -> None:
    only = TRUST.replace(
        "builder_ids", 'predicate_types = ["https://slsa.dev/provenance/v1"]\nbuilder_ids', 1
    )
    refused(proved.with_policy(trust=only).admit(), CheckId.PREDICATE)


@attack(8, by=Position.REGISTRY)
def test_a_replay_of_another_images_statement_neither_helps_nor_breaks(proved: World, tmp_path: Path) -> None:
    other = make_world(tmp_path / "other")
    twin = make_image(proved.layout, (BASE_FILES, {"evil": b"x"}), config=CONFIG)
    for attached in read_referrers(proved.layout, proved.image.digest).bundles:
        attach_raw(proved.layout, twin, attached.data)
    add_lock(open_image(proved.layout, twin), proved.raw_lock)
    report = refused(proved.verify(digest=twin), CheckId.SUBJECT)
    assert proved.image.digest.hex in report.check(CheckId.SUBJECT).message
    for bundle in other.bundles().values():
        attach_raw(proved.layout, proved.image.digest, bundle.raw)
    assert proved.admit().ok


# --- 6: the expectation


def test_the_expectation_can_come_from_the_lock_the_policy_or_both(proved: World) -> None:
    nothing = proved.with_policy(expect={})
    lock = proved.raw_lock
    assert proved.verify(expectation=Expectation()).ok
    assert proved.verify(expectation=Expectation(NAME, lock)).ok
    assert nothing.verify(expectation=Expectation(NAME, lock)).ok
    assert nothing.verify(expectation=Expectation(None, lock)).ok
    for none in (Expectation(), Expectation(NAME)):
        report = refused(nothing.verify(expectation=none), CheckId.PARAMETERS)
        assert "needs an expectation" in report.check(CheckId.PARAMETERS).message
        assert "--lock" in report.check(CheckId.PARAMETERS).hint


def test_development_mode_without_an_expectation_says_so_and_is_not_passed(proved: World) -> None:
    loose = proved.with_policy(expect={}, head=HEAD.replace("required", "development"))
    report = loose.verify(expectation=Expectation())
    assert report.ok
    assert report.check(CheckId.PARAMETERS).status is Status.NOT_PERFORMED


def test_another_lock_another_name_or_a_disagreement(proved: World) -> None:
    other = lock_bytes(replace(proved.lock, node_version="22.0.0"))
    for expectation in (
        Expectation("team/other", proved.raw_lock),
        Expectation(NAME, other),
        Expectation(None, other),
        Expectation(NAME, proved.raw_lock + b"\n"),
    ):
        refused(proved.verify(expectation=expectation), CheckId.PARAMETERS)
    nothing, both = proved.with_policy(expect={}), proved.with_policy(expect={NAME: Digest.of(other)})
    for one in (nothing.verify(expectation=Expectation(NAME, other)), both.verify()):
        refused(one, CheckId.PARAMETERS)
        assert "built from lock" in one.check(CheckId.PARAMETERS).message
    report = refused(both.verify(expectation=Expectation(NAME, proved.raw_lock)), CheckId.PARAMETERS)
    assert "but the policy expects" in report.check(CheckId.PARAMETERS).message


def test_the_same_image_under_two_names_is_proved_under_each(proved: World) -> None:
    for bundle in proved.bundles(facts_of(name="other/agents")).values():
        add_referrer(proved.image, bundle)
    lock = proved.raw_lock
    assert proved.admit(expectation=Expectation(NAME, lock)).ok
    other = proved.verify(expectation=Expectation("other/agents", lock)).require()
    assert other.image_name == "other/agents"
    # The verifier spoke of the first name only.
    report = proved.admit(expectation=Expectation("other/agents", lock))
    refused(report, CheckId.SUMMARY)


@pytest.mark.parametrize(
    "change",
    [
        {"extra": "x"},
        {"image": ""},
        {"lock": "latest"},
        {"lock": None},
        {"platform": None},
        {"image": 1},
    ],
)
def test_parameters_are_a_closed_set(world: World, change: dict[str, object]) -> None:
    made = world.prove(without=("provenance",))
    document = json.loads(made["provenance"].statement.raw)
    parameters = document["predicate"]["buildDefinition"]["externalParameters"] | change
    document["predicate"]["buildDefinition"]["externalParameters"] = {
        name: value for name, value in parameters.items() if value is not None
    }
    attach_raw(world.layout, world.image.digest, signed(json.dumps(document).encode(), key("builder")).raw)
    refused(world.verify(), CheckId.PREDICATE)


def edited(world: World, kind: str, edit: Callable[[dict[str, object]], None]) -> None:
    """Prove the world with one predicate changed before the trusted builder signed it."""
    made = world.prove(without=(kind,))
    document = json.loads(made[kind].statement.raw)
    edit(document["predicate"])
    attach_raw(world.layout, world.image.digest, signed(json.dumps(document).encode(), key("builder")).raw)


def test_another_build_type_or_platform(tmp_path: Path) -> None:
    for number, (field, value) in enumerate((("buildType", "https://x/y"), ("platform", "linux/arm64"))):
        world = make_world(tmp_path / str(number))

        def edit(predicate: dict[str, object], field: str = field, value: str = value) -> None:
            definition = predicate["buildDefinition"]
            assert isinstance(definition, dict)
            place = definition if field in definition else definition["externalParameters"]
            place[field] = value

        edited(world, "provenance", edit)
        refused(world.verify(), CheckId.PARAMETERS)


# --- 7, 8: key and base


def test_a_lock_that_is_not_there(world: World) -> None:
    for bundle in world.bundles().values():
        add_referrer(world.image, bundle)
    report = refused(world.verify(), CheckId.KEY)
    assert "neither given nor attached" in report.check(CheckId.KEY).message
    assert world.verify(expectation=Expectation(NAME, world.raw_lock)).ok


def test_a_lock_with_the_expected_digest_that_is_no_lock(world: World) -> None:
    junk = b"{}"
    policy = world.with_policy(expect={NAME: Digest.of(junk)}).policy
    forged = replace(world, policy=policy)

    def edit(predicate: dict[str, object]) -> None:
        definition = predicate["buildDefinition"]
        assert isinstance(definition, dict)
        definition["externalParameters"]["lock"] = str(Digest.of(junk))

    edited(forged, "provenance", edit)
    attach_raw(world.layout, world.image.digest, junk, artifact_type=LOCK_TYPE)
    refused(forged.verify(), CheckId.KEY)


@pytest.mark.parametrize("what", ["key", "artifact", "missing", "base"])
def test_what_was_signed_differs_from_the_lock(world: World, what: str) -> None:
    def edit(predicate: dict[str, object]) -> None:
        definition = predicate["buildDefinition"]
        assert isinstance(definition, dict)
        dependencies = definition["resolvedDependencies"]
        if what == "key":
            definition["internalParameters"]["contentKey"] = str(Digest.of(b"other"))
        elif what == "artifact":
            dependencies[1]["digest"] = {"sha512": "0" * 128}
        elif what == "missing":
            del dependencies[-1]
        else:
            dependencies[0]["digest"] = {"sha256": "0" * 64}

    edited(world, "provenance", edit)
    refused(world.verify(), CheckId.BASE if what == "base" else CheckId.KEY)


def test_a_base_that_the_policy_does_not_name(proved: World) -> None:
    report = refused(proved.with_policy(base=Digest.of(b"other")).verify(), CheckId.BASE)
    assert "bases in" in report.check(CheckId.BASE).hint
    refused(proved.with_policy(base=None).verify(), CheckId.BASE)


def relocked(world: World, **base: object) -> World:
    """The same image, proved with a lock whose base differs."""
    lock = replace(world.lock, base=replace(world.lock.base, **base))  # type: ignore[arg-type]
    return replace(world, lock=lock).with_policy(expect={NAME: lock_digest(lock)})


def test_an_index_is_allowed_only_with_its_own_list(world: World) -> None:
    good = json.dumps({"schemaVersion": 2, "manifests": [
        next(one for one in read_index(world.layout).manifests if one.digest == world.base.digest).to_json()
    ]}).encode()  # fmt: skip
    other = json.dumps({"schemaVersion": 2, "manifests": []}).encode()
    index = add_manifest(world.layout, good, media_type=MEDIA_INDEX).digest
    empty = add_manifest(world.layout, other, media_type=MEDIA_INDEX).digest
    for claimed, fine in ((index, True), (empty, False), (Digest.of(b"absent"), False)):
        again = relocked(world, index=claimed, requested=claimed)
        again.prove()
        allowed = again.with_policy(base=claimed, expect={NAME: lock_digest(again.lock)})
        if fine:
            assert allowed.verify().ok
        else:
            refused(allowed.verify(), CheckId.BASE)


def test_a_base_named_by_a_tag_alone_is_refused_in_required_mode(world: World) -> None:
    unpinned = relocked(world, pinned=False, tag="latest")
    unpinned.prove()
    refused(unpinned.verify(), CheckId.BASE)
    loose = unpinned.with_policy(
        head=HEAD.replace("required", "development"), expect={NAME: lock_digest(unpinned.lock)}
    )
    assert loose.verify().ok


def test_layers_that_are_not_the_bases(world: World) -> None:
    image = world.lock.base.images[0]
    layer, other = image.layers[0], world.image.manifest.layers[1]
    diff_ids = (*image.diff_ids, world.image.settings.diff_ids[1])
    for changed in (
        replace(image, layers=(replace(layer, digest=Digest.of(b"x")),)),
        replace(image, layers=(replace(layer, size=layer.size + 1),)),
        replace(image, layers=(other, layer), diff_ids=tuple(reversed(diff_ids))),
        replace(image, diff_ids=(Digest.of(b"x"),)),
    ):
        again = relocked(world, images=(changed,))
        again.prove()
        refused(again.verify(), CheckId.BASE)


# --- 10, 17: scan


@pytest.mark.parametrize("verdict", ["found", "incomplete"])
def test_a_trusted_scan_that_speaks_against_the_image_outweighs_a_clean_one(
    proved: World, verdict: str
) -> None:
    document = json.loads(proved.bundles()["scan"].statement.raw)
    document["predicate"]["verdict"] = verdict
    attach_raw(proved.layout, proved.image.digest, signed(json.dumps(document).encode(), key("builder")).raw)
    report = refused(proved.admit(), CheckId.SCAN)
    assert verdict in report.check(CheckId.SCAN).message


def test_an_untrusted_scan_that_speaks_against_the_image_does_nothing(proved: World) -> None:
    document = json.loads(proved.bundles()["scan"].statement.raw)
    document["predicate"]["verdict"] = "found"
    attach_raw(proved.layout, proved.image.digest, signed(json.dumps(document).encode(), key("stranger")).raw)
    report = proved.admit()
    assert report.ok
    assert any("not signed by a key that the policy trusts" in line for line in report.ignored)


def test_an_old_ruleset(proved: World) -> None:
    report = refused(proved.with_policy(more="min_ruleset = 99\n").verify(), CheckId.SCAN)
    assert "asks for 99" in report.check(CheckId.SCAN).message


def test_a_scan_of_other_layers(world: World) -> None:
    edited(world, "scan", lambda predicate: predicate.update(layers=[str(Digest.of(b"x"))]))
    refused(world.verify(), CheckId.SCAN)


def test_scanning_again_can_refuse(proved: World) -> None:
    place = Place(PlaceKind.CONTENT, str(proved.image.manifest.layers[1].digest), "opt/x", 3)

    def crashed(image: OciImage) -> object:
        raise CredentialFound("the scanner was lost", hint="builder scan")

    for rescan, why in (
        (lambda image: report_on(image, findings=(Finding("npm-token", place, "00"),)), "npm-token"),
        (lambda image: report_on(image, incomplete=("layer not read",)), "incomplete"),
        (lambda image: report_on(image, coverage=()), "incomplete"),
        (lambda image: report_on(image, subject=str(Digest.of(b"x"))), "report is about"),
        (crashed, "lost"),
    ):
        report = refused(proved.admit(rescan=rescan), CheckId.RESCAN)
        assert why in report.check(CheckId.RESCAN).message
    assert proved.admit(rescan=report_on).ok


# --- 11: configuration


@pytest.mark.parametrize(
    "change",
    [
        {"User": "root"},
        {"User": ""},
        {"User": "0:1000"},
        {"Entrypoint": []},
        {"Volumes": {"/x": {}}},
        {"OnBuild": ["RUN x"]},
        {"Healthcheck": {"Test": ["CMD", "x"]}},
    ],
)
def test_a_configuration_that_no_image_of_ours_has(world: World, change: dict[str, object]) -> None:
    ours = ({"opt/agents/pi/cli.js": b"x"},)
    digest = make_image(world.layout, (BASE_FILES, *ours), config=CONFIG | change)
    again = replace(world, image=open_image(world.layout, digest))
    again.prove()
    refused(again.verify(), CheckId.CONFIG)


def test_the_plan_is_compared_when_it_can_be(proved: World) -> None:
    def differs(image: OciImage, lock: Lock) -> None:
        assert (image.digest, lock) == (proved.image.digest, proved.lock)
        raise BuildFailed("labels is X, planned Y", hint="builder build")

    report = refused(proved.admit(compare_config=differs), CheckId.CONFIG)
    assert report.check(CheckId.CONFIG).message == "labels is X, planned Y"


# --- 12, 13, 14, 16: revoked, age, rollback, policy


def test_revoked_images_keys_and_builders(proved: World) -> None:
    fingerprint = key("builder").public.fingerprint
    verifier = key("verifier").public.fingerprint
    builder_id = next(iter(proved.policy.trust[0].ids))
    for more in (
        f'revoked = {{ digests = ["{proved.image.digest}"] }}\n',
        f'revoked = {{ keys = ["{fingerprint}"] }}\n',
        f'revoked = {{ builder_ids = ["{builder_id}"] }}\n',
    ):
        report = refused(proved.with_policy(more=more).admit(), CheckId.REVOKED)
        assert "revoke" in report.check(CheckId.REVOKED).message
    refused(proved.with_policy(more=f'revoked = {{ keys = ["{verifier}"] }}\n').admit(), CheckId.SUMMARY)


def test_age_is_by_our_clock(proved: World) -> None:
    aged = proved.with_policy(more='max_age = "7d"\n')
    aged.attest()
    assert aged.admit(now=NOW).check(CheckId.AGE).status is Status.PASSED
    refused(aged.admit(now=NOW + timedelta(days=6)), CheckId.AGE)


def test_what_was_built_in_the_future_is_refused(world: World) -> None:
    world.prove(facts_of(built=NOW + timedelta(minutes=6)))
    refused(world.verify(), CheckId.AGE)
    assert world.verify(now=NOW + timedelta(minutes=2)).ok


def test_a_policy_past_its_end(proved: World) -> None:
    refused(proved.admit(now=datetime(2027, 2, 28, 0, 0, 1, tzinfo=UTC)), CheckId.POLICY)


@attack(17, by=Position.LAYOUT_WRITER)
def test_an_older_or_silently_changed_policy_is_refused(proved: World) -> None:
    marks = proved.root / "marks.json"
    newer = proved.with_policy(head=HEAD.replace("serial = 3", "serial = 4"))
    pin_marks(marks, newer.policy)
    assert newer.admit(marks=marks).ok
    older = proved.with_policy()
    report = refused(older.admit(marks=marks), CheckId.ROLLBACK)
    assert report.check(CheckId.ROLLBACK).hint == "builder policy pin"
    with pytest.raises(VerifyFailed, match="accepted here before"):
        raise_marks(marks, older.policy)
    changed = proved.with_policy(head=HEAD.replace("serial = 3", "serial = 4"), more="min_ruleset = 1\n")
    refused(changed.admit(marks=marks), CheckId.ROLLBACK)
    pin_marks(marks, older.policy)
    assert older.admit(marks=marks).ok
    raise_marks(marks, newer.policy)
    assert read_marks(marks).serial == 4


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{}",
        b'{"schema":1,"policy":{"serial":true,"digest":"x"}}',
        b'{"schema":1,"policy":{"serial":1}}',
        b'{"schema":1,"policy":{"serial":1,"digest":"sha256:00"}}',
        b'{"schema":2,"policy":{"serial":1,"digest":"sha256:' + b"0" * 64 + b'"}}',
        b" " * 9000,
    ],
)
def test_lost_or_damaged_marks_are_refused_until_pinned(proved: World, data: bytes | None) -> None:
    marks = proved.root / "marks.json"
    if data is not None:
        marks.write_bytes(data)
    report = refused(proved.admit(marks=marks), CheckId.ROLLBACK)
    assert report.check(CheckId.ROLLBACK).hint == "builder policy pin"
    pin_marks(marks, proved.policy)
    assert proved.admit(marks=marks).ok


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)]
)
def test_what_stands_in_place_of_the_marks_is_neither_followed_nor_waited_for(
    proved: World, make: Callable[[Path], object]
) -> None:
    make(proved.root / "marks.json")
    refused(proved.admit(marks=proved.root / "marks.json"), CheckId.ROLLBACK)
    pin_marks(proved.root / "marks.json", proved.policy)
    assert proved.admit(marks=proved.root / "marks.json").ok


# --- 15: detection


@pytest.mark.parametrize("change", ["version", "exit", "missing", "twice", "other", "uid"])
def test_a_detection_that_disagrees(world: World, change: str) -> None:
    world.prove(without=("detection",))
    seen = detected(accept(report_on(world.image), world.image), world.lock)
    first = seen.agents[0]
    other = DetectedAgent(AgentName.OPENCODE, "1.0.0", "1.0.0", 0, Digest.of(b""))
    made = {
        "version": replace(seen, agents=(replace(first, reported="2.1.327"), *seen.agents[1:])),
        "exit": replace(seen, agents=(replace(first, exit_code=1), *seen.agents[1:])),
        "missing": replace(seen, agents=seen.agents[1:]),
        "twice": replace(seen, agents=(first, *seen.agents)),
        "other": replace(seen, agents=(*seen.agents, other)),
        "uid": replace(seen, uid=1001),
    }[change]
    add_referrer(world.image, sign(detection_statement(made, facts_of()), key("builder")))
    refused(world.verify(), CheckId.DETECTION)


# --- 19: the summary


def test_a_failed_verification_makes_a_note_that_cannot_be_attached(world: World) -> None:
    report = world.verify()
    with pytest.raises(UsageError, match="nothing trusted"):
        attest(report, world.policy, KeySigner(key("verifier")), version="0", now=NOW)
    edited(world, "scan", lambda predicate: predicate.update(verdict="found"))
    made = world.attest()
    assert not made.passed
    assert b'"FAILED"' in made.bundle.statement.raw
    with pytest.raises(UsageError, match="never attached"):
        add_referrer(world.image, made.bundle)


def test_only_a_verifier_of_the_policy_attests(proved: World) -> None:
    for name in ("builder", "launcher", "stranger"):
        with pytest.raises(UsageError, match="not a verifier"):
            attest(proved.verify(), proved.policy, KeySigner(key(name)), version="0", now=NOW)


def summary(world: World, changes: dict[str, object], signer: str = "verifier") -> None:
    """Attach a summary with top-level predicate fields replaced, signed by any key."""
    made = attest(world.verify(), world.policy, KeySigner(key("verifier")), version="0", now=NOW)
    document = json.loads(made.bundle.statement.raw)
    document["predicate"] |= changes
    attach_raw(world.layout, world.image.digest, signed(json.dumps(document).encode(), key(signer)).raw)


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"resourceUri": "oci:team/agents:latest"}, CheckId.SUMMARY),
        ({"resourceUri": "oci:team/AGENTS"}, CheckId.SUMMARY),
        ({"verifier": {"id": OTHER_ID}}, CheckId.SUMMARY),
        ({"inputAttestations": [{"digest": {"sha256": "0" * 64}}]}, CheckId.SUMMARY),
        ({"verifiedLevels": []}, CheckId.SUMMARY),
        ({"verifiedLevels": ["SLSA_BUILD_LEVEL_0", "FAILED"]}, CheckId.SUMMARY),
        ({"verificationResult": "passed"}, CheckId.PREDICATE),
        ({"inputAttestations": []}, CheckId.PREDICATE),
        ({"timeVerified": "yesterday"}, CheckId.PREDICATE),
        ({"policy": {"uri": "x"}}, CheckId.PREDICATE),
    ],
)
def test_a_summary_that_does_not_say_it(world: World, changes: dict[str, object], check: CheckId) -> None:
    world.prove()
    summary(world, changes)
    report = world.admit()
    assert not report.ok
    assert report.check(check).status is Status.FAILED


@attack(by=Position.BUILDER_KEY)
@pytest.mark.parametrize("signer", ["builder", "launcher", "stranger"])
def test_only_the_verifiers_key_summarises(world: World, signer: str) -> None:
    world.prove()
    summary(world, {}, signer)
    refused(world.admit(), CheckId.SUMMARY)


@attack(3, by=Position.VERIFIER_KEY)
def test_a_trusted_failed_summary_outweighs_a_passed_one(proved: World) -> None:
    summary(proved, {"verificationResult": "FAILED", "verifiedLevels": ["FAILED"]})
    refused(proved.admit(), CheckId.SUMMARY)
    refused(proved.verify(), CheckId.SUMMARY)


def test_a_build_after_the_summary_needs_another_only_if_nothing_seen_is_left(proved: World) -> None:
    proved.prove(facts_of(built=NOW - timedelta(hours=1)))
    assert proved.admit().ok


# --- 20: artifacts


def test_trust_on_first_use_can_be_refused(proved: World) -> None:
    report = refused(proved.with_policy(more="refuse_tofu = true\n").verify(), CheckId.ARTIFACTS)
    assert "7 of 7 artifacts refused" in report.check(CheckId.ARTIFACTS).message


def test_an_expected_publisher_alone_is_a_wish_about_artifacts(proved: World) -> None:
    keys = proved.policy.path.parent / "keys"
    (keys / "root.json").write_bytes(Sigstore().trusted_root())
    said = 'issuer = "https://token.ci.example", identity = "https://forge.example/x"'
    more = f'sigstore_root = "keys/root.json"\npublishers."npm:chalk" = {{ {said} }}\n'
    report = refused(proved.with_policy(more=more).verify(), CheckId.ARTIFACTS)
    assert "chalk@5.6.2 is tofu, but https://forge.example/x" in report.check(CheckId.ARTIFACTS).message


@pytest.mark.parametrize(
    "more",
    [
        "refuse_tofu = true",
        'refuse = ["tofu"]',
        'require = { npm = ["npm-signature"] }',
        f'refuse_signers = ["{"A" * 40}"]',
    ],
)
def test_each_wish_about_artifacts_is_needed(proved: World, more: str) -> None:
    """Whatever a policy asks of how artifacts were authenticated, a lock that is not here fails it."""
    policy = proved.with_policy(more=more + "\n").policy
    report = proved.verify()
    request = VerifyRequest(
        layout=proved.layout,
        digest=proved.image.digest,
        platform=AMD64,
        policy=policy,
        expectation=proved.expectation,
        now=NOW,
    )
    checks = tuple(Check(one.id, Status.PASSED, "x") for one in report.checks)
    assert all_hold(checks, request)
    left_out = tuple(
        replace(one, status=Status.NOT_PERFORMED) if one.id is CheckId.ARTIFACTS else one for one in checks
    )
    assert not all_hold(left_out, request)


# --- what is needed


def test_what_is_needed_is_needed_even_if_nothing_failed(proved: World) -> None:
    """The list of needed checks denies by itself: a check that was left out is no check that passed."""
    report = proved.admit()
    request = VerifyRequest(
        layout=proved.layout,
        digest=proved.image.digest,
        platform=AMD64,
        policy=proved.policy,
        expectation=proved.expectation,
        now=NOW,
        purpose=Purpose.ADMISSION,
        marks=proved.root / "marks.json",
        rescan=report_on,
        compare_config=agrees,
    )
    optional = {CheckId.AUDIT, CheckId.REBUILDS, CheckId.AGE, CheckId.ARTIFACTS, CheckId.SBOM}
    complete = tuple(Check(one.id, Status.PASSED, "x") for one in report.checks)
    assert all_hold(complete, request)
    for left_out in CheckId:
        checks = tuple(
            replace(one, status=Status.NOT_PERFORMED) if one.id is left_out else one for one in complete
        )
        assert all_hold(checks, request) is (left_out in optional)


# --- statements are made from permits


def test_statements_are_the_same_bytes_for_the_same_facts(world: World) -> None:
    clean = accept(report_on(world.image), world.image)
    seen = detected(clean, world.lock)
    for _ in range(2):
        made = (
            provenance_statement(seen, summarise(world.lock, AMD64), facts_of()),
            scan_statement(clean, facts_of()),
            detection_statement(seen, facts_of()),
        )
        found = world.bundles()
        assert made == tuple(found[name].statement for name in ("provenance", "scan", "detection"))
        assert found["sbom"].statement == world.bundles()["sbom"].statement
        assert all(statement.is_only_about(world.image.digest) for statement in made)


def test_a_statement_about_another_image_is_not_attached(world: World) -> None:
    bundle = world.bundles()["scan"]
    with pytest.raises(UsageError, match="not about this image"):
        add_referrer(world.base, bundle)
