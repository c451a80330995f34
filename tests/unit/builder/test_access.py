"""What the resolver is given: what settings.toml names, the variables and the login asked for, no more."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path

import pytest

from builder.resolve.exchange import Secrets, job_tar
from builder.settings.access import read_secrets
from builder.settings.settings_file import Proxy, Settings
from images.credentials import Secret
from images.errors import UsageError


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)
    return path


def given(secrets: Secrets, **request: object) -> dict[str, bytes]:
    """The members of the job, without the scripts."""
    with tarfile.open(fileobj=io.BytesIO(job_tar(request, secrets))) as archive:  # type: ignore[arg-type]
        found = {member.name: archive.extractfile(member) for member in archive}
        return {name: file.read() for name, file in found.items() if file and not name.endswith(".mjs")}


def refused(settings: Settings, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as found:
        read_secrets(settings, environment or {})
    said = f"{found.value} {found.value.hint}"
    assert "dummy" not in said
    return said


def test_nothing_is_given_by_itself() -> None:
    """Not even the proxy of the environment: it may be the host's alone."""
    secrets = read_secrets(Settings(), {"HTTPS_PROXY": "http://p:1", "NPM_TOKEN": "dummy"})
    assert list(given(secrets)) == ["job.json"]
    assert secrets == Secrets()


def test_everything_lies_in_files_of_its_own_and_nothing_shows(tmp_path: Path) -> None:
    settings = Settings(
        npmrc=write(tmp_path / "npmrc", "//r.test/:_authToken=${NPM_TOKEN}\n"),
        npmrc_variables=(("NPM_TOKEN", write(tmp_path / "token", "dummy-npm\n")),),
        netrc=write(tmp_path / "netrc", "machine r.test login me password dummy-netrc\n"),
        apt_auth=write(tmp_path / "auth", "machine d.test login me password dummy-apt\n"),
        apt_sources=write(tmp_path / "sources", "deb https://d.test/ stable main\n"),
        proxy_file=write(tmp_path / "proxy", 'https = "http://me:dummy-proxy@p:1"\nno_proxy = [".test"]\n'),
        registries=(("npm", "https://npm.test/"), ("pypi", "client")),
    )
    secrets = read_secrets(settings, {})
    found = given(secrets, pull={"registry": "r.test:5000"})
    assert found["npmrc"] == b"//r.test/:_authToken=${NPM_TOKEN}\n"
    assert json.loads(found["npm-variables.json"]) == {"NPM_TOKEN": "dummy-npm"}
    assert found["netrc"].startswith(b"machine r.test")
    assert found["apt-auth.conf"].startswith(b"machine d.test")
    assert found["apt-sources.list"].startswith(b"deb ")
    assert json.loads(found["proxy.json"]) == {
        "http": "",
        "https": "http://me:dummy-proxy@p:1",
        "no_proxy": [".test"],
    }
    assert found["login"] == b"me:dummy-netrc"
    assert json.loads(found["job.json"])["registries"] == {"npm": "https://npm.test/"}
    assert b"dummy" not in found["job.json"]
    assert "dummy" not in f"{secrets!r} {settings!r} {secrets.all()}"
    assert "https://npm.test" not in repr(secrets)
    assert len(secrets.all()) == 7


@pytest.mark.parametrize("value", [b"dummy\xff", b"\xff\xfed\0u\0", b"dummy\0", "dummy\udcff"])
def test_a_value_that_is_no_text_is_refused_and_not_shown(tmp_path: Path, value: str | bytes) -> None:
    npmrc = write(tmp_path / "npmrc", "//r.test/:_authToken=${TOKEN}\n")
    if isinstance(value, bytes):
        file = write(tmp_path / "token", value)
        assert str(file) in refused(Settings(npmrc=npmrc, npmrc_variables=(("TOKEN", file),)))
    else:
        assert "$TOKEN" in refused(Settings(npmrc=npmrc), {"TOKEN": value})


def test_a_login_goes_to_its_own_registry_alone(tmp_path: Path) -> None:
    auth = base64.b64encode(b"me:dummy").decode()
    auths = {"https://a.test/v2/": {"auth": auth}, "b.test:5000": {"auth": auth}, "helped.test": {}}
    settings = Settings(registry_auth=write(tmp_path / "config.json", json.dumps({"auths": auths})))
    secrets = read_secrets(settings, {})
    for registry, login in [
        ("a.test", b"me:dummy"),
        ("A.test", b"me:dummy"),
        ("b.test:5000", b"me:dummy"),
        ("b.test", b""),
        ("b.test:5001", b""),
        ("c.test", b""),
        ("helped.test", b""),
    ]:
        assert secrets.login(registry).reveal() == login, registry
        assert given(secrets, pull={"registry": registry}).get("login", b"") == login
    assert "login" not in given(secrets, resolve=[])


@pytest.mark.parametrize(
    ("npmrc", "environment", "found"),
    [
        ("x=${TOKEN}", {"TOKEN": "dummy", "OTHER": "dummy"}, {"TOKEN"}),
        ("x=${TOKEN}-${B}", {"TOKEN": "dummy", "B": ""}, {"TOKEN", "B"}),
        ("x=${TOKEN?}", {}, set()),
        ("x=\\${TOKEN}", {}, set()),
        ("; ${TOKEN}\n  # ${TOKEN}\n", {}, set()),
        (
            "prefix=${HOME}/x\ny=${npm_config_x}${NODE_OPTIONS}${LD_PRELOAD}${https_proxy}",
            {"HOME": "/"},
            set(),
        ),
        ("x=${NODE_AUTH_TOKEN}${NPM_TOKEN}", {"NODE_AUTH_TOKEN": "d", "NPM_TOKEN": "d"}, 2),
    ],
)
def test_only_the_variables_that_npmrc_names_are_read(
    tmp_path: Path, npmrc: str, environment: dict[str, str], found: set[str] | int
) -> None:
    secrets = read_secrets(Settings(npmrc=write(tmp_path / "npmrc", npmrc)), environment)
    names = {name for name, _ in secrets.npm_variables}
    assert found in (names, len(names))


def test_what_is_wrong_is_named_and_never_quoted(tmp_path: Path) -> None:
    npmrc = write(tmp_path / "npmrc", "x=${TOKEN}\n")
    token = write(tmp_path / "token", "dummy")
    assert "mentions ${TOKEN}, which has no value" in refused(Settings(npmrc=npmrc))
    two = (("TOKEN", token), ("OTHER", token))
    assert "does not mention ${OTHER}" in refused(Settings(npmrc=npmrc, npmrc_variables=two))
    token.chmod(0o640)
    assert "others can read this file" in refused(Settings(npmrc=npmrc, npmrc_variables=two[:1]))
    for name, text, said in [
        ("netrc", "machine x login me passwd dummy\n", "not a netrc file"),
        ("netrc", b"machine \xff", "not a netrc file"),
        ("registry_auth", "[]", "JSON"),
        ("registry_auth", "dummy", "JSON"),
        ("registry_auth", '{"auths": []}', "auths: expected a table"),
        ("registry_auth", '{"auths": {"a.test": {"auth": "dummy?"}}}', "not base64"),
        ("registry_auth", '{"auths": {"a.test": {"auth": "ZHVtbXk="}}}', "not user:password"),
        ("registry_auth", '{"auths": {"a.test": {"identitytoken": "dummy\\n"}}}', "not printable"),
        ("registry_auth", '{"auths": {"a.test": {}}}', "holds no login, and names no credential helper"),
        ("registry_auth", '{"auths": {}, "credsStore": "../dummy"}', "not the name of a helper"),
        ("registry_auth", '{"credHelpers": {"a.test": ["dummy"]}}', "not the name of a helper"),
        ("registry_auth", '{"credHelpers": ["dummy"]}', "credHelpers: expected a table"),
        ("proxy_file", "http://me:dummy@p:1\n", "not TOML"),
        ("proxy_file", 'https = "http://me:dummy@p:1/dummy"', "https: expected http"),
        ("proxy_file", b"\xff", "not UTF-8"),
        ("apt_auth", b"x" * (4 * 1024 * 1024 + 1), "more than"),
    ]:
        path = write(tmp_path / "file", text)
        settings = Settings(**{name: path})  # type: ignore[arg-type]
        assert said in refused(settings), (name, text)
        path.chmod(0o644)
        assert "others can read this file" in refused(settings)
        path.unlink()
        assert f"names a {name} that is not there" in refused(settings)


def test_a_proxy_without_a_login_may_stand_in_the_settings() -> None:
    secrets = read_secrets(Settings(proxy=Proxy(http="http://p:1", no_proxy=("x",))), {})
    assert json.loads(secrets.proxy.reveal()) == {"http": "http://p:1", "https": "", "no_proxy": ["x"]}
    assert Secrets().proxy == Secret(b"")
