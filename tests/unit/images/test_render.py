"""The renderer: golden text, laws over all locks, and what it refuses."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.digests import Digest
from images.errors import UsageError
from images.key import content_key
from images.lock import InstallScript, Lock, ScriptEvent, Tree, TreeEntry
from images.oci import Platform
from images.relay import RELAY_SINCE
from images.render import RENDERER_VERSION, BuildContext, render
from images.unpacking import npm_plan
from tests.attacks import Position, attack
from tests.fakes.bases import base_facts
from tests.fakes.locks import (
    AMD64,
    deb,
    make_added_lock,
    make_full_lock,
    make_lock,
    npm,
    skill_integrity,
    with_toolchain,
)

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = Path(__file__).parent / "golden"
TEMPLATE = (ROOT / "Containerfile.in").read_text()


def lock_of_template(template: str = TEMPLATE) -> Lock:
    lock = make_lock()
    recipe = dataclasses.replace(
        lock.recipe, template=Digest.of(template.encode()), renderer=RENDERER_VERSION
    )
    return dataclasses.replace(lock, recipe=recipe)


def rendered(lock: Lock | None = None) -> BuildContext:
    return render(lock or lock_of_template(), AMD64, TEMPLATE, base_facts())


def texts(context: BuildContext) -> dict[str, str]:
    return {file.path: file.content.decode() for file in context.files if not file.path.endswith(".tar")}


def with_package(lock: Lock, name: str, version: str, **more: object) -> Lock:
    """The lock with one more package in Pi's tree."""
    artifact = npm(name, version, "npm:@mariozechner/pi-coding-agent@0.73.1", **more)  # type: ignore[arg-type]
    claude, pi = lock.agents
    entries = (*pi.trees[0].entries, TreeEntry(f"node_modules/{name}", artifact.id))
    pi = dataclasses.replace(pi, trees=(Tree(AMD64, tuple(sorted(entries))),))
    artifacts = tuple(sorted((*lock.artifacts, artifact), key=lambda item: item.id))
    return dataclasses.replace(lock, agents=(claude, pi), artifacts=artifacts)


@pytest.mark.parametrize(
    "name",
    ["Containerfile", "claude-code/tree", "claude-code/scripts", "claude-code/bins", "pi/tree", "node/tree"],
)
def test_golden(name: str) -> None:
    # The key differs with the template, which the golden files must not repeat in another place.
    context = rendered()
    text = texts(context)[name].replace(str(context.key), "KEY")
    golden = GOLDEN / name.replace("/", "-")
    assert text == golden.read_text()


def toolchain(lock: Lock | None = None) -> BuildContext:
    return rendered(with_toolchain(lock or lock_of_template()))


@pytest.mark.parametrize(
    "name",
    [
        "toolchain/sha256sums",
        "toolchain/steps/0000-unpack",
        "toolchain/steps/0001-configure",
        "toolchain/passwd",
    ],
)
def test_golden_with_a_toolchain(name: str) -> None:
    assert texts(toolchain())[name] == (GOLDEN / name.replace("/", "-")).read_text()


def test_a_toolchain_is_one_layer_below_all_others() -> None:
    bare, context = rendered(), toolchain()
    assert context.image.new_layers == bare.image.new_layers + 1
    assert context.plans == bare.plans
    text = texts(context)["Containerfile"]
    froms = [line for line in text.splitlines() if line.startswith("FROM ")]
    assert froms[1] == "FROM base AS toolchain"
    assert froms[-1] == "FROM toolchain AS image"
    assert {line.split()[1] for line in froms[2:-1]} == {"base"}
    assert re.search(r"^FROM base AS toolchain\nUSER 0:0\nRUN --network=none ", text, re.MULTILINE)
    assert "toolchain" not in "".join(
        line for line in texts(bare)["Containerfile"].splitlines() if line.startswith(("FROM", "USER"))
    )


def test_packages_come_from_the_artifacts_by_their_hash() -> None:
    context = toolchain()
    assert context.toolchain is not None
    sent = {item.name: item.artifact.id for item in context.artifacts if item.folder == "toolchain"}
    assert sent == {f"sha256-{one.integrity.hex}.deb": one.id for one in context.toolchain.debs}
    sums = texts(context)["toolchain/sha256sums"].splitlines()
    assert {line.split()[1] for line in sums} == set(sent)


def test_accounts_come_first_with_a_toolchain_and_last_without() -> None:
    def generated(context: BuildContext) -> set[str]:
        return {entry.path for entry in context.root}

    assert generated(rendered()) - generated(toolchain()) == {"etc/passwd", "etc/group"}
    assert "agent:x:1000:1000:" in texts(toolchain())["toolchain/passwd"]
    assert "watch:x:997:" in texts(toolchain())["toolchain/group"]


def test_a_base_that_has_everything_gets_no_layer() -> None:
    lock = with_toolchain(lock_of_template())
    assert lock.toolchain is not None
    tree = dataclasses.replace(lock.toolchain.trees[0], in_base=lock.toolchain.asked, steps=())
    nothing = dataclasses.replace(lock, toolchain=dataclasses.replace(lock.toolchain, trees=(tree,)))
    context = rendered(nothing)
    assert context.toolchain is None
    assert context.image.new_layers == rendered().image.new_layers


@pytest.mark.parametrize("name", ["make:amd64; id", "-x:amd64", "make:i386", "make"])
def test_a_name_that_dpkg_would_take_otherwise_is_refused(name: str) -> None:
    lock = with_toolchain(lock_of_template(), deb(name, "1.0", "toolchain.debian"))
    with pytest.raises(UsageError, match="is no Debian package"):
        rendered(lock)


def full() -> BuildContext:
    return rendered(dataclasses.replace(make_full_lock(), recipe=lock_of_template().recipe))


@pytest.mark.parametrize(
    "name", ["full/Containerfile", "mcp-files/tree", "skill-review/tree", "skill-review/sha256sums"]
)
def test_golden_with_a_server_and_a_skill(name: str) -> None:
    context = full()
    text = texts(context)[name.removeprefix("full/")].replace(str(context.key), "KEY")
    assert text == (GOLDEN / name.replace("/", "-")).read_text()


def test_a_server_is_installed_and_off() -> None:
    context = full()
    found = {entry.path: entry for entry in context.root}
    run = found["opt/mcp/files/run"]
    assert (run.mode, run.uid, run.gid) == (0o755, 0, 0)
    entry = "/opt/mcp/files/node_modules/@example/server-files/dist/index.js"
    assert run.content == (
        f"#!/bin/sh\nexec /opt/node/bin/node {entry} /workspace 'it'\"'\"'s' \"$@\"\n".encode()
    )
    versions = json.loads(found["etc/agent-image.json"].content or b"")
    assert versions["mcp"] == {
        "files": {
            "package": "@example/server-files",
            "version": "1.2.3",
            "run": "/opt/mcp/files/run",
            "env": ["FILES_TOKEN"],
        }
    }
    assert versions["skills"] == {
        "review": {"path": "/opt/skills/review", "integrity": str(skill_integrity())}
    }
    named = [path for path, one in found.items() if one.content and b"/opt/mcp" in one.content]
    assert sorted(named) == ["etc/agent-image.json", "opt/mcp/files/run"]
    assert not any("mcp" in value for _, value in context.image.environment)


def added() -> BuildContext:
    return rendered(dataclasses.replace(make_added_lock(), recipe=lock_of_template().recipe))


@pytest.mark.parametrize("name", ["tool-quick/tree", "mcp-look/tree", "archive-kit/tree"])
def test_golden_with_wheels_and_an_archive(name: str) -> None:
    assert texts(added())[name] == (GOLDEN / name.replace("/", "-")).read_text()


QUICK, LOOK = "/opt/tools/quick", "/opt/mcp/look"


def test_tools_and_archives_are_on_the_path_and_servers_are_not() -> None:
    context = added()
    found = {entry.path: entry for entry in context.root}
    links = {path: entry.link for path, entry in found.items() if entry.link}
    assert links == {
        "usr/local/bin/node": "/opt/node/bin/node",
        "usr/local/bin/quick": f"{QUICK}/bin/quick",
        "usr/local/bin/kit": "/opt/archives/kit/kit-1.2/bin/kit",
        "opt/tools/quick/bin/python3": "/usr/bin/python3",
        "opt/mcp/look/bin/python3": "/usr/bin/python3",
    }
    assert found["usr/local/bin/quick-show"].content == (
        f"#!{QUICK}/bin/python3 -IB\nimport sys\nfrom quick.show import Main\nsys.exit(Main.run())\n".encode()
    )
    assert found["usr/local/bin/quick.sh"].content == (
        f"#!{QUICK}/bin/python3 -IB\nimport sys\nfrom runpy import run_path\n"
        f"run_path('{QUICK}/bin/quick.sh', run_name=\"__main__\")\n".encode()
    )
    assert found["opt/mcp/look/run"].content == (
        f"#!{LOOK}/bin/python3 -IB\nimport sys\nsys.argv[1:1] = ['--quiet', \"it's\"]\n"
        "from mcp_server_look import main\nsys.exit(main())\n".encode()
    )
    settings = b"home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11\n"
    for place in ("opt/tools/quick", "opt/mcp/look"):
        assert found[f"{place}/pyvenv.cfg"].content == settings
    named = [path for path, one in found.items() if one.content and b"/opt/mcp/look" in one.content]
    assert sorted(named) == ["etc/agent-image.json", "opt/mcp/look/run"]
    assert all((one.uid, one.gid) == (0, 0) for path, one in found.items() if path.startswith("opt"))
    versions = json.loads(found["etc/agent-image.json"].content or b"")
    assert versions["tools"] == {"quick": "0.9"}
    assert versions["archives"]["kit"]["path"] == "/opt/archives/kit"
    assert versions["mcp"]["look"]["run"] == "/opt/mcp/look/run"


def test_a_server_may_be_a_program_of_its_wheel() -> None:
    lock = dataclasses.replace(make_added_lock(), recipe=lock_of_template().recipe)
    root = lock.artifact(lock.pypi_mcp[0].trees[0].root)
    program = dataclasses.replace(root, bins=(("mcp-server-look", "bin/mcp-server-look"),))
    artifacts = tuple(program if one is root else one for one in lock.artifacts)
    found = {entry.path: entry for entry in rendered(dataclasses.replace(lock, artifacts=artifacts)).root}
    assert found["opt/mcp/look/run"].content == (
        f"#!/bin/sh\nexec {LOOK}/bin/mcp-server-look --quiet 'it'\"'\"'s' \"$@\"\n".encode()
    )


def test_each_wheel_and_archive_is_checked_and_has_a_layer_of_its_own() -> None:
    context = added()
    targets = [plan.target for plan in context.plans]
    assert targets[-3:] == [LOOK, QUICK, "/opt/archives/kit"]
    assert context.image.new_layers == len(targets) + 2
    files = texts(context)
    for plan in context.plans[-3:]:
        sums = dict(line.split("  ")[::-1] for line in files[f"{plan.folder}/sha256sums"].splitlines())
        assert sums == {item.tarball: item.artifact.integrity.hex for item in plan.placed}
        assert files[f"{plan.folder}/sha512sums"] == files[f"{plan.folder}/scripts"] == ""


def test_each_directory_has_a_layer_and_none_changes_another() -> None:
    lock = dataclasses.replace(make_full_lock(), recipe=lock_of_template().recipe)
    context, bare = rendered(lock), rendered()
    assert [plan.target for plan in context.plans] == [
        "/opt/node",
        "/opt/agents/claude-code",
        "/opt/agents/pi",
        "/opt/mcp/files",
        "/opt/skills/review",
    ]
    assert context.image.new_layers == len(context.plans) + 2 == bare.image.new_layers + 2
    own = {path: text for path, text in texts(context).items() if path.startswith(("pi/", "node/"))}
    assert own.items() <= texts(bare).items()
    text = texts(context)["Containerfile"]
    assert text.count("COPY --link --chown=0:0 --from=mcp-files /out/ /") == 1
    assert text.count("COPY --link --chown=0:0 --from=skill-review /out/ /") == 1


def test_golden_launchers_and_versions() -> None:
    context = rendered()
    found = {entry.path: entry.content.decode() for entry in context.root if entry.content is not None}
    golden = ("usr/local/bin/claude", "usr/local/bin/pi", "etc/passwd", "etc/group", "opt/builder/relay")
    for path in golden:
        assert found[path] == (GOLDEN / path.replace("/", "-")).read_text()
    assert json.loads(found["etc/agent-image.json"]) == {
        "schema": 1,
        "key": str(context.key),
        "platform": "linux/amd64",
        "base": str(context.base),
        "node": "22.23.5",
        "agents": {"claude-code": "2.1.328", "pi": "0.73.1"},
        "mcp": {},
        "skills": {},
    }


def test_every_image_has_the_relay_and_a_place_for_the_network() -> None:
    found = {entry.path: entry for entry in rendered().root}
    for path in ("opt/builder", "opt/builder/network", "opt/builder/relay"):
        assert (found[path].mode, found[path].uid, found[path].gid, found[path].link) == (0o755, 0, 0, "")
    assert found["opt/builder/network"].content is None
    assert RENDERER_VERSION >= RELAY_SINCE


def test_the_generated_tar_is_deterministic_and_has_numeric_owners() -> None:
    first, second = rendered(), rendered()
    assert first == second
    raw = next(file.content for file in first.files if file.path == "root.tar")
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == sorted(entry.path for entry in first.root)
    assert {(member.uname, member.gname) for member in members} == {("", "")}
    assert {member.mtime for member in members} == {first.epoch}
    owned = {member.name for member in members if member.uid == 1000 and member.gid == 1000}
    assert owned == {"home/agent"}


def test_agents_own_nothing_that_runs() -> None:
    for entry in rendered().root:
        if not entry.is_directory:
            assert (entry.uid, entry.gid) == (0, 0)
            assert entry.link or not entry.mode & 0o022


def test_nothing_unpinned_and_no_network() -> None:
    text = texts(rendered())["Containerfile"]
    froms = [line.split()[1] for line in text.splitlines() if line.startswith("FROM ")]
    assert set(froms) == {"scratch", "base"}
    runs = [line for line in text.splitlines() if line.startswith("RUN ")]
    assert runs
    assert all(line.startswith("RUN --network=none ") for line in runs)
    assert not re.search(r"https?://|npm (install|ci)|--mount=type=(cache|secret|ssh)|# *syntax", text)
    assert "@" not in re.sub(r"@\$epoch|\$name@\$version|\"\$@\"|%%@", "", text)


@given(
    name=st.from_regex(r"(@[a-z][a-z0-9]{0,5}/)?[a-z][a-z0-9.-]{0,12}", fullmatch=True),
    version=st.from_regex(r"[1-9]\.[0-9]\.[0-9]", fullmatch=True),
    command=st.text(max_size=30),
)
def test_each_locked_thing_is_checked_by_its_hash_at_its_place(name: str, version: str, command: str) -> None:
    script = InstallScript(ScriptEvent.INSTALL, command)
    lock = with_package(lock_of_template(), name, version, scripts=(script,), scripts_run=True)
    if not command.isprintable():
        with pytest.raises(UsageError, match="not one line"):
            rendered(lock)
        return
    context = rendered(lock)
    files = texts(context)
    for plan in context.plans:
        sums = dict(line.split("  ")[::-1] for line in files[f"{plan.folder}/sha512sums"].splitlines())
        trees = [line.split("\t") for line in files[f"{plan.folder}/tree"].splitlines()]
        assert {tarball for tarball, _, _, _ in trees} == set(sums)
        for tarball, _, label, how in trees:
            assert how == "1"
            artifact = next(a for a in lock.artifacts if f"{a.name}@{a.version}" == label)
            assert sums[tarball] == artifact.integrity.hex
    sent = {(item.folder, item.name) for item in context.artifacts}
    assert sent == {(plan.folder, item.tarball) for plan in context.plans for item in plan.placed}
    run = [line.split("\t", 4) for line in files["pi/scripts"].splitlines()]
    assert [f"node_modules/{name}", name, version, "install", command] in run


@attack(by=Position.NPM_PACKAGE)
def test_scripts_that_may_not_run_are_not_rendered() -> None:
    assert texts(rendered())["pi/scripts"] == ""


def test_the_binary_of_the_declared_processor_level_is_chosen_here() -> None:
    lock = with_package(lock_of_template(), "tool-linux-x64", "1.0.0")
    lock = with_package(lock, "tool-linux-x64-baseline", "1.0.0")
    plan = npm_plan(lock, lock.agents[1], AMD64)
    assert [item.place for item in plan.omitted] == ["node_modules/tool-linux-x64"]
    assert "node_modules/tool-linux-x64-baseline" in {item.place for item in plan.placed}
    assert "newer processor" in plan.omitted[0].reason


def test_another_template_is_refused() -> None:
    with pytest.raises(UsageError, match="another Containerfile"):
        render(make_lock(), AMD64, TEMPLATE, base_facts())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("@EPOCH@", "@EPOK@", "unknown placeholder @EPOK@"), ("#% tail", "#% tale", "expected")],
)
def test_a_broken_template_is_refused(old: str, new: str, message: str) -> None:
    template = TEMPLATE.replace(old, new)
    with pytest.raises(UsageError, match=message):
        render(lock_of_template(template), AMD64, template, base_facts())


def test_a_package_without_the_command_is_refused() -> None:
    lock = lock_of_template()
    artifacts = tuple(
        dataclasses.replace(item, bins=(("other", "x.js"),)) if item.bins else item for item in lock.artifacts
    )
    with pytest.raises(UsageError, match="no command 'claude'"):
        rendered(dataclasses.replace(lock, artifacts=artifacts))


@pytest.mark.parametrize("file", ["../../../etc/x", "/etc/x", "a\tb", "a\nb"])
def test_a_command_outside_of_its_package_is_refused(file: str) -> None:
    lock = with_package(lock_of_template(), "evil", "1.0.0", bins=(("x", file),))
    with pytest.raises(UsageError, match="has a command"):
        rendered(lock)


def test_the_plan_names_every_setting() -> None:
    lock = lock_of_template()
    image = rendered(lock).image
    assert image.platform == Platform("linux", "amd64")
    assert image.user == "1000:1000"
    assert dict(image.environment) == {
        "HOME": "/home/agent",
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    assert image.labels == (("example.agent-image-builder.key", str(content_key(lock, AMD64))),)
    assert image.entrypoint == ("/usr/bin/catatonit", "--")
    assert image.command == ("/bin/bash",)
    assert image.new_layers == 5
