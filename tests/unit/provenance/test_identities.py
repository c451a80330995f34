"""Trust in identities: certificates in place of keys, each way to be somebody else or to be wrong."""

from __future__ import annotations

import copy
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from images.digests import Digest
from images.errors import HostError, KeyUnusable, UsageError
from provenance.attest import attest
from provenance.checks import CheckId, Status
from provenance.marks import Marks
from provenance.policy import load_policy
from provenance.policy_words import Bearing, explain_policy
from provenance.referrers import add_lock
from provenance.signers import Identity
from provenance.signing import KeySigner
from provenance.verify import VerificationReport
from tests.attacks import Position, attack
from tests.fakes.evidence import attach_raw, forge, key
from tests.fakes.identities import (
    BUILDER,
    ISSUER,
    LAUNCHER,
    TRUST,
    VERIFIER,
    certify,
    entry,
    trusting,
    who,
    write_root,
)
from tests.fakes.policies import BUILDER_ID, HEAD, VERIFIER_ID, write_policy
from tests.fakes.policies import TRUST as KEYS
from tests.fakes.proved import NOW, World, facts_of, make_world
from tests.fakes.sigstores import Document, Keys, Sigstore, Who

SIGSTORE = Sigstore()
NAME_OF_NONE = Digest.of(b"none")
OTHER = Sigstore()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An image whose builder and verifier are identities; nothing is attached."""
    made = trusting(make_world(tmp_path), SIGSTORE)
    add_lock(made.image, made.raw_lock)
    return made


def payloads(world: World) -> dict[str, bytes]:
    return {name: one.statement.raw for name, one in world.bundles(facts_of()).items()}


def prove(world: World, sigstore: Sigstore = SIGSTORE, signer: Who | None = None) -> World:
    for payload in payloads(world).values():
        certify(world, sigstore, payload, signer)
    return world


def refused(report: VerificationReport, check: CheckId = CheckId.SIGNATURE) -> str:
    assert not report.ok
    found = report.check(check)
    assert found.status is Status.FAILED, report.checks
    return found.message


# -- what counts


def test_an_identity_proves_an_image_as_a_key_does(world: World) -> None:
    report = prove(world).verify()
    verified = report.require()
    assert verified.provenance.signer == Identity(BUILDER, ISSUER)
    assert report.check(CheckId.SIGNATURE).message == f"by {BUILDER} ({ISSUER})"
    assert report.check(CheckId.SIGNER).message == BUILDER_ID
    assert report.ignored == ()


def test_a_verifier_who_is_an_address(world: World) -> None:
    prove(world)
    both = replace(world, policy=world.policy)
    keyed = world.with_policy(trust=TRUST.replace(entry("verifier", VERIFIER, VERIFIER_ID), _verifier_key()))
    made = attest(keyed.verify(), keyed.policy, KeySigner(key("verifier")), version="0.1.0", now=NOW)
    trusting(world, SIGSTORE)
    certify(world, SIGSTORE, made.bundle.statement.raw, who(VERIFIER))
    assert both.admit().ok
    assert both.admit().require().summary is not None


def _verifier_key() -> str:
    return next(f"\n[[trust]]{one}" for one in KEYS.split("\n[[trust]]") if "verifier.pub" in one)


def test_keys_and_identities_side_by_side(world: World) -> None:
    """Each statement may be the one or the other; the policy says which signer is of which kind."""
    mixed = trusting(world, SIGSTORE, KEYS + entry("builder", BUILDER, BUILDER_ID))
    said = payloads(mixed)
    certify(mixed, SIGSTORE, said["provenance"])
    for name in ("scan", "detection"):
        attach_raw(mixed.layout, mixed.image.digest, forge(said[name], key("builder")))
    assert mixed.verify().ok


# -- the policy chooses the kind, never the bundle


def test_a_certificate_does_not_help_where_keys_are_trusted(world: World) -> None:
    keyed = world.with_policy(trust=KEYS)
    prove(keyed)
    report = keyed.verify()
    refused(report)
    assert "the policy trusts keys alone" in report.ignored[0]


def test_a_key_does_not_help_where_identities_are_trusted(world: World) -> None:
    world.prove()
    report = world.verify()
    refused(report)
    assert "not signed by a key that the policy trusts" in report.ignored[0]


def test_a_bundle_that_says_it_is_both(world: World) -> None:
    """A trusted key's right signature, with somebody's certificate beside it; and the other way round."""
    mixed = trusting(world, SIGSTORE, KEYS + entry("builder", BUILDER, BUILDER_ID))
    payload = payloads(mixed)["provenance"]
    keyed, certified = json.loads(forge(payload, key("builder"))), SIGSTORE.bundle(payload, who())
    for first, second in ((keyed, certified), (certified, keyed)):
        both = copy.deepcopy(first)
        both["verificationMaterial"] |= second["verificationMaterial"]
        attach_raw(mixed.layout, mixed.image.digest, json.dumps(both).encode())
    report = mixed.verify()
    refused(report)
    assert len(report.ignored) == 2


# -- somebody else

SOMEBODY_ELSE = {
    "another identity": who("https://ci.example/other/images/.ci/build@refs/heads/main"),
    "another ref": who(BUILDER.replace("main", "evil")),
    "more behind it": who(BUILDER + "x"),
    "a part of it": who(BUILDER[:-1]),
    "in other letters": who(BUILDER.replace("ci.example", "CI.example")),
    "another issuer": who(BUILDER, "https://evil.example"),
    "an issuer with more": who(BUILDER, ISSUER + "/"),
    "no issuer": who(BUILDER, ""),
    "an address": who("mailto:someone@ci.example"),
}


@attack(13, by=Position.IDENTITY)
@pytest.mark.parametrize("signer", SOMEBODY_ELSE.values(), ids=SOMEBODY_ELSE)
def test_somebody_else(world: World, signer: Who) -> None:
    """Another name, a part of it, more than it, another issuer or none: all with right certificates."""
    report = prove(world, signer=signer).verify()
    refused(report)
    assert "whom the policy does not trust" in report.ignored[0] or "unknown form" in report.ignored[0]


@attack(13, by=Position.IDENTITY)
def test_identities_count_under_their_own_root_alone(world: World) -> None:
    """Another sigstore may certify the same name: whose word counts for whom is the entry's."""
    two = entry("builder", BUILDER, BUILDER_ID) + entry(
        "rebuilder", "https://ci.example/rebuilder", "urn:example:again", root="other.json"
    )
    both = trusting(world, SIGSTORE, two + LAUNCHER + _verifier_key(), other=OTHER)
    refused(prove(both, OTHER).verify())
    assert prove(both).verify().ok


PARTS = {"issuing": Keys().issuing, "ct": Keys().ct, "log": Keys().log}


@pytest.mark.parametrize("part", PARTS)
def test_one_part_of_another_sigstore(world: World, part: str) -> None:
    mixed = Sigstore(replace(SIGSTORE.keys, **{part: PARTS[part]}))
    report = prove(world, mixed).verify()
    refused(report)


@attack(14, by=Position.IDENTITY)
def test_a_certificate_that_had_ended_when_it_was_logged(world: World) -> None:
    """The time that counts is signed: by the log, or by a time stamp authority."""
    late = Sigstore(SIGSTORE.keys, late=timedelta(minutes=11))
    refused(prove(world, late).verify())


# -- the form


def _two_entries(bundle: Document) -> None:
    bundle["verificationMaterial"]["tlogEntries"] *= 2


def _two_signatures(bundle: Document) -> None:
    bundle["dsseEnvelope"]["signatures"] *= 2


def _chain(bundle: Document) -> None:
    material = bundle["verificationMaterial"]
    material["x509CertificateChain"] = {"certificates": [material.pop("certificate")]}


def _flip(text: str) -> str:
    return ("A" if text[10] != "A" else "B").join((text[:10], text[11:]))


FORMS: dict[str, tuple[Callable[[Document], object], str]] = {
    "no entry": (lambda b: b["verificationMaterial"].update(tlogEntries=[]), "exactly one entry"),
    "entries that are none": (
        lambda b: b["verificationMaterial"].update(tlogEntries=None),
        "exactly one entry",
    ),
    "no entries": (lambda b: b["verificationMaterial"].pop("tlogEntries"), "lacks"),
    "two entries": (_two_entries, "exactly one entry"),
    "two signatures": (_two_signatures, "exactly one signature"),
    "no signature": (lambda b: b["dsseEnvelope"].update(signatures=[]), "exactly one signature"),
    "an older media type": (
        lambda b: b.update(mediaType="application/vnd.dev.sigstore.bundle+json;version=0.2"),
        "not a bundle of type",
    ),
    "a chain": (_chain, "beside a key"),
    "an unknown field": (lambda b: b.update(more=1), "unknown fields"),
    "one in the material": (lambda b: b["verificationMaterial"].update(more=1), "unknown fields"),
    "one in the entry": (
        lambda b: b["verificationMaterial"]["tlogEntries"][0].update(more=1),
        "not a bundle that can be checked",
    ),
    "many stamps": (
        lambda b: b["verificationMaterial"].update(
            timestampVerificationData={"rfc3161Timestamps": [{"signedTimestamp": "AA=="}] * 9}
        ),
        "at most 8 time stamps",
    ),
    "a certificate of other letters": (
        lambda b: b["verificationMaterial"]["certificate"].update(rawBytes="AA=="),
        "",
    ),
    "a payload that is not canonical": (
        lambda b: b["dsseEnvelope"].update(payload=b["dsseEnvelope"]["payload"] + "\n"),
        "not canonical base64",
    ),
    "another payload": (
        lambda b: b["dsseEnvelope"].update(payload=_flip(b["dsseEnvelope"]["payload"])),
        "signature does not hold",
    ),
    "another payload type": (
        lambda b: b["dsseEnvelope"].update(payloadType="application/json"),
        "signature does not hold",
    ),
    "another signature": (
        lambda b: b["dsseEnvelope"]["signatures"][0].update(
            sig=SIGSTORE.bundle(b"{}", who())["dsseEnvelope"]["signatures"][0]["sig"]
        ),
        "signature does not hold",
    ),
    "an entry of another bundle": (
        lambda b: b["verificationMaterial"].update(
            tlogEntries=SIGSTORE.bundle(b"{}", who())["verificationMaterial"]["tlogEntries"]
        ),
        "signature does not hold",
    ),
    "a certificate of another bundle": (
        lambda b: b["verificationMaterial"].update(
            certificate=SIGSTORE.bundle(b"{}", who())["verificationMaterial"]["certificate"]
        ),
        "signature does not hold",
    ),
}


@attack(4, by=Position.LAYOUT_WRITER)
@pytest.mark.parametrize("form", FORMS)
def test_a_form_that_is_not_ours(world: World, form: str) -> None:
    """Entry, certificate or signature of another bundle; two of what must be one; fields nobody checks."""
    change, why = FORMS[form]
    said = payloads(world)
    for name in ("scan", "detection"):
        certify(world, SIGSTORE, said[name])
    bundle = SIGSTORE.bundle(said["provenance"], who())
    change(bundle)
    attach_raw(world.layout, world.image.digest, json.dumps(bundle).encode())
    report = world.verify()
    refused(report)
    assert why in report.ignored[0]


def test_a_key_twice_in_the_bundle(world: World) -> None:
    """The library takes the last one; we take none."""
    raw = json.dumps(SIGSTORE.bundle(payloads(world)["provenance"], who()))
    twice = raw.replace('"payloadType":', '"payloadType": "application/json", "payloadType":', 1)
    attach_raw(world.layout, world.image.digest, twice.encode())
    report = world.verify()
    refused(report)
    assert "twice" in report.ignored[0] or "duplicate" in report.ignored[0]


@attack(20, by=Position.IDENTITY)
def test_a_payload_of_another_type_that_was_signed_so(world: World) -> None:
    """The library leaves the type to whoever asked it."""
    said = payloads(world)
    for name in ("scan", "detection"):
        certify(world, SIGSTORE, said[name])
    bundle = SIGSTORE.bundle(said["provenance"], who(), payload_type="application/json")
    attach_raw(world.layout, world.image.digest, json.dumps(bundle).encode())
    report = world.verify()
    refused(report)
    assert "the signed payload is not of type" in report.ignored[0]


def test_a_statement_about_another_image(world: World, tmp_path: Path) -> None:
    other = make_world(tmp_path / "other")
    for payload in payloads(other).values():
        certify(world, SIGSTORE, payload.replace(other.image.digest.hex.encode(), b"0" * 64))
    refused(world.verify(), CheckId.SUBJECT)


def test_an_identity_that_calls_itself_another_builder(world: World) -> None:
    for one in world.bundles(facts_of("urn:uuid:00000000-0000-4000-8000-00000000dead")).values():
        certify(world, SIGSTORE, one.statement.raw)
    assert "not paired" in refused(world.verify(), CheckId.SIGNER)


@attack(by=Position.IDENTITY)
def test_an_identity_speaks_for_its_role_alone(world: World) -> None:
    """The verifier's identity signs what only a builder may say."""
    report = prove(world, signer=who(VERIFIER)).verify()
    assert f"not for the verifier identity {VERIFIER}" in refused(report, CheckId.PREDICATE)


# -- revoked, ended


def test_a_revoked_identity(world: World) -> None:
    prove(world)
    assert world.verify().ok
    revoked = trusting(world, SIGSTORE, more=f'revoked = {{ identities = ["{BUILDER}"] }}\n')
    assert f"revoked identity {BUILDER}" in refused(revoked.verify(), CheckId.REVOKED)
    lines = explain_policy(revoked.policy, lambda: Marks(3, NAME_OF_NONE), NOW)
    assert any(one.bearing is Bearing.REFUSES and "no builder is believed" in one.says for one in lines)


def test_an_identity_past_its_end(world: World) -> None:
    prove(world)
    trust = entry("builder", BUILDER, BUILDER_ID, more="not_after = 2026-12-01T00:00:00Z") + LAUNCHER
    ended = trusting(world, SIGSTORE, trust + _verifier_key())
    assert "ended on 2026-12-01" in refused(ended.verify())


# -- rebuilders

AGAIN = ("https://ci.example/again/one", "https://ci.example/again/two")


def _rebuilt(world: World, *signers: Who) -> VerificationReport:
    prove(world)
    for number, signer in enumerate(signers):
        said = world.bundles(facts_of(f"urn:example:again-{number}"))["provenance"].statement.raw
        certify(world, SIGSTORE, said, signer)
    return world.verify()


def test_rebuilders_are_counted_by_identity(world: World) -> None:
    trust = TRUST + "".join(
        entry("rebuilder", name, f"urn:example:again-{number}") for number, name in enumerate(AGAIN)
    )
    two = trusting(world, SIGSTORE, trust, more="min_rebuilds = 2\n")
    assert "1 of 2" in refused(_rebuilt(two, who(AGAIN[0])), CheckId.REBUILDS)
    assert _rebuilt(two, who(AGAIN[0]), who(AGAIN[1])).ok


def test_one_rebuilder_under_two_issuers_is_one(world: World) -> None:
    second = "https://login.other.example"
    trust = TRUST + "".join(
        entry("rebuilder", AGAIN[0], f"urn:example:again-{number}", issuer=issuer)
        for number, issuer in enumerate((ISSUER, second))
    )
    with pytest.raises(UsageError, match="2 are asked for, but 1 rebuilders are trusted"):
        trusting(world, SIGSTORE, trust, more="min_rebuilds = 2\n")
    other = entry("rebuilder", AGAIN[1], "urn:example:again-2")
    three = trusting(world, SIGSTORE, trust + other, more="min_rebuilds = 2\n")
    report = _rebuilt(three, who(AGAIN[0]), who(AGAIN[0], second))
    assert "1 of 2" in refused(report, CheckId.REBUILDS)


# -- the policy

HALF = [
    ('issuer = "https://login.example"\n', "", "needs issuer"),
    ('issuer = "https://login.example"', 'issuer = ""', "issuer"),
    ('issuer = "https://login.example"', 'issuer = "login.example"', "issuer"),
    (f'identity = "{BUILDER}"\n', "", "needs identity"),
    (f'identity = "{BUILDER}"', 'identity = ""', "identity"),
    (f'identity = "{BUILDER}"', 'identity = ".*"', "expected a URI"),
    (f'identity = "{BUILDER}"', 'identity = "me@team.example"', "as mailto:"),
    ('trusted_root = "root.json"\n', "", "needs trusted_root"),
    ('trusted_root = "root.json"', 'trusted_root = "none.json"', "cannot be read"),
    ('kind = "keyless"', 'kind = "keyless"\nkey = "keys/builder.pub"', "cannot have key"),
    ('kind = "keyless"', 'kind = "key"\nkey = "keys/builder.pub"', "cannot have identity"),
    ('kind = "keyless"', 'kind = "fulcio"', 'expected "key" or "keyless"'),
    (f'identity = "{BUILDER}"', f'identity = "{VERIFIER}"', "identity is trusted as builder and as verifier"),
    (
        f'identity = "{BUILDER}"\nissuer = "{ISSUER}"',
        f'identity = "{VERIFIER}"\nissuer = "https://other.example"',
        "identity is trusted as builder and as verifier",
    ),
]


@pytest.mark.parametrize(("old", "new", "why"), HALF)
def test_an_identity_is_whole_or_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    write_root(tmp_path / "root.json", SIGSTORE.trusted_root())
    assert load_policy(write_policy(tmp_path, HEAD + TRUST))
    assert old in TRUST
    with pytest.raises(UsageError, match=why):
        load_policy(write_policy(tmp_path, HEAD + TRUST.replace(old, new, 1)))


def test_a_launcher_signs_with_a_key(tmp_path: Path) -> None:
    write_root(tmp_path / "root.json", SIGSTORE.trusted_root())
    with pytest.raises(UsageError, match="launches are signed by a key"):
        load_policy(write_policy(tmp_path, HEAD + TRUST + entry("launcher", "https://x.example", "urn:x:y")))


def test_one_identity_twice(tmp_path: Path) -> None:
    write_root(tmp_path / "root.json", SIGSTORE.trusted_root())
    again = entry("builder", BUILDER, "urn:x:y")
    with pytest.raises(UsageError, match="identity is trusted twice"):
        load_policy(write_policy(tmp_path, HEAD + TRUST + again))


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"mediaType": "x"}', b'{"a": 1, "a": 2}'])
def test_a_root_that_is_none(tmp_path: Path, raw: bytes) -> None:
    write_root(tmp_path / "root.json", raw)
    with pytest.raises(KeyUnusable, match=r"root\.json"):
        load_policy(write_policy(tmp_path, HEAD + TRUST))


def test_a_root_that_others_can_write(tmp_path: Path) -> None:
    write_root(tmp_path / "root.json", SIGSTORE.trusted_root())
    (tmp_path / "root.json").chmod(0o666)
    with pytest.raises(UsageError, match="others can write"):
        load_policy(write_policy(tmp_path, HEAD + TRUST))


def test_what_policy_check_says_of_an_identity(world: World) -> None:
    lines = [one.says for one in explain_policy(world.policy, lambda: Marks(3, NAME_OF_NONE), NOW)]
    assert f"builder identity {BUILDER} ({ISSUER}) as {BUILDER_ID}, without an end" in lines


# -- the library, the network


def test_without_the_library_it_is_the_host_whatever_is_attached(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing attached decides whether the policy can be enforced here."""
    monkeypatch.setitem(sys.modules, "sigstore", None)
    with pytest.raises(HostError, match="sigstore, which is not installed"):
        world.verify()
    keyed = world.with_policy(trust=KEYS)
    assert not prove(keyed).verify().ok


def test_no_network_is_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was tried")

    prove(world)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert world.verify().ok


def test_a_policy_of_keys_alone_does_not_pay_for_certificates(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom tests.fakes.proved import proved_world\n"
        f"assert proved_world(Path({str(tmp_path / 'w')!r})).admit().ok\n"
        "print(*sorted({'sigstore', 'cryptography.x509', 'requests'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
