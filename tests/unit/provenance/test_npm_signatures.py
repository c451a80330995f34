"""npm registry signatures: real ones of the public registry hold, and everything that is not one does not."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    SECP384R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from images.digests import Integrity
from images.errors import ExitCode, KeyUnusable, PinError
from images.lock import Authentication
from provenance import npm_signatures
from provenance.npm_signatures import (
    RegistryKey,
    Signed,
    judge_signatures,
    problem_with_signature,
    read_registry_key,
    shipped_keys,
    signature_holds,
)
from tests.attacks import Position, attack
from tests.fakes.locks import npm
from tests.fakes.signed import NOW_ID, OLD_ID, key_pair, sign

# As the public registry publishes them.
REAL = (
    (
        "@anthropic-ai/claude-code@2.1.112",
        "sha512-9FUgJ0EOvILyhIqxFKNVliebiUjL68dwpEW3eGSSe0vkVDJ1c5qMDNWc22gW3zkD7zRAqtfQPSGv0t4vMM2DPA==",
        NOW_ID,
        "MEUCIQDNq+V7L+Ux4Tqk1/LPdRRGFISaAt8swegEx6TzM4T+cAIgaIK07ApqnGOyp4GGh7oejfKBxqufKt5pL6R7l8cU1RU=",
    ),
    (
        "@midas-ds/checkbox@1.0.3",
        "sha512-SeURf24EoizN5/o2CdUnisZNeCya/KNqdAxAR0lNc842jPs8sGknhv+Woy8QTKswALTk0PrSP3Q/4MvdpFabNQ==",
        OLD_ID,
        "MEUCIQDQJR84xvAX4KcEIR2HUjIZiSMiqnOBXNu9kx+eefUwPgIgCzdqT1+dzBwKuWSuM1IuCeo4ikBmi21hnIXLcK7dosY=",
    ),
)
LABEL = "left-pad@1.0.0"
INTEGRITY = npm("left-pad", "1.0.0").integrity
PRIVATE, KEY = key_pair("SHA256:" + "k" * 43)
KEYS = {KEY.id: KEY}
GOOD = sign(PRIVATE, KEY.id, LABEL, INTEGRITY)
BEFORE = datetime(2024, 12, 2, tzinfo=UTC)


@pytest.mark.parametrize(("label", "integrity", "key_id", "signature"), REAL)
def test_a_real_signature(label: str, integrity: str, key_id: str, signature: str) -> None:
    signed, sri = Signed(key_id, signature), Integrity.from_sri(integrity)
    judged = judge_signatures(label, sri, [signed], BEFORE, shipped_keys())
    assert judged == npm_signatures.Judged(Authentication.NPM_SIGNATURE, key_id, signature)
    name, _, version = label.rpartition("@")
    artifact = replace(
        npm(name, version),
        integrity=sri,
        authenticated=judged.authenticated,
        signer=key_id,
        signature=signature,
    )
    assert problem_with_signature(artifact, shipped_keys()) is None
    changed = replace(artifact, integrity=INTEGRITY)
    assert "does not hold" in (problem_with_signature(changed, shipped_keys()) or "")
    changed = replace(artifact, version=version + "0")
    assert "does not hold" in (problem_with_signature(changed, shipped_keys()) or "")
    assert "not pinned" in (problem_with_signature(artifact, KEYS) or "")
    other = NOW_ID if key_id == OLD_ID else OLD_ID
    assert "does not hold" in (problem_with_signature(replace(artifact, signer=other), shipped_keys()) or "")


def test_the_shipped_keys() -> None:
    assert {key.id: key.expires for key in shipped_keys().values()} == {
        OLD_ID: datetime(2025, 1, 29, tzinfo=UTC),
        NOW_ID: None,
    }


@pytest.mark.parametrize(
    "published", [None, datetime(2025, 1, 29, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]
)
def test_an_expired_key_vouches_for_what_is_older_alone(published: datetime | None) -> None:
    label, integrity, key_id, signature = REAL[1]
    signed = [Signed(key_id, signature)]
    judged = judge_signatures(label, Integrity.from_sri(integrity), signed, published, shipped_keys())
    assert judged.authenticated is Authentication.TOFU
    assert "had expired" in judged.why
    assert (judged.signer, judged.signature) == ("", "")


def false_signatures() -> dict[str, Signed]:
    raw = bytearray(base64.b64decode(GOOD.signature))
    raw[-1] ^= 1
    other, _ = key_pair(KEY.id)
    return {
        "one bit": Signed(KEY.id, base64.b64encode(raw).decode()),
        "of another key": sign(other, KEY.id, LABEL, INTEGRITY),
        "of another version": sign(PRIVATE, KEY.id, "left-pad@1.0.1", INTEGRITY),
        "of another name": sign(PRIVATE, KEY.id, "left-pat@1.0.0", INTEGRITY),
        "of other bytes": sign(PRIVATE, KEY.id, LABEL, npm("x", "1.0.0").integrity),
        "of the hexadecimal form": signed_text(f"{LABEL}:{INTEGRITY}"),
        "nothing": Signed(KEY.id, ""),
        "no base64": Signed(KEY.id, "!" * 96),
        "bad padding": Signed(KEY.id, GOOD.signature + "="),
        "base64 with white space": Signed(KEY.id, GOOD.signature[:40] + "\n" + GOOD.signature[40:]),
        "endless": Signed(KEY.id, "A" * 10_000_000),
        "no DER": Signed(KEY.id, base64.b64encode(bytes(70)).decode()),
        "the plain form of r and s": Signed(KEY.id, base64.b64encode(bytes(range(64))).decode()),
    }


@pytest.mark.parametrize("size", [70, 71, 72])
def test_padding_that_is_not_due_is_refused_whatever_the_length(size: int) -> None:
    made = (sign(PRIVATE, KEY.id, LABEL, INTEGRITY).signature for _ in range(1000))
    good = next(text for text in made if len(base64.b64decode(text)) == size)
    assert signature_holds(LABEL, INTEGRITY, Signed(KEY.id, good), KEY)
    for more in ("=", "=="):
        assert not signature_holds(LABEL, INTEGRITY, Signed(KEY.id, good + more), KEY)


def signed_text(text: str) -> Signed:
    return Signed(KEY.id, base64.b64encode(PRIVATE.sign(text.encode(), ECDSA(SHA256()))).decode())


@pytest.mark.parametrize("what", false_signatures())
def test_a_false_signature_of_a_pinned_key_is_an_error_and_not_merely_unsigned(what: str) -> None:
    false = false_signatures()[what]
    for signatures in ([false], [GOOD, false], [false, GOOD]):
        with pytest.raises(PinError, match="does not hold") as refused:
            judge_signatures(LABEL, INTEGRITY, signatures, None, KEYS)
        assert (refused.value.code, refused.value.reason, refused.value.where) == (
            ExitCode.PIN,
            "integrity",
            LABEL,
        )
        assert false.signature not in str(refused.value) or not false.signature


def test_a_weaker_hash_is_never_signed() -> None:
    weaker = Integrity("sha256", "0" * 64)
    assert not signature_holds(LABEL, weaker, sign(PRIVATE, KEY.id, LABEL, weaker), KEY)


@pytest.mark.parametrize(
    ("signatures", "why"),
    [
        ([], "not signed"),
        ([Signed("SHA256:" + "x" * 43, GOOD.signature)], f"not pinned (SHA256:{'x' * 43})"),
        ([Signed("\x1b[31m", GOOD.signature)], "not pinned (of another form)"),
        ([Signed("", "")], "not pinned (of another form)"),
    ],
)
def test_what_is_trusted_on_first_use(signatures: list[Signed], why: str) -> None:
    judged = judge_signatures(LABEL, INTEGRITY, signatures, None, KEYS)
    assert judged.authenticated is Authentication.TOFU
    assert why in judged.why


def test_one_good_signature_beside_an_unknown_one_is_enough() -> None:
    unknown = Signed("SHA256:" + "x" * 43, GOOD.signature)
    for signatures in ([unknown, GOOD], [GOOD, unknown]):
        judged = judge_signatures(LABEL, INTEGRITY, signatures, None, KEYS)
        assert judged == npm_signatures.Judged(Authentication.NPM_SIGNATURE, KEY.id, GOOD.signature)


@attack(by=Position.REGISTRY)
def test_a_registry_may_not_bring_its_own_key() -> None:
    """The very key that signed, but under an id that is not pinned: nobody takes it from the registry."""
    private, own = key_pair("SHA256:" + "z" * 43)
    judged = judge_signatures(LABEL, INTEGRITY, [sign(private, own.id, LABEL, INTEGRITY)], None, KEYS)
    assert judged.authenticated is Authentication.TOFU


def pem(private: EllipticCurvePrivateKey | Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    ("key_id", "made", "said"),
    [
        ("mine", pem(generate_private_key(SECP256R1())), "no key id"),
        (KEY.id + "=", pem(generate_private_key(SECP256R1())), "no key id"),
        (KEY.id, pem(generate_private_key(SECP384R1())), "neither an ECDSA P-256"),
        (KEY.id, pem(Ed25519PrivateKey.generate()), "only kind that npm registries"),
        (KEY.id, b"", "not one PEM block"),
    ],
)
def test_a_key_that_is_none(key_id: str, made: bytes, said: str) -> None:
    with pytest.raises(KeyUnusable, match=said):
        read_registry_key(key_id, made, "settings.toml")


def test_damaged_shipped_keys_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "npm-keys.json"
    document = json.loads(npm_signatures.SHIPPED.read_text())
    document["keys"][1]["spki"] = document["keys"][1]["spki"][:-8]
    path.write_text(json.dumps(document))
    monkeypatch.setattr(npm_signatures, "SHIPPED", path)
    with pytest.raises(KeyUnusable):
        shipped_keys.__wrapped__()


def test_expiry_is_the_last_moment_that_does_not_count() -> None:
    key = RegistryKey(KEY.id, KEY.key, BEFORE)
    for moment, holds in ((BEFORE - timedelta(microseconds=1), True), (BEFORE, False)):
        judged = judge_signatures(LABEL, INTEGRITY, [GOOD], moment, {key.id: key})
        assert (judged.authenticated is Authentication.NPM_SIGNATURE) is holds
