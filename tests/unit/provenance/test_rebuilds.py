"""Check 18: rebuilds are counted by distinct keys, about this image and lock, and by nobody else's word."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from images.digests import Digest
from images.errors import UsageError
from images.key import summarise
from images.lock import Lock
from provenance.checks import CheckId, Status
from provenance.layout import open_image
from provenance.predicates import DETECTION_TYPE, SCAN_TYPE
from provenance.referrers import add_referrer
from provenance.scan.accept import accept
from provenance.signing import Bundle, sign
from provenance.statements import DetectedImage, provenance_statement
from provenance.verify import VerificationReport
from tests.fakes.evidence import attach_raw, key
from tests.fakes.layouts import make_image
from tests.fakes.locks import AMD64
from tests.fakes.policies import BUILDER_ID, HEAD, TRUST, rebuilder_entry, rebuilder_id
from tests.fakes.proved import (
    BASE_FILES,
    BUILT,
    CONFIG,
    NOW,
    World,
    detected,
    facts_of,
    proved_world,
    report_on,
)

BOTH = TRUST + rebuilder_entry("one") + rebuilder_entry("two")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Proved and attested, under a policy that knows two rebuilders and asks for one."""
    return asking(proved_world(tmp_path), 1)


def asking(world: World, count: int, trust: str = BOTH, more: str = "") -> World:
    return world.with_policy(trust=trust, more=f"min_rebuilds = {count}\n{more}")


def seen(world: World) -> DetectedImage:
    return detected(accept(report_on(world.image), world.image), world.lock)


def rebuilt(world: World, signer: str = "one", /, *, lock: Lock | None = None, **facts: object) -> Bundle:
    """A rebuilder's statement, signed."""
    said = facts_of(**{"builder_id": rebuilder_id(signer), **facts})  # type: ignore[arg-type]
    return sign(provenance_statement(seen(world), summarise(lock or world.lock, AMD64), said), key(signer))


def answer(report: VerificationReport) -> tuple[Status, str]:
    check = report.check(CheckId.REBUILDS)
    assert report.ok is (check.status is not Status.FAILED)
    return check.status, check.message


def test_none_asked_for_and_none_attached_is_not_performed(tmp_path: Path) -> None:
    report = proved_world(tmp_path).verify()
    assert report.check(CheckId.REBUILDS).status is Status.NOT_PERFORMED
    assert report.ok


def test_too_few_is_a_failure_also_at_a_launch(world: World) -> None:
    assert answer(world.verify()) == (Status.FAILED, "0 of 1 asked for")
    assert not world.admit().ok
    hint = world.verify().check(CheckId.REBUILDS).next_step("sha256:00")
    assert hint == "builder verify --sign-rebuild sha256:00"


def test_distinct_keys_are_counted(world: World) -> None:
    add_referrer(world.image, rebuilt(world))
    status, said = answer(world.verify())
    assert (status, said) == (Status.PASSED, f"1 of 1 asked for by {key('one').public.fingerprint}")
    assert answer(asking(world, 2).verify())[0] is Status.FAILED
    add_referrer(world.image, rebuilt(world, "two"))
    assert answer(asking(world, 2).verify())[0] is Status.PASSED
    assert asking(world, 2).admit().check(CheckId.REBUILDS).status is Status.PASSED


def test_they_are_shown_when_nobody_asks(world: World) -> None:
    add_referrer(world.image, rebuilt(world))
    status, said = answer(asking(world, 0).verify())
    assert status is Status.PASSED
    assert said == f"1, none asked for by {key('one').public.fingerprint}"


def test_the_summary_names_them(world: World) -> None:
    made = rebuilt(world)
    add_referrer(world.image, made)
    assert made.statement.digest in world.verify().inputs


def test_one_key_with_many_statements_counts_once(world: World) -> None:
    for minute in range(3):
        add_referrer(world.image, rebuilt(world, built=BUILT + timedelta(minutes=minute)))
    assert answer(asking(world, 2).verify())[0] is Status.FAILED


def test_one_key_under_two_entries_is_refused_whatever_form_it_has(world: World) -> None:
    """Another encoding of the same point must not make a second witness of one key."""
    folder = world.policy.path.parent / "keys"
    public = key("one").public.key
    point = public.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)  # type: ignore[union-attr]
    # SubjectPublicKeyInfo of P-256 with a compressed point, written by hand.
    head = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200")
    text = base64.encodebytes(head + point).decode()
    (folder / "again.pub").write_text(f"-----BEGIN PUBLIC KEY-----\n{text}-----END PUBLIC KEY-----\n")
    trust = TRUST + rebuilder_entry("one") + rebuilder_entry("again")
    with pytest.raises(UsageError, match="the same key is trusted twice"):
        asking(world, 2, trust)


def test_a_builder_does_not_confirm_himself(world: World) -> None:
    world.prove(facts_of(built=BUILT + timedelta(hours=1)))  # the builder's own second build
    assert answer(world.verify())[0] is Status.FAILED
    # Nor under the rebuilder's name, nor a rebuilder under the builder's.
    for name, said in (("builder", rebuilder_id("one")), ("one", BUILDER_ID)):
        add_referrer(world.image, rebuilt(world, name, builder_id=said))
    report = world.verify()
    assert answer(report)[0] is Status.FAILED
    assert sum("not paired with its key" in line for line in report.ignored) == 2


def test_a_rebuilder_replaces_no_builder(tmp_path: Path) -> None:
    """Two roles: rebuilders alone prove nothing, and they sign neither scan nor detection."""
    world = asking(proved_world(tmp_path / "proved"), 1)
    bare = replace(world, image=open_image(world.layout, make_image(world.layout, (BASE_FILES, {"a": b"b"}))))
    add_referrer(bare.image, rebuilt(bare))
    report = bare.verify()
    assert not report.ok
    assert report.check(CheckId.SIGNATURE).status is Status.FAILED
    made = bare.bundles(facts_of(rebuilder_id("one")), signer="one")
    for name in ("scan", "detection"):
        add_referrer(bare.image, made[name])
    report = bare.verify()
    assert not report.ok
    for kind in (SCAN_TYPE, DETECTION_TYPE):
        assert any(f"{kind} is not for the rebuilder key" in line for line in report.ignored)


def test_a_statement_about_another_image_does_not_count(world: World) -> None:
    other = open_image(world.layout, make_image(world.layout, (BASE_FILES, {"x": b"y"}), config=CONFIG))
    made = rebuilt(replace(world, image=other))
    attach_raw(world.layout, world.image.digest, made.raw)
    report = world.verify()
    assert answer(report)[0] is Status.FAILED
    assert any("the statement is about" in line for line in report.ignored)


def test_another_lock_or_name_does_not_count(world: World) -> None:
    """The same digest can come of a lock made anew: that rebuild says nothing about this one."""
    other = replace(world.lock, config=Digest.of(b"another configuration"))
    add_referrer(world.image, rebuilt(world, lock=other))
    add_referrer(world.image, rebuilt(world, "two", name="team/others"))
    status, said = answer(world.verify())
    assert status is Status.FAILED
    assert "is about lock" in said
    assert "is about image 'team/others'" in said


def test_one_from_the_future_does_not_count(world: World) -> None:
    add_referrer(world.image, rebuilt(world, built=NOW + timedelta(hours=1)))
    assert "says it was built on 2026-12-01 13:00" in answer(world.verify())[1]


def test_a_rebuild_makes_an_old_image_no_younger(world: World) -> None:
    add_referrer(world.image, rebuilt(world, built=NOW))
    report = asking(world, 1, more='max_age = "1d"\n').verify()
    assert report.check(CheckId.REBUILDS).status is Status.PASSED
    assert report.check(CheckId.AGE).status is Status.FAILED


def test_revoked_and_ended_keys_do_not_count(world: World) -> None:
    add_referrer(world.image, rebuilt(world))
    gone = f'revoked = {{ keys = ["{key("one").public.fingerprint}"] }}\n'
    assert answer(asking(world, 1, more=gone).verify())[0] is Status.FAILED
    name = f'revoked = {{ builder_ids = ["{rebuilder_id("one")}"] }}\n'
    assert answer(asking(world, 1, more=name).verify())[0] is Status.FAILED
    ended = TRUST + rebuilder_entry("one") + "not_after = 2026-11-30T00:00:00Z\n"
    assert answer(asking(world, 1, ended).verify())[0] is Status.FAILED
    assert answer(world.verify())[0] is Status.PASSED


def test_an_untrusted_rebuilder_neither_helps_nor_breaks(world: World) -> None:
    add_referrer(world.image, rebuilt(world, "two"))
    only = TRUST + rebuilder_entry("one")
    assert answer(asking(world, 1, only).verify())[0] is Status.FAILED
    assert answer(asking(world, 0, only).verify())[0] is Status.NOT_PERFORMED


@pytest.mark.parametrize("count", [0, 1])
def test_a_trusted_rebuilder_who_contradicts_fails_the_check(world: World, count: int) -> None:
    """About this very lock, and yet with another artifact: one of the two is wrong."""
    add_referrer(world.image, rebuilt(world, "two"))
    summary = summarise(world.lock, AMD64)
    wrongs = (
        replace(summary, key=Digest.of(b"another key")),
        replace(summary, artifacts=summary.artifacts[1:]),
        replace(summary, base=replace(summary.base, manifest=Digest.of(b"another base"))),
    )
    for number, wrong in enumerate(wrongs):
        made = asking(proved_world(world.root / str(number)), count)
        said = provenance_statement(seen(made), wrong, facts_of(rebuilder_id("one")))
        add_referrer(made.image, sign(said, key("one")))
        status, message = answer(made.verify())
        assert status is Status.FAILED
        assert "a trusted rebuilder contradicts" in message


def test_a_policy_cannot_ask_for_more_than_it_knows(world: World) -> None:
    assert asking(world, 2).policy.min_rebuilds == 2
    with pytest.raises(UsageError, match=r"line 5: min_rebuilds: 3 are asked for, but 2"):
        asking(world, 3)
    assert HEAD.count("\n") == 4
