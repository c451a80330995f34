"""Evidence lies beside the image in the form that other tools expect, the same bytes each time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from images.digests import Digest
from images.lockfile import lock_digest
from images.oci import MEDIA_EMPTY, MEDIA_INDEX, MEDIA_MANIFEST
from provenance import assertions
from provenance.bundles import BUNDLE_TYPE
from provenance.checks import CheckId, Status
from provenance.evidence import sort_evidence
from provenance.expectations import Matched
from provenance.layout import read_blob, read_index, read_manifest
from provenance.layout_writing import add_manifest, write_blob
from provenance.predicates import LAUNCH_TYPE, SCAN_TYPE
from provenance.referrers import LOCK_TYPE, add_lock, add_referrer, read_referrers
from provenance.signing import sign
from provenance.statements import launch_statement
from tests.fakes.evidence import attach_raw, key
from tests.fakes.policies import LAUNCHER_ID
from tests.fakes.proved import NAME, NOW, World, make_world, proved_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def test_a_bundle_is_attached_as_cosign_and_oras_do(world: World) -> None:
    bundle = world.bundles()["scan"]
    entry = add_referrer(world.image, bundle)
    document = json.loads(read_manifest(world.layout, entry.digest).raw)
    assert document == {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "artifactType": BUNDLE_TYPE,
        "config": {"mediaType": MEDIA_EMPTY, "digest": str(Digest.of(b"{}")), "size": 2},
        "layers": [{"mediaType": BUNDLE_TYPE, "digest": str(Digest.of(bundle.raw)), "size": len(bundle.raw)}],
        "subject": {
            "mediaType": MEDIA_MANIFEST,
            "digest": str(world.image.digest),
            "size": len(world.image.manifest.raw),
        },
        "annotations": {
            "dev.sigstore.bundle.content": "dsse-envelope",
            "dev.sigstore.bundle.predicateType": SCAN_TYPE,
        },
    }
    assert read_blob(world.layout, Digest.of(b"{}")) == b"{}"
    assert entry.artifact_type == BUNDLE_TYPE
    assert add_referrer(world.image, bundle) == entry
    assert [one.data for one in read_referrers(world.layout, world.image.digest).bundles] == [bundle.raw]


def test_the_lock_travels_too(world: World) -> None:
    entry = add_lock(world.image, world.raw_lock)
    (found,) = read_referrers(world.layout, world.image.digest).locks
    assert (found.artifact_type, found.data, found.manifest) == (LOCK_TYPE, world.raw_lock, entry.digest)


def test_only_what_is_attached_to_this_image_is_read(world: World) -> None:
    world.prove()
    assert read_referrers(world.layout, world.base.digest).bundles == ()
    attach_raw(world.layout, world.image.digest, b"sbom", artifact_type="application/spdx+json")
    raw = json.dumps({"schemaVersion": 2, "manifests": []}).encode()
    add_manifest(world.layout, raw, media_type=MEDIA_INDEX)
    found = read_referrers(world.layout, world.image.digest)
    assert (len(found.bundles), len(found.locks), found.unreadable) == (3, 1, ())


def test_a_launch_record_beside_the_image_says_nothing_for_a_verification(tmp_path: Path) -> None:
    world = proved_world(tmp_path)
    statement = launch_statement(world.image.digest, {"launcher": {"id": LAUNCHER_ID}})
    assert statement.predicate_type == LAUNCH_TYPE
    add_referrer(world.image, sign(statement, key("launcher")))
    report = world.admit()
    assert report.ok
    assert "says nothing for a verification" in report.ignored[0]


KEYS = [
    "config",
    "layers",
    "subject",
    "artifactType",
    "mediaType",
    "digest",
    "size",
    "annotations",
    "manifests",
]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    change=st.dictionaries(
        st.sampled_from(KEYS),
        st.none()
        | st.integers()
        | st.text(max_size=5)
        | st.lists(st.dictionaries(st.sampled_from(KEYS), st.integers() | st.text(max_size=5)), max_size=2)
        | st.dictionaries(st.sampled_from(KEYS), st.integers() | st.text(max_size=5), max_size=3),
        min_size=1,
        max_size=3,
    )
)
def test_any_manifest_is_a_referrer_or_reported(tmp_path: Path, change: dict[str, object]) -> None:
    world = make_world(tmp_path / "world") if not (tmp_path / "world").exists() else None
    layout = tmp_path / "world" / "layout"
    image = world.image.digest if world else read_index(layout).manifests[1].digest
    subject = read_manifest(layout, image)
    document = {
        "schemaVersion": 2,
        "artifactType": BUNDLE_TYPE,
        "config": write_blob(layout, b"{}", MEDIA_EMPTY).to_json(),
        "layers": [write_blob(layout, b"bundle", BUNDLE_TYPE).to_json()],
        "subject": {"mediaType": MEDIA_MANIFEST, "digest": str(image), "size": len(subject.raw)},
    }
    add_manifest(layout, json.dumps(document | change).encode())
    read_referrers(layout, image)


def test_evidence_of_another_image_is_about_another_image(world: World, tmp_path: Path) -> None:
    other = proved_world(tmp_path / "other")
    attached = read_referrers(other.layout, other.image.digest).bundles
    again = sort_evidence(attached, Digest.of(b"not this one"), other.policy, NOW)
    assert again.accepted == ()
    assert {one.stage for one in again.rejected} == {CheckId.SUBJECT}


# --- assertions at their edges


def test_a_lock_that_is_not_for_this_platform(world: World) -> None:
    matched = Matched((), NAME, lock_digest(world.lock), replace(world.lock, platforms=()))
    assert assertions.key_recomputed(matched, world.image).status is Status.FAILED
    assert assertions.base_allowed(matched, world.image, world.policy).status is Status.NOT_PERFORMED


def test_a_base_without_layers_is_a_prefix_of_nothing(world: World) -> None:
    image = replace(world.lock.base.images[0], layers=(), diff_ids=())
    lock = replace(world.lock, base=replace(world.lock.base, images=(image,)))
    checked = assertions.base_allowed(Matched((), NAME, lock_digest(lock), lock), world.image, world.policy)
    assert "no layers" in checked.message
