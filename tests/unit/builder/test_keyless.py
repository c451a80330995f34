"""Signing for an identity: what the signing process may answer, and what becomes of every trouble."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from builder.building.evidence import attach_evidence
from builder.keyless import AMBIENT, KeylessSigner, signer_environment
from builder.settings.settings_file import Proxy, Settings
from images.credentials import Secret
from images.digests import Digest
from images.errors import BuilderError, HostError, KeyUnusable, NetworkFailed, VerifyFailed
from images.key import summarise
from provenance.keyless_request import (
    CONFIG_TYPE,
    SigningAnswer,
    SigningRequest,
    Trouble,
    read_answer,
    read_request,
)
from provenance.keyless_signing import sign_all
from provenance.referrers import read_referrers
from provenance.scan.accept import accept
from provenance.signers import Identity, Keyless
from provenance.sigstore_root import read_sigstore_root
from provenance.statements import Statement
from tests.fakes.evidence import statement
from tests.fakes.identities import BUILDER, ISSUER, who
from tests.fakes.locks import AMD64
from tests.fakes.proved import detected, facts_of, make_world, report_on
from tests.fakes.sigstores import Sigstore, Who

SIGSTORE = Sigstore()
ROOT = read_sigstore_root(SIGSTORE.trusted_root(), "root.json")
KEYLESS = Keyless(Identity(BUILDER, ISSUER), ROOT)
IMAGE = Digest.of(b"image")
STATEMENTS = tuple(statement(IMAGE, f"https://x.example/{name}", {}) for name in ("one", "two"))
VALID = {"start": "2025-01-01T00:00:00Z"}
SECRET = "dummy-proxy-password"


def config(address: str = "http://127.0.0.1:9", **other: object) -> bytes:
    """A signing configuration whose services are nobody's."""

    def at(url: str, version: int = 1) -> list[dict[str, object]]:
        return [{"url": url, "majorApiVersion": version, "operator": "test", "validFor": VALID}]

    document = {
        "mediaType": CONFIG_TYPE,
        "caUrls": at(address),
        "oidcUrls": at(address),
        "rekorTlogUrls": at(address, 2),
        "rekorTlogConfig": {"selector": "ANY"},
        "tsaUrls": at(f"{address}/api/v1/timestamp"),
        "tsaConfig": {"selector": "ANY"},
    }
    return json.dumps(document | other).encode()


def token(**other: object) -> Secret:
    """An identity token as far as a client looks into it; nobody signed it."""
    now = int(datetime.now(UTC).timestamp())
    claims = {"iss": ISSUER, "aud": "sigstore", "sub": "test", "iat": now, "nbf": now, "exp": now + 300}
    parts = ({"alg": "RS256", "typ": "JWT"}, claims | other)
    text = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return Secret.of_text(".".join([*text, "c2lnbmF0dXJl"]))


def child(folder: Path, answer: bytes, *, code: int = 0, before: str = "cat >/dev/null") -> str:
    """What stands for the interpreter: it says this, whatever it is asked."""
    (folder / "answer").write_bytes(answer)
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{before}\ncat {folder / 'answer'}\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def signer(python: str = sys.executable, **changes: object) -> KeylessSigner:
    made = KeylessSigner(
        keyless=KEYLESS,
        signing_config=config(),
        token=token(),
        environment={"PATH": "/usr/bin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8"},
        python=python,
        signing_limit=60.0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def bundles(
    statements: Sequence[Statement] = STATEMENTS, by: Who | None = None, of: Sigstore = SIGSTORE
) -> bytes:
    """The answer of a process that signed these."""
    made = tuple(json.dumps(of.bundle(one.raw, by or who())).encode() for one in statements)
    return SigningAnswer(issuer=ISSUER, bundles=made).to_json()


# -- what it may answer


def test_every_bundle_is_checked_before_it_is_handed_out(tmp_path: Path) -> None:
    made = signer(child(tmp_path, bundles())).sign(STATEMENTS)
    assert [one.statement.raw for one in made] == [one.raw for one in STATEMENTS]
    assert {one.signer for one in made} == {KEYLESS.identity}


WRONG: dict[str, tuple[bytes, type[BuilderError], str]] = {
    "of somebody else": (bundles(by=who(BUILDER + "x")), KeyUnusable, "the certificate is for .*main x?"),
    "of another issuer": (bundles(by=who(BUILDER, "https://x.example")), KeyUnusable, "certificate is for"),
    "under another root": (bundles(of=Sigstore()), VerifyFailed, "signature does not hold"),
    "other statements": (bundles(STATEMENTS[::-1]), VerifyFailed, "another statement was signed"),
    "one too few": (bundles(STATEMENTS[:1]), VerifyFailed, "not one bundle for each"),
    "one too many": (bundles((*STATEMENTS, STATEMENTS[0])), VerifyFailed, "not one bundle for each"),
    "no bundle": (
        SigningAnswer(issuer=ISSUER, bundles=(b"{}", b"{}")).to_json(),
        VerifyFailed,
        "not the form of a bundle",
    ),
    "another login": (
        SigningAnswer(issuer="https://x.example").to_json(),
        KeyUnusable,
        "the token is of https://x.example, but the identity is of",
    ),
    "nothing": (b"", HostError, "not acceptable JSON"),
    "another document": (b"{}", HostError, "not an answer"),
    "an unknown trouble": (
        json.dumps({"issuer": "", "bundles": [], "trouble": "x", "what": ""}).encode(),
        HostError,
        "not an answer",
    ),
    "no base64": (
        json.dumps({"issuer": "", "bundles": ["*"], "trouble": None, "what": ""}).encode(),
        HostError,
        "not an answer",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_answer_that_is_none(tmp_path: Path, wrong: str) -> None:
    answer, kind, why = WRONG[wrong]
    with pytest.raises(kind, match=why.replace("main x?", "main")):
        signer(child(tmp_path, answer)).sign(STATEMENTS)


TROUBLE: dict[Trouble, tuple[type[BuilderError], int, str]] = {
    Trouble.IDENTITY: (KeyUnusable, 11, "identity"),
    Trouble.CONFIG: (KeyUnusable, 11, "key"),
    Trouble.UNREACHABLE: (NetworkFailed, 10, "unreachable"),
    Trouble.REFUSED: (NetworkFailed, 10, "auth"),
    Trouble.SERVER: (NetworkFailed, 10, "server"),
    Trouble.UNTRUSTED: (VerifyFailed, 7, "verify"),
}


@pytest.mark.parametrize("trouble", Trouble)
def test_every_trouble_has_its_code_and_reason(tmp_path: Path, trouble: Trouble) -> None:
    answer = SigningAnswer(trouble=trouble, what="it was so").to_json()
    with pytest.raises(BuilderError, match="it was so") as told:
        signer(child(tmp_path, answer)).sign(STATEMENTS)
    kind, code, reason = TROUBLE[trouble]
    assert (type(told.value), told.value.code, told.value.reason) == (kind, code, reason)
    assert told.value.hint


def test_one_that_takes_too_long_is_ended_and_says_how_far_it_came(tmp_path: Path) -> None:
    python = child(tmp_path, b"", before="echo asking the log >&2; sleep 60")
    with pytest.raises(NetworkFailed, match=r"within 0\.5 s; it was asking the log") as told:
        signer(python, signing_limit=0.5).sign(STATEMENTS)
    assert (told.value.code, told.value.reason) == (10, "unreachable")


def test_one_that_crashes_is_not_quoted(tmp_path: Path) -> None:
    python = child(tmp_path, b"dummy-token", code=1, before="cat >/dev/null; echo dummy-token >&2")
    with pytest.raises(HostError, match="the signing process failed") as told:
        signer(python).sign(STATEMENTS)
    assert "dummy-token" not in f"{told.value} {told.value.hint}"


def test_nothing_is_attached_when_one_statement_is_not_signed(tmp_path: Path) -> None:
    """Not the lock, nor the statements that were: an image is proved, or it is not."""
    world = make_world(tmp_path / "world")
    clean = accept(report_on(world.image), world.image)
    python = child(tmp_path, bundles())
    summary = summarise(world.lock, AMD64)
    with pytest.raises(VerifyFailed):
        attach_evidence(
            detected(clean, world.lock), summary, facts_of(), world.raw_lock, signer(python), sbom={}
        )
    found = read_referrers(world.layout, world.image.digest)
    assert (found.bundles, found.locks) == ((), ())


# -- the process itself, with the real library and no network


def asked(**changes: object) -> SigningAnswer:
    """What the process answers, in this one: the library costs half a second each time."""
    request = SigningRequest(
        signing_config=config(), trusted_root=ROOT.raw, token=token(), statements=(STATEMENTS[0].raw,)
    )
    return sign_all(replace(request, **changes))  # type: ignore[arg-type]


def test_services_that_are_not_there() -> None:
    with pytest.raises(NetworkFailed, match="the certificate authority cannot be reached") as told:
        signer().sign(STATEMENTS)
    assert (told.value.code, told.value.reason) == (10, "unreachable")


GITHUB = {"GITHUB_ACTIONS": "true"}


@pytest.mark.parametrize(
    ("given", "environment", "why"),
    [
        (None, {}, "no CI system that hands one out"),
        (None, GITHUB, "no permission to have an identity (permissions: id-token: write)"),
        (None, {"GITLAB_CI": "true"}, "the CI system gave no identity"),
        (Secret.of_text("dummy-token"), {}, "the token cannot be used"),
        (Secret(b"\xff\xfe"), {}, "the token cannot be used"),
        (token(aud="other"), {}, "the token cannot be used"),
        (token(exp=int((datetime.now(UTC) - timedelta(hours=1)).timestamp())), {}, "cannot be used"),
        # What was given counts, and what was not asked for is not tried.
        (Secret.of_text("dummy-token"), GITHUB, "the token cannot be used"),
    ],
)
def test_no_identity_is_a_clear_error(
    given: Secret | None, environment: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    answer = asked(token=given, statements=())
    assert answer.trouble is Trouble.IDENTITY
    assert why in answer.what
    assert "dummy-token" not in answer.what


def test_ci_without_permission_ends_before_anything_is_built() -> None:
    made = signer(token=None)
    with pytest.raises(KeyUnusable, match="no permission to have an identity") as told:
        replace(made, environment={**made.environment, **GITHUB}).try_identity()
    assert (told.value.code, told.value.reason) == (11, "identity")
    assert "without --keyless" in told.value.hint


def test_an_identity_is_tried_without_a_service_and_signs_nothing() -> None:
    ambient = {"GITLAB_CI": "true", "SIGSTORE_ID_TOKEN": token().reveal().decode()}
    made = signer(token=None)
    replace(made, environment={**made.environment, **ambient}).try_identity()
    with pytest.raises(KeyUnusable, match=r"the token is of https://other\.example"):
        signer(token=token(iss="https://other.example")).try_identity()


NO_CONFIG = (b"", b"{}", b"[]", *(config(**{one: []}) for one in ("caUrls", "rekorTlogUrls")))


@pytest.mark.parametrize("raw", [*NO_CONFIG, config(mediaType="x"), config(more=1)])
def test_a_configuration_that_is_none(raw: bytes) -> None:
    answer = asked(signing_config=raw)
    assert answer.trouble is Trouble.CONFIG
    assert "signing_config" in answer.what


def test_the_request_and_its_answer_are_read_as_they_were_written() -> None:
    made = SigningRequest(
        signing_config=b"c", trusted_root=b"r", token=Secret(b"t"), statements=(b"a", b"\xff")
    )
    assert read_request(made.to_json()) == made
    answer = SigningAnswer(issuer="i", bundles=(b"b",), what="w", trouble=Trouble.SERVER)
    assert read_answer(answer.to_json()) == answer
    assert sign_all(replace(made, signing_config=b"{}")).trouble is Trouble.CONFIG
    assert "Secret(…)" in repr(made)


# -- what it knows of us


def test_its_environment_is_a_closed_list_and_the_settings(tmp_path: Path) -> None:
    @contextmanager
    def staging() -> Iterator[Path]:
        yield tmp_path

    given = {name: "x" for name in AMBIENT} | {"AWS_SECRET": "no", "HTTPS_PROXY": "no", "GITHUB_TOKEN": "no"}
    authorities = tmp_path / "ca.pem"
    authorities.write_bytes(b"-----BEGIN CERTIFICATE-----\n")
    authorities.chmod(0o600)
    proxy = Proxy(https=f"http://me:{SECRET}@proxy.example:3128", no_proxy=("a.example", "b.example"))
    with signer_environment(Settings(ca_bundle=authorities, proxy=proxy), given, staging) as known:
        assert set(known) == {
            *("PATH", "LC_ALL", "HOME", "https_proxy", "no_proxy", "REQUESTS_CA_BUNDLE"),
            *AMBIENT,
        }
        assert known["no_proxy"] == "a.example,b.example"
        bundle = Path(known["REQUESTS_CA_BUNDLE"]).read_bytes()
        assert bundle.endswith(authorities.read_bytes())
        assert bundle.count(b"BEGIN CERTIFICATE") > 1
    with signer_environment(Settings(), {}, staging) as known:
        assert set(known) == {"PATH", "LC_ALL", "HOME"}
    assert SECRET not in repr(signer(environment={"https_proxy": SECRET}))
