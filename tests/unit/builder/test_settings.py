"""settings.toml: strict, guarded, and nothing in it is ignored."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from builder.settings.settings_file import (
    GivenImage,
    Settings,
    load_settings,
    parse_settings,
    read_ca_bundle,
    read_npm_keys,
    read_npmrc,
)
from images.digests import Digest
from images.errors import KeyUnusable, UsageError
from provenance.npm_signatures import shipped_keys
from tests.fakes.locks import KEY_ID
from tests.fakes.signed import key_pair, public_pem

DIGEST = "sha256:" + "a" * 64


def test_defaults() -> None:
    assert parse_settings("schema = 1", where="s") == Settings()


def test_every_setting() -> None:
    text = f'schema = 1\nengine = "podman"\nbase = "{DIGEST}"\nca_bundle = "/ca.pem"\nnpmrc = "/npmrc"\n'
    found = parse_settings(text + '[registries]\nnpm = "client"\n', where="s")
    assert (found.engine, found.base, found.ca_bundle) == (
        "podman",
        GivenImage(Digest(DIGEST)),
        Path("/ca.pem"),
    )


@pytest.mark.parametrize("key", ["base", "build_container", "resolver"])
def test_an_image_by_digest_with_the_registry_that_has_it(key: str) -> None:
    text = f"registry.test:5000/team/image@{DIGEST}"
    found = getattr(parse_settings(f'schema = 1\n{key} = "{text}"', where="s"), key)
    assert (found.digest, str(found)) == (DIGEST, text)
    assert found.source.registry == ("registry.test:5000", "team/image")
    bare = getattr(parse_settings(f'schema = 1\n{key} = "{DIGEST}"', where="s"), key)
    assert (bare.digest, bare.source, str(bare)) == (DIGEST, None, DIGEST)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "schema: missing"),
        ("schema = 1\nmode = 1", "s, line 2: mode: unknown key; expected one of apt_auth"),
        ("schema = true", "schema: expected a whole number"),
        ("schema = 1.0", "schema: expected a whole number"),
        ('schema = 1\nengine = "lxc"', "engine"),
        ('schema = 1\nbase = "debian"', "s, line 2: base: expected sha256:"),
        ('schema = 1\n\nresolver = "r.test/x:1"', "s, line 3: resolver: expected sha256:"),
        ('schema = 1\nresolver = "r.test/x:latest"', "HOST/NAME@sha256:…"),
        (f'schema = 1\nbuild_container = "tools@{DIGEST}"', "'tools' names no registry; expected"),
        (f'schema = 1\nbuild_container = "team/tools@{DIGEST}"', "names no registry"),
        (f'schema = 1\nbuild_container = "@{DIGEST}"', "build_container: "),
        (f'schema = 1\nbase = "https://r.test/x@{DIGEST}"', "is not an image reference"),
        (f'schema = 1\nbase = "me@r.test/x@{DIGEST}"', "base: not a digest: 'r.test/x@"),
        ('schema = 1\nbase = "r.test/x@sha256:12"', "base: expected sha256:"),
        ("schema = 1\nbase = 1", "base: expected text"),
        ('schema = 1\nca_bundle = "ca.pem"', "ca_bundle: expected an absolute path"),
        ('schema = 1\nmin_release_age = "3 days"', "min_release_age: '3 days': expected a duration such as"),
        ('schema = 1\nmin_release_age = "0d"', "expected a duration such as"),
        ("schema = 1\nmin_release_age = 3", "min_release_age: expected text"),
        ('schema = 1\nmin_release_age_except = ["pi"]', "expected name@version, one exact version"),
        ('schema = 1\nmin_release_age_except = ["pi@latest"]', "expected name@version"),
        ('schema = 1\nmin_release_age_except = ["pi@^1.0.0"]', "expected name@version"),
        ('schema = 1\nmin_release_age_except = ["@a/b@*"]', "expected name@version"),
        ('schema = 1\nmin_release_age_except = "pi@1.0.0"', "min_release_age_except"),
        ('schema = 1\n[npm_keys]\nmine = "/k.pub"', "expected a key id: SHA256:"),
        (f'schema = 1\n[npm_keys]\n"{KEY_ID}" = "k.pub"', "expected an absolute path"),
        (f'schema = 1\n[npm_keys]\n"{KEY_ID}" = 1', "npm_keys"),
        ('schema = 1\nupstream_proxy = "x"', "upstream_proxy: not a setting"),
        ('schema = 1\n[registries]\nnpm = "x"', "registries.npm: expected http"),
        ('schema = 1\n[registries]\nnpm = "http://x/"', "registries.npm: expected https://"),
        ('schema = 1\n[registries]\npypi = "https://me:dummy-word@x/"', "registries.pypi: holds a login"),
        ('schema = 1\n[registries]\ndebian = "https://x/?token=dummy-word"', "registries.debian: expected "),
        ('schema = 1\n[registries]\ngo = "client"', "unknown key"),
        ('schema = 1\nproxy = { https = "http://me:dummy-word@p:1" }', "proxy.https: holds a login"),
        ('schema = 1\nproxy = { http = "http://p:1/dummy-word" }', "proxy.http: expected http"),
        ('schema = 1\nproxy = { http = "socks5://p:1" }', "proxy.http: expected http"),
        ('schema = 1\nproxy = { http = "http://p:1\\"\\nx" }', "proxy.http: expected http"),
        ('schema = 1\nproxy = { no_proxy = ["a b"] }', "proxy.no_proxy[0]: expected a host"),
        ('schema = 1\nproxy = { ftp = "http://p:1" }', "proxy.ftp"),
        ('schema = 1\nproxy = "http://p:1"', "proxy: expected a table"),
        ('schema = 1\nproxy_file = "p"', "proxy_file: expected an absolute path"),
        ('schema = 1\nproxy_file = "/p"\nproxy = {}', "name one of them"),
        ('schema = 1\nnpmrc_variables = { "A-B" = "/p" }', "npmrc_variables"),
        ('schema = 1\nnpmrc_variables = { A = "dummy-word" }', "npmrc_variables.A: expected an absolute"),
    ],
)
def test_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_settings(text, where="s")
    assert said in str(refused.value)
    assert "dummy-word" not in str(refused.value)


def test_the_age_of_releases() -> None:
    excepted = '["@a/b@1.0.0-rc.1", "mcp@2026.1.2.post1"]'
    text = f'schema = 1\nmin_release_age = "3d"\nmin_release_age_except = {excepted}\n'
    found = parse_settings(text, where="s")
    assert found.min_release_age == timedelta(days=3)
    assert found.min_release_age_except == {"@a/b@1.0.0-rc.1", "mcp@2026.1.2.post1"}


def test_keys_of_ones_own_take_the_place_of_the_shipped_ones(tmp_path: Path) -> None:
    assert read_npm_keys(Settings()) == shipped_keys()
    private, made = key_pair(KEY_ID)
    path = tmp_path / "registry.pub"
    found = parse_settings(f'schema = 1\n[npm_keys]\n"{KEY_ID}" = "{path}"\n', where="s")
    with pytest.raises(UsageError, match="names a npm_keys that is not there"):
        read_npm_keys(found)
    path.write_bytes(public_pem(private))
    assert read_npm_keys(found) == {KEY_ID: made}
    path.chmod(0o666)
    with pytest.raises(UsageError, match="others can change"):
        read_npm_keys(found)
    path.chmod(0o644)
    path.write_bytes(b"nothing")
    with pytest.raises(KeyUnusable, match="not one PEM block"):
        read_npm_keys(found)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_link_to_nothing_is_an_error_and_no_absent_file(tmp_path: Path, depth: int) -> None:
    """Of the file, of its folder, or of a folder above."""
    path = tmp_path / "a/b/settings.toml"
    link = (path, *path.parents)[depth]
    link.parent.mkdir(parents=True, exist_ok=True)
    target = tmp_path / "elsewhere"
    link.symlink_to(target)
    with pytest.raises(UsageError, match="a link to nothing") as refused:
        load_settings(path)
    assert refused.value.where == str(link)
    link.unlink()
    assert load_settings(path) == Settings()


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text('schema = 1\nengine = "podman"\n')
    (tmp_path / "settings.toml").symlink_to("real.toml")
    assert load_settings(tmp_path / "settings.toml").engine == "podman"


@pytest.mark.parametrize("name", ["ca_bundle", "npmrc"])
def test_a_named_file_that_is_a_link_to_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.symlink_to("nowhere")
    settings = parse_settings(f'schema = 1\n{name} = "{path}"\n', where="s")
    with pytest.raises(UsageError, match="a link to nothing"):
        (read_ca_bundle if name == "ca_bundle" else read_npmrc)(settings)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    assert load_settings(path) == Settings()
    path.write_text('schema = 1\nengine = "docker"\n')
    path.chmod(0o600)
    assert load_settings(path).engine == "docker"
    path.chmod(0o666)
    with pytest.raises(UsageError, match="others can change"):
        load_settings(path)
    path.chmod(0o600)
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="UTF-8"):
        load_settings(path)
    with pytest.raises(UsageError, match="not a regular file"):
        load_settings(tmp_path)


def test_secrets_are_guarded(tmp_path: Path) -> None:
    npmrc, bundle = tmp_path / "npmrc", tmp_path / "ca.pem"
    settings = Settings(ca_bundle=bundle, npmrc=npmrc)
    assert read_npmrc(Settings()).reveal() == b""
    with pytest.raises(UsageError, match="a npmrc that is not there"):
        read_npmrc(settings)
    npmrc.write_bytes(b"//r.test/:_authToken=dummy-not-a-token")
    npmrc.chmod(0o644)
    with pytest.raises(UsageError, match="others can read") as refused:
        read_npmrc(settings)
    assert "dummy" not in str(refused.value)
    npmrc.chmod(0o600)
    assert read_npmrc(settings).reveal().startswith(b"//r.test")
    bundle.write_bytes(b"pem")
    bundle.chmod(0o644)
    assert read_ca_bundle(settings) == b"pem"
    bundle.write_bytes(b"x" * (4 * 1024 * 1024 + 1))
    with pytest.raises(UsageError, match="more than"):
        read_ca_bundle(settings)
