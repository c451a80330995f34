"""Laws of judging evidence: nothing attached can raise; order and repetition change nothing."""

from __future__ import annotations

import base64
import copy
import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.digests import Digest
from provenance import assertions
from provenance.checks import Check, CheckId, Status
from provenance.evidence import judge_stages, sort_evidence
from provenance.expectations import match_expectation
from provenance.origins import judge_origins
from provenance.referrers import Attached, read_referrers
from tests.fakes.evidence import forge, key, signed
from tests.fakes.proved import NOW, World, proved_world

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


_HELD: list[World] = []


@pytest.fixture(scope="module", autouse=True)
def _one_world(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One proved world for all examples; nothing here changes it."""
    _HELD[:] = [proved_world(tmp_path_factory.mktemp("laws"))]


def world() -> World:
    return _HELD[0]


@cache
def attached() -> tuple[Attached, ...]:
    return read_referrers(world().layout, world().image.digest).bundles


def answers(bundles: list[Attached]) -> dict[CheckId, Check]:
    """The checks that depend on what is attached, without touching a disk."""
    image, policy = world().image, world().policy
    evidence = sort_evidence(bundles, image.digest, policy, NOW)
    found = list(judge_stages(evidence, image.digest, policy))
    locks = read_referrers(world().layout, image.digest).locks
    matched, parameters = match_expectation(world().expectation, evidence, locks, image, policy)
    scans, scanned = assertions.scan_clean(evidence, image, policy)
    detections, detected = assertions.detection_agrees(evidence, matched)
    found += [parameters, scanned, detected, assertions.young_enough(matched, policy, NOW)]
    if matched:
        found += [
            assertions.key_recomputed(matched, image),
            assertions.base_allowed(matched, image, policy),
            judge_origins(matched.lock, matched.why_no_lock, policy.origins),
            assertions.summary_passed(
                evidence, matched.image_name, image, (matched.provenance, scans, detections)
            )[1],
        ]
    return {check.id: check for check in found}


def statuses(bundles: list[Attached]) -> dict[CheckId, Status]:
    return {which: check.status for which, check in answers(bundles).items()}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        found += [one for name, item in value.items() for one in leaves(item, (*path, name))]
    if isinstance(value, list):
        found += [one for number, item in enumerate(value) for one in leaves(item, (*path, number))]
    return found


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_statement_of_a_trusted_key_is_judged_without_an_exception(data: st.DataObject) -> None:
    bundles = list(attached())
    number = data.draw(st.integers(0, len(bundles) - 1))
    envelope = json.loads(bundles[number].data)["dsseEnvelope"]
    document = json.loads(base64.b64decode(envelope["payload"]))
    changed = copy.deepcopy(document)
    path = data.draw(st.sampled_from(leaves(changed)))
    place = changed
    for part in path[:-1]:
        place = place[part]
    if data.draw(st.booleans()):
        place[path[-1]] = data.draw(JSON)
    else:
        del place[path[-1]]
    signer = "verifier" if "verification_summary" in document["predicateType"] else "builder"
    forged = forge(json.dumps(changed).encode(), key(signer))
    bundles[number] = Attached(bundles[number].artifact_type, bundles[number].manifest, forged)
    for check in answers(bundles).values():
        assert check.message


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=5), st.randoms(use_true_random=False))
def test_order_repetition_and_junk_change_nothing(junk: list[bytes], dice: Any) -> None:
    bundles = list(attached())
    expected = statuses(bundles)
    more = bundles + [dice.choice(bundles) for _ in range(3)]
    more += [Attached(bundles[0].artifact_type, Digest.of(raw), raw) for raw in junk]
    dice.shuffle(more)
    assert statuses(more) == expected


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, 3), max_size=3))
def test_no_part_of_the_evidence_is_enough(kept: set[int]) -> None:
    bundles = [one for number, one in enumerate(attached()) if number in kept]
    needed = {CheckId.SIGNATURE, CheckId.SIGNER, CheckId.SUBJECT, CheckId.PREDICATE, CheckId.SCAN,
              CheckId.DETECTION, CheckId.PARAMETERS, CheckId.KEY, CheckId.BASE, CheckId.SUMMARY}  # fmt: skip
    found = statuses(bundles)
    assert not all(found.get(which) is Status.PASSED for which in needed)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["builder", "verifier", "launcher", "stranger"]), min_size=4, max_size=4))
def test_only_the_right_signers_together_pass(signers: list[str]) -> None:
    statements = [json.loads(one.data)["dsseEnvelope"]["payload"] for one in attached()]
    bundles = []
    right = True
    for one, payload, signer in zip(attached(), statements, signers, strict=True):
        raw = base64.b64decode(payload)
        right = right and signer == ("verifier" if b"verification_summary" in raw else "builder")
        bundles.append(Attached(one.artifact_type, one.manifest, signed(raw, key(signer)).raw))
    found = statuses(bundles)
    everything = all(
        found.get(which) is Status.PASSED for which in (CheckId.SIGNER, CheckId.PARAMETERS, CheckId.SUMMARY)
    )
    assert everything is right
