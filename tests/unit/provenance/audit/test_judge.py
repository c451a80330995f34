"""Check 9: an audit made here counts, one that a verifier attested is told, and a policy can need one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from images.digests import Digest
from images.errors import StateError, VerifyFailed
from images.key import content_key
from images.lock import Lock
from images.oci import OciImage
from provenance.attest import attest
from provenance.audit import judge
from provenance.audit.report import AUDIT_RULES, AuditReport, Difference, DifferenceKind, Origin
from provenance.checks import Check, CheckId, Status
from provenance.predicates import AUDIT_FIELD, VsaPredicate, read_predicate
from provenance.referrers import add_referrer
from provenance.signing import Bundle, KeySigner
from provenance.verify import VerificationReport
from tests.fakes.evidence import key
from tests.fakes.locks import AMD64
from tests.fakes.proved import NOW, World, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    made.prove()
    return made


def clean(image: OciImage, lock: Lock) -> AuditReport:
    return AuditReport(
        image=image.digest,
        key=content_key(lock, AMD64),
        entries=3,
        bytes=10,
        origins=((Origin.ARTIFACT, 2), (Origin.GENERATED, 1)),
        scripts=(),
        differences=(),
        difference_count=0,
        unaudited=(),
    )


def differs(image: OciImage, lock: Lock) -> AuditReport:
    found = tuple(Difference(DifferenceKind.EXTRA, 1, f"opt/x{n}", "unexplained") for n in range(5))
    return replace(clean(image, lock), differences=found, difference_count=7)


def impossible(image: OciImage, lock: Lock) -> AuditReport:
    raise StateError("2 of 9 artifacts are not in the store (npm:chalk@5.6.2)", hint="builder lock")


def audited(report: VerificationReport) -> Check:
    return report.check(CheckId.AUDIT)


def attested(world: World, report: VerificationReport) -> Bundle:
    made = attest(report, world.policy, KeySigner(key("verifier")), version="0.1.0", now=NOW)
    if made.passed:
        add_referrer(world.image, made.bundle)
    return made.bundle


def summary_of(bundle: Bundle) -> VsaPredicate:
    return read_predicate(VsaPredicate, bundle.statement.predicate_json, "summary")


def needing(world: World) -> World:
    return world.with_policy(more="require_audit = true\n")


# --- here


def test_an_audit_that_passes(world: World) -> None:
    report = world.verify(audit=clean)
    assert report.ok
    assert audited(report).status is Status.PASSED
    assert "2 files of locked artifacts" in audited(report).message
    assert report.audit == clean(world.image, world.lock)


def test_an_audit_that_finds_something_denies_the_permit(world: World) -> None:
    report = world.verify(audit=differs)
    assert not report.ok
    assert audited(report).status is Status.FAILED
    assert audited(report).message.count("opt/x") == 3
    assert "and 4 more" in audited(report).message
    with pytest.raises(VerifyFailed, match="check 9") as caught:
        report.require()
    assert caught.value.reason == "audit"
    assert "builder build" in caught.value.hint


def unexplained(image: OciImage, lock: Lock) -> AuditReport:
    paths = ("etc/ld.so.cache", "var/lib/dpkg/status")
    return replace(clean(image, lock), unexplained=paths, unexplained_count=2)


def test_what_nobody_replayed_is_refused_unless_the_policy_accepts_it_by_name(world: World) -> None:
    report = world.verify(audit=unexplained)
    assert not report.ok
    assert audited(report).status is Status.FAILED
    assert "2 files" in audited(report).message
    assert "etc/ld.so.cache" in audited(report).message
    assert "unaudited-files" in audited(report).hint
    line = 'accept = [{ what = "unaudited-files", why = "no engine here" }]\n'
    accepting = world.with_policy(lambda text: text.replace("schema = 1\n", f"schema = 1\n{line}"))
    report = accepting.verify(audit=unexplained)
    assert audited(report).status is Status.PASSED
    assert "2 accepted by the policy and compared with nothing" in audited(report).message


def test_acceptance_covers_no_difference(world: World) -> None:
    def both(image: OciImage, lock: Lock) -> AuditReport:
        return replace(differs(image, lock), unexplained=("etc/x",), unexplained_count=1)

    line = 'accept = [{ what = "unaudited-files", why = "no engine here" }]\n'
    accepting = world.with_policy(lambda text: text.replace("schema = 1\n", f"schema = 1\n{line}"))
    assert audited(accepting.verify(audit=both)).status is Status.FAILED


def test_an_audit_that_cannot_be_made_here_says_what_would_make_it(world: World) -> None:
    report = world.verify(audit=impossible)
    assert report.ok
    assert report.audit is None
    assert audited(report).status is Status.NOT_PERFORMED
    for word in ("not run here", "2 of 9 artifacts", "builder lock"):
        assert word in audited(report).message


def test_without_provenance_there_is_nothing_to_audit_against(tmp_path: Path) -> None:
    report = make_world(tmp_path).verify(audit=clean)
    assert (audited(report).status, report.audit) == (Status.NOT_PERFORMED, None)


# --- attested


def test_a_summary_binds_the_audit_and_says_whose_it_is(world: World) -> None:
    made = world.verify(audit=clean)
    bundle = attested(world, made)
    bound = summary_of(bundle).audit
    assert bound is not None
    assert made.audit is not None
    assert bound.report.sha256 == made.audit.digest.hex
    assert (bound.rules, bound.key) == (AUDIT_RULES, made.audit.key)
    assert (bound.entries, bound.bytes) == (3, 10)
    later = world.verify()
    assert later.ok
    assert audited(later).status is Status.NOT_PERFORMED
    assert f"attested by {key('verifier').public.fingerprint}" in audited(later).message
    assert "not run here" in audited(later).message
    assert made.audit.digest in audited(later).message


def test_a_summary_without_an_audit_is_read_as_before(world: World) -> None:
    bundle = attested(world, world.verify())
    assert summary_of(bundle).audit is None
    assert AUDIT_FIELD not in json.loads(bundle.statement.predicate_json)
    assert world.admit().ok
    assert "no trusted summary binds one" in audited(world.verify()).message


def test_of_two_summaries_the_one_with_an_audit_counts(world: World) -> None:
    attested(world, world.verify())
    attested(world, world.verify(audit=clean))
    assert "attested by" in audited(world.verify()).message


def test_a_failed_audit_is_bound_by_no_summary(world: World) -> None:
    report = world.verify(audit=differs)
    bundle = attested(world, report)
    assert summary_of(bundle).verification_result == "FAILED"
    assert summary_of(bundle).audit is None


def test_an_audit_against_another_lock_does_not_count(world: World) -> None:
    def other(image: OciImage, lock: Lock) -> AuditReport:
        return replace(clean(image, lock), key=Digest.of(b"another key"))

    attested(world, world.verify(audit=other))
    assert "no trusted summary binds one" in audited(world.verify()).message


def test_an_audit_under_older_rules_does_not_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    attested(world, world.verify(audit=clean))
    monkeypatch.setattr(judge, "AUDIT_RULES", AUDIT_RULES + 1)
    assert "no trusted summary binds one" in audited(world.verify()).message


def test_what_an_untrusted_key_attests_does_not_count(world: World) -> None:
    attested(world, world.verify(audit=clean))
    revoked = replace(
        world.policy,
        revoked=replace(world.policy.revoked, keys=frozenset({key("verifier").public.fingerprint})),
    )
    assert "no trusted summary binds one" in audited(world.verify(policy=revoked)).message


# --- needed


def test_a_launch_that_needs_an_audit_has_it_from_the_summary(world: World) -> None:
    world = needing(world)
    attested(world, world.verify(audit=clean))
    assert world.admit().ok


def test_a_launch_that_needs_an_audit_is_denied_without(world: World) -> None:
    world = needing(world)
    attested(world, world.verify())
    report = world.admit()
    assert not report.ok
    assert audited(report).status is Status.FAILED
    assert audited(report).next_step(world.image.digest) == f"builder verify --attest {world.image.digest}"


def test_who_could_audit_and_needs_to_must(world: World) -> None:
    world = needing(world)
    report = world.verify(audit=impossible)
    assert audited(report).status is Status.FAILED
    assert "builder lock" in audited(report).message
    # Who only looks whether an image is known is not asked: a build makes no audit.
    assert world.verify().ok
