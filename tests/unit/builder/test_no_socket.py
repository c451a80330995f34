"""Nothing that judges an image opens a socket: real commands without a network, where a socket kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from images.errors import ExitCode
from tests.attacks import Position, attack
from tests.fakes.checkouts import Checkout, make_checkout
from tests.fakes.credentials import Entry, make_layout, make_tar, token

ROOT = Path(__file__).resolve().parents[3]
# Root needs no user namespace for a network namespace.
_NAMESPACE = ("unshare", "--net", *(() if os.geteuid() == 0 else ("--user", "--map-current-user")), "--")


def command(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*_NAMESPACE, sys.executable, "-m", "tests.no_sockets", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return make_checkout(tmp_path_factory.mktemp("checkout"))


def test_here_a_socket_kills() -> None:
    assert command("--probe").returncode == -signal.SIGSYS


@attack(by=Position.NETWORK)
def test_verify_opens_no_socket(checkout: Checkout) -> None:
    """With the scanner's child, as it is: every layer is scanned again."""
    places = ("--state", str(checkout.state.root), "--policy", str(checkout.world.policy.path))
    done = command("verify", "--json", *places, "--lock", str(checkout.lock), checkout.digest)
    assert done.returncode == ExitCode.DONE, done.stderr
    checks = {one["id"]: one["status"] for one in json.loads(done.stdout)["checks"]}
    assert {checks[name] for name in ("content", "signature", "rescan")} == {"passed"}


@attack(by=Position.NETWORK)
def test_verify_of_a_ci_job_opens_no_socket(checkout: Checkout) -> None:
    done = command(*checkout.words(), cwd=checkout.root)
    assert done.returncode == ExitCode.DONE, done.stderr


@attack(by=Position.NETWORK)
@pytest.mark.parametrize(("content", "code"), [(b"x", ExitCode.DONE), (token(), ExitCode.CREDENTIAL)])
def test_scan_opens_no_socket(content: bytes, code: ExitCode, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [make_tar([Entry("app/key", content)])])
    done = command("scan", str(image.layout))
    assert done.returncode == code, done.stderr
