"""Files that a person wrote, or somebody for him: builder.toml, its lock, policy, settings, proxies, keys."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

from builder.bootstrap.lock import parse_lock as parse_bootstrap
from builder.bootstrap.lock import render_lock
from builder.ci.checking import digest_asked
from builder.locking import open_project
from builder.settings.settings_file import load_settings, parse_proxy_file
from images.digests import Digest
from images.errors import BuilderError
from images.key import content_key, summarise
from images.lockfile import lock_bytes, parse_lock
from images.render import render
from provenance.keys import load_public_key
from provenance.policy import parse_policy
from provenance.sigstore_root import read_sigstore_root
from tests.fakes.bases import base_facts
from tests.fakes.evidence import key
from tests.fakes.locks import (
    BUILDER_TOML,
    KEY_ID,
    make_added_lock,
    make_full_lock,
    make_lock,
)
from tests.fakes.policies import HEAD, TRUST, rebuilder_entry
from tests.fakes.proved import make_world
from tests.fakes.signed import public_pem
from tests.fakes.sigstores import Sigstore
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_json import json_mutator, mutate_json
from tests.fuzz.mutate_toml import mutate_toml
from tests.fuzz.target import Ready, law, target

ROOT = Path(__file__).resolve().parents[3]
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
ADDITIONS = """
[toolchain]
debian = ["git", "make"]
pypi = { uv = "0.13.9" }

[mcp]
files = { npm = "@scope/server", version = "1.0.0", args = ["/workspace", "--x=1"], env = ["FILES_TOKEN"] }
fetch = { pypi = "mcp-server-fetch", version = "2026.10.24" }

[skills]
review = "skills/review"
"""


def schema_is_a_number(raw: bytes) -> None:
    """True is 1 in Python, and no version of a format."""
    law(type(tomllib.loads(raw.decode())["schema"]) is int, "a schema that is no whole number was taken")


@target(mutate_toml, share=0.15)
def builder_toml(folder: Path) -> Ready:
    """builder.toml as `builder build` opens it."""
    path = folder / "builder.toml"

    def read(raw: bytes) -> object:
        path.write_bytes(raw)
        project = open_project(path)
        schema_is_a_number(raw)
        law(open_project(path) == project, "the same file reads differently")
        return project

    return Ready((BUILDER_TOML.encode(), (BUILDER_TOML + ADDITIONS).encode()), read)


@target(json_mutator(indent=1, newline=True, sort=True), share=0.3)
def builder_lock(folder: Path) -> Ready:
    """builder.lock: accepted bytes are the one form of what they say, and everything else follows from it."""
    template = (ROOT / "Containerfile.in").read_text()
    facts = base_facts()

    def read(raw: bytes) -> object:
        lock = parse_lock(raw)
        law(lock_bytes(lock) == raw, "other bytes than the lock's own form were taken")
        for platform in lock.platforms:
            law(summarise(lock, platform).key == content_key(lock, platform), "two keys of one lock")
            try:
                render(lock, platform, template, facts)
            except BuilderError:
                continue  # a base that lacks what is asked for, say
        return lock

    return Ready(tuple(lock_bytes(one) for one in (make_lock(), make_full_lock(), make_added_lock())), read)


@target(mutate_toml, share=0.15)
def policy_toml(folder: Path) -> Ready:
    """policy.toml: what it accepts must be a policy that a verification can be made with."""
    world = make_world(folder)
    world.prove()
    keys = {f"keys/{name}.pub": key(name).public.pem for name in ("builder", "verifier", "launcher", "one")}
    keys["root.json"] = Sigstore().trusted_root()
    base = f'bases = ["{world.base.digest}"]\nmax_age = "90d"\n'
    more = (
        'min_ruleset = 1\nrefuse_tofu = true\nrequire_audit = false\nnetwork = ["api.anthropic.com:443"]\n'
        f'accept = [{{ what = "limits-not-enforced", why = "one user" }}]\nsigstore_root = "root.json"\n'
        f'revoked = {{ digests = ["{Digest.of(b"x")}"], keys = [], builder_ids = ["urn:x"] }}\n'
        'enable = { mcp = ["files"], skills = ["review"] }\n'
    )
    expect = f'\n[expect]\n"team/agents" = "{Digest.of(world.raw_lock)}"\n'
    seeds = (HEAD + base + expect + TRUST, HEAD + base + more + expect + TRUST + rebuilder_entry("one"))

    def read_key(name: str) -> bytes:
        return keys.get(name, b"")

    def read(raw: bytes) -> object:
        policy = parse_policy(raw, path=folder / "policy.toml", read_key=read_key)
        schema_is_a_number(raw)
        law(policy.digest == Digest.of(raw), "the policy has another digest than its bytes")
        report = world.verify(policy=policy)
        allowed = {one.who for one in policy.trust if str(one.role) == "builder"}
        law(
            not report.ok or key("builder").public.fingerprint in allowed,
            "verified without the builder's key",
        )
        return policy

    return Ready(tuple(text.encode() for text in seeds), read)


@target(mutate_toml, share=0.15)
def settings_toml(folder: Path) -> Ready:
    """settings.toml as the program opens it."""
    path = folder / "settings.toml"
    digest = Digest.of(b"image")
    text = (
        f'schema = 1\nengine = "podman"\nbase = "{digest}"\n'
        f'build_container = "registry.test:5000/team/x@{digest}"\n'
        'ca_bundle = "/ca.pem"\nnpmrc = "/npmrc"\nproxy_file = "/proxy"\nmin_release_age = "3d"\n'
        'min_release_age_except = ["@a/b@1.0.0-rc.1"]\n'
        '[registries]\nnpm = "client"\npypi = "https://index.test/simple"\n'
        f'[npm_keys]\n"{KEY_ID}" = "/k.pub"\n[credentials]\n"claude-code.api-key" = "/key"\n'
    )
    plain = 'schema = 1\nproxy = { http = "http://p.test:1", no_proxy = ["x.test"] }\n'

    def read(raw: bytes) -> object:
        path.write_bytes(raw)
        found = load_settings(path)
        schema_is_a_number(raw)
        return found

    return Ready((text.encode(), plain.encode()), read)


@target(mutate_toml)
def proxy_file(folder: Path) -> Ready:
    """The file that proxy_file names."""
    text = (
        b'http = "http://me:dummy-word@p.test:3128"\nhttps = "http://p.test:3128"\nno_proxy = [".x.test"]\n'
    )
    return Ready((text,), lambda raw: parse_proxy_file(raw, where="proxy"))


@target(mutate_bytes, share=3)
def public_key(folder: Path) -> Ready:
    """A public key's file: two files of one key have one fingerprint."""
    seeds = (key("builder").public.pem, public_pem(key("verifier").key))

    def read(raw: bytes) -> object:
        found = load_public_key(raw, "key")
        law(load_public_key(found.pem, "key") == found, "a key that is not itself when it is written")
        return found

    return Ready(seeds, read)


@target(mutate_json, share=3)
def sigstore_trusted_root(folder: Path) -> Ready:
    """The trusted root that a policy names."""
    return Ready((Sigstore().trusted_root(),), lambda raw: read_sigstore_root(raw, "root.json"))


@target(json_mutator(indent=2, newline=True), share=0.15)
def bootstrap_lock(folder: Path) -> Ready:
    """bootstrap.lock."""
    raw = (ROOT / "tools" / "bootstrap" / "bootstrap.lock").read_bytes()
    return Ready((raw,), lambda data: render_lock(parse_bootstrap(data, "bootstrap.lock")))


@target(mutate_bytes, share=0.6)
def digest_file(folder: Path) -> Ready:
    """The digest of a CI job: one, in full, and never a tag."""
    path, digest = folder / "digest.txt", Digest.of(b"image")

    def read(raw: bytes) -> object:
        path.write_bytes(raw)
        found = digest_asked(None, path)
        law(found.encode() in raw, "another digest than the file has")
        return found

    return Ready((f"{digest}\n".encode(), f"registry.test:5000/team/agents@{digest}".encode()), read)
