"""Behind a company's proxy, with private registries: it works, and no secret shows up anywhere afterwards."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from builder.bootstrap import Bootstrapped
from builder.state import State, open_state
from images.digests import Digest
from provenance.layout import blob_path, open_image
from provenance.layout_writing import add_manifest, init_layout
from tests.fakes.locks import BASE_DIGEST, BUILDER_TOML
from tests.real.company import (
    DEBIAN,
    IMAGES,
    NPM,
    PYPI,
    USER,
    Company,
    Logins,
    forms,
    open_company,
)
from tests.real.tiny import BUILDER
from tests.results import check_printed

pytestmark = pytest.mark.real
MAX_SEARCHED = 256 << 20  # of one file


@dataclass(kw_only=True)
class Operator:
    """Somebody's state, configuration and project, on a machine inside the company."""

    engine: str
    home: Path
    state: State
    company: Company
    logins: Logins
    base: str
    said: list[str] = field(default_factory=list)

    def write(self, name: str, text: str) -> str:
        """A file that only the operator can read; its path, quoted."""
        path = self.home / name
        path.write_text(text)
        path.chmod(0o600)
        return json.dumps(str(path))

    def configure(self, **changes: str) -> None:
        """Write settings.toml and all the files it names; ``changes``: key -> TOML, or empty to leave out."""
        login = self.logins
        auth = base64.b64encode(f"{USER}:{login.images}".encode()).decode()
        values = {
            "engine": json.dumps(self.engine),
            "base": json.dumps(self.base),
            "ca_bundle": json.dumps(str(self.company.ca)),
            "npmrc": self.write("npmrc", f"//{NPM}/:_authToken=${{NPM_TOKEN}}\n"),
            "npmrc_variables": f"{{ NPM_TOKEN = {self.write('token', login.npm)} }}",
            "netrc": self.write("netrc", f"machine {PYPI} login {USER} password {login.pypi}\n"),
            "apt_auth": self.write("auth.conf", f"machine {DEBIAN} login {USER} password {login.debian}\n"),
            "registry_auth": self.write("docker.json", json.dumps({"auths": {IMAGES: {"auth": auth}}})),
            "proxy_file": self.write("proxy.toml", f'https = "{self.company.proxy.url(login)}"\n'),
            **changes,
        }
        lines = ["schema = 1", *(f"{key} = {value}" for key, value in values.items() if value)]
        lines += ["[registries]", f'npm = "https://{NPM}/"', f'pypi = "https://{PYPI}/simple/"']
        lines += [f'debian = "https://{DEBIAN}/"']
        config = self.home / "config"
        config.mkdir(mode=0o700, exist_ok=True)
        (config / "settings.toml").write_text("\n".join(lines) + "\n")
        project = self.home / "project"
        project.mkdir(exist_ok=True)
        text = BUILDER_TOML.replace(f"debian-minimal@{BASE_DIGEST}", self.base)
        (project / "builder.toml").write_text(text)

    def argv(self, *words: str) -> list[str]:
        places = ("--state", str(self.state.root), "--config-dir", str(self.home / "config"))
        at = words.index("--") if "--" in words else len(words)
        return [str(BUILDER), *words[:at], *places, *words[at:]]

    def builder(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Type a command; what it says is kept, to be searched."""
        done = subprocess.run(
            self.argv(*words),
            cwd=self.home / "project",
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        self.said += [done.stdout, done.stderr]
        check_printed(words, done.stdout)
        return done

    def done(self, *words: str) -> str:
        """Type a command that succeeds."""
        done = self.builder(*words)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def error(self, *words: str, **variables: str) -> dict[str, Any]:
        """Type a command that fails; its error, the code included. Nothing is left of it."""
        done = self.builder(*words, "--json", **variables)
        assert done.returncode, "it was to fail"
        error: dict[str, Any] = json.loads(done.stdout)["error"]
        assert error["code"] == done.returncode
        assert self.containers() == []
        assert list((self.state.root / "staging").iterdir()) == []
        return error

    def containers(self, *, running: bool = False) -> list[str]:
        """Those of this state; ended ones too, unless ``running``."""
        which = "-q" if running else "-aq"
        words = [self.engine, "ps", which, "--filter", f"label=agent-image-builder.state={self.state.id}"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    def lock(self) -> bytes:
        return (self.home / "project/builder.lock").read_bytes()


@pytest.fixture
def company(kept_state: State, bootstrapped: Bootstrapped, tmp_path: Path) -> Iterator[Company]:
    images = tmp_path / "images"
    init_layout(images)
    link_image(kept_state, bootstrapped.base, images)
    with open_company(images, tmp_path) as found:
        yield found


@pytest.fixture
def operator(
    engine_name: str, kept_state: State, bootstrapped: Bootstrapped, company: Company, tmp_path: Path
) -> Operator:
    return make_operator(engine_name, kept_state, bootstrapped, company, tmp_path / "one", Logins())


def make_operator(  # noqa: PLR0917  (fixtures)
    engine: str, kept: State, images: Bootstrapped, company: Company, home: Path, logins: Logins
) -> Operator:
    home.mkdir()
    state = open_state(home / "state")
    for digest in (images.resolver, images.build_container):
        link_image(kept, digest, state.layout)
    base = f"{IMAGES}/team/base@{images.base}"
    found = Operator(engine=engine, home=home, state=state, company=company, logins=logins, base=base)
    found.configure()
    return found


def link_image(kept: State, digest: Digest, into: Path) -> None:
    """As a push does, by hard links."""
    image = open_image(kept.layout, digest)
    for blob in (image.manifest.config, *image.manifest.layers):
        if not blob_path(into, blob.digest).exists():
            os.link(blob_path(kept.layout, blob.digest), blob_path(into, blob.digest))
    add_manifest(into, image.manifest.raw, media_type=image.manifest.media_type)


class Witness:
    """Looks, again and again, at what others on this machine could see while a command runs."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.seen: set[bytes] = set()
        self.looked = {"argv": 0, "environ": 0, "inspect": 0, "disk": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        rounds = 0
        while not self._stop.wait(0.1):
            rounds += 1
            for process in Path("/proc").glob("[0-9]*"):
                self._process(process, with_disk=rounds % 10 == 0)
            if rounds % 10 == 0:
                self._inspect()

    def _process(self, process: Path, *, with_disk: bool) -> None:
        try:
            argv = (process / "cmdline").read_bytes()
            self._keep("argv", argv)
            # The engine's client, which the builder starts; processes in a container are another matter.
            if argv.startswith((b"docker\0", b"podman\0")) or b"/docker\0" in argv[:200]:
                self._keep("environ", (process / "environ").read_bytes())
            if with_disk and b"/run/job/resolve.mjs" in argv and argv.startswith(b"node\0"):
                for file in (process / "root/tmp").rglob("*"):
                    if file.is_file() and not file.is_symlink():
                        self._keep("disk", file.read_bytes())
        except OSError:
            return  # gone already

    def _inspect(self) -> None:
        if found := self._operator.containers():
            words = [self._operator.engine, "container", "inspect", *found]
            self._keep("inspect", subprocess.run(words, capture_output=True, check=False).stdout)

    def _keep(self, kind: str, raw: bytes) -> None:
        self.looked[kind] += 1
        self.seen.add(raw)


def searched(operator: Operator, *more: bytes) -> int:
    """No form of a login is in a file of state or project, or in what was said. Returns the files read."""
    wanted = {form: value for value in operator.logins.all() for form in forms(value)}
    files = 0
    for folder in (operator.state.root, operator.home / "project"):
        for path in folder.rglob("*"):
            if not path.is_file() or path.is_symlink():
                continue
            files += 1
            raw = path.read_bytes()
            assert len(raw) < MAX_SEARCHED
            for form, value in wanted.items():
                assert form not in raw, (path, value)
    for text in (*operator.said, *more):
        raw = text.encode() if isinstance(text, str) else text
        for form, value in wanted.items():
            assert form not in raw, (raw[max(0, raw.find(form) - 100) :][:200], value)
    return files


def test_the_search_would_find_a_secret(operator: Operator) -> None:
    """A search that cannot fail says nothing."""
    planted = operator.state.root / "planted"
    planted.write_bytes(b"x" + base64.b64encode(b"ab" + operator.logins.npm.encode()))
    with pytest.raises(AssertionError, match="planted"):
        searched(operator)
    planted.unlink()
    searched(operator)
    with pytest.raises(AssertionError, match="dummy"):
        searched(operator, quote(operator.logins.proxy, safe="").encode())


def test_crd_07_s_06_everything_through_one_proxy_with_logins_and_none_of_them_shows(
    operator: Operator,
    company: Company,
    kept_state: State,
    bootstrapped: Bootstrapped,
    tmp_path: Path,
) -> None:
    with Witness(operator) as witness:
        operator.done("init", "--unencrypted-keys")
        operator.done("lock")
        digest = operator.done("build").strip()
    operator.done("verify", digest, "--verbose")
    operator.done("show", digest, "--json")
    hosts = {request.partition("/")[0] for request in company.requests}
    assert {NPM, IMAGES} <= hosts
    assert set(company.proxy.tunnels) <= {f"{host}:443" for host in (NPM, PYPI, DEBIAN, IMAGES)}
    assert all(witness.looked.values()), witness.looked
    assert searched(operator, *witness.seen) > 20
    assert DOMAIN_NAMES.isdisjoint(_words(operator.lock()))

    # The same with another value of each login, and another kind of login for npm: nothing depends on them.
    others = Logins(*(f"{value}-other" for value in Logins().all()))
    company.logins = (others,)
    two = make_operator(operator.engine, kept_state, bootstrapped, company, tmp_path / "two", others)
    auth = base64.b64encode(f"{USER}:{others.npm}".encode()).decode()
    two.configure(npmrc=two.write("npmrc-basic", f"//{NPM}/:_auth=${{NPM_AUTH}}\n"), npmrc_variables="")
    assert "mentions ${NPM_AUTH}" in two.error("lock")["what"]
    assert two.builder("lock", NPM_AUTH=auth).returncode == 0, two.said[-1]
    assert two.lock() == operator.lock()
    shutil.copytree(operator.home / "config/keys", two.home / "config/keys")
    shutil.copy(operator.home / "config/policy.toml", two.home / "config")
    assert two.done("build").strip() == digest
    searched(two)


DOMAIN_NAMES = {NPM, PYPI, DEBIAN}


def _words(raw: bytes) -> set[str]:
    return set(raw.decode().replace("/", " ").replace('"', " ").split())
