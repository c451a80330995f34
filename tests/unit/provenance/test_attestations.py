"""Statements of publishers: the real library over a sigstore made here; each way to be wrong has words."""

from __future__ import annotations

import base64
import copy
import json
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.attestation import MAX_BUNDLE_BYTES, Attestation
from images.authenticity import BY_PUBLISHER
from images.errors import HostError, KeyUnusable, PinError, VerifyFailed
from images.lock import Artifact, ArtifactKind, Authentication
from provenance.attestation_documents import MAX_DOCUMENT, npm_bundles, pypi_bundles
from provenance.attestations import find_statement, problem_with_attestation, published
from provenance.keyless import open_keyless
from provenance.publishers import Publisher, Publishers
from provenance.sigstore_root import Signer, SigstoreRoot, read_sigstore_root
from tests.attacks import Position, attack
from tests.fakes.locks import npm, wheel
from tests.fakes.sigstores import (
    EXPECTED,
    ISSUER,
    PUBLISHED,
    REF,
    REPOSITORY,
    WORKFLOW,
    Document,
    Keys,
    Sigstore,
    Who,
    about,
    attested,
    b64,
    npm_document,
    pypi_document,
    statement,
)

SIGSTORE = Sigstore()
OTHER = Sigstore()
ROOT = read_sigstore_root(SIGSTORE.trusted_root(), "root.json")
NPM = npm("@team/thing", "1.2.3")
WHEEL = wheel("Some_Thing-1.2.3-py3-none-any.whl")
EXPECTING = Publishers(ROOT, {"npm:@team/thing": EXPECTED, "pypi:some-thing": EXPECTED})
NOBODY = Publishers(ROOT)


def raw(document: object) -> bytes:
    return json.dumps(document).encode()


def found(one: Artifact, *bundles: bytes, publishers: Publishers = EXPECTING) -> Attestation | str:
    return find_statement(published(one), bundles, publishers, ROOT)


def why_not(one: Artifact, bundle: bytes) -> str:
    """Why this bundle does not count; the same, told or raised, whether somebody was expected or not."""
    told = found(one, bundle, publishers=NOBODY)
    assert isinstance(told, str)
    with pytest.raises(PinError) as refused:
        found(one, bundle)
    assert (refused.value.reason, refused.value.where) == ("integrity", published(one).label)
    assert str(refused.value).endswith(told)
    return told


# -- what counts


@pytest.mark.parametrize("one", [NPM, WHEEL], ids=["npm", "wheel"])
def test_the_expected_publisher_counts_and_anybody_else_is_only_named(one: Artifact) -> None:
    bundle = raw(SIGSTORE.bundle(about(one)))
    counts = Attestation(Who().identity, ISSUER, b64(bundle))
    assert found(one, bundle) == counts
    assert found(one, bundle, publishers=NOBODY) == replace(counts, bundle="")
    locked = replace(one, authenticated=BY_PUBLISHER[one.kind], signer=counts.publisher, attestation=counts)
    assert problem_with_attestation(locked, EXPECTING) is None
    assert problem_with_attestation(replace(one, attestation=replace(counts, bundle="")), NOBODY) is None


@pytest.mark.parametrize("kind", ["https://slsa.dev/provenance/v1", "https://slsa.dev/provenance/v0.2"])
@pytest.mark.parametrize("form", ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"])
def test_the_forms_of_npm(kind: str, form: str) -> None:
    payload = about(NPM, predicateType=kind, _type=form)
    assert isinstance(found(NPM, raw(SIGSTORE.bundle(payload))), Attestation)


@pytest.mark.parametrize("kind", [PUBLISHED, "https://slsa.dev/provenance/v1"])
@pytest.mark.parametrize("name", [WHEEL.filename, "some_thing-1.2.3-py3-none-any.whl"])
def test_the_forms_of_pypi(kind: str, name: str) -> None:
    subject = [{"name": name, "digest": {"sha256": WHEEL.integrity.hex}}]
    payload = about(WHEEL, predicateType=kind, subject=subject)
    assert isinstance(found(WHEEL, raw(SIGSTORE.bundle(payload))), Attestation)


def test_one_that_holds_among_others_is_enough() -> None:
    good, false = raw(SIGSTORE.bundle(about(NPM))), raw(OTHER.bundle(about(NPM)))
    assert isinstance(found(NPM, false, b"{}", good), Attestation)
    assert isinstance(found(NPM, false, good, publishers=NOBODY), Attestation)
    with pytest.raises(PinError, match="there is no statement of its publisher"):
        found(NPM)
    assert found(NPM, publishers=NOBODY) == "there is no statement of its publisher"


# -- who it was

EXACT = Publisher(issuer=ISSUER, identity=Who().identity)
MAIL = Publisher(issuer=ISSUER, identity="mailto:someone@forge.example")


@pytest.mark.parametrize(
    ("expected", "who", "why"),
    [
        (EXPECTED, Who(), None),
        (EXPECTED, Who(f"{REPOSITORY}/{WORKFLOW}@refs/heads/a@b", ref="refs/heads/a@b"), None),
        (EXACT, Who(), None),
        (MAIL, Who("someone@forge.example", repository="", ref=""), None),
        (EXPECTED, Who(issuer="https://token.ci.example/"), "issuer is https://token.ci.example/, not"),
        (EXACT, Who(issuer="https://other.example"), "issuer is https://other.example, not"),
        (EXPECTED, Who(repository=f"{REPOSITORY}s"), f"published from {REPOSITORY}s, not from"),
        (EXPECTED, Who(repository=""), "published from no repository"),
        (
            EXPECTED,
            Who(repository=REPOSITORY.upper().replace("HTTPS", "https")),
            "published from https://FORGE",
        ),
        (EXPECTED, Who(ref=""), f"not by {WORKFLOW} of {REPOSITORY}"),
        (EXPECTED, Who(ref="refs/heads/main"), "published by"),
        (EXPECTED, Who(f"{REPOSITORY}/.ci/other.yml@{REF}"), "published by"),
        (EXPECTED, Who(f"{REPOSITORY}/{WORKFLOW}@x.yml@{REF}"), "published by"),  # another workflow's name
        (EXPECTED, Who(f"https://forge.example/other/flows/{WORKFLOW}@{REF}"), "published by"),
        (EXACT, Who(f"{Who().identity}0"), "published by"),
        (EXACT, Who(f"{REPOSITORY}/{WORKFLOW}@refs/heads/main"), "published by"),
        (MAIL, Who("someone@forge.example.org"), "published by mailto:someone@forge.example.org"),
    ],
)
def test_whom_it_is_taken_from(expected: Publisher, who: Who, why: str | None) -> None:
    publishers = Publishers(ROOT, {"npm:@team/thing": expected})
    bundle = raw(SIGSTORE.bundle(about(NPM), who))
    assert isinstance(found(NPM, bundle, publishers=NOBODY), Attestation)  # it does hold
    if why is None:
        assert isinstance(found(NPM, bundle, publishers=publishers), Attestation)
        return
    with pytest.raises(PinError) as refused:
        found(NPM, bundle, publishers=publishers)
    assert why in refused.value.what


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (Who(issuer=""), "names publisher or issuer in an unknown form"),
        (Who(issuer="token.ci.example"), "names publisher or issuer in an unknown form"),
        (Who(f"https://forge.example/{'x' * 500}"), "names publisher or issuer in an unknown form"),
    ],
)
def test_a_publisher_of_an_unknown_form(who: Who, why: str) -> None:
    assert why in why_not(NPM, raw(SIGSTORE.bundle(about(NPM), who)))


# -- what was signed


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"_type": "https://in-toto.io/Statement/v2"}, "not a statement of type"),
        ({"_type": None}, "not a statement of type"),
        ({"predicateType": PUBLISHED}, "does not say who published it"),
        ({"predicateType": "https://slsa.dev/verification_summary/v1"}, "does not say who published it"),
        ({"predicateType": ["https://slsa.dev/provenance/v1"]}, "does not say who published it"),
        ({"subject": []}, "not about exactly one package"),
        ({"subject": {}}, "not about exactly one package"),
        ({"subject": ["x"]}, "a statement about 'None'"),
        ({"subject": [{"name": "pkg:npm/%40team/thing@1.2.3"}]}, "about other bytes"),
        ({"subject": [{"name": "pkg:npm/%40team/thing@1.2.3", "digest": []}]}, "about other bytes"),
    ],
)
def test_a_statement_that_says_something_else(changes: dict[str, Any], why: str) -> None:
    assert why in why_not(NPM, raw(SIGSTORE.bundle(about(NPM, **changes))))


SHA512 = NPM.integrity.hex


@pytest.mark.parametrize(
    ("name", "digest", "why"),
    [
        (
            "pkg:npm/%40team/thing@1.2.4",
            {"sha512": SHA512},
            "a statement about 'pkg:npm/%40team/thing@1.2.4'",
        ),
        ("pkg:npm/@team/thing@1.2.3", {"sha512": SHA512}, "a statement about"),
        ("pkg:npm/thing@1.2.3", {"sha512": SHA512}, "a statement about"),
        ("pkg:npm/%40team/thing@1.2.3?x=y", {"sha512": SHA512}, "a statement about"),
        (None, {"sha512": SHA512}, "a statement about 'None'"),
        ("pkg:npm/%40team/thing@1.2.3", {"sha512": "0" * 128}, "about other bytes (sha512)"),
        ("pkg:npm/%40team/thing@1.2.3", {"sha512": SHA512.upper()}, "about other bytes"),
        ("pkg:npm/%40team/thing@1.2.3", {"sha512": SHA512[:64]}, "about other bytes"),
        ("pkg:npm/%40team/thing@1.2.3", {"sha256": SHA512}, "about other bytes"),
        ("pkg:npm/%40team/thing@1.2.3", {}, "about other bytes"),
    ],
)
def test_a_statement_about_something_else(name: object, digest: object, why: str) -> None:
    payload = statement(subject=[{"name": name, "digest": digest}])
    assert why in why_not(NPM, raw(SIGSTORE.bundle(payload)))


def test_two_subjects_are_none() -> None:
    one = json.loads(about(NPM))["subject"][0]
    assert "exactly one package" in why_not(NPM, raw(SIGSTORE.bundle(statement(subject=[one, one]))))


@pytest.mark.parametrize("name", ["other-1.2.3-py3-none-any.whl", "some_thing-1.2.3.tar.gz", "", "\0"])
def test_a_statement_about_another_file(name: str) -> None:
    payload = about(WHEEL, subject=[{"name": name, "digest": {"sha256": WHEEL.integrity.hex}}])
    assert "a statement about" in why_not(WHEEL, raw(SIGSTORE.bundle(payload)))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "not acceptable JSON"),
        (b"[]", "the top is not an object"),
        (b"{" * 100, "not acceptable JSON"),
        (b'{"_type": "a", "_type": "b"}', "appears twice"),
        (b'{"x": ' * 60 + b"1" + b"}" * 60, "nested deeper"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_payload_that_is_no_document(payload: bytes, why: str) -> None:
    assert why in why_not(NPM, raw(SIGSTORE.bundle(payload)))


def test_a_payload_of_another_type() -> None:
    bundle = SIGSTORE.bundle(about(NPM), payload_type="application/json")
    assert "the signed payload is not of type" in why_not(NPM, raw(bundle))


# -- whether it holds


def entry(bundle: Document) -> Document:
    found: Document = bundle["verificationMaterial"]["tlogEntries"][0]
    return found


def flip(document: Document, key: str) -> None:
    """Another last byte of what is base64 there."""
    text = document[key]
    document[key] = text[:8] + ("A" if text[8] != "A" else "B") + text[9:]


def other_key(bundle: Document, part: str) -> None:
    """The same entry, signed by another log."""
    liar = Sigstore(keys=replace(SIGSTORE.keys, log=OTHER.keys.log))
    body = json.loads(json.dumps(entry(bundle)))["canonicalizedBody"]
    forged = liar.logged(base64.b64decode(body))
    if part == "all":
        bundle["verificationMaterial"]["tlogEntries"] = [forged]
    else:
        forged["logId"] = entry(bundle)["logId"]
        bundle["verificationMaterial"]["tlogEntries"] = [forged]


SPOILS: list[tuple[Callable[[Document], object], str]] = [
    (lambda b: flip(b["dsseEnvelope"], "payload"), "signature does not hold"),
    (lambda b: flip(b["dsseEnvelope"]["signatures"][0], "sig"), ""),
    (lambda b: b["dsseEnvelope"].update(payloadType="application/json"), "signature does not hold"),
    (lambda b: b["dsseEnvelope"].update(signatures=[]), ""),
    (lambda b: b["dsseEnvelope"]["signatures"].append(b["dsseEnvelope"]["signatures"][0]), ""),
    (lambda b: b.pop("dsseEnvelope"), ""),
    (lambda b: b.pop("mediaType"), ""),
    (
        lambda b: b.update(mediaType="application/vnd.dev.sigstore.bundle.v9+json"),
        "mediaType Input should be",
    ),
    (lambda b: b["verificationMaterial"].pop("certificate"), "or certificate must be set"),
    (lambda b: b["verificationMaterial"]["certificate"].update(rawBytes=""), ""),
    (lambda b: b["verificationMaterial"].update(tlogEntries=[]), "exactly one log entry"),
    (lambda b: b["verificationMaterial"].pop("tlogEntries"), ""),
    (lambda b: b["verificationMaterial"]["tlogEntries"].append(entry(b)), "exactly one log entry"),
    (lambda b: entry(b).pop("inclusionProof"), "inclusionProof Field required"),
    (lambda b: entry(b)["inclusionProof"].pop("checkpoint"), "inclusion proof, with checkpoint"),
    (lambda b: entry(b).pop("inclusionPromise"), "inclusion promise or signed timestamp"),
    (lambda b: flip(entry(b)["inclusionPromise"], "signedEntryTimestamp"), ""),
    (lambda b: entry(b).update(integratedTime="1772366400"), "SET: invalid inclusion promise"),
    (lambda b: entry(b).update(integratedTime="0"), "not enough sources of verified time"),
    (lambda b: entry(b).update(integratedTime="99999999999999999"), ""),
    (lambda b: flip(entry(b)["inclusionProof"], "rootHash"), "invalid root hash"),
    (lambda b: entry(b)["inclusionProof"].update(hashes=[]), "inclusion proof has wrong size"),
    (lambda b: entry(b)["inclusionProof"].update(treeSize="-1"), ""),
    (lambda b: entry(b)["inclusionProof"].update(logIndex=str(2**63)), ""),
    (lambda b: flip(entry(b), "canonicalizedBody"), ""),
    (
        lambda b: entry(b)["kindVersion"].update(kind="intoto", version="0.0.2"),
        "Integrated time only supported",
    ),
    (lambda b: other_key(b, "all"), "checkpoint: invalid signature"),
    (lambda b: other_key(b, "but its name"), "checkpoint"),
    (lambda b: b["verificationMaterial"].update(publicKey={"hint": "x"}), ""),
    (lambda b: b.update(more=1), ""),
]


@pytest.mark.parametrize(("spoil", "why"), SPOILS)
def test_a_bundle_that_was_changed(spoil: Callable[[Document], object], why: str) -> None:
    bundle = SIGSTORE.bundle(about(NPM))
    assert isinstance(found(NPM, raw(bundle)), Attestation)
    spoil(bundle)
    assert why in why_not(NPM, raw(bundle))


@pytest.mark.parametrize("part", ["root", "issuing", "ct", "log"])
def test_another_authority_or_log(part: str) -> None:
    """One part alone is of somebody else."""
    keys = replace(SIGSTORE.keys, **{part: getattr(OTHER.keys, part)})
    if part == "root":
        keys = replace(keys, issuing=OTHER.keys.issuing)
    assert "signature does not hold" in why_not(NPM, raw(Sigstore(keys=keys).bundle(about(NPM))))


@attack(14, by=Position.NETWORK)
@pytest.mark.parametrize("late", [timedelta(minutes=11), timedelta(hours=-1)])
def test_a_certificate_that_was_not_valid_when_the_log_took_it(late: timedelta) -> None:
    bundle = Sigstore(keys=SIGSTORE.keys, late=late).bundle(about(NPM))
    assert "signature does not hold: failed to build timestamp certificate" in why_not(NPM, raw(bundle))


def test_an_expired_certificate_holds_by_the_time_of_the_log() -> None:
    """It lived for ten minutes, long ago: no clock of this machine is asked."""
    assert isinstance(found(NPM, raw(SIGSTORE.bundle(about(NPM)))), Attestation)


@attack(4, by=Position.NETWORK)
def test_parts_of_two_bundles() -> None:
    one, two = SIGSTORE.bundle(about(NPM)), SIGSTORE.bundle(about(NPM))
    for path in (("verificationMaterial", "certificate"), ("verificationMaterial", "tlogEntries")):
        mixed = copy.deepcopy(one)
        mixed[path[0]][path[1]] = two[path[0]][path[1]]
        assert "signature does not hold" in why_not(NPM, raw(mixed))
    assert "signature does not hold" in why_not(NPM, raw({**one, "dsseEnvelope": two["dsseEnvelope"]}))


@pytest.mark.parametrize(
    ("bundle", "why"),
    [
        (b"", "not acceptable JSON"),
        (b"null", "the top is not an object"),
        (b"{}", "not a bundle that can be checked"),
        (b'{"a": 1, "a": 1}', "appears twice"),
        (b"[" * 100_000, "not acceptable JSON"),
        (b'{"x": ' * 40 + b"1" + b"}" * 40, "nested deeper"),
        (b'{"x": "' + b"y" * MAX_BUNDLE_BYTES + b'"}', "more than"),
        (raw(SIGSTORE.bundle(about(NPM)))[:-10], "not acceptable JSON"),
    ],
)
def test_bytes_that_are_no_bundle(bundle: bytes, why: str) -> None:
    assert why in why_not(NPM, bundle)


GOOD = SIGSTORE.bundle(about(NPM))


def leaves(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [found for n, item in enumerate(value) for found in leaves(item, (*path, n))]
    return [path]


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=40),
    st.binary(max_size=200).map(b64),
    st.lists(st.text(max_size=5), max_size=2),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)


@settings(max_examples=150, deadline=None)
@given(path=st.sampled_from(leaves(GOOD)), junk=JUNK)
def test_no_other_error_than_ours(path: tuple[str | int, ...], junk: object) -> None:
    """Whatever stands in any one place, the answer is an error of ours or the same publisher."""
    bundle = copy.deepcopy(GOOD)
    parent: Any = bundle
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = junk
    told = found(NPM, raw(bundle), publishers=NOBODY)
    assert isinstance(told, str) or told == Attestation(Who().identity, ISSUER)


DER = GOOD["verificationMaterial"]["certificate"]["rawBytes"]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_other_error_for_a_broken_certificate(data: st.DataObject) -> None:
    der = bytearray(base64.b64decode(DER))
    at = data.draw(st.integers(0, len(der) - 1))
    der[at] ^= data.draw(st.integers(1, 255))
    bundle = copy.deepcopy(GOOD)
    bundle["verificationMaterial"]["certificate"]["rawBytes"] = b64(bytes(der))
    assert isinstance(found(NPM, raw(bundle), publishers=NOBODY), str)


def test_a_certificate_with_a_negative_serial_number_is_none() -> None:
    """Under the interpreter's own filters: the library would only warn, on somebody's standard error."""
    der = bytearray(base64.b64decode(DER))
    assert der[8:14] == b"\xa0\x03\x02\x01\x02\x02"  # the version; then the serial number, and its length
    der[15] |= 0x80
    bundle = copy.deepcopy(GOOD)
    bundle["verificationMaterial"]["certificate"]["rawBytes"] = b64(bytes(der))
    with warnings.catch_warnings():
        warnings.resetwarnings()
        told = found(NPM, raw(bundle), publishers=NOBODY)
    assert "cannot be read (CryptographyDeprecationWarning)" in str(told)


# -- the trusted root


def test_a_root_that_only_looks_like_one() -> None:
    broken = read_sigstore_root(SIGSTORE.trusted_root(certificateAuthorities=[{"x": 1}]), "root.json")
    with pytest.raises(KeyUnusable, match=r"root\.json: not a trusted root that can be used"):
        find_statement(published(NPM), (raw(GOOD),), NOBODY, broken)


def test_without_the_library_nothing_passes() -> None:
    """It is an extra: its absence is told as what it is, and never as a statement that does not count."""
    code = (
        "import sys; sys.modules['sigstore'] = None\n"
        "from provenance.keyless import open_keyless\n"
        "from provenance.sigstore_root import SigstoreRoot\n"
        "from images.errors import HostError\n"
        "try: open_keyless(b'{}', SigstoreRoot(b'{}', 'r'), 'x')\n"
        "except HostError as told: print(told.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "pip install 'agent-image-builder[keyless]'\n"
    assert HostError.code != VerifyFailed.code


def test_the_library_writes_nothing_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    broken = copy.deepcopy(GOOD)
    flip(broken["dsseEnvelope"], "payload")
    why_not(NPM, raw(broken))
    found(NPM, raw(GOOD))
    assert capfd.readouterr() == ("", "")


def test_no_network_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert open_keyless(raw(GOOD), ROOT, "x").signer == Signer(Who().identity, ISSUER, REPOSITORY, REF)


# -- in a lock

LOCKED = attested(NPM, SIGSTORE)


def edited(**changes: str) -> Artifact:
    assert LOCKED.attestation is not None
    return replace(LOCKED, attestation=replace(LOCKED.attestation, **changes))


@pytest.mark.parametrize(
    ("artifact", "why"),
    [
        (edited(publisher="https://other.example/x"), "but the lock says another one"),
        (edited(issuer="https://other.example"), "but the lock says another one"),
        (edited(bundle="e30K"), "not a bundle that can be checked"),
        (edited(bundle="e30"), "no base64"),
        (replace(LOCKED, integrity=npm("x", "1").integrity), "a statement about other bytes"),
        (replace(LOCKED, version="1.2.4"), "nobody")
        if False
        else (replace(LOCKED, version="1.2.4"), "about"),
        (replace(LOCKED, attestation=None), "not acceptable JSON"),
        (attested(NPM, OTHER), "signature does not hold"),
        (attested(NPM, SIGSTORE, Who(issuer="https://other.example")), "issuer is https://other.example"),
        (
            replace(LOCKED, authenticated=Authentication.TOFU, signer="", attestation=None),
            "is tofu, but https://forge.example/team/tool/.ci/release.yml should have published it",
        ),
        (replace(LOCKED, authenticated=Authentication.NPM_SIGNATURE), "is npm-signature, but"),
    ],
)
def test_a_lock_that_was_edited(artifact: Artifact, why: str) -> None:
    assert problem_with_attestation(LOCKED, EXPECTING) is None
    assert why in (problem_with_attestation(artifact, EXPECTING) or "")


def test_what_nobody_expects_needs_nothing() -> None:
    for kind in (ArtifactKind.DEB, ArtifactKind.SKILL, ArtifactKind.ARCHIVE):
        assert problem_with_attestation(replace(NPM, kind=kind), EXPECTING) is None
    assert problem_with_attestation(npm("other", "1.0.0"), EXPECTING) is None


# -- what an index says


def test_the_documents_of_the_indexes() -> None:
    bundle = SIGSTORE.bundle(about(NPM))
    own = copy.deepcopy(bundle)
    own["verificationMaterial"] = {"publicKey": {"hint": "SHA256:x"}, "tlogEntries": []}
    (read,) = npm_bundles(raw(npm_document(own, bundle)), "x")
    assert json.loads(read) == bundle
    (read,) = pypi_bundles(raw(pypi_document(SIGSTORE.bundle(about(WHEEL)))), "x")
    assert isinstance(found(WHEEL, read), Attestation)
    assert npm_bundles(b'{"attestations": []}', "x") == ()


BUNDLES = [npm_bundles, pypi_bundles]


@pytest.mark.parametrize("read", BUNDLES)
@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"attestations": {}}',
        b'{"attestations": [1]}',
        b'{"attestations": [{}]}',
        b'{"attestations": [{"bundle": []}]}',
        b'{"attestations": [{"bundle": {}}]}',
        raw({"attestations": [{"bundle": {"verificationMaterial": {}}}] * 21}),
        b'{"attestation_bundles": []}',
        b'{"version": true, "attestation_bundles": []}',
        b'{"version": 2, "attestation_bundles": []}',
        b'{"version": 1, "attestation_bundles": [1]}',
        b'{"version": 1, "attestation_bundles": [{"attestations": [1]}]}',
        b'{"version": 1, "attestation_bundles": [{"attestations": [{"version": 1}]}]}',
        b'{"version": 1, "attestation_bundles": [{"attestations": [{"version": 2}]}]}',
        b'{"version": 1, "version": 1}',
        b'{"x": ' * 100 + b"1" + b"}" * 100,
        b'{"x": "' + b"y" * MAX_DOCUMENT + b'"}',
    ],
)
def test_documents_of_another_form(read: Callable[[bytes, str], object], document: bytes) -> None:
    with pytest.raises(VerifyFailed, match=r"^x: "):
        read(document, "x")


def test_too_many_in_groups() -> None:
    one = pypi_document(SIGSTORE.bundle(about(WHEEL)))
    one["attestation_bundles"] = [
        {"attestations": one["attestation_bundles"][0]["attestations"] * 11} for _ in range(2)
    ]
    with pytest.raises(VerifyFailed, match="more than 20"):
        pypi_bundles(raw(one), "x")


@settings(max_examples=100, deadline=None)
@given(path=st.sampled_from(leaves(pypi_document(GOOD))), junk=JUNK)
def test_no_other_error_than_ours_for_a_document(path: tuple[str | int, ...], junk: object) -> None:
    document = pypi_document(GOOD)
    parent: Any = document
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = junk
    try:
        bundles = pypi_bundles(raw(document), "x")
    except VerifyFailed:
        return
    assert isinstance(found(NPM, *bundles, publishers=NOBODY), str | Attestation)


def test_values_show_no_bytes() -> None:
    assert "mediaType" not in repr(SigstoreRoot(SIGSTORE.trusted_root(), "root.json"))
    assert Keys() != Keys()
