"""Whatever an agent or an operator's configuration says git should run, the host's git does not run it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.workspace.git import Git
from backend.workspace.importing import ImportedCommit
from backend.workspace.materialise import materialise
from backend.workspace.origin import find_origin
from backend.workspace.reading import fetch_commit, not_in_commit, read_head
from tests.attacks import Position, attack
from tests.fakes.exports import desk
from tests.fakes.repositories import Repo

HOOKS = (
    *("applypatch-msg", "pre-commit", "post-commit", "post-checkout", "post-merge", "pre-receive", "update"),
    *("post-receive", "post-update", "reference-transaction", "pre-auto-gc", "post-index-change"),
    *("fsmonitor-watchman", "proc-receive", "push-to-checkout", "sendemail-validate"),
)
SETTINGS = """\
[core]
\tfsmonitor = {canary}
\thooksPath = {hooks}
\tsshCommand = {canary}
\tgitProxy = {canary}
\taskPass = {canary}
\teditor = {canary}
\tpager = {canary}
\talternateRefsCommand = {canary}
\tattributesFile = {attributes}
[uploadpack]
\tpackObjectsHook = {canary}
[filter "canary"]
\tclean = {canary}
\tsmudge = {canary}
\tprocess = {canary}
\trequired = true
[diff]
\texternal = {canary}
[diff "canary"]
\tcommand = {canary}
\ttextconv = {canary}
[merge "canary"]
\tdriver = {canary}
[gpg]
\tprogram = {canary}
[credential]
\thelper = !{canary}
[alias]
\tfetch = !{canary}
\tstatus = !{canary}
\tcat-file = !{canary}
[protocol]
\tallow = always
[url "ext::{canary} "]
\tinsteadOf = file://
[submodule]
\trecurse = true
[status]
\tsubmoduleSummary = true
[trace2]
\teventTarget = {trace}
[extensions]
\tworktreeConfig = false
"""


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A program that leaves a mark wherever it is named; the mark must not be there at the end."""
    place = tmp_path / "canary"
    mark = tmp_path / "it-ran"
    place.write_text(f'#!/bin/sh\necho "$0 $*" >>{mark}\ncat\n')
    place.chmod(0o755)
    yield place
    assert not mark.exists(), mark.read_text()
    assert not (tmp_path / "trace").exists()


def set_traps(canary: Path, git_dir: Path) -> None:
    """Every setting and hook that names a program, in the git directory of somebody."""
    folder = canary.parent
    hooks = folder / f"hooks-{git_dir.parent.name}"
    for place in (hooks, git_dir / "hooks"):
        place.mkdir(exist_ok=True)
        for name in HOOKS:
            (place / name).unlink(missing_ok=True)
            (place / name).symlink_to(canary)
    attributes = folder / "attributes"
    attributes.write_text("* filter=canary diff=canary merge=canary\n")
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info/attributes").write_text(attributes.read_text())
    names = {"canary": canary, "hooks": hooks, "attributes": attributes, "trace": folder / "trace"}
    with (git_dir / "config").open("a") as file:
        file.write(SETTINGS.format(**names))


def test_the_traps_work_on_a_git_that_obeys(tmp_path: Path, operator: Repo) -> None:
    """Else the tests below would prove nothing."""
    place = tmp_path / "canary"
    place.write_text(f"#!/bin/sh\ntouch {tmp_path}/it-ran\ncat\n")
    place.chmod(0o755)
    set_traps(place, operator.path / ".git")
    operator.write({"readme": "changed\n"})
    with contextlib.suppress(AssertionError):  # it fails as well: the traps are no good filters
        operator.git("status")
    assert (tmp_path / "it-ran").exists()


@attack(by=Position.CONFIG_AUTHOR)
def test_nothing_of_the_operators_repository_runs(
    git: Git, operator: Repo, tmp_path: Path, canary: Path
) -> None:
    inner = Repo.new(tmp_path / "inner")
    inner.commit({"x": "1"})
    operator.git("submodule", "--quiet", "add", str(inner.path), "sub")
    head = operator.commit({".gitattributes": "* filter=canary diff=canary ident eol=crlf\n"})
    nested = Repo.new(operator.path / "nested")
    nested.commit({"n": "1"})
    operator.write({"readme": "changed\n", "untracked": "x", "sub/x": "changed"})
    set_traps(canary, operator.path / ".git")
    set_traps(canary, operator.path / ".git/modules/sub")
    set_traps(canary, nested.path / ".git")
    origin = find_origin(git, operator.path)
    assert read_head(git, origin, tmp_path / "asked.git").commit == head
    fetched = fetch_commit(git, origin, head, tmp_path / "ours.git")
    assert not_in_commit(git, origin, fetched).total >= 3
    assert materialise(git, fetched.repository, head, tmp_path / "source").files > 3


def test_nothing_of_the_users_own_settings_runs(
    git: Git, operator: Repo, tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Repo.new(tmp_path / "home")
    set_traps(canary, home.path / ".git")
    settings = (home.path / ".git/config").read_text().replace("[extensions]\n\tworktreeConfig = false\n", "")
    (home.path / ".gitconfig").write_text(settings)
    (home.path / ".config/git").mkdir(parents=True)
    (home.path / ".config/git/config").write_text(settings)
    for name, value in {
        "HOME": str(home.path),
        "XDG_CONFIG_HOME": str(home.path / ".config"),
        "GIT_CONFIG_GLOBAL": str(home.path / ".gitconfig"),
        "GIT_CONFIG_SYSTEM": str(home.path / ".gitconfig"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(canary),
        "GIT_SSH_COMMAND": str(canary),
        "GIT_EXTERNAL_DIFF": str(canary),
        "GIT_DIR": str(home.path / ".git"),
        "GIT_TEMPLATE_DIR": str(home.path / ".git"),
        "GIT_TRACE2_EVENT": str(tmp_path / "trace"),
        "GIT_EXEC_PATH": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    head = _head(operator)
    origin = find_origin(git, operator.path)
    fetched = fetch_commit(git, origin, head, tmp_path / "ours.git")
    assert not_in_commit(git, origin, fetched).nothing
    assert not (fetched.repository.path / "hooks").exists()


def _head(operator: Repo) -> str:
    """Read as a file: the test's own git would obey the environment that was just spoilt."""
    return (operator.path / ".git/refs/heads/main").read_text().strip()


@attack(by=Position.AGENT)
def test_nothing_of_an_agents_workspace_runs(git: Git, operator: Repo, tmp_path: Path, canary: Path) -> None:
    at = desk(git, operator, tmp_path)
    inner = Repo.new(tmp_path / "inner")
    inner.commit({"x": "1"})
    at.workspace.git("submodule", "--quiet", "add", str(inner.path), "sub")
    at.workspace.git("config", "-f", ".gitmodules", "submodule.sub.url", f"ext::{canary}")
    tip = at.workspace.commit(
        {
            ".gitattributes": "* filter=canary diff=canary merge=canary export-subst\n",
            ".gitconfig": SETTINGS.format(
                canary=canary, hooks=tmp_path, attributes="x", trace=tmp_path / "trace"
            ),
            "hooks/pre-receive": f"#!/bin/sh\n{canary}\n",
            "HEAD": "ref: refs/heads/main\n",
            "config": f"[core]\n\tfsmonitor = {canary}\n\tbare = true\n",
            "objects/x": "",
            "refs/x": "",
        }
    )
    assert at.produce().ok  # before the traps: inside they may do what they like
    set_traps(canary, at.workspace.path / ".git")
    set_traps(canary, at.workspace.path / ".git/modules/sub")
    (at.workspace.path / ".git/objects/info").mkdir(exist_ok=True)
    (at.workspace.path / ".git/objects/info/alternates").write_text(f"{tmp_path}/elsewhere\n")
    found = at.bring()
    assert isinstance(found, ImportedCommit)
    # The tree looks like a bare repository with a monitor; materialised it is still only files.
    done = materialise(git, at.source.repository, tip, tmp_path / "candidate")
    assert done.submodules == ((b"sub", inner.head),)
    assert (done.folder / "config").read_text().startswith("[core]")
    again = fetch_commit(git, find_origin(git, operator.path), operator.head, tmp_path / "again.git")
    assert again.commit.name == at.base


def test_an_export_made_among_traps_is_still_the_same_commit(
    git: Git, operator: Repo, tmp_path: Path
) -> None:
    """Inside, the agent's own settings may run; what arrives is checked, so they change nothing here."""
    at = desk(git, operator, tmp_path)
    tip = at.workspace.commit({"a": "1"})
    mark, program = tmp_path / "inside", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    set_traps(program, at.workspace.path / ".git")
    at.produce()
    mark.unlink(missing_ok=True)
    found = at.bring()
    assert isinstance(found, ImportedCommit)
    assert found.commit.name == tip
    assert not mark.exists()
