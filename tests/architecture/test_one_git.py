"""Git is spawned, and its argv written, in one module; a tree is exported in one way and imported in one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from .test_imports import called, imported, modules

HOST = "backend/workspace/git.py"  # the host's git, all of its argv
INSIDE = "backend/workspace/producer.py"  # the script that an agent's container runs
# Where the name of the program is only a name: a file that the base image has, and what a person may type.
NAMES_ONLY = {
    "builder/bootstrap/contents.py": {"/usr/bin/git"},
    "builder/bootstrap/refresh.py": {"git diff"},
}

_VERBS = (
    *("am", "apply", "archive", "bundle", "cat-file", "checkout", "cherry-pick", "clone", "commit", "config"),
    *("daemon", "diff", "fast-export", "fast-import", "fetch", "format-patch", "fsck", "hash-object", "http"),
    *("index-pack", "init", "log", "ls-remote", "ls-tree", "merge", "merge-base", "mktree", "pack-objects"),
    *("pull", "push", "read-tree", "rebase", "receive-pack", "reset", "restore", "rev-list", "rev-parse"),
    *("show", "show-ref", "stash", "status", "submodule", "switch", "symbolic-ref", "unpack-objects"),
    *("update-index", "update-ref", "upload-pack", "version", "worktree"),
)
_PROGRAM = re.compile(rf"(.*/)?git(-({'|'.join(_VERBS)}))?")
_SHELL = re.compile(rf"(^|[;&|(`\s])(\S*/)?git\s+(--?[A-Za-z]|({'|'.join(_VERBS)})\b)")
# What would bring a tree or a patch to the host, or take one, in a second way.
_OTHER_WAYS = {
    *(
        "am",
        "apply",
        "archive",
        "bundle",
        "checkout",
        "checkout-index",
        "cherry-pick",
        "clone",
        "fast-export",
    ),
    *(
        "fast-import",
        "format-patch",
        "http-fetch",
        "merge",
        "pull",
        "push",
        "rebase",
        "receive-pack",
        "reset",
    ),
    *("restore", "send-pack", "stash", "switch", "unpack-objects", "worktree"),
}


def constants(tree: ast.Module) -> Iterator[str]:
    """Every text of a module but docstrings and hints, which are for people."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        first = (
            node.body[0]
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and node.body
            else None
        )
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            skipped.add(id(first.value))
        if isinstance(node, ast.keyword) and node.arg == "hint":
            skipped.update(id(part) for part in ast.walk(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def spells_git(tree: ast.Module) -> set[str]:
    """The texts of a module that name the program git, alone or in the text of a shell."""
    return {text for text in constants(tree) if _PROGRAM.fullmatch(text) or _SHELL.search(text)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('run(("git", "status"))', True),
        ('run(("/usr/bin/git", verb))', True),
        ('run(("git-upload-pack", place))', True),
        ('run(("sh", "-c", "cd x && git -C y fetch"))', True),
        ('x = f"git --git-dir={place} index-pack"', True),
        ('raise E(f"git cannot do it", hint="git fetch --refetch")', False),
        ('"""Docs say git fetch."""', False),
        ('x = ".git"', False),
        ('x = "legit status"', False),
    ],
)
def test_a_second_module_that_spawns_git_would_be_found(source: str, expected: bool) -> None:
    assert bool(spells_git(ast.parse(source))) is expected


def test_one_module_writes_the_argv_of_git_and_one_script_runs_inside() -> None:
    """images/ is left out: it is pure, so it can start nothing."""
    found = {name: spells_git(tree) for name, tree, _ in modules() if not name.startswith("images/")}
    spelled = {name for name, texts in found.items() if texts - NAMES_ONLY.get(name, set())}
    assert spelled == {HOST, INSIDE}


def test_the_script_that_runs_inside_is_started_nowhere_on_the_host() -> None:
    tree = next(tree for name, tree, _ in modules() if name == INSIDE)
    assert not {"run", "spawn", "Command"} & {name for name, _ in called(tree)}


def users(method: str) -> list[str]:
    """Where a name is called, among the modules that know of the workspace at all."""
    return [
        name
        for name, tree, _ in modules()
        if name.startswith("backend/workspace/") or any("backend.workspace" in i for i in imported(tree))
        for call, _ in called(tree)
        if call == method
    ]


@pytest.mark.parametrize(
    ("method", "only"),
    [
        ("Git", HOST),
        ("Repository", HOST),
        ("index_pack", "backend/workspace/importing.py"),
        ("point", "backend/workspace/importing.py"),
        ("Incoming", "backend/workspace/importing.py"),
        ("compare", "backend/workspace/reading.py"),
        ("references_of", "backend/workspace/reading.py"),
        ("settings_in", "backend/workspace/origin.py"),
    ],
)
def test_each_act_of_git_has_one_caller(method: str, only: str) -> None:
    assert set(users(method)) == {only}
    assert len(users(method)) == 1


@pytest.mark.parametrize(
    ("step", "only"),
    [
        ("export_command", "backend/room.py"),
        ("check_producer", "backend/room.py"),
        ("import_export", "backend/room.py"),
        ("export_workspace", "backend/launch.py"),
        ("import_workspace", "backend/launch.py"),
        ("publish_candidate", "backend/room.py"),
    ],
)
def test_each_step_of_the_one_way_home_has_one_caller(step: str, only: str) -> None:
    """From the container to a place that stays: a second export, import or publication fails here."""
    assert [name for name, tree, _ in modules() for call, _ in called(tree) if call == step] == [only]


def test_the_facade_offers_no_way_around_the_launch() -> None:
    tree = next(tree for name, tree, _ in modules() if name == "backend/__init__.py")
    assert not {"export_command", "import_export", "publish_candidate"} & set(constants(tree))


def test_one_export_and_one_import() -> None:
    """A pack is made in one place, taken apart in one place, and pointed at in one place."""
    places = {"pack-objects": INSIDE, "index-pack": HOST, "update-ref": HOST}
    for word, only in places.items():
        found = [
            name
            for name, tree, _ in modules()
            for text in constants(tree)
            if text == word or (name == INSIDE and word in text)
        ]
        assert found == [only], word


def test_no_second_way_out_or_in() -> None:
    wrong = [
        (name, text)
        for name, tree, _ in modules()
        if name.startswith("backend/workspace/")
        for text in constants(tree)
        if text in _OTHER_WAYS or any(f"run {verb} " in text for verb in _OTHER_WAYS)
    ]
    assert not wrong
    # An engine's own ways: the root file system as a tar, or as an image.
    engine = [
        (name, text)
        for name, tree, _ in modules()
        if name.startswith("backend/engines/")
        for text in constants(tree)
        if text in {"export", "commit", "import", "diff"}
    ]
    # Of a container that never ran, to compare it with its image; nothing of it is kept.
    assert engine == [("backend/engines/calls.py", "export")]
    assert [name for name, _, text in modules() if "engine.pack(" in text] == ["backend/engine_store.py"]
