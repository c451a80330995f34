"""What a policy asks of how artifacts were authenticated: each value can be refused, or asked for by kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from images.authenticity import CAN_BE
from images.errors import KeyUnusable, UsageError
from images.key import content_key
from images.lock import Artifact, ArtifactKind, Authentication, Lock
from images.lockfile import lock_bytes, parse_lock
from provenance.checks import CheckId, Status
from provenance.npm_signatures import Keys
from provenance.origins import Origins, count_origins, counted, judge_origins, trusted_on_first_use
from provenance.policy import Policy
from tests.fakes.locks import AMD64, make_full_lock, make_lock, npm
from tests.fakes.policies import policy_for
from tests.fakes.signed import key_pair, public_pem, sign

PRIVATE, KEY = key_pair("SHA256:" + "r" * 43)
KEYS: Keys = {KEY.id: KEY}
SIGNERS = {
    Authentication.NPM_SIGNATURE: KEY.id,
    Authentication.NPM_PROVENANCE: "https://forge.example/team/tool/.ci/release@refs/tags/v1",
    Authentication.PYPI_ATTESTED: "https://forge.example/team/tool/.ci/release@refs/tags/v1",
    Authentication.DEBIAN_SIGNED: "0123456789ABCDEF0123456789ABCDEF01234567",
}
PAIRS = [(kind, said) for kind, can in CAN_BE.items() for said in sorted(can)]


def artifact(kind: ArtifactKind, said: Authentication) -> Artifact:
    """One of this kind, authenticated so; an npm signature is a real one."""
    made = replace(npm("thing", "1.0.0"), kind=kind, authenticated=said, signer=SIGNERS.get(said, ""))
    if said is Authentication.NPM_SIGNATURE:
        made = replace(made, signature=sign(PRIVATE, KEY.id, made.label, made.integrity).signature)
    return made


def signed_lock(keep: frozenset[str] = frozenset()) -> Lock:
    """A whole lock of npm packages, all signed but ``keep``."""
    lock = make_lock()
    artifacts = tuple(
        one
        if one.id in keep
        else replace(
            one,
            authenticated=Authentication.NPM_SIGNATURE,
            signer=KEY.id,
            signature=sign(PRIVATE, KEY.id, one.label, one.integrity).signature,
        )
        for one in lock.artifacts
    )
    return replace(lock, artifacts=artifacts)


@pytest.mark.parametrize(("kind", "said"), PAIRS)
def test_every_value_can_be_refused(kind: ArtifactKind, said: Authentication) -> None:
    one = artifact(kind, said)
    for refused in Authentication:
        problem = Origins(refuse=frozenset({refused}), npm_keys=KEYS).problem(one)
        assert problem == (f"{one.id} is {said}" if refused is said else None)


@pytest.mark.parametrize(("kind", "said"), PAIRS)
def test_every_value_can_be_asked_for_by_kind(kind: ArtifactKind, said: Authentication) -> None:
    one = artifact(kind, said)
    for asked in Authentication:
        problem = Origins(require=((kind, frozenset({asked})),), npm_keys=KEYS).problem(one)
        assert problem == (None if asked is said else f"{one.id} is {said}, not {asked}")
    others = tuple((other, frozenset({Authentication.LOCAL})) for other in ArtifactKind if other is not kind)
    assert Origins(require=others, npm_keys=KEYS).problem(one) is None


@pytest.mark.parametrize(("kind", "said"), [pair for pair in PAIRS if pair[1] in SIGNERS])
def test_every_signer_can_be_refused(kind: ArtifactKind, said: Authentication) -> None:
    one = artifact(kind, said)
    problem = Origins(refuse_signers=frozenset({one.signer}), npm_keys=KEYS).problem(one)
    assert problem == f"{one.id} is signed by {one.signer}"
    assert Origins(refuse_signers=frozenset({one.signer + "x"}), npm_keys=KEYS).problem(one) is None


def test_what_a_lock_says_of_a_signature_is_checked_again_by_whoever_verifies() -> None:
    """A lock that was edited to say npm-signature does not pass as signed."""
    lock, origins = signed_lock(), Origins(refuse=frozenset({Authentication.TOFU}), npm_keys=KEYS)
    assert parse_lock(lock_bytes(lock)) == lock
    assert content_key(lock, AMD64) == content_key(make_lock(), AMD64)
    good = judge_origins(lock, "", origins)
    assert (good.status, good.message) == (Status.PASSED, "7 npm-signature")
    first, *rest = lock.artifacts
    for changed in (
        replace(first, integrity=npm("other", "1.0.0").integrity),
        replace(first, signature=rest[0].signature),
    ):
        judged = judge_origins(replace(lock, artifacts=(changed, *rest)), "", origins)
        assert judged.status is Status.FAILED
        assert f"1 of 7 artifacts refused: {first.id}: its registry signature" in judged.message
    unknown = judge_origins(lock, "", replace(origins, npm_keys={}))
    assert "7 of 7 artifacts refused" in unknown.message
    assert "not pinned" in unknown.message


def test_the_refused_ones_are_named() -> None:
    lock = signed_lock(keep=frozenset({"npm:chalk@5.6.2", "npm:ansi@1.0.0"}))
    judged = judge_origins(lock, "", Origins(refuse=frozenset({Authentication.TOFU}), npm_keys=KEYS))
    assert judged.message == ("2 of 7 artifacts refused: npm:ansi@1.0.0 is tofu; npm:chalk@5.6.2 is tofu")
    assert judged.next_step("x") == "builder lock"


def test_a_long_list_is_cut_and_counted() -> None:
    lock = replace(make_lock(), artifacts=tuple(npm(f"p{number}", "1.0.0") for number in range(25)))
    judged = judge_origins(lock, "", Origins(refuse=frozenset({Authentication.TOFU})))
    assert judged.message.startswith("25 of 25 artifacts refused: ")
    assert judged.message.endswith("; and 15 more")


def test_nothing_asked_is_not_performed_and_a_missing_lock_fails() -> None:
    assert judge_origins(make_lock(), "", Origins()).status is Status.NOT_PERFORMED
    lost = judge_origins(None, "it is not here", Origins(refuse=frozenset({Authentication.LOCAL})))
    assert (lost.id, lost.status, lost.message) == (CheckId.ARTIFACTS, Status.FAILED, "it is not here")


def test_those_that_nobody_vouched_for_are_named_briefly() -> None:
    assert trusted_on_first_use(signed_lock().artifacts) == ""
    lock = make_lock()
    assert trusted_on_first_use(lock.artifacts, 7).count(",") == 6
    assert trusted_on_first_use(lock.artifacts, 2).endswith(" and 5 more")
    assert counted(make_full_lock().artifacts) == {"tofu": 7, "npm-signature": 1, "local": 1}


def test_counted_in_words() -> None:
    assert count_origins(make_full_lock().artifacts) == "7 tofu, 1 npm-signature, 1 local"
    assert count_origins(()) == ""


# -- in policy.toml


def policy(root: Path, more: str) -> Policy:
    return policy_for(root, base=make_lock().base.requested, expect={}, more=more)


def test_a_policy_says_it(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/registry.pub").write_bytes(public_pem(PRIVATE))
    text = f"""refuse = ["tofu"]
require = {{ npm = ["npm-signature", "tofu"], deb = ["debian-signed"] }}
refuse_signers = ["{KEY.id}"]
npm_keys = {{ "{KEY.id}" = "keys/registry.pub" }}
"""
    assert policy(tmp_path, text).origins == Origins(
        refuse=frozenset({Authentication.TOFU}),
        require=(
            (ArtifactKind.DEB, frozenset({Authentication.DEBIAN_SIGNED})),
            (ArtifactKind.NPM, frozenset({Authentication.NPM_SIGNATURE, Authentication.TOFU})),
        ),
        refuse_signers=frozenset({KEY.id}),
        npm_keys=KEYS,
    )
    assert policy(tmp_path, "").origins == Origins()
    assert not Origins().asks


@pytest.mark.parametrize("said", Authentication)
def test_each_value_in_refuse(tmp_path: Path, said: Authentication) -> None:
    found = policy(tmp_path, f'refuse = ["{said}"]\n').origins
    assert (found.refuse, found.asks) == ({said}, True)


def test_the_short_form_for_trust_on_first_use(tmp_path: Path) -> None:
    more = 'refuse_tofu = true\nrefuse = ["local"]\n'
    assert policy(tmp_path, more).origins.refuse == {Authentication.TOFU, Authentication.LOCAL}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('refuse = ["TOFU"]', "refuse"),
        ('refuse = ["unsigned"]', "expected one of tofu"),
        ('refuse = "tofu"', "refuse"),
        ("refuse = [1]", "refuse"),
        ("require = { npm = [] }", "npm: expected some of npm-signature, tofu"),
        ('require = { npm = ["debian-signed"] }', "npm: expected some of"),
        ('require = { npm = ["npm-provenance"] }', "npm: expected some of"),
        ('require = { rpm = ["tofu"] }', "expected one of npm"),
        ('require = { npm = "npm-signature" }', "require"),
        ('require = ["npm-signature"]', "require"),
        ('refuse_signers = [""]', "refuse_signers"),
        ('refuse_signers = ["a b"]', "refuse_signers"),
        ('npm_keys = { mine = "keys/registry.pub" }', "npm_keys"),
        (f'npm_keys = {{ "{KEY.id}" = "" }}', "npm_keys"),
        (f'npm_keys = {{ "{KEY.id}" = "keys/none.pub" }}', "none.pub"),
    ],
)
def test_what_a_policy_cannot_ask(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        policy(tmp_path, more + "\n")
    assert said in str(refused.value)


def test_a_registry_key_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/registry.pub").write_bytes(b"nothing")
    with pytest.raises(KeyUnusable, match="not one PEM block"):
        policy(tmp_path, f'npm_keys = {{ "{KEY.id}" = "keys/registry.pub" }}\n')
