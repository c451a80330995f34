"""The secrets of this host's own logins: all of them are looked for, and none is in the image."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from builder.building.bench import Bench, scan_for_credentials
from builder.settings.own_values import LEAST, own_values
from builder.settings.settings_file import Settings, parse_settings
from images.errors import CredentialFound, ExitCode
from tests.attacks import Position, attack
from tests.fakes.states import make_team, memory_of, said

SECRET = "correct-horse-{}-battery"  # of no shape that a table could have


def secret(name: str) -> str:
    return SECRET.format(name)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return path


def settings_of(folder: Path, **files: str) -> Settings:
    """``files``: setting -> text of the file that it names."""
    lines = [f"{key} = {json.dumps(str(written(folder, key, text)))}" for key, text in files.items()]
    return parse_settings("\n".join(["schema = 1", *lines]), where="settings.toml")


ENCODED = base64.b64encode(f"me:{secret('auth')}".encode()).decode()
PASSWORD = base64.b64encode(secret("password").encode()).decode()
NPMRC = f"""\
//one.example/:_authToken={secret("token")}
//two.example/:_authToken=${{TOKEN}}
//three.example/:username=me
//three.example/:_password = {PASSWORD}
//four.example/:_auth={ENCODED}
; //five.example/:_authToken={secret("comment")}
"""
IN_NPMRC = {*map(secret, ("token", "variable", "password", "auth")), PASSWORD, ENCODED}
FILES: dict[str, tuple[str, set[str]]] = {
    "npmrc": (NPMRC, IN_NPMRC),
    "netrc": (f"machine a.example login me password {secret('netrc')}\n", {secret("netrc")}),
    "apt_auth": (f"machine apt.example\nlogin me\npassword {secret('apt')}\n", {secret("apt")}),
    "registry_auth": (json.dumps({"auths": {"r.example": {"auth": ENCODED}}}), {secret("auth")}),
    "proxy_file": (
        'https = "http://me:correct%2Dhorse-proxy-battery@proxy.example:3128"\n',
        {"correct%2Dhorse-proxy-battery", secret("proxy")},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_each_secret_of_a_file_is_known(tmp_path: Path, name: str) -> None:
    text, values = FILES[name]
    found = own_values(settings_of(tmp_path, **{name: text}), {"TOKEN": secret("variable")})
    assert {one.value.reveal().decode() for one in found} == values
    assert all(one.place for one in found)
    assert SECRET.partition("{")[0] not in repr(found)


def test_nothing_is_known_without_logins_and_a_short_word_never(tmp_path: Path) -> None:
    assert own_values(Settings(), {}) == ()
    for length, known in ((LEAST - 1, 0), (LEAST, 1)):
        text = f"machine a.example login me password {'p' * length}\n"
        assert len(own_values(settings_of(tmp_path, netrc=text), {})) == known


@pytest.mark.parametrize("broken", ["gone", "open to others", "no netrc", "no value"])
def test_a_file_that_cannot_be_read_stops_no_build_that_needs_none(tmp_path: Path, broken: str) -> None:
    settings = settings_of(tmp_path, netrc=FILES["netrc"][0], npmrc=NPMRC)
    if broken == "gone":
        (tmp_path / "netrc").unlink()
    elif broken == "open to others":
        (tmp_path / "netrc").chmod(0o644)
    elif broken == "no netrc":
        (tmp_path / "netrc").write_text("machine")
    given = {} if broken == "no value" else {"TOKEN": secret("variable")}
    values = {one.value.reveal().decode() for one in own_values(settings, given)}
    assert secret("token") in values
    assert (secret("netrc") in values, secret("variable") in values) == (
        broken == "no value",
        broken != "no value",
    )


@attack(by=Position.REGISTRY)
@pytest.mark.parametrize("encode", [bytes, base64.b64encode, lambda value: value.hex().encode()])
def test_one_in_the_image_stops_the_build_and_says_whose_it_is(
    tmp_path: Path, encode: Callable[[bytes], bytes]
) -> None:
    """As a registry does that packs the token which it was shown into what it serves."""
    word = secret("netrc")
    shown = encode(word if encode is json.dumps else word.encode())
    team = make_team(
        tmp_path, filler=b"x = " + (shown if isinstance(shown, bytes) else shown.encode()) + b"\n"
    )
    settings = settings_of(tmp_path, netrc=FILES["netrc"][0])
    bench = cast(Bench, SimpleNamespace(workshop=replace(team.workshop, settings=settings)))
    with pytest.raises(CredentialFound) as caught:
        scan_for_credentials(bench, team.image, team.lock, memory_of(team))
    assert caught.value.code is ExitCode.CREDENTIAL
    assert "known-value-1 is of the login of a.example" in said(team.workshop)
    assert word not in f"{caught.value}{caught.value.hint}{said(team.workshop)}"


def test_a_layer_is_not_left_out_where_there_are_logins(tmp_path: Path) -> None:
    """It was found clean before anybody knew the value."""
    team = make_team(tmp_path, filler=f"x = {secret('netrc')}\n".encode())
    bench = cast(Bench, SimpleNamespace(workshop=team.workshop))
    scan_for_credentials(bench, team.image, team.lock, memory_of(team))
    settings = settings_of(tmp_path, netrc=FILES["netrc"][0])
    bench = cast(Bench, SimpleNamespace(workshop=replace(team.workshop, settings=settings)))
    with pytest.raises(CredentialFound):
        scan_for_credentials(bench, team.image, team.lock, memory_of(team))
