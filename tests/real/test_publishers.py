"""Statements of publishers, behind a company's proxy and logins: npm brings npm's, we bring PyPI's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import pytest

from builder.bootstrap import Bootstrapped
from builder.providing import open_resolver
from builder.resolve.pypi_making import Known, make_pypi
from builder.resolve.python import Python
from builder.resolve.wheel_vouching import WheelTrust
from builder.state import State
from images.config import parse_config
from images.errors import ExitCode, NetworkFailed, PinError
from images.lock import Artifact, Authentication
from images.lockfile import parse_lock
from provenance.publishers import Publishers
from provenance.sigstore_root import read_sigstore_root
from tests.fakes.locks import BUILDER_TOML
from tests.fakes.registry import integrity_of
from tests.fakes.sigstores import (
    EXPECTED,
    ISSUER,
    PUBLISHED,
    REPOSITORY,
    WORKFLOW,
    Sigstore,
    Who,
    npm_document,
    npm_statement,
    pypi_document,
    statement,
)
from tests.real.company import PROVENANCE, PYPI, Company, Logins, status
from tests.real.test_company import Operator, make_operator
from tests.real.test_interrupted_downloads import company, workshop_of

__all__ = ["company"]

pytestmark = pytest.mark.real
SIGSTORE = Sigstore()
PI = "@mariozechner/pi-coding-agent"
TOML = BUILDER_TOML.replace("[run]", '[toolchain]\npypi = { company-tool = "1.0.0" }\n[run]')
ROOT = read_sigstore_root(SIGSTORE.trusted_root(), "root.json")
TRUST = WheelTrust(publishers=Publishers(ROOT, {"pypi:company-tool": EXPECTED}))


@pytest.fixture(scope="module")
def operator(
    engine_name: str,
    kept_state: State,
    bootstrapped: Bootstrapped,
    company: Company,
    tmp_path_factory: pytest.TempPathFactory,
) -> Operator:
    home = tmp_path_factory.mktemp("operator") / "home"
    return make_operator(engine_name, kept_state, bootstrapped, company, home, Logins())


@pytest.fixture(autouse=True)
def nothing_is_left(company: Company) -> Iterator[None]:
    yield
    company.statements.clear()
    company.answers.clear()
    company.requests.clear()


def expecting(workflow: str) -> str:
    """As settings.toml has it."""
    said = f'issuer = "{ISSUER}", repository = "{REPOSITORY}", workflow = "{workflow}"'
    return f'{{ "npm:{PI}" = {{ {said} }} }}'


def vouched(operator: Operator, company: Company) -> tuple[str, dict[str, str]]:
    """The registry has a statement of Pi's publisher, whom the operator may expect: path, settings."""
    version = company.packages[PI]["versions"]["0.73.1"]
    version["dist"]["attestations"] = {"url": "https://elsewhere.example/x", "provenance": {}}
    raw = company.tarballs["@mariozechner-pi-coding-agent-0.73.1.tgz"]
    payload = npm_statement(PI, "0.73.1", integrity_of(raw).hex)
    path = f"/-/npm/v1/attestations/{PI}@0.73.1"
    company.statements[path] = json.dumps(npm_document(SIGSTORE.bundle(payload))).encode()
    root = operator.write("root.json", SIGSTORE.trusted_root().decode())
    return path, {"sigstore_root": root, "publishers": expecting(WORKFLOW)}


def test_a_lock_with_the_publisher_of_an_agent(operator: Operator, company: Company) -> None:
    """The whole command: what settings.toml expects is in the lock, is checked from it, and can refuse."""
    path, variables = vouched(operator, company)
    operator.configure(**variables)
    operator.done("lock")
    pi = parse_lock(operator.lock()).artifact(f"npm:{PI}@0.73.1")
    assert (pi.authenticated, pi.signer) == (Authentication.NPM_PROVENANCE, Who().identity)
    assert "1 npm-provenance" in operator.said[-1]
    before = len(company.requests)
    operator.done("lock", "--check")
    operator.done("lock")
    assert [one for one in company.requests[before:] if one.endswith(path)] == []
    # Another expectation: neither what is locked nor what the registry has meets it.
    locked = operator.lock()
    operator.configure(**variables | {"publishers": expecting(".ci/other.yml")})
    for words in (("lock", "--check"), ("lock",)):
        error = operator.error(*words)
        assert (error["code"], error["reason"]) == (ExitCode.PIN, "integrity")
        assert "not by .ci/other.yml of" in error["what"]
    assert operator.lock() == locked
    operator.configure()
    assert "no sigstore_root is named" in operator.error("lock", "--check")["what"]


def policed(operator: Operator, serial: int, workflow: str) -> None:
    """The launcher's own policy asks it too, from what `builder init` wrote; of this serial."""
    config = operator.home / "config"
    kept = config / "policy-of-init.toml"
    if not kept.exists():
        kept.write_bytes((config / "policy.toml").read_bytes())
    (config / "keys/trusted_root.json").write_bytes(SIGSTORE.trusted_root())
    text = kept.read_text()
    assert "serial = 1\n" in text
    text = text.replace("serial = 1\n", f'serial = {serial}\nsigstore_root = "keys/trusted_root.json"\n')
    said = f'issuer = "{ISSUER}"\nrepository = "{REPOSITORY}"\nworkflow = "{workflow}"'
    (config / "policy.toml").write_text(f'{text}\n[publishers."npm:{PI}"]\n{said}\n')


def test_what_its_publisher_vouched_for_is_built_verified_and_run(
    operator: Operator, company: Company
) -> None:
    """From the registry to the launch: the policy checks the lock's statement again before each of them."""
    operator.configure(**vouched(operator, company)[1])
    operator.done("init", "--unencrypted-keys")
    operator.done("lock")
    digest = operator.done("build").strip()
    lock = ("--lock", "builder.lock")
    policed(operator, 2, WORKFLOW)
    operator.done("verify", "--attest", digest, *lock, "--verbose")
    assert "passed: artifacts authenticated" in operator.said[-1]
    assert Who().identity in operator.said[-1]
    assert operator.done("run", digest, *lock, "--", "pi", "--version") == "0.73.1\n"
    # Whoever launches may expect somebody else: then nothing of it runs.
    policed(operator, 3, ".ci/other.yml")
    verify, run = ("verify", digest, *lock), ("run", digest, *lock, "--", "pi", "--version")
    for words, code in ((verify, ExitCode.VERIFY), (run, ExitCode.RUN_FAILED)):
        refused = operator.builder(*words)
        assert (refused.returncode, refused.stdout) == (code, "")
        assert "not by .ci/other.yml of" in refused.stderr
    assert operator.containers() == []


def wheel_of(operator: Operator, monkeypatch: pytest.MonkeyPatch, trust: WheelTrust = TRUST) -> Artifact:
    """The one wheel of the company's index, as `builder lock` makes it; it is not kept."""
    operator.configure(base="")
    workshop = workshop_of(operator, monkeypatch)
    known = Known(lambda *_: Python("3.11", "2.36"), trust=trust)
    with workshop.reporter.step("pypi") as step, open_resolver(workshop, step) as resolver:
        (found,) = make_pypi(parse_config(TOML, where="builder.toml"), known, resolver).artifacts
        resolver.store.path_of(found.integrity).unlink()
    return found


def test_a_wheel_with_its_publisher(
    operator: Operator, company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Index and provenance object both want the login, which our own client gives them through the proxy."""
    name, raw = company.wheel
    subject = [{"name": name, "digest": {"sha256": hashlib.sha256(raw).hexdigest()}}]
    payload = statement(subject=subject, predicateType=PUBLISHED)
    company.statements[PROVENANCE] = json.dumps(pypi_document(SIGSTORE.bundle(payload))).encode()
    found = wheel_of(operator, monkeypatch)
    assert (found.authenticated, found.signer) == (Authentication.PYPI_ATTESTED, Who().identity)
    assert f"{PYPI}{PROVENANCE}" in company.requests
    company.requests.clear()
    assert wheel_of(operator, monkeypatch, WheelTrust()).attestation is None
    assert f"{PYPI}{PROVENANCE}" not in company.requests  # nothing here could check it
    company.answers = {PROVENANCE: status(403)}
    with pytest.raises(NetworkFailed, match="refuses these credentials"):
        wheel_of(operator, monkeypatch)
    company.answers = {PROVENANCE: status(404)}
    with pytest.raises(PinError, match="there is no statement of its publisher"):
        wheel_of(operator, monkeypatch)


def test_an_index_without_statements(
    operator: Operator, company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that has pages for people alone."""
    with pytest.raises(PinError, match="there is no statement of its publisher") as refused:
        wheel_of(operator, monkeypatch)
    assert refused.value.where == company.wheel[0]
    nobody = WheelTrust(publishers=Publishers(ROOT))
    assert wheel_of(operator, monkeypatch, nobody).authenticated is Authentication.TOFU
