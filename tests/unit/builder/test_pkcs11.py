"""Keys on a token: SoftHSM and a fake under one contract, what only a fake does, and their settings."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
)
from pkcs11 import TokenFlag

from builder.cli.arguments import parse_arguments
from builder.cli.invocation import Invocation, make_invocation
from builder.cli.signing import signer_of as choose
from builder.cli.verbs.export_verb import key_in_a_file
from builder.settings.pkcs11_keys import TokenKey, read_public_key
from builder.settings.settings_file import parse_settings
from images.credentials import Secret
from images.errors import HostError, KeyUnusable, UsageError
from provenance.keys import Protection, create_key_pair, load_public_key
from provenance.pkcs11_request import (
    Step,
    TokenAnswer,
    TokenRequest,
    TokenTrouble,
    read_token_answer,
    read_token_request,
)
from provenance.policy import Policy
from provenance.policy_model import Role
from provenance.signing import StatementSigner
from tests.contract.token_contract import PIN, STATEMENTS, WRONG_PIN, TokenContract, refused, signer_of
from tests.fakes.pkcs11_library import child

SOFTHSM = Path("/usr/lib/softhsm/libsofthsm2.so")
MISSING = "SoftHSM or OpenSC is missing: tools/setup-machine --for-tests installs them"


class SoftHsm:
    """Debian's software token, in a folder of its own."""

    module = SOFTHSM
    python = sys.executable

    def __init__(self, folder: Path) -> None:
        assert SOFTHSM.exists(), MISSING
        self.folder = folder
        (folder / "tokens").mkdir()
        (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder / 'tokens'}\n")
        self.environment = (("SOFTHSM2_CONF", str(folder / "softhsm2.conf")),)

    def _type(self, *argv: str) -> None:
        environment = {"PATH": "/usr/bin:/bin", **dict(self.environment)}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def make_token(self, label: str) -> None:
        pins = ("--pin", PIN, "--so-pin", "dummy-officer")
        self._type("softhsm2-util", "--init-token", "--free", "--label", label, *pins)

    def make_key(self, token: str, label: str, key_id: str, kind: str) -> Path:
        types = {"p256": "EC:prime256v1", "p384": "EC:secp384r1", "ed25519": "EC:edwards25519"}
        key_type = types.get(kind, "rsa:2048")
        at = ("pkcs11-tool", "--module", str(SOFTHSM), "--token-label", token, "--id", key_id)
        login = ("--login", "--pin", PIN, "--keypairgen", "--key-type", key_type, "--label", label)
        self._type(*at, *login)
        der, pem = self.folder / f"{key_id}.der", self.folder / f"{key_id}.pub"
        if kind == "p256":
            self._type(*at, "--read-object", "--type", "pubkey", "--output-file", str(der))
            read = load_der_public_key(der.read_bytes())
            pem.write_bytes(read.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        return pem


class FakeTokens:
    """The same out of a JSON file, with faults."""

    environment = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = folder / "module.json"
        self.python = child(folder)
        self._write({"tokens": []})

    def _write(self, known: dict[str, Any]) -> None:
        self.module.write_text(json.dumps(known))

    def known(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.module.read_text())
        return found

    def change(self, **changes: object) -> None:
        """Of the first token."""
        known = self.known()
        known["tokens"][0] |= changes
        self._write(known)

    def change_key(self, **changes: object) -> None:
        known = self.known()
        known["tokens"][0]["keys"][0] |= changes
        self._write(known)

    def logins(self) -> int:
        log = self.module.with_suffix(".logins")
        return log.read_text().count("one") if log.exists() else 0

    def make_token(self, label: str) -> None:
        known = self.known()
        known["tokens"].append({"label": label, "pin": PIN, "keys": [], "faults": {}})
        self._write(known)

    def make_key(self, token: str, label: str, key_id: str, kind: str) -> Path:
        key = {
            "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
            "ed25519": ed25519.Ed25519PrivateKey.generate,
            "rsa": lambda: rsa.generate_private_key(65537, 2048),
        }[kind]()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        known = self.known()
        found = next(one for one in known["tokens"] if one["label"] == token)
        found["keys"].append({"label": label, "id": key_id, "kind": kind, "pem": pem})
        self._write(known)
        path = self.folder / f"{key_id}.pub"
        path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        return path


class TestSoftHsm(TokenContract):
    @pytest.fixture
    def tokens(self, tmp_path: Path) -> SoftHsm:
        (tmp_path / "token").mkdir()
        return SoftHsm(tmp_path / "token")


class TestFake(TokenContract):
    @pytest.fixture
    def tokens(self, tmp_path: Path) -> FakeTokens:
        (tmp_path / "token").mkdir()
        return FakeTokens(tmp_path / "token")


# -- what SoftHSM cannot be asked to do


@pytest.fixture
def fake(tmp_path: Path) -> FakeTokens:
    made = FakeTokens(tmp_path)
    made.make_token("team")
    made.make_key("team", "builder", "01", "p256")
    return made


def test_a_wrong_pin_is_tried_once(fake: FakeTokens) -> None:
    with pytest.raises(KeyUnusable):
        signer_of(fake, fake.folder / "01.pub", pin=WRONG_PIN).try_token()
    assert fake.logins() == 1


@pytest.mark.parametrize("flag", [TokenFlag.USER_PIN_FINAL_TRY, TokenFlag.USER_PIN_LOCKED])
def test_a_token_about_to_lock_is_left_alone(fake: FakeTokens, flag: TokenFlag) -> None:
    fake.change(flags=int(flag))
    told = refused(signer_of(fake, fake.folder / "01.pub"))
    assert told.reason == "token-pin"
    assert "lock" in told.what
    assert fake.logins() == 0


def test_of_two_tokens_none_is_tried(fake: FakeTokens) -> None:
    fake.make_token("team")
    assert refused(signer_of(fake, fake.folder / "01.pub")).reason == "token-absent"
    assert fake.logins() == 0


def test_the_public_key_on_the_token_is_compared_before_anything_is_signed(fake: FakeTokens) -> None:
    other = fake.make_key("team", "other", "02", "p256")
    with pytest.raises(KeyUnusable, match="the token's key is sha256:"):
        signer_of(fake, other).try_token()


FAULTS = [
    ("login", "PinLocked", "token-pin", "the PIN is locked"),
    ("login", "PinExpired", "token-pin", "has expired"),
    ("login", "TokenNotPresent", "token-device", "taken out"),
    ("login", "crash", "token-module", "broke while it was logging in to the token"),
    ("find", "DeviceRemoved", "token-device", "taken out"),
    ("sign", "DeviceRemoved", "token-device", "taken out"),
    ("sign", "SessionHandleInvalid", "token-device", "failed"),
    ("sign", "MechanismInvalid", "token-key", "does not sign with this key"),
    ("sign", "crash", "token-module", "broke while it was waiting for a signature"),
]


@pytest.mark.parametrize(("step", "fault", "reason", "why"), FAULTS)
def test_what_a_token_does_in_the_middle(
    fake: FakeTokens, step: str, fault: str, reason: str, why: str
) -> None:
    """Also between the trial, which went well, and the signature."""
    signer = signer_of(fake, fake.folder / "01.pub")
    signer.try_token()
    fake.change(faults={step: fault})
    with pytest.raises(KeyUnusable, match=why) as told:
        signer.sign(STATEMENTS)
    assert (told.value.code, told.value.reason) == (11, reason)


@pytest.mark.parametrize("step", ["login", "find", "sign"])
def test_one_that_blocks_is_ended_and_says_how_far_it_came(fake: FakeTokens, step: str) -> None:
    fake.change(faults={step: "block"})
    words = {"login": Step.LOGGING_IN, "find": Step.FINDING, "sign": Step.SIGNING}[step]
    signer = replace(signer_of(fake, fake.folder / "01.pub"), signing_limit=2.0)
    with pytest.raises(KeyUnusable, match=f"within 2 s; it was {words}") as told:
        signer.sign(STATEMENTS)
    assert told.value.reason == "token-timeout"


@pytest.mark.parametrize(("step", "fault"), [("login", "print"), ("close", "DeviceRemoved")])
def test_what_spoils_no_signature(fake: FakeTokens, step: str, fault: str) -> None:
    """A library that prints on standard output, and a token that is gone once all is signed."""
    fake.change(faults={step: fault})
    assert len(signer_of(fake, fake.folder / "01.pub").sign(STATEMENTS)) == 2


def test_a_key_that_wants_its_pin_each_time(fake: FakeTokens) -> None:
    fake.change_key(again=True)
    assert len(signer_of(fake, fake.folder / "01.pub").sign(STATEMENTS)) == 2


def test_what_it_signs_is_checked_before_it_is_handed_out(fake: FakeTokens) -> None:
    fake.change_key(lies=True)
    with pytest.raises(KeyUnusable, match="what the token signed is not of the key") as told:
        signer_of(fake, fake.folder / "01.pub").sign(STATEMENTS)
    assert told.value.reason == "token-key"


def test_a_token_without_a_public_key_to_compare(fake: FakeTokens) -> None:
    fake.change_key(no_public=True)
    other = fake.make_key("team", "other", "02", "p256")
    signer_of(fake, fake.folder / "01.pub").sign(STATEMENTS)
    with pytest.raises(KeyUnusable, match="is not of the key"):
        signer_of(fake, other).sign(STATEMENTS)


def test_a_module_that_others_can_change_is_not_loaded(fake: FakeTokens) -> None:
    fake.module.chmod(stat.S_IMODE(fake.module.stat().st_mode) | 0o020)
    told = refused(signer_of(fake, fake.folder / "01.pub"))
    assert (told.reason, told.what) == ("token-module", "others can change the PKCS#11 module")
    assert fake.logins() == 0


# -- what the process may answer


def scripted(folder: Path, answer: bytes, code: int = 0) -> str:
    (folder / "answer").write_bytes(answer)
    path = folder / "scripted"
    path.write_text(f"#!/bin/sh\ncat >/dev/null\necho dummy-1234 >&2\ncat {folder / 'answer'}\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", TokenAnswer(signatures=(b"x",)).to_json()[:-1]])
def test_an_answer_that_is_none(fake: FakeTokens, tmp_path: Path, raw: bytes) -> None:
    signer = replace(signer_of(fake, fake.folder / "01.pub"), python=scripted(tmp_path, raw))
    with pytest.raises(KeyUnusable, match="not an answer") as told:
        signer.sign(STATEMENTS)
    assert (told.value.reason, told.value.code) == ("token-module", 11)
    assert PIN not in str(told.value)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_not_one_signature_for_each(fake: FakeTokens, tmp_path: Path, count: int) -> None:
    answer = TokenAnswer(signatures=(b"x",) * count).to_json()
    signer = replace(signer_of(fake, fake.folder / "01.pub"), python=scripted(tmp_path, answer))
    with pytest.raises(KeyUnusable, match="not one signature for each"):
        signer.sign(STATEMENTS)


def test_one_that_breaks_is_not_quoted(fake: FakeTokens, tmp_path: Path) -> None:
    signer = replace(signer_of(fake, fake.folder / "01.pub"), python=scripted(tmp_path, b"", code=1))
    with pytest.raises(KeyUnusable, match="the module broke while it was starting") as told:
        signer.sign(STATEMENTS)
    assert PIN not in f"{told.value} {told.value.hint}"


def test_without_the_library(fake: FakeTokens, tmp_path: Path) -> None:
    signer = replace(signer_of(fake, fake.folder / "01.pub"), python=scripted(tmp_path, b"", code=3))
    with pytest.raises(HostError, match="python-pkcs11 is not installed") as told:
        signer.try_token()
    assert told.value.hint == "pip install 'agent-image-builder[pkcs11]'"


def test_request_and_answer_are_read_as_they_were_written() -> None:
    request = TokenRequest(
        module="/m", token="t", label=None, key_id=b"\x01", pin=Secret(b"dummy"), digests=(b"a", b"\xff")
    )
    assert read_token_request(request.to_json()) == request
    assert "dummy" not in repr(request)
    answer = TokenAnswer(public_key=b"k", signatures=(b"s",), trouble=TokenTrouble.PIN, what="w")
    assert read_token_answer(answer.to_json()) == answer


# -- settings


SETTINGS = """
schema = 1
[pkcs11.builder]
module = "/usr/lib/softhsm/libsofthsm2.so"
token = "team"
label = "builder"
id = "01ff"
public_key = "/keys/builder.pub"
environment = { SOFTHSM2_CONF = "/etc/softhsm2.conf" }
"""


def test_settings_name_a_key_for_a_role() -> None:
    key = TokenKey(
        module=SOFTHSM,
        token="team",
        label="builder",
        key_id=b"\x01\xff",
        public_key=Path("/keys/builder.pub"),
        environment=(("SOFTHSM2_CONF", "/etc/softhsm2.conf"),),
    )
    assert parse_settings(SETTINGS, where="s").pkcs11 == ((Role.BUILDER, key),)
    assert parse_settings("schema = 1\n", where="s").pkcs11 == ()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("[pkcs11.builder]", "[pkcs11.launcher]", "launcher"),
        ('label = "builder"\nid = "01ff"\n', "", "name the key by label, by id, or by both"),
        ('id = "01ff"', 'id = "1"', "id"),
        ('id = "01ff"', 'id = "01FF"', "id"),
        ('"/usr/lib/softhsm/libsofthsm2.so"', '"libsofthsm2.so"', "absolute path"),
        ('token = "team"', f'token = "{"x" * 33}"', "32 bytes"),
        ("SOFTHSM2_CONF", "LD_PRELOAD", "not a variable of a PKCS#11 module"),
        ('token = "team"', 'token = "team"\npin = "1"', "pin"),
    ],
)
def test_settings_that_are_none(old: str, new: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_settings(SETTINGS.replace(old, new), where="s")


def test_a_public_key_of_a_kind_that_nobody_signs_with(tmp_path: Path) -> None:
    path = tmp_path / "k.pub"
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    path.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(KeyUnusable, match="only kind that we sign with"):
        read_public_key(path)
    with pytest.raises(KeyUnusable, match="cannot be read"):
        read_public_key(tmp_path / "absent")


# -- who signs


def asked(config: Path, *words: str) -> Invocation:
    """As the command line hands it on."""
    argv = ["verify", "--attest", "--config-dir", str(config), *words]
    return make_invocation(parse_arguments(argv), {})


@pytest.fixture
def config(fake: FakeTokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration whose builder signs on the fake token, and whose verifier does with a file."""
    made = tmp_path / "config"
    (made / "keys").mkdir(parents=True, mode=0o700)
    named = f'module = "{fake.module}"\ntoken = "team"\nlabel = "builder"\n'
    public = f'public_key = "{fake.folder / "01.pub"}"\n'
    (made / "settings.toml").write_text(f"schema = 1\n[pkcs11.builder]\n{named}{public}")
    for role in ("builder", "verifier"):
        private, public_file = made / f"keys/{role}.key", made / f"keys/{role}.pub"
        create_key_pair(private, public_file, Protection.UNENCRYPTED)
    (tmp_path / "pin").write_text(f"{PIN}\n")
    (tmp_path / "pin").chmod(0o600)
    monkeypatch.setattr(sys, "executable", fake.python)
    return made


def signing(config: Path, role: Role, *words: str) -> StatementSigner:
    policy = cast("Policy", None)  # only an identity is looked up in it
    with choose(asked(config, *words), role, policy) as found:
        return found


def test_settings_choose_the_token_and_a_named_file_wins(config: Path, fake: FakeTokens) -> None:
    pin = ("--passphrase-file", str(config.parent / "pin"))
    on_token = signing(config, Role.BUILDER, *pin)
    assert on_token.who == read_public_key(fake.folder / "01.pub").fingerprint
    assert fake.logins() == 1
    for role, words in ((Role.VERIFIER, ()), (Role.BUILDER, ("--key", str(config / "keys/builder.key")))):
        key = load_public_key((config / f"keys/{role}.pub").read_bytes(), "k")
        assert signing(config, role, *words).who == key.fingerprint
    assert fake.logins() == 1


def test_a_key_file_never_takes_the_place_of_a_token(config: Path, fake: FakeTokens) -> None:
    with pytest.raises(KeyUnusable, match="the token needs a PIN, and none was given") as told:
        signing(config, Role.BUILDER)
    assert (told.value.reason, fake.logins()) == ("token-pin", 0)
    fake.change(label="other")
    with pytest.raises(KeyUnusable, match="there is no token labelled 'team'"):
        signing(config, Role.BUILDER, "--passphrase-file", str(config.parent / "pin"))


def test_an_export_takes_no_key_file_in_the_place_of_a_token(config: Path) -> None:
    """A file of the role's name lies there, and is taken only when it is named."""
    with pytest.raises(KeyUnusable, match="builder key is on a token") as refused:
        key_in_a_file(asked(config), Role.BUILDER, "--key")
    assert "--key FILE" in (refused.value.hint or "")
    named = asked(config, "--key", str(config / "keys/builder.key"))
    assert key_in_a_file(named, Role.BUILDER, "--key").public.pem
    assert key_in_a_file(asked(config), Role.VERIFIER, "--verifier-key").public.pem
