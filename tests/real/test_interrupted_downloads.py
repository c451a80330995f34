"""What a registry can do to a download: each failure has code and reason, is bounded, and leaves nothing."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from builder.bootstrap import Bootstrapped
from builder.cli.platform import host_platform
from builder.cli.session import CLIENT_ENVIRONMENT
from builder.locking import open_project, resolve_lock
from builder.providing import open_resolver
from builder.report import Reporter
from builder.resolve import exchange
from builder.resolve.deb_failures import debian_failure
from builder.resolve.pypi_job import PypiAnswer, PypiFetch, PypiJob, PypiRoot, Target, perform_pypi
from builder.resolve.pypi_tree import WheelChoice
from builder.resolve.python import Python
from builder.settings.settings_file import load_settings
from builder.state import State
from builder.workshop import Workshop
from images.digests import Integrity
from images.errors import BuilderError, ExitCode
from images.strictjson import JsonValue
from provenance.layout import blob_path, open_image
from provenance.layout_writing import init_layout
from tests.real.company import (
    DEB,
    DEBIAN,
    Company,
    Handler,
    Logins,
    Send,
    open_company,
    other_bytes,
    silent,
    status,
    trickle,
    truncated,
    wrong_bytes,
)
from tests.real.test_company import Operator, link_image, make_operator

pytestmark = pytest.mark.real
SILENCE = 3.0  # seconds, where a server says nothing
PATIENCE = 30.0  # where it answers: a busy machine is slow to hear it
BOUND = 150.0  # seconds for any of them, on a busy machine
GONE = 20.0  # seconds: PID 1 has five to end what it started
PIN, NETWORK = ExitCode.PIN, ExitCode.NETWORK
PACKAGE = "/@mariozechner/pi-coding-agent"
TARBALL = "/tarballs/chalk-5.6.2.tgz"


@pytest.fixture(scope="module")
def company(
    kept_state: State, bootstrapped: Bootstrapped, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Company]:
    folder = tmp_path_factory.mktemp("company")
    init_layout(folder / "images")
    link_image(kept_state, bootstrapped.base, folder / "images")
    with open_company(folder / "images", folder) as found:
        yield found


@pytest.fixture(scope="module")
def operator(
    engine_name: str,
    kept_state: State,
    bootstrapped: Bootstrapped,
    company: Company,
    tmp_path_factory: pytest.TempPathFactory,
) -> Operator:
    home = tmp_path_factory.mktemp("operator") / "home"
    found = make_operator(engine_name, kept_state, bootstrapped, company, home, Logins())
    found.configure(base="")
    return found


def workshop_of(operator: Operator, monkeypatch: pytest.MonkeyPatch, silence: float = SILENCE) -> Workshop:
    """As the command line makes it, with little patience."""
    monkeypatch.setattr(exchange, "SILENCE", silence)
    return Workshop(
        state=operator.state,
        settings=load_settings(operator.home / "config/settings.toml"),
        environment={name: value for name, value in os.environ.items() if name in CLIENT_ENVIRONMENT},
        engine_name=operator.engine,
        reporter=Reporter(),
        platform=host_platform(),
        now=lambda: datetime.now(UTC),
    )


def resolve(operator: Operator, monkeypatch: pytest.MonkeyPatch, silence: float = SILENCE) -> None:
    """`builder lock` without its last step, here."""
    workshop = workshop_of(operator, monkeypatch, silence)
    resolve_lock(workshop, open_project(operator.home / "project/builder.toml"))


def python_package(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> PypiAnswer:
    """Resolve one package at the company's index, and fetch its wheel."""
    workshop = workshop_of(operator, monkeypatch)
    target = Target(Python("3.11", "2.36"), host_platform())
    root = PypiRoot("mcp.tool = 1.0.0 on linux/amd64", "company-tool", "1.0.0", target)
    name, raw = operator.company.wheel
    integrity = Integrity("sha256", hashlib.sha256(raw).hexdigest())
    fetch = PypiFetch(WheelChoice("company-tool", "1.0.0", name, integrity), target)
    with workshop.reporter.step("pypi") as step, open_resolver(workshop, step) as resolver:
        found = perform_pypi(PypiJob(resolve=(root,), fetch=(fetch,)), resolver)
        assert resolver.store.intact(integrity)
        resolver.store.path_of(integrity).unlink()
    return found


def debian_code(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...] | None:
    """What apt says of the company's mirror: whoever gets as far as its signature got through."""
    workshop = workshop_of(operator, monkeypatch)
    asked = {"architecture": "amd64", "codename": "stable", "distribution": "", "packages": []}
    question: dict[str, JsonValue] = {"debian": {"resolve": [], "fetch": [asked], "sources": [], "keys": []}}
    with workshop.reporter.step("apt") as step, open_resolver(workshop, step) as resolver:
        document = exchange.exchange(question, resolver, lambda _member: None)
    return exchange.said_error(document, "code", "hop")


# What one of them shows for all clients of its kind; the others are in the long set.
FAILURES: list[tuple[str, Send, ExitCode, str, str]] = [
    (PACKAGE, status(429, retry_after="7"), NETWORK, "rate-limited", "resolve: the npm registry asks us to"),
    (PACKAGE, silent(), NETWORK, "unreachable", "resolve: the npm registry cannot be reached"),
    (TARBALL, status(403), NETWORK, "auth", "fetch: the npm registry refuses these credentials"),
    (TARBALL, status(404), PIN, "not-found", "not in the registry (any more)"),
    (TARBALL, truncated, NETWORK, "truncated", "fetch: the npm registry broke the connection off"),
    (TARBALL, wrong_bytes, PIN, "integrity", "not those that were pinned"),
    (TARBALL, trickle, NETWORK, "unreachable", "fetch: the npm registry cannot be reached"),
    ("LAYER", status(503), NETWORK, "server", "pull: the registry failed (E503)"),
    ("LAYER", other_bytes, NETWORK, "wrong-digest", "the registry sent other bytes than sha256:"),
    ("LAYER", silent(), NETWORK, "unreachable", "pull: the registry cannot be reached (ETIMEDOUT)"),
]
LONG: list[tuple[str, Send, ExitCode, str, str]] = [
    (PACKAGE, status(401), NETWORK, "auth", "resolve: the npm registry refuses these credentials"),
    (PACKAGE, status(404), PIN, "not-found", "pi-coding-agent"),
    (PACKAGE, status(503), NETWORK, "server", "resolve: the npm registry failed (E503)"),
    (PACKAGE, truncated, NETWORK, "truncated", "resolve: the npm registry broke the connection off"),
    (PACKAGE, trickle, NETWORK, "unreachable", "resolve: the npm registry cannot be reached"),
    (TARBALL, status(500), NETWORK, "server", "fetch: the npm registry failed (E500)"),
    (TARBALL, silent(), NETWORK, "unreachable", "fetch: the npm registry cannot be reached"),
    ("LAYER", status(429, retry_after="7"), NETWORK, "rate-limited", "pull: the registry asks us to slow"),
    ("LAYER", truncated, NETWORK, "truncated", "pull: the registry broke the connection off"),
    ("LAYER", wrong_bytes, NETWORK, "truncated", "pull: the registry broke the connection off"),
    ("LAYER", trickle, NETWORK, "unreachable", "pull: the registry cannot be reached (ETIMEDOUT)"),
]
TABLE = [*FAILURES, *(pytest.param(*row, marks=pytest.mark.long) for row in LONG)]


@pytest.mark.parametrize(
    ("path", "send", "code", "reason", "said"),
    TABLE,
    ids=[f"{path.rpartition('/')[2]}-{number}" for number, (path, *_) in enumerate([*FAILURES, *LONG])],
)
def test_bld_06_s_09_each_failure_is_bounded_named_and_leaves_nothing(  # noqa: PLR0917  (a table)
    operator: Operator,
    company: Company,
    kept_state: State,
    bootstrapped: Bootstrapped,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    send: Send,
    code: ExitCode,
    reason: str,
    said: str,
) -> None:
    layer = open_image(kept_state.layout, bootstrapped.base).manifest.layers[0].digest
    company.answers = {layer if path == "LAYER" else path: send}
    if path == "LAYER":  # the base is there since the first of these tests
        blob_path(operator.state.layout, layer).unlink(missing_ok=True)
    began = time.monotonic()
    with pytest.raises(BuilderError) as found:
        resolve(operator, monkeypatch, SILENCE if reason == "unreachable" else PATIENCE)
    error = found.value
    assert (error.code, error.reason) == (code, reason), error
    assert said in str(error)
    assert error.where
    assert ("wait 7 seconds" in error.hint) is (reason == "rate-limited")
    assert error.hint
    assert time.monotonic() - began < BOUND
    assert operator.containers() == []
    assert list((operator.state.root / "staging").iterdir()) == []
    assert not (operator.home / "project/builder.lock").exists()


HOPS = [
    ("lets", "403", "auth", "the proxy does not let us reach the npm registry (E403)"),
    ("reaches", "502", "unreachable", "the proxy does not reach the npm registry (E502)"),
    ("login", "407", "auth", "the proxy wants a login, or another one (E407)"),
    ("port", "refused", "unreachable", "the proxy cannot be reached (ECONNREFUSED)"),
]


@pytest.mark.parametrize(("what", "_how", "reason", "said"), HOPS, ids=[how for _, how, *_ in HOPS])
def test_bld_05_the_hop_that_failed_is_named(  # noqa: PLR0917  (a table)
    operator: Operator,
    company: Company,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    _how: str,
    reason: str,
    said: str,
) -> None:
    company.answers = {}
    url = company.proxy.url(operator.logins)
    if what in ("lets", "reaches"):
        monkeypatch.setattr(company.proxy, what, re.compile(r"registry\.corp\.test:443"))
    elif what == "login":
        url = company.proxy.url(Logins(proxy="dummy-wrong-password"))
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://{company.proxy.address.partition(':')[0]}:{free.getsockname()[1]}"
    proxy = operator.write("proxy-other.toml", f'https = "{url}"\n')
    operator.configure(base="", proxy_file=proxy)
    try:
        with pytest.raises(BuilderError) as found:
            resolve(operator, monkeypatch)
    finally:
        operator.configure(base="")
    assert (found.value.code, found.value.reason) == (NETWORK, reason), found.value
    # Without its base, the image is pulled first; the registry of images is then what is not reached.
    assert said in str(found.value) or said.replace("npm ", "") in str(found.value)
    assert "dummy" not in f"{found.value} {found.value.hint}"
    assert operator.containers() == []


WHEEL = "/files/company_tool-1.0.0-py3-none-any.whl"
INDEX = "/simple/company-tool/"
PYPI_FAILURES: list[tuple[str, Send, ExitCode, str, str]] = [
    (INDEX, status(403), NETWORK, "auth", "resolve: the pypi registry refuses these credentials"),
    (INDEX, status(404), PIN, "not-found", "company-tool is not in the registry"),
    (INDEX, silent(), NETWORK, "unreachable", "resolve: the pypi registry cannot be reached"),
    (WHEEL, status(429, retry_after="7"), NETWORK, "rate-limited", "the pypi registry asks us to slow down"),
    (WHEEL, truncated, NETWORK, "truncated", "the pypi registry broke the connection off"),
    (WHEEL, wrong_bytes, PIN, "integrity", "company_tool-1.0.0"),
    (WHEEL, trickle, NETWORK, "unreachable", "the pypi registry cannot be reached (ETIMEDOUT)"),
]


@pytest.mark.parametrize(
    ("path", "send", "code", "reason", "said"),
    PYPI_FAILURES,
    ids=[f"{path.split('/')[1]}-{number}" for number, (path, *_) in enumerate(PYPI_FAILURES)],
)
def test_wheels_too(  # noqa: PLR0917  (a table)
    operator: Operator,
    company: Company,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    send: Send,
    code: ExitCode,
    reason: str,
    said: str,
) -> None:
    company.answers = {path: send}
    with pytest.raises(BuilderError) as found:
        python_package(operator, monkeypatch)
    error = found.value
    assert (error.code, error.reason) == (code, reason), error
    assert said in str(error)
    assert ("wait 7 seconds" in error.hint) is (reason == "rate-limited")
    assert error.hint
    assert operator.containers() == []
    assert list((operator.state.root / "staging").iterdir()) == []
    company.answers = {}
    assert b"company" in python_package(operator, monkeypatch).locks[0]


def debian_package(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have apt bring the one package of the company's mirror; returns its size."""
    workshop = workshop_of(operator, monkeypatch)
    one: dict[str, JsonValue] = {"name": "company-tool", "version": "1.0", "architecture": "amd64"}
    group: JsonValue = {"architecture": "amd64", "codename": "stable", "distribution": "", "packages": [one]}
    # Nobody signed this mirror, so a Release that fails is passed over; that unsigned is refused, others say.
    source: JsonValue = {"name": "a.list", "content": f"deb [trusted=yes] https://{DEBIAN} stable main\n"}
    question: dict[str, JsonValue] = {
        "debian": {"resolve": [], "fetch": [group], "sources": [source], "keys": []}
    }
    came: list[int] = []
    with workshop.reporter.step("apt") as step, open_resolver(workshop, step) as resolver:
        document = exchange.exchange(question, resolver, lambda one: came.append(one.size))
    if (error := exchange.said_error(document, "code", "item", "hop", "retry_after")) is not None:
        raise debian_failure(*error)
    return sum(came)


def cut(handler: Handler) -> None:
    """As many bytes as there should be are promised, and half of them sent."""
    handler.send_response(200)
    handler.send_header("content-length", str(len(DEB)))
    handler.end_headers()
    handler.wfile.write(DEB[: len(DEB) // 2])


DEB_FILE, RELEASE = "/pool/company-tool.deb", "/dists/stable/Release"
SLOW_DOWN = status(429, retry_after="7")
# The one that apt has no words of its own for; the others are in the long set.
DEBIAN_ROWS = [
    (DEB_FILE, cut, NETWORK, "truncated", "apt: the debian registry broke the connection off", "network"),
]
DEBIAN_LONG = [
    (DEB_FILE, SLOW_DOWN, NETWORK, "rate-limited", "apt: the debian registry asks us to slow down", "wait 7"),
    (DEB_FILE, silent(), NETWORK, "unreachable", "apt: the debian registry cannot be reached", "network"),
    (DEB_FILE, status(404), PIN, "not-found", "company-tool", "builder lock --upgrade toolchain"),
    (DEB_FILE, wrong_bytes, PIN, "integrity", "company-tool", "builder lock"),
    (RELEASE, silent(), NETWORK, "unreachable", "apt: the debian registry cannot be reached", "network"),
]


@pytest.mark.parametrize(
    ("path", "send", "code", "reason", "said", "hint"),
    [*DEBIAN_ROWS, *(pytest.param(*row, marks=pytest.mark.long) for row in DEBIAN_LONG)],
    ids=[f"{path.rpartition('/')[2]}-{reason}" for path, _, _, reason, *_ in [*DEBIAN_ROWS, *DEBIAN_LONG]],
)
def test_debian_packages_too(  # noqa: PLR0917  (a table)
    operator: Operator,
    company: Company,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    send: Send,
    code: ExitCode,
    reason: str,
    said: str,
    hint: str,
) -> None:
    company.answers = {path: send}
    with pytest.raises(BuilderError) as found:
        debian_package(operator, monkeypatch)
    error = found.value
    assert (error.code, error.reason) == (code, reason), error
    assert said in str(error)
    assert hint in error.hint
    assert operator.containers() == []
    assert list((operator.state.root / "staging").iterdir()) == []


def test_the_next_package_comes_whole(
    operator: Operator, company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.answers = {}
    assert debian_package(operator, monkeypatch) == len(DEB)


def test_uv_and_apt_log_in_through_the_proxy_as_npm_does(
    operator: Operator, company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.answers = {}
    assert debian_code(operator, monkeypatch) == ("EUNSIGNED", "")
    monkeypatch.setattr(company, "logins", (Logins(debian="dummy-changed", pypi="dummy-changed"),))
    assert debian_code(operator, monkeypatch) == ("E401", "")
    with pytest.raises(BuilderError, match="pypi registry refuses these credentials") as found:
        python_package(operator, monkeypatch)
    assert "netrc" in found.value.hint
    monkeypatch.setattr(company.proxy, "reaches", re.compile(r"none"))
    assert debian_code(operator, monkeypatch) == ("E502", "beyond")
    with pytest.raises(BuilderError, match=r"the proxy does not reach the pypi registry \(E502\)"):
        python_package(operator, monkeypatch)
    monkeypatch.setattr(company, "logins", (Logins(proxy="dummy-changed"),))
    assert debian_code(operator, monkeypatch) == ("E407", "proxy")
    with pytest.raises(BuilderError, match=r"the proxy wants a login, or another one \(E407\)"):
        python_package(operator, monkeypatch)


def test_a_killed_command_leaves_no_resolver(operator: Operator, company: Company) -> None:
    company.answers = {PACKAGE: silent(120)}
    process = subprocess.Popen(
        operator.argv("lock"),
        cwd=operator.home / "project",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        company.requests.clear()
        until = time.monotonic() + BOUND
        while not any(PACKAGE in request for request in company.requests):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        assert len(operator.containers(running=True)) == 1
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    until = time.monotonic() + GONE
    while operator.containers(running=True):
        assert time.monotonic() < until, "it runs on, with a network and its secrets"
        time.sleep(0.2)


def test_the_next_command_works(
    operator: Operator, company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.answers = {}
    resolve(operator, monkeypatch)
    assert operator.containers() == []
