"""Every field that can change the image flips the key; the closed list of others never does."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images import lock_reader
from images.config import parse_config
from images.digests import Digest
from images.errors import UsageError
from images.key import NOT_IN_KEY, content_key, summarise
from images.lock import Lock
from images.lockfile import lock_bytes, lock_digest
from images.oci import MEDIA_LAYER_TAR, Platform
from tests.fakes.locks import AMD64, ARM64, BUILDER_TOML, make_added_lock, make_lock, with_toolchain

FULL = with_toolchain(make_added_lock())
DOCUMENT: dict[str, Any] = json.loads(lock_bytes(FULL))
Path = tuple[str | int, ...]

# Leaves of the lock's JSON by the end of their path, as patterns of names without list positions.
IGNORED = {
    "schema",  # the parser takes one value only
    "config",
    "tools.resolver",
    "tools.build_container",
    "base.name",
    "base.tag",
    "base.pinned",
    "base.requested",
    "base.index",
    "base.images.linux/amd64.config",
    "base.images.linux/amd64.layers.mediaType",
    "base.images.linux/amd64.layers.digest",
    "base.images.linux/amd64.layers.size",
    "base.images.linux/amd64.diff_ids",
    "install_scripts",
    "artifacts.size",
    "artifacts.parents",
    "artifacts.registry",
    "artifacts.authenticated",
    "artifacts.signer",
    "toolchain.debian.suite",
    "toolchain.debian.asked",
    "toolchain.debian.trees.linux/amd64.in_base",
    "artifacts.signature",
    "mcp.look.wheels.linux/amd64.glibc",
    "pypi_tools.quick.wheels.linux/amd64.glibc",
    "platforms",  # what else the lock serves
}


def leaves(value: object, path: Path = ()) -> list[Path]:
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [found for n, item in enumerate(value) for found in leaves(item, (*path, n))]
    return [path]


# What these are says all of it: the reader takes no other kind, and no version where there is none.
FIXED = {
    "skill": ("kind", "version"),
    "archive": ("kind", "version"),
    "wheel": ("kind", "name", "version", "filename"),
    "deb": ("kind",),
}
ONE_VALUE: set[Path] = {("schema",), ("mcp", "look", "index")} | {
    ("artifacts", n, name)
    for n, artifact in enumerate(DOCUMENT["artifacts"])
    for name in FIXED.get(artifact["kind"], ())
}
LEAVES = [path for path in leaves(DOCUMENT) if path not in ONE_VALUE]


def at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def name_of(path: Path) -> str:
    return ".".join(part for part in path if isinstance(part, str))


# By the last name of the path, for values that are not plain text.
OTHER_VALUES: dict[str, Callable[[str], str]] = {
    "integrity": lambda value: f"{value.partition(':')[0]}:{value.partition(':')[2][::-1]}",
    "platforms": lambda _: "linux/arm64",
    "authenticated": lambda value: "tofu" if value == "npm-signature" else "npm-signature",
    "signature": lambda value: value[::-1],
    "kind": lambda value: "npm" if value == "node" else "node",
    "name": lambda value: value.replace(":", "x:") if ":" in value else value + "x",
    "sha256": lambda value: value[::-1],
    "signer": lambda value: value[::-1],
    "version": lambda value: value + "-1",
    "mediaType": lambda _: MEDIA_LAYER_TAR,
    "python": lambda _: "3.12",
    "glibc": lambda _: "2.37",
}


def other(value: object, path: Path) -> object:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if path[-1] == "version" and {"look", "quick"} & set(path):
        return f"{value}.1"  # of PyPI
    if isinstance(value, int):
        return value + 1
    if value is None or (str(value).startswith("sha256:") and path[-1] != "integrity"):
        return str(Digest.of(str(value).encode()))
    return OTHER_VALUES.get(name_of(path).rpartition(".")[2], lambda text: text + "x")(str(value))


def read_without_laws(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Lock:
    monkeypatch.setattr(lock_reader, "broken_law", lambda _: None)
    return lock_reader.read_lock(document, "lock", UsageError)


@pytest.mark.parametrize("path", LEAVES, ids=lambda path: ".".join(map(str, path)))
def test_every_leaf_of_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = name_of(path)
    document = copy.deepcopy(DOCUMENT)
    parent = at(document, path[:-1])
    parent[path[-1]] = other(parent[path[-1]], path)
    if name.endswith(".command"):
        parent["sha256"] = Digest.of(parent["command"].encode()).hex
    if name.endswith(".sha256") and "scripts" in path:
        return  # belongs to the command, whose change is tested
    if name == "recipe.compression.algorithm":
        return  # one value exists
    not_run = "scripts" in path and not at(DOCUMENT, path[: path.index("scripts") + 1])["run"]
    changed = content_key(read_without_laws(document, monkeypatch), AMD64)
    if name in IGNORED or name.startswith("skills.") or (not_run and name.endswith(".command")):
        assert changed == content_key(FULL, AMD64)
    else:
        assert changed != content_key(FULL, AMD64)


def test_the_ignored_fields_are_the_closed_list() -> None:
    def short(name: str) -> str:
        for part in ("linux/amd64.", "look.", "quick."):
            name = name.replace(part, "")
        return name.removesuffix(".mediaType").removesuffix(".digest")

    named = {short(name).removesuffix("layers.size") or name for name in IGNORED} - {"schema", "platforms"}
    named = {name if not name.endswith(".images.") else "base.images.layers" for name in named}
    assert named <= NOT_IN_KEY
    assert NOT_IN_KEY - named == {
        "artifacts.scripts (not run)",
        "agents.trees.bundled",
        "mcp.trees.bundled",
        "skills",
        "anything of another platform",
    }


def test_an_added_argument_variable_server_or_skill_flips_the_key() -> None:
    lock = make_added_lock()
    server, skill = lock.mcp[0], lock.skills[0]
    keys = {
        content_key(changed, AMD64)
        for changed in (
            lock,
            replace(lock, mcp=(replace(server, args=(*server.args, "x")),)),
            replace(lock, mcp=(replace(server, args=server.args[::-1]),)),
            replace(lock, mcp=(replace(server, env=(*server.env, "X")),)),
            replace(lock, mcp=(replace(server, name="other"),)),
            replace(lock, mcp=(server, replace(server, name="other"))),
            replace(lock, mcp=()),
            replace(lock, skills=()),
            replace(lock, skills=(skill, replace(skill, name="other"))),
        )
    }
    assert len(keys) == 9


def test_another_order_of_packages_or_of_steps_flips_the_key() -> None:
    toolchain = FULL.toolchain
    assert toolchain is not None
    tree = toolchain.trees[0]
    unpack, configure = tree.steps
    first, second = unpack.packages
    one_by_one = tuple(
        replace(step, packages=(name,)) for name in (first, second) for step in (unpack, configure)
    )
    keys = {
        content_key(replace(FULL, toolchain=replace(toolchain, trees=(replace(tree, steps=steps),))), AMD64)
        for steps in (
            tree.steps,
            (replace(unpack, packages=(second, first)), configure),
            (unpack, replace(configure, packages=(second, first))),
            one_by_one,
        )
    }
    assert len(keys) == 4
    assert content_key(replace(FULL, toolchain=None), AMD64) not in keys


def test_an_added_wheel_tool_or_archive_flips_the_key() -> None:
    lock = make_added_lock()
    server, tool, archive = lock.pypi_mcp[0], lock.pypi_tools[0], lock.archives[0]
    tree = tool.trees[0]

    def with_tree(**changes: Any) -> Lock:
        return replace(lock, pypi_tools=(replace(tool, trees=(replace(tree, **changes),)),))

    other = [
        replace(one, filename=one.filename.replace("cp311", "cp310")) if one.id == tree.root else one
        for one in lock.artifacts
    ]
    keys = {
        content_key(changed, AMD64)
        for changed in (
            lock,
            replace(lock, pypi_mcp=()),
            replace(lock, pypi_mcp=(replace(server, name="other"),)),
            replace(lock, pypi_mcp=(replace(server, args=server.args[::-1]),)),
            replace(lock, pypi_tools=()),
            replace(lock, pypi_tools=(replace(tool, name="other"),)),
            replace(lock, archives=()),
            replace(lock, archives=(archive, replace(archive, name="other"))),
            replace(lock, artifacts=tuple(other)),
            with_tree(wheels=tree.wheels[:1]),
            with_tree(root=server.trees[0].root),
            with_tree(python="3.12"),
        )
    }
    assert len(keys) == 12


def test_a_moved_package_flips_the_key() -> None:
    lock = make_lock()
    pi = lock.agents[1]
    tree = pi.trees[0]
    moved = tuple(
        replace(entry, path=entry.path.replace("node_modules/protobufjs", "node_modules/protobufjt"))
        for entry in tree.entries
    )
    changed = replace(lock, agents=(lock.agents[0], replace(pi, trees=(replace(tree, entries=moved),))))
    assert content_key(changed, AMD64) != content_key(lock, AMD64)


def test_another_base_manifest_flips_the_key() -> None:
    lock = make_lock()
    image = replace(lock.base.images[0], manifest=Digest.of(b"other"))
    assert content_key(replace(lock, base=replace(lock.base, images=(image,))), AMD64) != content_key(
        lock, AMD64
    )


def test_another_platforms_artifacts_do_not_matter() -> None:
    lock = make_lock()
    foreign = replace(lock.artifacts[-1], name="foreign", platforms=(ARM64,))
    assert content_key(replace(lock, artifacts=(*lock.artifacts, foreign)), AMD64) == content_key(lock, AMD64)


@given(st.permutations(range(len(make_lock().artifacts))))
def test_order_never_matters(order: list[int]) -> None:
    lock = make_lock()
    shuffled = replace(lock, artifacts=tuple(lock.artifacts[n] for n in order))
    assert content_key(shuffled, AMD64) == content_key(lock, AMD64)


def test_umask_and_locale_never_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = content_key(make_lock(), AMD64)
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    before = os.umask(0o077)
    try:
        assert content_key(make_lock(), AMD64) == expected
    finally:
        os.umask(before)


@pytest.mark.parametrize("text", [BUILDER_TOML, "# a comment\n" + BUILDER_TOML])
def test_run_defaults_and_comments_are_not_even_in_the_lock(text: str) -> None:
    config = parse_config(text, where="builder.toml")
    assert str(config.run.limits.memory).encode() not in lock_bytes(make_lock())


def test_the_key_is_stable_across_releases() -> None:
    """A change here changes every key in the world: raise KEY_VERSION and say so in the changelog."""
    assert content_key(make_lock(), AMD64) == (
        "sha256:9b0ab36f9d14133f8c65848f40dfda8322acdf7da724a46bae024326b511af00"
    )


def test_summary() -> None:
    summary = summarise(make_lock(), AMD64)
    assert summary.digest == lock_digest(make_lock())
    assert summary.key == content_key(make_lock(), AMD64)
    assert [artifact.name for artifact in summary.artifacts][-1] == "protobufjs"
    assert summary.platform == Platform("linux", "amd64")
