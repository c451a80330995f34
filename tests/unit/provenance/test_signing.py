"""Keys, statements, bundles: what is signed is what was written, and only the one closed form is read."""

from __future__ import annotations

import copy
import json
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from sigstore_models.bundle.v1 import Bundle as SigstoreBundle

from images.credentials import Secret
from images.digests import Digest
from images.errors import KeyUnusable, VerifyFailed
from provenance.bundles import open_bundle, write_bundle
from provenance.keys import Protection, create_key_pair, load_private_key, load_public_key
from provenance.predicates import SCAN_TYPE
from provenance.signing import check_signature, is_signed_by, sign
from provenance.statements import PAYLOAD_TYPE, STATEMENT_TYPE, parse_statement
from tests.attacks import Position, attack
from tests.fakes.evidence import b64, edit_bundle, forge, key, pkcs8, statement, statement_bytes

IMAGE = Digest.of(b"image")
STATEMENT = statement(IMAGE, SCAN_TYPE, {"number": 2**53 - 1, "text": "äöü\u2028"})
BUNDLE = sign(STATEMENT, key("builder")).raw


# --- keys


@pytest.mark.parametrize("passphrase", [Secret(b"a test passphrase"), Protection.UNENCRYPTED])
def test_a_key_pair_is_made_and_loaded(tmp_path: Path, passphrase: Secret | Protection) -> None:
    private, public = tmp_path / "k.key", tmp_path / "k.pub"
    made = create_key_pair(private, public, passphrase)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    loaded = load_private_key(private, passphrase if isinstance(passphrase, Secret) else None)
    assert loaded.public == made == load_public_key(public.read_bytes(), "x")
    assert loaded.encrypted == isinstance(passphrase, Secret)
    assert loaded.encrypted == (b"ENCRYPTED" in private.read_bytes())
    assert is_signed_by(open_bundle(sign(STATEMENT, loaded).raw, "x"), made)
    with pytest.raises(KeyUnusable, match="not overwritten"):
        create_key_pair(private, tmp_path / "other.pub", passphrase)


def test_an_empty_passphrase_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyUnusable, match="encrypts nothing"):
        create_key_pair(tmp_path / "k", tmp_path / "p", Secret(b""))
    assert list(tmp_path.iterdir()) == []


@attack(by=Position.LOCAL_USER)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o777])
def test_a_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    private = tmp_path / "k"
    create_key_pair(private, tmp_path / "p", Protection.UNENCRYPTED)
    private.chmod(mode)
    with pytest.raises(KeyUnusable, match="by others") as caught:
        load_private_key(private, None)
    assert caught.value.hint == f"chmod 600 {private}"


@attack(by=Position.LOCAL_USER)
def test_a_key_of_another_owner_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = tmp_path / "k"
    create_key_pair(private, tmp_path / "p", Protection.UNENCRYPTED)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(KeyUnusable, match="belongs to uid"):
        load_private_key(private, None)


def test_wrong_passphrases_name_the_file_and_hold_no_secret(tmp_path: Path) -> None:
    private = tmp_path / "k"
    create_key_pair(private, tmp_path / "p", Secret(b"the right one"))
    for given_, why in ((None, "no passphrase was given"), (Secret(b"the wrong one"), "passphrase is wrong")):
        with pytest.raises(KeyUnusable, match=why) as caught:
            load_private_key(private, given_)
        assert caught.value.where == str(private)
        assert "wrong one" not in str(caught.value)
    create_key_pair(tmp_path / "open", tmp_path / "open.pub", Protection.UNENCRYPTED)
    with pytest.raises(KeyUnusable, match="is not encrypted"):
        load_private_key(tmp_path / "open", Secret(b"x"))


def test_what_is_not_a_key_of_ours_is_refused(tmp_path: Path) -> None:
    pem = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    cases = {
        "missing": None,
        "garbage": b"garbage",
        "empty": b"",
        "cut": pkcs8("builder")[:90],
        "rsa": rsa.generate_private_key(65537, 2048).private_bytes(*pem),
        "p384": ec.generate_private_key(ec.SECP384R1()).private_bytes(*pem),
        "ed25519": ed25519.Ed25519PrivateKey.generate().private_bytes(*pem),
    }
    for name, data in cases.items():
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
            path.chmod(0o600)
        with pytest.raises(KeyUnusable):
            load_private_key(path, None)
    link = tmp_path / "link"
    target = tmp_path / "target"
    create_key_pair(target, tmp_path / "p", Protection.UNENCRYPTED)
    link.symlink_to(target)
    with pytest.raises(KeyUnusable):
        load_private_key(link, None)
    with pytest.raises(KeyUnusable, match="regular"):
        load_private_key(tmp_path, None)


def test_public_keys_of_other_kinds_are_refused() -> None:
    spki = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    good = key("builder").public.pem
    for data in (
        b"",
        b"garbage",
        good + good,
        pkcs8("builder"),
        b"x" * 100_000,
        good[:60],
        rsa.generate_private_key(65537, 2048).public_key().public_bytes(*spki),
        ec.generate_private_key(ec.SECP384R1()).public_key().public_bytes(*spki),
    ):
        with pytest.raises(KeyUnusable) as caught:
            load_public_key(data, "keys/builder.pub")
        assert caught.value.where == "keys/builder.pub"


def test_a_private_key_does_not_show() -> None:
    text = repr(key("builder")) + str(key("builder"))
    assert "PRIVATE" not in text
    assert str(key("builder").key.private_numbers().private_value) not in text


# --- statements


def test_a_statement_keeps_its_bytes() -> None:
    raw = statement_bytes(IMAGE, SCAN_TYPE, {"b": 1, "a": [1.5, None]})
    raw = raw.replace(b'"_type"', b'\n  "_type"')
    parsed = parse_statement(raw, "x")
    assert parsed.raw == raw
    assert parsed.digest == Digest.of(raw)
    assert json.loads(parsed.predicate_json) == {"b": 1, "a": [1.5, None]}
    assert parsed.is_only_about(IMAGE)


@pytest.mark.parametrize(
    "change",
    [
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"_type": "https://in-toto.io/Statement/v1.1"},
        {"_type": "https://in-toto.io/Statement/V1"},
        {"_type": None},
        {"predicateType": ""},
        {"predicateType": 1},
        {"subject": []},
        {"subject": {}},
        {"subject": [{"name": "x"}]},
        {"subject": [{"digest": {}}]},
        {"subject": [{"digest": {"sha256": 1}}]},
        {"subject": ["sha256:00"]},
        {"predicate": []},
        {"predicate": "text"},
    ],
)
def test_a_malformed_statement_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(VerifyFailed):
        parse_statement(statement_bytes(IMAGE, SCAN_TYPE, {}, **change), "x")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff",
        b'{"a":1,"a":2}',
        b'{"_type":NaN}',
        b"[" * 5000 + b"]" * 5000,
        b'{"_type":"' + STATEMENT_TYPE.encode() + b'","_type":"x"}',
        b"{}" + b" " * (5 << 20),
    ],
)
def test_what_is_no_strict_json_is_refused(raw: bytes) -> None:
    with pytest.raises(VerifyFailed):
        parse_statement(raw, "x")


@pytest.mark.parametrize(
    "subject",
    [
        [{"digest": {"sha256": IMAGE.hex}}, {"digest": {"sha256": IMAGE.hex}}],
        [{"digest": {"sha256": IMAGE.hex, "sha512": "00"}}],
        [{"digest": {"sha256": IMAGE.hex.upper()}}],
        [{"digest": {"sha256": Digest.of(b"").hex, "sha512": IMAGE.hex}}],
        [{"digest": {"sha512": IMAGE.hex}}],
        [{"digest": {"SHA256": IMAGE.hex}}],
        [{"digest": {"sha256": " " + IMAGE.hex}}],
        [{"digest": {"sha256": f"sha256:{IMAGE.hex}"}}],
    ],
)
def test_only_one_subject_with_one_digest_is_ours(subject: object) -> None:
    assert not parse_statement(statement_bytes(IMAGE, SCAN_TYPE, {}, subject=subject), "x").is_only_about(
        IMAGE
    )


@given(st.binary(max_size=400))
def test_any_bytes_are_a_statement_or_fail_as_expected(raw: bytes) -> None:
    with pytest.raises(VerifyFailed):
        parse_statement(raw, "x")


# --- bundles


def test_a_signed_statement_comes_back_byte_by_byte() -> None:
    bundle = check_signature(open_bundle(BUNDLE, "x"), key("builder").public, "x")
    assert bundle.statement == STATEMENT
    assert bundle.signer == key("builder").public.fingerprint


def test_the_bundle_is_what_sigstore_reads_and_has_no_keyid() -> None:
    SigstoreBundle.from_json(BUNDLE)
    document = json.loads(BUNDLE)
    assert set(document["dsseEnvelope"]["signatures"][0]) == {"sig"}
    assert document["verificationMaterial"] == {
        "publicKey": {"hint": b64(bytes.fromhex(key("builder").public.fingerprint.hex))},
        "tlogEntries": [],
    }


def test_another_keys_signature_does_not_hold() -> None:
    assert not is_signed_by(open_bundle(BUNDLE, "x"), key("other").public)
    with pytest.raises(VerifyFailed, match="not one of key"):
        check_signature(open_bundle(BUNDLE, "x"), key("other").public, "x")


def test_the_hint_decides_nothing() -> None:
    for hint in ("", "x", key("other").public.hint):
        edited = edit_bundle(BUNDLE, verificationMaterial__publicKey__hint=hint)
        assert is_signed_by(open_bundle(edited, "x"), key("builder").public)
        assert not is_signed_by(open_bundle(edited, "x"), key("other").public)


def test_a_changed_payload_or_type_does_not_hold() -> None:
    for change in (
        {"dsseEnvelope__payload": b64(STATEMENT.raw + b" ")},
        {"dsseEnvelope__payload": b64(b"")},
        {"dsseEnvelope__payloadType": "application/json"},
        {"dsseEnvelope__payloadType": ""},
    ):
        assert not is_signed_by(open_bundle(edit_bundle(BUNDLE, **change), "x"), key("builder").public)


def test_a_right_signature_over_another_type_or_no_statement_is_refused() -> None:
    for payload, kind in (
        (STATEMENT.raw, "application/json"),
        (STATEMENT.raw, "application/vnd.in-toto+json; charset=utf-8"),
        (b"not a statement", PAYLOAD_TYPE),
        (b'{"_type":"https://in-toto.io/Statement/v0.1"}', PAYLOAD_TYPE),
    ):
        opened = open_bundle(forge(payload, key("builder"), kind), "x")
        assert is_signed_by(opened, key("builder").public)
        with pytest.raises(VerifyFailed):
            check_signature(opened, key("builder").public, "x")


def test_a_raw_signature_instead_of_der_does_not_hold() -> None:
    opened = open_bundle(BUNDLE, "x")
    r, s = decode_dss_signature(opened.signature)
    raw = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    edited = edit_bundle(BUNDLE, dsseEnvelope__signatures=[{"sig": b64(raw)}])
    assert not is_signed_by(open_bundle(edited, "x"), key("builder").public)


SIGNATURE = json.loads(BUNDLE)["dsseEnvelope"]["signatures"][0]


@pytest.mark.parametrize(
    "change",
    [
        {"mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.3"},
        {"mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.1"},
        {"mediaType": None},
        {"extra": 1},
        {"messageSignature": {}},
        {"verificationMaterial": {}},
        {"verificationMaterial__publicKey": None},
        {"verificationMaterial__publicKey": "text"},
        {"verificationMaterial__publicKey__extra": 1},
        {"verificationMaterial__publicKey__hint": 1},
        {"verificationMaterial__certificate": {"rawBytes": "AA=="}},
        {"verificationMaterial__x509CertificateChain": {"certificates": []}},
        {"verificationMaterial__tlogEntries": [{"logIndex": "1", "integratedTime": "1"}]},
        {"verificationMaterial__timestampVerificationData": {"rfc3161Timestamps": [{}]}},
        {"verificationMaterial__extra": []},
        {"dsseEnvelope": None},
        {"dsseEnvelope": []},
        {"dsseEnvelope__extra": 1},
        {"dsseEnvelope__payload": 1},
        {"dsseEnvelope__payload": "e30"},
        {"dsseEnvelope__payload": "e30=\n"},
        {"dsseEnvelope__payload": "e3_-"},
        {"dsseEnvelope__payload": "e31="},
        {"dsseEnvelope__payload": "äöü="},
        {"dsseEnvelope__payloadType": 1},
        {"dsseEnvelope__signatures": []},
        {"dsseEnvelope__signatures": [SIGNATURE, SIGNATURE]},
        {"dsseEnvelope__signatures": [{}]},
        {"dsseEnvelope__signatures": [{"sig": ""}]},
        {"dsseEnvelope__signatures": [{"sig": "AA==", "cert": "x"}]},
        {"dsseEnvelope__signatures": [{"sig": "AA==", "keyid": 1}]},
        {"dsseEnvelope__signatures": [{"sig": b64(b"x" * 5000)}]},
        {"dsseEnvelope__signatures": SIGNATURE},
    ],
)
def test_any_other_form_of_bundle_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(VerifyFailed) as caught:
        open_bundle(edit_bundle(BUNDLE, **change), "bundle B")
    assert caught.value.where == "bundle B"


def test_a_bundle_with_a_key_twice_is_refused() -> None:
    twice = BUNDLE.replace(b'{"mediaType"', b'{"mediaType":"x","mediaType"', 1)
    with pytest.raises(VerifyFailed, match="twice"):
        open_bundle(twice, "x")


def test_absent_log_entries_and_a_keyid_are_what_other_tools_write() -> None:
    edited = edit_bundle(
        BUNDLE,
        verificationMaterial__tlogEntries=None,
        dsseEnvelope__signatures=[SIGNATURE | {"keyid": "SHA256:abc"}],
    )
    assert is_signed_by(open_bundle(edited, "x"), key("builder").public)


def test_ed25519_is_checked_but_never_made() -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    spki = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    public = load_public_key(spki, "x")
    kind = PAYLOAD_TYPE.encode()
    pae = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(STATEMENT.raw), STATEMENT.raw)
    raw = write_bundle(STATEMENT.raw, PAYLOAD_TYPE, private.sign(pae), public.hint)
    assert check_signature(open_bundle(raw, "x"), public, "x").statement == STATEMENT
    bad = edit_bundle(raw, dsseEnvelope__payload=b64(STATEMENT.raw + b" "))
    assert not is_signed_by(open_bundle(bad, "x"), public)


@settings(max_examples=300, deadline=None)
@given(position=st.integers(0, len(BUNDLE) - 1), value=st.integers(0, 255))
def test_one_changed_byte_fails_as_expected_or_says_the_same(position: int, value: int) -> None:
    mutant = bytearray(copy.copy(BUNDLE))
    mutant[position] = value
    try:
        bundle = check_signature(open_bundle(bytes(mutant), "x"), key("builder").public, "x")
    except VerifyFailed:
        return
    assert bundle.statement == STATEMENT


@given(st.binary(max_size=400) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_bundle_or_fail_as_expected(raw: bytes) -> None:
    with pytest.raises(VerifyFailed):
        open_bundle(raw, "x")
