"""A workspace that was copied in is the commit, clean, and has nothing of the host in it."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from backend.commands import Command
from backend.runner import run
from backend.workspace.archive import Seed, write_archive
from backend.workspace.git import Git
from backend.workspace.importing import ImportedCommit
from backend.workspace.materialise import materialise
from backend.workspace.origin import find_origin
from backend.workspace.producer import prepare_command
from backend.workspace.reading import FetchedCommit, fetch_commit
from images.errors import StateError, UsageError
from tests.fakes.exports import Desk
from tests.fakes.repositories import ENVIRONMENT, Repo

NOBODY = (65534, 65534)


def rich(operator: Repo) -> str:
    """A commit with every kind of entry that can be copied in."""
    (operator.path / "inside").symlink_to("src/a.txt")
    (operator.path / "outside").symlink_to("/etc/hostname")
    (operator.path / "up").symlink_to("../../x")
    (operator.path / "run").write_text("#!/bin/sh\n")
    (operator.path / "run").chmod(0o755)
    return operator.commit({'odd "\n\\ name': "x", "d" * 120 + "/" + "e" * 120: "long", "crlf.txt": "a\r\n"})


def seeded(git: Git, fetched: FetchedCommit, place: Path) -> Repo:
    """What copying in and the one command inside make of a fetched commit."""
    commit = fetched.commit.name
    place.mkdir()
    tree = materialise(git, fetched.repository, commit, place / "tree")
    write_archive(
        place / "tar", tree, (os.getuid(), os.getgid()), Seed(repository=fetched.repository, commit=commit)
    )
    workspace = place / "workspace"
    workspace.mkdir()
    subprocess.run(["tar", "-x", "-f", str(place / "tar"), "-C", str(workspace)], check=True)
    done = run(
        Command(
            argv=prepare_command(),
            environment={"PATH": ENVIRONMENT["PATH"], "HOME": str(place)},
            deadline=30,
            working_dir=workspace,
        )
    )
    assert done.ok, done.stderr
    return Repo(workspace)


def shallow(operator: Repo, place: Path) -> Repo:
    operator.git("clone", "--quiet", "--depth=1", f"file://{operator.path}", str(place))
    return Repo(place)


@pytest.mark.parametrize("kind", ["whole", "shallow", "sha256"])
def test_a_workspace_starts_clean_and_its_commit_comes_back(git: Git, tmp_path: Path, kind: str) -> None:
    options = ("--object-format=sha256",) if kind == "sha256" else ()
    operator = Repo.new(tmp_path / "operator", *options)
    operator.commit({"readme": "one\n", "src/a.txt": "a\n"})
    rich(operator)
    origin = shallow(operator, tmp_path / "shallow") if kind == "shallow" else operator
    fetched = fetch_commit(git, find_origin(git, origin.path), origin.head, tmp_path / "ours.git")
    workspace = seeded(git, fetched, tmp_path / "seeded")
    assert workspace.git("status", "--porcelain") == ""
    assert workspace.git("symbolic-ref", "HEAD") == "refs/heads/work"
    assert (workspace.path / "outside").is_symlink()
    assert workspace.git("rev-parse", "HEAD^{tree}") == fetched.commit.tree
    workspace.git("fsck", "--strict")
    at = Desk(git, fetched, workspace, tmp_path)
    tip = workspace.commit({"readme": "two\n"})
    assert at.produce().ok
    found = at.bring()
    assert isinstance(found, ImportedCommit)
    assert found.commit.name == tip
    # The next step starts from the candidate.
    again = continued(git, fetched, found, tmp_path / "second")
    assert again.git("status", "--porcelain") == ""
    assert (again.head, (again.path / "readme").read_text()) == (tip, "two\n")


def continued(git: Git, fetched: FetchedCommit, found: ImportedCommit, place: Path) -> Repo:
    start = FetchedCommit(repository=fetched.repository, commit=found.commit, shallow=fetched.shallow)
    return seeded(git, start, place)


def test_members_have_numeric_owners_and_nothing_of_the_host(
    git: Git, operator: Repo, tmp_path: Path
) -> None:
    rich(operator)
    fetched = fetch_commit(git, find_origin(git, operator.path), operator.head, tmp_path / "ours.git")
    tree = materialise(git, fetched.repository, operator.head, tmp_path / "source")
    write_archive(tmp_path / "tar", tree, NOBODY, Seed(repository=fetched.repository, commit=operator.head))
    data = (tmp_path / "tar").read_bytes()
    assert str(tmp_path).encode() not in data
    with tarfile.open(tmp_path / "tar") as archive:
        members = archive.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(*NOBODY, "", "", 0)}
    assert {m.type for m in members} <= {tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE}
    links = {m.name: m.linkname for m in members if m.issym()}
    assert links == {"inside": "src/a.txt"}
    assert {m.mode for m in members if m.isreg()} == {0o644, 0o755}
    assert (tmp_path / "tar").stat().st_mode & 0o777 == 0o600


def test_without_a_seed_there_is_no_repository(git: Git, operator: Repo, tmp_path: Path) -> None:
    fetched = fetch_commit(git, find_origin(git, operator.path), operator.head, tmp_path / "ours.git")
    tree = materialise(git, fetched.repository, operator.head, tmp_path / "source")
    write_archive(tmp_path / "one", tree, NOBODY)
    write_archive(tmp_path / "two", tree, NOBODY)
    with tarfile.open(tmp_path / "one") as archive:
        assert archive.getnames() == ["readme", "src", "src/a.txt", "src/b.txt"]
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with pytest.raises(StateError):
        write_archive(tmp_path / "one", tree, NOBODY)


@pytest.mark.parametrize("branch", ["", "../x", "a/b", "a.lock", "A", "-a", "a\n"])
def test_the_branch_is_one_plain_word(git: Git, operator: Repo, tmp_path: Path, branch: str) -> None:
    fetched = fetch_commit(git, find_origin(git, operator.path), operator.head, tmp_path / "ours.git")
    tree = materialise(git, fetched.repository, operator.head, tmp_path / "source")
    with pytest.raises(UsageError, match="not a branch"):
        write_archive(
            tmp_path / "tar", tree, NOBODY, Seed(repository=fetched.repository, commit="x", branch=branch)
        )
    assert not (tmp_path / "tar").exists()
