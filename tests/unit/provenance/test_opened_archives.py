"""``nested = "opened"``: what a scan could not open refuses the image, unless somebody answers for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from images.digests import Digest
from provenance.checks import CheckId, Status
from provenance.scan.report import OpaqueMember, ScanReport
from tests.fakes.proved import World, make_world, report_on
from tests.unit.provenance.test_verify import edited, refused

ASKED = 'nested = "opened"\n'
HASH = Digest.of(b"an archive")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def said(**changes: Any) -> dict[str, Any]:
    return {"path": "a.7z", "format": "7z", "digest": HASH, "reason": "7z is not opened", "by": ""} | changes


def with_scan(world: World, **fields: Any) -> World:
    edited(world, "scan", lambda predicate: predicate.update(fields))
    return world


def accepting(digest: str) -> str:
    return ASKED + f'opaque = {{ "{digest}" = "looked at by hand" }}\n'


def test_without_the_wish_what_was_not_opened_is_counted(world: World) -> None:
    report = with_scan(world, notOpened=1, opaque=[said()]).verify()
    assert report.ok
    assert "1 archives inside not opened" in report.check(CheckId.SCAN).message


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"nested": "none", "notOpened": 0, "opaque": []}, "opened no archives"),
        ({"notOpened": 1, "opaque": [said()]}, "a.7z"),
        ({"notOpened": 3, "opaque": []}, "3 archives that were not opened are not listed"),
        ({"notOpened": 0, "opaque": [said()]}, "a.7z"),
    ],
)
def test_an_archive_that_nobody_answers_for(world: World, fields: dict[str, Any], why: str) -> None:
    asked = with_scan(world, **fields).with_policy(more=ASKED)
    assert why in refused(asked.verify(), CheckId.SCAN).check(CheckId.SCAN).message


def test_a_statement_from_before_archives_were_opened_is_still_read(world: World) -> None:
    edited(world, "scan", lambda predicate: [predicate.pop("opaque"), predicate.update(nested="none")])
    assert world.verify().ok
    refused(world.with_policy(more=ASKED).verify(), CheckId.SCAN)


def test_by_its_hash_in_the_policy_it_is_accepted_and_no_other_is(world: World) -> None:
    with_scan(world, notOpened=1, opaque=[said()])
    assert world.with_policy(more=accepting(HASH)).verify().ok
    refused(world.with_policy(more=accepting(Digest.of(b"another"))).verify(), CheckId.SCAN)


def test_what_the_base_or_a_locked_artifact_answers_for_is_accepted(world: World) -> None:
    with_scan(world, notOpened=0, opaque=[said(by="npm:x@1.0.0")])
    assert world.with_policy(more=ASKED).verify().ok


def scanned(image: Any, *members: OpaqueMember, count: int | None = None) -> ScanReport:
    return report_on(image, opaque=members, opaque_count=len(members) if count is None else count)


def member(**changes: Any) -> OpaqueMember:
    fields: dict[str, Any] = {"layer": "l", "path": "a.7z", "format": "7z", "digest": HASH, "size": 3}
    return OpaqueMember(**{**fields, "reason": "7z is not opened", "file": HASH, **changes})


def test_the_scan_here_is_held_to_the_same(world: World) -> None:
    with_scan(world, notOpened=0, opaque=[])
    asked = world.with_policy(more=ASKED)
    for report, why in (
        (lambda image: scanned(image, member()), "a.7z"),
        (lambda image: scanned(image, count=5000), "too many to list"),
    ):
        found = refused(asked.verify(rescan=report), CheckId.RESCAN)
        assert why in found.check(CheckId.RESCAN).message
    for policy, answered in ((ASKED, member(by="the base")), (accepting(HASH), member())):
        report = world.with_policy(more=policy).verify(rescan=lambda image, one=answered: scanned(image, one))
        assert report.check(CheckId.RESCAN).status is Status.PASSED
    assert world.verify(rescan=lambda image: scanned(image, member())).ok


def test_without_the_store_the_builder_s_signed_answer_counts(world: World) -> None:
    with_scan(world, notOpened=0, opaque=[said(by="npm:x@1.0.0")])
    asked = world.with_policy(more=ASKED)
    assert asked.verify(rescan=lambda image: scanned(image, member())).ok
    other = Digest.of(b"another")
    refused(asked.verify(rescan=lambda image: scanned(image, member(digest=other))), CheckId.RESCAN)
