"""What a policy asks of how artifacts were authenticated: each value can be refused, or asked for by kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.authenticity import BY_PUBLISHER, CAN_BE
from images.errors import KeyUnusable, UsageError
from images.key import content_key
from images.lock import Artifact, ArtifactKind, Authentication, Lock
from images.lockfile import lock_bytes, parse_lock
from provenance.checks import CheckId, Status
from provenance.npm_signatures import Keys
from provenance.origins import Origins, count_origins, counted, judge_origins, trusted_on_first_use
from provenance.policy import Policy
from provenance.publishers import Publisher, Publishers
from provenance.sigstore_root import read_sigstore_root
from tests.fakes.locks import AMD64, make_full_lock, make_lock, npm, wheel
from tests.fakes.policies import policy_for
from tests.fakes.signed import key_pair, public_pem, sign
from tests.fakes.sigstores import EXPECTED, ISSUER, REPOSITORY, WORKFLOW, Sigstore, Who, attested

PRIVATE, KEY = key_pair("SHA256:" + "r" * 43)
KEYS: Keys = {KEY.id: KEY}
SIGSTORE = Sigstore()
ROOT = read_sigstore_root(SIGSTORE.trusted_root(), "test")
PUBLISHERS = Publishers(ROOT, {"npm:thing": EXPECTED, "pypi:thing": EXPECTED})
SIGNERS = {
    Authentication.NPM_SIGNATURE: KEY.id,
    Authentication.NPM_PROVENANCE: Who().identity,
    Authentication.PYPI_ATTESTED: Who().identity,
    Authentication.DEBIAN_SIGNED: "0123456789ABCDEF0123456789ABCDEF01234567",
}
PAIRS = [(kind, said) for kind, can in CAN_BE.items() for said in sorted(can)]


def artifact(kind: ArtifactKind, said: Authentication) -> Artifact:
    """One of this kind, authenticated so; signatures and attestations are real ones."""
    plain = npm("thing", "1.0.0")
    if kind is ArtifactKind.WHEEL:
        plain = wheel("thing-1.0.0-py3-none-any.whl")
    if said is BY_PUBLISHER.get(kind):
        return attested(replace(plain, kind=kind), SIGSTORE)
    made = replace(plain, kind=kind, authenticated=said, signer=SIGNERS.get(said, ""))
    if said is Authentication.NPM_SIGNATURE:
        made = replace(made, signature=sign(PRIVATE, KEY.id, made.label, made.integrity).signature)
    return made


def trusting(one: Artifact, **asked: Any) -> Origins:
    """A policy that has what this artifact is checked with."""
    publishers = PUBLISHERS if one.attestation else Publishers()
    return Origins(npm_keys=KEYS, publishers=publishers, **asked)


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
        problem = trusting(one, refuse=frozenset({refused})).problem(one)
        assert problem == (f"{one.id} is {said}" if refused is said else None)


@pytest.mark.parametrize(("kind", "said"), PAIRS)
def test_every_value_can_be_asked_for_by_kind(kind: ArtifactKind, said: Authentication) -> None:
    one = artifact(kind, said)
    for asked in Authentication:
        problem = trusting(one, require=((kind, frozenset({asked})),)).problem(one)
        assert problem == (None if asked is said else f"{one.id} is {said}, not {asked}")
    others = tuple((other, frozenset({Authentication.LOCAL})) for other in ArtifactKind if other is not kind)
    assert trusting(one, require=others).problem(one) is None


@pytest.mark.parametrize(("kind", "said"), [pair for pair in PAIRS if pair[1] in SIGNERS])
def test_every_signer_can_be_refused(kind: ArtifactKind, said: Authentication) -> None:
    one = artifact(kind, said)
    problem = trusting(one, refuse_signers=frozenset({one.signer})).problem(one)
    assert problem == f"{one.id} is signed by {one.signer}"
    assert trusting(one, refuse_signers=frozenset({one.signer + "x"})).problem(one) is None


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


# -- publishers


def test_an_expected_publisher_is_an_ask_of_its_own() -> None:
    """Whoever names one gets him or nothing: a signed package of nobody's is refused too."""
    lock = signed_lock()
    origins = Origins(npm_keys=KEYS, publishers=Publishers(ROOT, {"npm:chalk": EXPECTED}))
    assert origins.asks
    judged = judge_origins(lock, "", origins)
    assert judged.status is Status.FAILED
    assert judged.message == (
        "1 of 7 artifacts refused: npm:chalk@5.6.2 is npm-signature, "
        "but https://forge.example/team/tool/.ci/release.yml should have published it"
    )
    proved = [attested(one, SIGSTORE) if one.name == "chalk" else one for one in lock.artifacts]
    stated = replace(lock, artifacts=tuple(proved))
    assert parse_lock(lock_bytes(stated)) == stated
    assert content_key(stated, AMD64) == content_key(lock, AMD64)
    judged = judge_origins(stated, "", origins)
    assert (judged.status, judged.message) == (
        Status.PASSED,
        f"6 npm-signature, 1 npm-provenance; published as expected: npm:chalk@5.6.2 by {Who().identity}",
    )


def test_a_lock_alone_proves_no_publisher() -> None:
    """A policy that names no root, or nobody for this package, does not take the lock's word."""
    one = attested(npm("thing", "1.0.0"), SIGSTORE)
    asks = frozenset({Authentication.TOFU})
    bare = Origins(refuse=asks)
    assert "no sigstore_root is named" in (bare.problem(one) or "")
    rooted = Origins(refuse=asks, publishers=Publishers(ROOT))
    assert "nobody is expected here" in (rooted.problem(one) or "")
    other = read_sigstore_root(Sigstore().trusted_root(), "other")
    stranger = Origins(refuse=asks, publishers=Publishers(other, {"npm:thing": EXPECTED}))
    assert "signature does not hold" in (stranger.problem(one) or "")


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


def test_a_policy_says_whom_to_expect(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/root.json").write_bytes(SIGSTORE.trusted_root())
    text = f"""sigstore_root = "keys/root.json"
publishers."npm:@team/thing" = {{ issuer = "{ISSUER}", repository = "{REPOSITORY}", workflow = "{WORKFLOW}" }}
publishers."pypi:thing" = {{ issuer = "{ISSUER}", identity = "mailto:someone@forge.example" }}
"""
    assert policy(tmp_path, text).origins.publishers == Publishers(
        ROOT,
        {
            "npm:@team/thing": EXPECTED,
            "pypi:thing": Publisher(issuer=ISSUER, identity="mailto:someone@forge.example"),
        },
    )


GOOD = f'issuer = "{ISSUER}", identity = "https://x.example/y"'


@pytest.mark.parametrize(
    ("package", "said", "why"),
    [
        ("npm:thing", 'identity = "https://x.example/y"', "issuer"),
        ("npm:thing", 'issuer = "", identity = "https://x.example/y"', "issuer"),
        ("npm:thing", f'issuer = "{ISSUER}"', "expected either identity, or repository and workflow"),
        ("npm:thing", f'issuer = "{ISSUER}", identity = ""', "a URI"),
        ("npm:thing", f'issuer = "{ISSUER}", identity = "someone@forge.example"', "a URI"),
        ("npm:thing", f'issuer = "{ISSUER}", repository = "{REPOSITORY}"', "repository and workflow"),
        ("npm:thing", f'issuer = "{ISSUER}", workflow = "{WORKFLOW}"', "repository and workflow"),
        ("npm:thing", f'{GOOD}, repository = "{REPOSITORY}", workflow = "x"', "either identity"),
        ("npm:thing", f'issuer = "{ISSUER}", repository = "{REPOSITORY}/", workflow = "x"', "without a /"),
        ("npm:thing", f'issuer = "{ISSUER}", repository = "team/tool", workflow = "x"', "https://"),
        ("npm:thing", f'issuer = "{ISSUER}", repository = "{REPOSITORY}", workflow = "x@y"', "without a @"),
        ("npm:thing", f'issuer = "{ISSUER}", repository = "{REPOSITORY}", workflow = "/x"', "a path in the"),
        ("npm:thing", f'{GOOD}, ref = "refs/heads/main"', "ref"),
        ("thing", GOOD, "npm:NAME or pypi:NAME"),
        ("npm:@team/*", GOOD, "npm:NAME or pypi:NAME"),
        ("pypi:Thing", GOOD, "normal name"),
        ("deb:make", GOOD, "npm:NAME or pypi:NAME"),
    ],
)
def test_whom_a_policy_cannot_expect(tmp_path: Path, package: str, said: str, why: str) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/root.json").write_bytes(SIGSTORE.trusted_root())
    text = f'sigstore_root = "keys/root.json"\npublishers."{package}" = {{ {said} }}\n'
    with pytest.raises(UsageError) as refused:
        policy(tmp_path, text)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("root", "why"),
    [
        (b"", "not acceptable JSON"),
        (b"[]", "not an object"),
        (b"{}", "not a trusted root of type"),
        (SIGSTORE.trusted_root(tlogs=[]), "without tlogs"),
        (SIGSTORE.trusted_root(ctlogs=[]), "without ctlogs"),
        (SIGSTORE.trusted_root(certificateAuthorities=[]), "without certificateAuthorities"),
        (SIGSTORE.trusted_root(more="x" * (1 << 20)), "more than"),
    ],
)
def test_a_trusted_root_that_is_none(tmp_path: Path, root: bytes, why: str) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/root.json").write_bytes(root)
    with pytest.raises((KeyUnusable, UsageError), match=why):
        policy(tmp_path, 'sigstore_root = "keys/root.json"\n')


def test_publishers_need_a_root(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="publishers: whom to expect is checked with sigstore_root"):
        policy(tmp_path, f'publishers."npm:thing" = {{ {GOOD} }}\n')


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
        ("require = { npm = [] }", "npm: expected some of npm-provenance, npm-signature, tofu"),
        ('require = { npm = ["debian-signed"] }', "npm: expected some of"),
        ('require = { npm = ["pypi-attested"] }', "npm: expected some of"),
        ('require = { deb = ["npm-provenance"] }', "deb: expected some of debian-signed"),
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
