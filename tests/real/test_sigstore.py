"""Signed for identities by a real private sigstore, verified offline: and every way to be refused."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from builder.bootstrap import Bootstrapped
from builder.keyless import KeylessSigner
from builder.state import State
from images.credentials import Secret
from images.digests import Digest
from images.errors import BuilderError, KeyUnusable, NetworkFailed, VerifyFailed
from provenance.attest import attest
from provenance.bundles import open_bundle
from provenance.checks import CheckId, Status
from provenance.referrers import add_lock, add_referrer
from provenance.signers import Identity, Keyless
from provenance.signing import Bundle, check_certificate
from provenance.sigstore_root import read_sigstore_root
from tests.fakes.evidence import attach_raw, statement
from tests.fakes.identities import LAUNCHER, entry, write_root
from tests.fakes.policies import BUILDER_ID, VERIFIER_ID
from tests.fakes.proved import NOW, World, facts_of, make_world
from tests.real.sigstore_pki import CI, IDENTITY, REF, USERS, Pki, signing_config
from tests.real.sigstore_stack import Stack, sigstore
from tests.real.tiny import Tiny, make_tiny

__all__ = ["sigstore"]
pytestmark = pytest.mark.real

CHECKER = "mailto:checker@lab.example"
TRUST = entry("builder", IDENTITY, BUILDER_ID, issuer=CI) + entry(
    "verifier", CHECKER, VERIFIER_ID, issuer=USERS
)
Document = dict[str, Any]


def raw(document: object) -> bytes:
    return json.dumps(document).encode()


def signer_for(stack: Stack, identity: str = IDENTITY, issuer: str = CI, **changes: Any) -> KeylessSigner:
    """As the command line makes one, with a token of this login."""
    root = read_sigstore_root(raw(stack.pki.trusted_root()), "root.json")
    made = KeylessSigner(
        keyless=Keyless(Identity(identity, issuer), root),
        signing_config=signing_config(),
        token=Secret.of_text(stack.pki.token(issuer)),
        environment={"PATH": "/usr/bin:/bin", "HOME": "/"},
        python=stack.python(),
        signing_limit=60.0,
    )
    return replace(made, **changes)


@dataclass
class Signed:
    """A world whose builder and verifier are identities of the stack, and what they signed of it."""

    stack: Stack
    world: World
    bundles: tuple[Bundle, ...]

    def policy(self, root: Document | None = None, trust: str = TRUST, more: str = "") -> World:
        """The world under a policy with this root."""
        document = self.stack.pki.trusted_root() if root is None else root
        write_root(self.world.root / "config/root.json", raw(document))
        return self.world.with_policy(trust=trust + LAUNCHER, more=more)


@pytest.fixture(scope="module")
def signed(sigstore: Stack, tmp_path_factory: pytest.TempPathFactory) -> Signed:
    made = Signed(sigstore, make_world(tmp_path_factory.mktemp("world")), ())
    world = made.policy()
    statements = tuple(one.statement for one in world.bundles(facts_of()).values())
    bundles = signer_for(sigstore).sign(statements)
    add_lock(world.image, world.raw_lock)
    for bundle in bundles:
        add_referrer(world.image, bundle)
    checker = signer_for(sigstore, CHECKER, USERS)
    summary = attest(world.verify(), world.policy, checker, version="0.1.0", now=NOW)
    assert summary.passed
    add_referrer(world.image, summary.bundle)
    return replace(made, world=world, bundles=(*bundles, summary.bundle))


def test_two_identities_prove_an_image(signed: Signed) -> None:
    report = signed.policy().admit()
    verified = report.require()
    assert verified.provenance.signer == Identity(IDENTITY, CI)
    assert verified.summary is not None
    assert verified.summary.signer == Identity(CHECKER, USERS)
    assert report.ignored == ()


OFFLINE = """
import sys
from pathlib import Path

def hook(event, arguments):
    if event.startswith("socket."):
        raise SystemExit(f"a socket: {event}")

import sigstore.verify  # a client below it binds a socket when it is imported, to see whether there is IPv6

sys.addaudithook(hook)
from datetime import UTC, datetime
from images.digests import Digest
from provenance.expectations import Expectation
from provenance.policy import load_policy
from provenance.verify import Purpose, VerifyRequest, verify

request = VerifyRequest(
    layout=Path(sys.argv[1]), digest=Digest(sys.argv[2]), policy=load_policy(Path(sys.argv[3])),
    platform=None, expectation=Expectation(), purpose=Purpose.ADMISSION,
    now=datetime(2026, 12, 1, 12, tzinfo=UTC),
)
print(verify(request).require().image.digest)
"""


def test_verification_opens_no_socket_and_needs_no_network(signed: Signed) -> None:
    """In a namespace where not even loopback is up, hours after the certificates ended."""
    world = signed.policy()
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    argv = [sys.executable, "-c", OFFLINE, str(world.layout), str(world.image.digest), str(world.policy.path)]
    done = subprocess.run(
        ["unshare", "--net", *user, "--", *argv], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(world.image.digest)), done.stderr


# -- another one: identity, issuer, root

NOBODY = {
    "another identity": TRUST.replace(REF, "lab/demo/.ci/run@refs/heads/other"),
    "the beginning of it": TRUST.replace("refs/heads/main", "refs/heads/mai"),
    "another issuer": TRUST.replace(f'"{CI}"', f'"{USERS}"'),
    "another form of the issuer": TRUST.replace(f'"{CI}"', f'"{CI}/"'),
}


@pytest.mark.parametrize("trust", NOBODY.values(), ids=NOBODY)
def test_who_it_is_not(signed: Signed, trust: str) -> None:
    report = signed.policy(trust=trust).admit()
    assert report.check(CheckId.SIGNATURE).status is Status.FAILED
    assert any("whom the policy does not trust" in line for line in report.ignored)


def _later(root: Document, part: str) -> None:
    place = root[part][0]
    (place.get("publicKey") or place)["validFor"] = {"start": "2100-01-01T00:00:00Z"}


def _details(root: Document) -> None:
    root["tlogs"][0]["publicKey"]["keyDetails"] = "PKIX_ED25519"


OTHER = Pki().trusted_root()
ROOTS: dict[str, Callable[[Document], object]] = {
    "all of another": lambda root: root.update(OTHER),
    **{
        f"{part} of another": (lambda root, part=part: root.update({part: OTHER[part]}))
        for part in ("certificateAuthorities", "ctlogs", "tlogs", "timestampAuthorities")
    },
    "no time stamp authority": lambda root: root.update(timestampAuthorities=[]),
    **{
        f"{part} valid later": (lambda root, part=part: _later(root, part))
        for part in ("certificateAuthorities", "ctlogs", "tlogs", "timestampAuthorities")
    },
    "a log's key of another kind": _details,
}


@pytest.mark.parametrize("change", ROOTS.values(), ids=ROOTS)
def test_under_another_root(signed: Signed, change: Callable[[Document], object]) -> None:
    document = signed.stack.pki.trusted_root()
    change(document)
    try:
        report = signed.policy(document).admit()
    except KeyUnusable:
        return  # a root that cannot be used is told as that
    assert report.check(CheckId.SIGNATURE).status is Status.FAILED


# -- a changed bundle


def _flip(place: dict[str, Any], name: str) -> None:
    text = place[name]
    place[name] = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]


def _material(bundle: Document) -> Document:
    found: Document = bundle["verificationMaterial"]
    return found


def _entry(bundle: Document) -> Document:
    found: Document = _material(bundle)["tlogEntries"][0]
    return found


def _note(bundle: Document) -> None:
    checkpoint = _entry(bundle)["inclusionProof"]["checkpoint"]
    name, size, rest = checkpoint["envelope"].split("\n", 2)
    checkpoint["envelope"] = f"{name}\n{int(size) + 1}\n{rest}"


def _from(name: str) -> Callable[[Document, Document], object]:
    return lambda one, other: _material(one).update({name: _material(other)[name]})


CHANGES: dict[str, Callable[[Document, Document], object]] = {
    "payload": lambda one, _: _flip(one["dsseEnvelope"], "payload"),
    "payload type": lambda one, _: one["dsseEnvelope"].update(payloadType="application/json"),
    "payload of another": lambda one, other: one["dsseEnvelope"].update(
        payload=other["dsseEnvelope"]["payload"]
    ),
    "signature": lambda one, _: _flip(one["dsseEnvelope"]["signatures"][0], "sig"),
    "envelope of another": lambda one, other: one.update(dsseEnvelope=other["dsseEnvelope"]),
    "certificate": lambda one, _: _flip(_material(one)["certificate"], "rawBytes"),
    "entry of another": _from("tlogEntries"),
    "time stamps of another": _from("timestampVerificationData"),
    "no time stamp": lambda one, _: _material(one).pop("timestampVerificationData"),
    "an empty list of them": lambda one, _: _material(one).update(
        timestampVerificationData={"rfc3161Timestamps": []}
    ),
    "no entry": lambda one, _: _material(one).update(tlogEntries=[]),
    "two entries": lambda one, other: _material(one)["tlogEntries"].append(_entry(other)),
    "body": lambda one, _: _flip(_entry(one), "canonicalizedBody"),
    "root hash": lambda one, _: _flip(_entry(one)["inclusionProof"], "rootHash"),
    "checkpoint": lambda one, _: _note(one),
    "no proof": lambda one, _: _entry(one).pop("inclusionProof"),
    "media type": lambda one, _: one.update(mediaType="application/vnd.dev.sigstore.bundle+json;version=0.3"),
    "a field more": lambda one, _: _entry(one).update(more=1),
    "a key beside the certificate": lambda one, _: _material(one).update(publicKey={"hint": "x"}),
    "two signatures": lambda one, other: one["dsseEnvelope"]["signatures"].extend(
        other["dsseEnvelope"]["signatures"]
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_bundle(signed: Signed, change: Callable[[Document, Document], object]) -> None:
    root = read_sigstore_root(raw(signed.stack.pki.trusted_root()), "root.json")
    one, other = (json.loads(bundle.raw) for bundle in signed.bundles[:2])
    assert check_certificate(open_bundle(raw(one), "whole"), root, "whole").identity.name == IDENTITY
    before = copy.deepcopy(one)
    change(one, other)
    assert one != before
    with pytest.raises(VerifyFailed):
        check_certificate(open_bundle(raw(one), "changed"), root, "changed")


def test_a_certificate_of_somebody_else(signed: Signed) -> None:
    """The verifier's, in the builder's bundle."""
    root = read_sigstore_root(raw(signed.stack.pki.trusted_root()), "root.json")
    builders, checkers = json.loads(signed.bundles[0].raw), json.loads(signed.bundles[-1].raw)
    _material(builders)["certificate"] = _material(checkers)["certificate"]
    with pytest.raises(VerifyFailed):
        check_certificate(open_bundle(raw(builders), "mixed"), root, "mixed")


def test_a_key_in_the_policy_does_not_take_them(signed: Signed) -> None:
    report = signed.world.with_policy().admit()
    assert report.check(CheckId.SIGNATURE).status is Status.FAILED
    assert "the policy trusts keys alone" in report.ignored[0]


def test_statements_about_another_image(signed: Signed, tmp_path: Path) -> None:
    other = make_world(tmp_path)
    wrong = replace(other, image=other.base)
    add_lock(wrong.image, other.raw_lock)
    for bundle in signed.bundles:
        attach_raw(wrong.layout, wrong.image.digest, bundle.raw)
    report = replace(signed, world=wrong).policy().verify()
    assert report.check(CheckId.SUBJECT).status is Status.FAILED


# -- nobody to sign

ONE = (statement(Digest.of(b"image"), "https://x.example/one", {}),)


def why_not(made: KeylessSigner) -> BuilderError:
    with pytest.raises(BuilderError) as told:
        made.sign(ONE)
    return told.value


TOKENS: dict[str, tuple[str, dict[str, Any]]] = {
    "a login of an unknown issuer": (CI, {"iss": CI + "/other"}),
    "an address that nobody checked": (USERS, {"email_verified": False}),
    "a claim too few": (CI, {"job_workflow_ref": None}),
}


@pytest.mark.parametrize("what", TOKENS)
def test_a_login_that_the_authority_refuses(sigstore: Stack, what: str) -> None:
    issuer, claims = TOKENS[what]
    token = Secret.of_text(sigstore.pki.token(issuer, **claims))
    told = why_not(signer_for(sigstore, issuer=claims.get("iss", issuer), token=token))
    assert (type(told), told.code, told.reason) == (NetworkFailed, 10, "auth")


def test_a_login_of_another_key_is_refused(sigstore: Stack) -> None:
    token = Secret.of_text(sigstore.pki.token(key=Pki().logins))
    told = why_not(signer_for(sigstore, token=token))
    assert (told.code, told.reason) == (10, "auth")
    assert token.reveal().decode() not in f"{told} {told.hint}"


def test_a_login_of_somebody_else_signs_nothing_for_us(sigstore: Stack) -> None:
    token = Secret.of_text(sigstore.pki.token(job_workflow_ref="lab/other/.ci/run@refs/heads/main"))
    told = why_not(signer_for(sigstore, token=token))
    assert (told.code, told.reason) == (11, "identity")
    assert "the certificate is for https://ci.lab.example/lab/other/.ci/run@refs/heads/main" in told.what


def test_an_authority_whose_promises_are_not_of_our_log(sigstore: Stack) -> None:
    """The client looks at the promise before it signs anything."""
    root = read_sigstore_root(raw(sigstore.pki.trusted_root(ctlogs=OTHER["ctlogs"])), "root.json")
    told = why_not(signer_for(sigstore, keyless=Keyless(Identity(IDENTITY, CI), root)))
    assert (type(told), told.code) == (VerifyFailed, 7)


@pytest.mark.parametrize(
    ("server", "reason", "why"),
    [
        ("fulcio", "unreachable", "the certificate authority cannot be reached"),
        ("rekor", "unreachable", "cannot be reached"),
        ("tsa", "server", "no time stamp"),
    ],
)
def test_a_service_that_is_down(sigstore: Stack, server: str, reason: str, why: str) -> None:
    with sigstore.without(server):
        told = why_not(signer_for(sigstore))
    assert (told.code, told.reason) == (10, reason)
    assert why in told.what


@pytest.mark.parametrize(
    ("server", "step"),
    [
        ("tesseract", "asking the certificate authority"),  # without its log the authority tries for a minute
        ("rekor", "asking the time stamp authority and the transparency log"),
    ],
)
def test_a_service_that_does_not_answer_is_not_waited_for(sigstore: Stack, server: str, step: str) -> None:
    os.kill(sigstore.servers[server].pid, signal.SIGSTOP)
    try:
        told = why_not(signer_for(sigstore, signing_limit=8.0))
    finally:
        os.kill(sigstore.servers[server].pid, signal.SIGCONT)
    assert (told.code, told.reason) == (10, "unreachable")
    assert told.what == f"no signature within 8 s; it was {step}"


# -- the command line


@pytest.fixture(scope="module")
def tiny(
    sigstore: Stack,
    engine_name: str,
    kept_state: State,
    bootstrapped: Bootstrapped,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Tiny]:
    """A state whose policy trusts a builder and a verifier by identity, and a launcher by key."""
    made = make_tiny(engine_name, kept_state, bootstrapped, tmp_path_factory.mktemp("tiny"))
    config = made.config
    policy = config / "policy.toml"
    write_root(config / "root.json", raw(sigstore.pki.trusted_root()))
    roles = ('role = "builder"', 'role = "verifier"')
    kept = [one for one in policy.read_text().split("[[trust]]") if not any(role in one for role in roles)]
    policy.write_text("[[trust]]".join(kept) + TRUST)
    signing = config / "signing.json"
    signing.write_bytes(signing_config())
    settings = config / "settings.toml"
    first = f'schema = 1\nsigning_config = "{signing}"\n'  # at the end it would stand in a table
    settings.write_text(settings.read_text().replace("schema = 1\n", first, 1))
    assert made.builder("policy", "pin", cwd=made.root).returncode == 0
    yield made
    assert made.containers() == []


def with_token(stack: Stack, token: str, folder: Path) -> tuple[str, ...]:
    """A command in the stack's network, with this token on descriptor 3."""
    return (*stack.inside(*holding_token(token, folder)),)


def holding_token(token: str, folder: Path) -> tuple[str, ...]:
    path = folder / f"token-{len(list(folder.glob('token-*')))}"
    path.write_text(token + "\n")
    path.chmod(0o600)
    return ("sh", "-c", f'exec 3<{path}; exec "$@"', "sh")


def test_build_attest_admit_by_identities(sigstore: Stack, tiny: Tiny, tmp_path: Path) -> None:
    project = tiny.project("keyless")
    ci = with_token(sigstore, sigstore.pki.token(), tmp_path)
    # Not one that the policy has: nothing is asked of anybody.
    done = tiny.builder(
        "build", "--keyless", IDENTITY + "x", "--identity-token-fd", "3", cwd=project, prefix=ci
    )
    assert done.returncode == 2, done.stderr
    assert "is no keyless builder of this policy" in done.stderr
    # In CI without permission: at once, and nothing is built; no key takes its place.
    environment = {**os.environ, "GITHUB_ACTIONS": "true"}
    done = tiny.builder("build", "--keyless", IDENTITY, cwd=project, environment=environment)
    assert done.returncode == 11, done.stderr
    assert "id-token: write" in done.stderr
    # By a key: that one is nobody in this policy.
    done = tiny.builder("build", cwd=project)
    assert done.returncode == 2, done.stderr

    done = tiny.builder("build", "--keyless", IDENTITY, "--identity-token-fd", "3", cwd=project, prefix=ci)
    assert done.returncode == 0, done.stderr
    digest = done.stdout.strip()
    assert sigstore.pki.token()[:20] not in done.stderr
    done = tiny.builder("run", "--dry-run", "--", "true", cwd=project)
    assert done.returncode == 8, done.stderr

    user = with_token(sigstore, sigstore.pki.token(USERS), tmp_path)
    words = ("verify", "--attest", "--keyless", CHECKER, "--identity-token-fd", "3")
    done = tiny.builder(*words, cwd=project, prefix=user)
    assert (done.returncode, done.stdout.strip()) == (0, digest), done.stderr
    assert f"PASSED, by identity {CHECKER} ({USERS})" in done.stderr
    done = tiny.builder("policy", "check", cwd=project)
    assert done.returncode == 0, done.stderr
    # What is known is signed by nobody again: this command is not in the network of the stack.
    alone = holding_token(sigstore.pki.token(), tmp_path)
    done = tiny.builder("build", "--keyless", IDENTITY, "--identity-token-fd", "3", cwd=project, prefix=alone)
    assert (done.returncode, done.stdout.strip()) == (0, digest), done.stderr
