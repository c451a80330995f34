"""`builder policy check`: each line of a policy in words, and whether anything can be launched under it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from images.digests import Digest
from images.errors import StateError
from provenance.marks import Marks
from provenance.policy import Policy
from provenance.policy_model import PolicyToml, TrustToml
from provenance.policy_words import DECIDED_BY, SOON, Bearing, PolicyLine, explain_policy
from tests.fakes.evidence import key
from tests.fakes.policies import HEAD, TRUST, policy_for

BASE = Digest.of(b"base")
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def lines(policy: Policy, *, now: datetime = NOW, marks: Marks | None = None) -> tuple[PolicyLine, ...]:
    return explain_policy(policy, lambda: marks or Marks(policy.serial, policy.digest), now)


def refusing(found: tuple[PolicyLine, ...]) -> list[str]:
    return [line.setting for line in found if line.bearing is Bearing.REFUSES]


def said(found: tuple[PolicyLine, ...], setting: str) -> str:
    return "\n".join(line.says for line in found if line.setting == setting)


def test_a_right_policy_refuses_nothing(tmp_path: Path) -> None:
    found = lines(policy_for(tmp_path, base=BASE))
    assert refusing(found) == []
    assert said(found, "mode") == "required: rootless engines only"
    assert said(found, "serial") == "3; the highest accepted with this state is 3"
    assert said(found, "valid_until") == "the policy ends on 2027-02-28, in 88 days"
    assert said(found, "bases") == str(BASE)
    assert said(found, "trust").count(" key sha256:") == 3


def test_every_setting_is_told(tmp_path: Path) -> None:
    more = f"""accept = [{{ what = "limits-not-enforced", why = "cgroup v1 host" }}]
max_age = "90d"
min_rebuilds = 0
min_ruleset = 1
refuse_tofu = true
require = {{ deb = ["debian-signed"] }}
refuse_signers = ["SHA256:jl3bwswu80PjjokCgh0o2w5c2U4LhQAE57gj9cz1kzA"]
require_audit = true
revoked = {{ digests = ["{BASE}"], keys = [], builder_ids = ["urn:x:y"] }}
"""
    found = lines(policy_for(tmp_path, base=BASE, expect={"team/agents": BASE}, more=more))
    assert said(found, "accept") == "limits-not-enforced, not enforced: cgroup v1 host"
    assert said(found, "max_age") == "90 days"
    assert said(found, "refuse") == "tofu"
    assert said(found, "require") == "deb: debian-signed"
    assert said(found, "require_audit") == "a layer audit is needed"
    assert said(found, "revoked") == "1 images, 1 builder ids"
    assert said(found, "expect") == f"team/agents of lock {BASE}"


@pytest.mark.parametrize(
    ("serial", "words"),
    [(4, "3: the policy has serial 3, but 4 was accepted here before"), (3, "3: the policy was changed")],
)
def test_an_older_and_a_silently_changed_policy_refuse(tmp_path: Path, serial: int, words: str) -> None:
    found = lines(policy_for(tmp_path, base=BASE), marks=Marks(serial, Digest.of(b"another")))
    assert refusing(found) == ["serial"]
    assert said(found, "serial").startswith(words)
    assert "builder policy pin" in said(found, "serial")


def test_lost_marks_refuse(tmp_path: Path) -> None:
    def lost() -> Marks:
        raise StateError("the rollback marks are missing", hint="builder policy pin")

    assert refusing(explain_policy(policy_for(tmp_path, base=BASE), lost, NOW)) == ["serial"]


def test_the_end_of_a_policy_is_told_before_it_comes(tmp_path: Path) -> None:
    policy = policy_for(tmp_path, base=BASE)
    moments = {
        policy.valid_until - SOON - timedelta(seconds=1): Bearing.HOLDS,
        policy.valid_until - SOON + timedelta(seconds=1): Bearing.NOTE,
        policy.valid_until: Bearing.NOTE,
        policy.valid_until + timedelta(seconds=1): Bearing.REFUSES,
    }
    for now, bearing in moments.items():
        assert {line.bearing for line in lines(policy, now=now) if line.setting == "valid_until"} == {bearing}


def test_without_a_base_nothing_is_launched(tmp_path: Path) -> None:
    assert refusing(lines(policy_for(tmp_path))) == ["bases"]


def test_a_role_whose_keys_have_all_ended_or_are_revoked_refuses(tmp_path: Path) -> None:
    late = HEAD.replace("2027-02-28", "2030-02-28")
    policy = policy_for(tmp_path / "a", base=BASE, head=late)
    after = datetime(2028, 1, 1, tzinfo=UTC)
    found = lines(policy, now=after)
    assert refusing(found) == ["trust"]
    assert "no builder is believed" in said(found, "trust")
    assert "ended on 2027-11-29" in said(found, "trust")
    revoked = f'revoked = {{ keys = ["{key("verifier").public.fingerprint}"] }}\n'
    found = lines(policy_for(tmp_path / "b", base=BASE, more=revoked, trust=TRUST))
    assert refusing(found) == ["trust"]
    assert "no verifier is believed" in said(found, "trust")


def test_what_decides_a_check_is_a_setting_that_there_is() -> None:
    """And every setting of a policy decides something, or is about a launch."""
    named = {name for names in DECIDED_BY.values() for name in names}
    keys = {field.alias or name for name, field in PolicyToml.model_fields.items()}
    keys |= {f"trust.{name}" for name in TrustToml.model_fields}
    assert named <= keys
