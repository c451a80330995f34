"""The proxy and the authorities of settings.toml reach apt, pip and go, and no message repeats a login."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.bootstrap import Host
from builder.bootstrap.debian import apt_for
from builder.bootstrap.network import with_network
from builder.settings.settings_file import parse_settings
from images.errors import UsageError
from tests.unit.builder.bootstrap_host import Clients, ended, on_amd64

__all__ = ["on_amd64"]  # a fixture
GIVEN = {"PATH": "/bin", "HTTPS_PROXY": "http://other:1", "no_proxy": "a", "ALL_PROXY": "b", "PIP_CERT": "/c"}


def connected(root: Path, lines: str, clients: Clients | None = None) -> Host:
    host = replace((clients or Clients()).host(root), environment=GIVEN)
    system = root / "system.pem"
    system.write_bytes(b"the host's")
    return with_network(host, parse_settings(f"schema = 1\n{lines}", where="settings.toml"), system)


def test_without_settings_the_environment_counts(tmp_path: Path) -> None:
    assert connected(tmp_path, "").environment == GIVEN


def test_a_proxy_of_settings_stands_in_place_of_every_one_of_the_environment(tmp_path: Path) -> None:
    host = connected(tmp_path, 'proxy = { https = "http://proxy.example:3128", no_proxy = [".corp", "x"] }')
    assert host.environment == {
        "PATH": "/bin",
        "PIP_CERT": "/c",
        "https_proxy": "http://proxy.example:3128",
        "no_proxy": ".corp,x",
    }


@pytest.mark.usefixtures("on_amd64")
def test_authorities_come_beside_those_of_the_host(tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(b"the operator's")
    host = connected(tmp_path, f'ca_bundle = "{own}"')
    assert host.authorities is not None
    assert host.authorities.read_bytes() == b"the host's\nthe operator's\n"
    assert host.environment["SSL_CERT_FILE"] == host.environment["PIP_CERT"] == str(host.authorities)
    assert f"Acquire::https::CAInfo={host.authorities}" in apt_for(host, "amd64").options()


def test_a_login_is_repeated_by_no_message(tmp_path: Path) -> None:
    password = "dummy-" + "pass%40word"
    file = tmp_path / "proxy.toml"
    file.write_text(f'https = "http://someone:{password}@proxy.example:3128"\n')
    file.chmod(0o600)
    said = f"cannot reach http://someone:{password}@proxy.example, or {password.replace('%40', '@')}\n"
    clients = Clients({"apt-get": ended(100, stderr=said)})
    host = connected(tmp_path, f'proxy_file = "{file}"', clients)
    shown = host.call("apt-get", "update").stderr.decode()
    assert password in clients.commands[0].environment["https_proxy"]
    assert "cannot reach" in shown
    assert "word" not in shown + repr(host)


def test_a_file_that_is_not_there_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names a ca_bundle that is not there"):
        connected(tmp_path, f'ca_bundle = "{tmp_path}/none.pem"')
