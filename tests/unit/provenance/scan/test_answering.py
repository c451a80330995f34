"""Who answers for an archive or a finding: base layers, and locked artifacts by their bytes; nobody else."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest

from images.digests import Digest
from images.errors import StateError
from images.lock import Artifact
from provenance.scan.answering import answer, owners
from provenance.scan.report import Finding, OpaqueMember, Place, PlaceKind, Verdict
from tests.fakes.credentials import Entry, make_tar
from tests.fakes.locks import AMD64
from tests.fakes.proved import World, make_world, report_on

BYTES = b"7z\xbc\xaf\x27\x1c and more"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def place_of(world: World) -> tuple[str, Artifact]:
    """A path of the image that a locked npm package is unpacked at, and the package."""
    one = world.lock.installed[0]
    entry = one.tree(AMD64).entries[0]
    return f"{one.directory.lstrip('/')}/{entry.path}", world.lock.by_id()[entry.artifact]


@contextmanager
def tarball(_artifact: Artifact) -> Iterator[BinaryIO]:
    yield BytesIO(gzip.compress(make_tar([Entry("package/a.7z", BYTES), Entry("package/b", b"x")])))


@contextmanager
def missing(_artifact: Artifact) -> Iterator[BinaryIO]:
    raise StateError("not in the store", where="x")
    yield


def opaque(world: World, path: str, content: bytes, layer: int = 1) -> OpaqueMember:
    digest = Digest.of(content)
    blob = str(world.image.manifest.layers[layer].digest)
    return OpaqueMember(blob, path, "7z", digest, 9, "7z is not opened", digest)


def test_a_member_of_the_locked_package_is_answered_by_it_and_by_its_bytes_alone(world: World) -> None:
    place, artifact = place_of(world)
    members = (
        opaque(world, f"{place}/a.7z", BYTES),
        opaque(world, f"{place}/a.7z!inner.rar", BYTES),
        opaque(world, f"{place}/a.7z", BYTES + b"!"),
        opaque(world, "srv/a.7z", BYTES),
    )
    report = report_on(world.image, opaque=members, opaque_count=4)
    got = answer(report, world.image, world.lock, tarball)
    assert [member.by for member in got.opaque] == [artifact.id, artifact.id, "", ""]
    assert got.unanswered == 2


def test_without_the_artifact_nothing_is_answered(world: World) -> None:
    place, _ = place_of(world)
    report = report_on(world.image, opaque=(opaque(world, f"{place}/a.7z", BYTES),), opaque_count=1)
    for opener in (missing, None):
        assert answer(report, world.image, world.lock, opener).unanswered == 1


def test_all_of_a_base_layer_is_the_base_s(world: World) -> None:
    report = report_on(world.image, opaque=(opaque(world, "x", BYTES, 0),), opaque_count=1)
    (member,) = answer(report, world.image, world.lock, None).opaque
    assert member.by == f"the base {world.base.digest}"


def test_a_finding_is_explained_and_stays_a_finding(world: World) -> None:
    path, artifact = place_of(world)
    blob = str(world.image.manifest.layers[1].digest)
    place = Place(PlaceKind.CONTENT, blob, f"{path}/b", 3)
    finding = Finding("jwt", place, "0" * 16, file=str(Digest.of(b"x")))
    got = answer(report_on(world.image, findings=(finding,)), world.image, world.lock, tarball)
    assert got.findings[0].explained == artifact.id
    assert got.verdict is Verdict.FOUND


def test_the_deepest_package_comes_first(world: World) -> None:
    place, artifact = place_of(world)
    assert next(owners(world.lock, AMD64, f"{place}/x")).id == artifact.id
    assert list(owners(world.lock, AMD64, "usr/bin/x")) == []
