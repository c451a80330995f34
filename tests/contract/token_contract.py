"""What every token must do under our signer: one suite for the fake and for SoftHSM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from builder.pkcs11 import TokenSigner
from builder.settings.pkcs11_keys import TokenKey, read_public_key
from images.credentials import Secret
from images.digests import Digest
from images.errors import KeyUnusable
from provenance.bundles import open_bundle
from provenance.signing import check_signature
from tests.fakes.evidence import statement

PIN, WRONG_PIN = "dummy-1234", "dummy-9999"
STATEMENTS = tuple(statement(Digest.of(b"image"), f"https://x.example/{name}", {}) for name in ("one", "two"))


class Tokens(Protocol):
    """A place with tokens."""

    module: Path
    environment: tuple[tuple[str, str], ...]
    python: str

    def make_token(self, label: str) -> None:
        """With ``PIN``."""
        ...

    def make_key(self, token: str, label: str, key_id: str, kind: str) -> Path:
        """p256, p384, ed25519 or rsa; the file with its public key."""
        ...


def signer_of(tokens: Tokens, public: Path, **changes: object) -> TokenSigner:
    """For the key ``builder`` of the token ``team``, with the right PIN."""
    pin = changes.pop("pin", PIN)
    assert isinstance(pin, str)
    key = TokenKey(
        module=tokens.module,
        token="team",
        label="builder",
        key_id=None,
        public_key=public,
        environment=tokens.environment,
    )
    return TokenSigner(
        key=replace(key, **changes),  # type: ignore[arg-type]
        public=read_public_key(public),
        pin=Secret.of_text(pin),
        environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/"},
        python=tokens.python,
    )


def refused(signer: TokenSigner) -> KeyUnusable:
    """The error of signing; trying says the same."""
    with pytest.raises(KeyUnusable) as signing:
        signer.sign(STATEMENTS)
    with pytest.raises(KeyUnusable) as trying:
        signer.try_token()
    assert str(signing.value) == str(trying.value)
    assert (signing.value.code, signing.value.reason) == (11, trying.value.reason)
    said = f"{signing.value} {signing.value.hint} {signer!r}"
    assert PIN not in said
    assert WRONG_PIN not in said
    assert signing.value.hint
    return signing.value


class TokenContract:
    """Inherited by a class with a fixture ``tokens``."""

    @pytest.fixture
    def public(self, tokens: Tokens) -> Path:
        """The public key of the key ``builder`` on the token ``team``."""
        tokens.make_token("team")
        return tokens.make_key("team", "builder", "01", "p256")

    @pytest.mark.parametrize(
        "named", [{}, {"label": None, "key_id": b"\x01"}, {"key_id": b"\x01"}], ids=["label", "id", "both"]
    )
    def test_what_it_signs_verifies_under_the_unchanged_verifier(
        self, tokens: Tokens, public: Path, named: dict[str, object]
    ) -> None:
        tokens.make_key("team", "other", "02", "p256")
        signer = signer_of(tokens, public, **named)
        signer.try_token()
        made = signer.sign(STATEMENTS)
        key = read_public_key(public)
        for bundle, given in zip(made, STATEMENTS, strict=True):
            checked = check_signature(open_bundle(bundle.raw, "b"), key, "b")
            assert (checked.statement.raw, checked.signer) == (given.raw, key.fingerprint)
        assert signer.who == key.fingerprint

    def test_a_wrong_pin(self, tokens: Tokens, public: Path) -> None:
        told = refused(signer_of(tokens, public, pin=WRONG_PIN))
        assert told.reason == "token-pin"
        assert "how many are left is unknown" in told.what

    def test_no_such_token(self, tokens: Tokens, public: Path) -> None:
        told = refused(signer_of(tokens, public, token="absent"))
        assert (told.reason, told.what) == ("token-absent", "there is no token labelled 'absent'")

    def test_two_tokens_of_one_label(self, tokens: Tokens, public: Path) -> None:
        tokens.make_token("team")
        told = refused(signer_of(tokens, public))
        assert told.reason == "token-absent"
        assert "2 tokens are labelled 'team'" in told.what

    @pytest.mark.parametrize(
        ("named", "why"),
        [
            ({"label": "absent"}, "no private key labelled 'absent'"),
            ({"key_id": b"\xee"}, "no private key labelled 'builder' with id ee"),
        ],
    )
    def test_no_such_key(self, tokens: Tokens, public: Path, named: dict[str, object], why: str) -> None:
        told = refused(signer_of(tokens, public, **named))
        assert told.reason == "token-key"
        assert why in told.what

    def test_two_keys_of_one_label(self, tokens: Tokens, public: Path) -> None:
        tokens.make_key("team", "builder", "02", "p256")
        told = refused(signer_of(tokens, public))
        assert told.reason == "token-key"
        assert "2 private keys labelled 'builder': name label and id" in told.what

    @pytest.mark.parametrize("kind", ["p384", "ed25519", "rsa"])
    def test_a_key_of_another_kind(self, tokens: Tokens, public: Path, kind: str) -> None:
        tokens.make_key("team", "odd", "09", kind)
        told = refused(signer_of(tokens, public, label="odd"))
        assert told.reason == "token-key"
        assert "not an ECDSA P-256 key" in told.what

    def test_another_key_than_the_one_that_is_trusted(self, tokens: Tokens, public: Path) -> None:
        other = tokens.make_key("team", "other", "02", "p256")
        told = refused(signer_of(tokens, other))
        assert told.reason == "token-key"
        assert str(read_public_key(public).fingerprint) in told.what

    def test_a_file_that_is_no_module(self, tokens: Tokens, public: Path, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("no module\n")
        told = refused(signer_of(tokens, public, module=tmp_path / "text"))
        assert told.reason == "token-module"
        assert "cannot be loaded" in told.what

    def test_no_module(self, tokens: Tokens, public: Path, tmp_path: Path) -> None:
        told = refused(signer_of(tokens, public, module=tmp_path / "absent.so"))
        assert (told.reason, told.where) == ("token-module", str(tmp_path / "absent.so"))
