"""Credential helpers: asked for one registry, with a closed environment, and never quoted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from backend.runner import Command, Ending, Outcome
from builder.settings.access import read_secrets
from builder.settings.credential_helper import ENVIRONMENT, Helpers, helpers_in
from builder.settings.settings_file import Settings
from images.credentials import Secret
from images.errors import UsageError

SECRET = "dummy-helper-secret"


def helper(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"docker-credential-{name}"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def secrets_of(tmp_path: Path, config: Mapping[str, object], **given: str):  # type: ignore[no-untyped-def]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", **given}
    return read_secrets(Settings(registry_auth=path), environment)


def answer(user: str = "me", secret: str = SECRET) -> str:
    return f"printf '%s' '{json.dumps({'ServerURL': 'x', 'Username': user, 'Secret': secret})}'"


def test_the_one_registry_is_asked_for_and_nothing_of_the_rest_is_given(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    helper(tmp_path / "bin", "one", f'{{ echo "$@"; cat; echo; env; }} >{seen}; {answer()}')
    helper(tmp_path / "bin", "two", "exit 9")
    config = {"auths": {"a.test": {}}, "credHelpers": {"a.test:5000": "one", "b.test": "two"}}
    secrets = secrets_of(tmp_path, config, HOME="/home/x", NPM_TOKEN="dummy", HTTPS_PROXY="http://p")
    assert not seen.exists()  # nobody is asked before a registry is used
    assert secrets.for_registry("c.test") is secrets
    found = secrets.for_registry("A.test:5000")
    assert found.login("a.test:5000") == Secret(f"me:{SECRET}".encode())
    assert not found.login("b.test")
    argument, registry, *environment = seen.read_text().splitlines()
    assert (argument, registry) == ("get", "a.test:5000")
    assert {line.partition("=")[0] for line in environment} <= {*ENVIRONMENT, "PWD", "SHLVL", "_", "OLDPWD"}
    assert SECRET not in repr(found)
    assert Secret(f"me:{SECRET}".encode()) in found.all()


def test_a_store_keeps_all_others_and_an_identity_token_is_one(tmp_path: Path) -> None:
    helper(tmp_path / "bin", "all", answer("<token>", SECRET))
    found = secrets_of(tmp_path, {"credsStore": "all"}).for_registry("any.test")
    assert found.login("any.test") == Secret(f"<token>:{SECRET}".encode())
    config = {"auths": {"a.test": {"auth": "bWU6b2xk", "identitytoken": SECRET}}}
    assert secrets_of(tmp_path, config).login("a.test") == Secret(f"<token>:{SECRET}".encode())


def test_a_helper_that_has_none_leaves_what_the_file_has(tmp_path: Path) -> None:
    helper(tmp_path / "bin", "empty", 'echo "credentials not found in native keychain"; exit 1')
    config = {"auths": {"a.test": {"auth": "bWU6b2xk"}}, "credsStore": "empty"}
    assert secrets_of(tmp_path, config).for_registry("a.test").login("a.test") == Secret(b"me:old")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f"echo {SECRET}; exit 3", "exit code 3"),
        (f"echo {SECRET}", "did not answer with JSON"),
        (f"printf '%s' '[\"{SECRET}\"]'", "did not answer with JSON"),
        (answer(secret=""), "no user and secret"),
        (answer(user="a:b"), "no user and secret"),
        (answer(secret=f"{SECRET}\n"), "no user and secret"),
        (f"yes {SECRET} | head -c 200000", "failed"),
        ("kill -9 $$", "failed"),
    ],
)
def test_what_a_helper_does_wrong_is_named_and_never_quoted(tmp_path: Path, body: str, said: str) -> None:
    helper(tmp_path / "bin", "bad", body)
    with pytest.raises(UsageError) as found:
        secrets_of(tmp_path, {"credsStore": "bad"}).for_registry("a.test")
    text = f"{found.value} {found.value.hint}"
    assert said in text
    assert "docker-credential-bad" in text
    assert SECRET not in text


def test_a_helper_that_does_not_end_is_ended(tmp_path: Path) -> None:
    def stuck(command: Command) -> Outcome:
        assert command.deadline <= 60
        return Outcome(ending=Ending.TIMED_OUT, exit_code=None)

    helper(tmp_path / "bin", "slow", "sleep 1000")
    helpers = Helpers({}, "slow", "config.json", {"PATH": str(tmp_path / "bin")}, run=stuck)
    with pytest.raises(UsageError, match="timed-out"):
        helpers.login("a.test")


def test_a_helper_is_found_on_absolute_paths_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path / "bin", "here", answer())
    monkeypatch.chdir(tmp_path)
    found = helpers_in({"credsStore": "here"}, "config.json", {"PATH": f"bin:.:{os.devnull}"})
    with pytest.raises(UsageError, match="not on the PATH"):
        found.login("a.test")
