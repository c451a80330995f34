"""The one reader of the operator's repository: every shape of repository, nothing in it changed."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backend.workspace import origin as module
from backend.workspace.git import Git, open_git
from backend.workspace.materialise import materialise
from backend.workspace.origin import find_origin
from backend.workspace.reading import fetch_commit, not_in_commit, read_head
from backend.workspace.refusals import SourceReason, SourceRefused
from images.errors import ExitCode, HostError, StateError
from tests.fakes.repositories import ENVIRONMENT, Repo


def snapshot(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every entry below a folder: mode, time of change, content."""
    found = {}
    for place in sorted(folder.rglob("*")):
        status = place.lstat()
        content = str(place.readlink()) if place.is_symlink() else ""
        if place.is_file() and not place.is_symlink():
            content = hashlib.sha256(place.read_bytes()).hexdigest()
        found[str(place.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def normal(operator: Repo, _: Path) -> Repo:
    return operator


def odd_path(operator: Repo, tmp: Path) -> Repo:
    place = tmp / "o p%20\"e\n\\r'at;or?#é"
    shutil.copytree(operator.path, place)
    return Repo(place)


def bare(operator: Repo, tmp: Path) -> Repo:
    operator.git("clone", "--quiet", "--bare", str(operator.path), str(tmp / "bare.git"))
    return Repo(tmp / "bare.git")


def linked_worktree(operator: Repo, tmp: Path) -> Repo:
    operator.git("worktree", "add", "--quiet", "-b", "side", str(tmp / "linked"))
    linked = Repo(tmp / "linked")
    linked.commit({"only-here": "x"})
    return linked


def shallow(operator: Repo, tmp: Path) -> Repo:
    operator.git("clone", "--quiet", "--depth=1", f"file://{operator.path}", str(tmp / "shallow"))
    return Repo(tmp / "shallow")


def submodule_checkout(operator: Repo, tmp: Path) -> Repo:
    outer = Repo.new(tmp / "outer")
    outer.git("submodule", "--quiet", "add", str(operator.path), "inner")
    outer.commit({})
    assert (outer.path / "inner/.git").is_file()
    return Repo(outer.path / "inner")


def borrowing(operator: Repo, tmp: Path) -> Repo:
    operator.git("clone", "--quiet", "--shared", str(operator.path), str(tmp / "borrower"))
    return Repo(tmp / "borrower")


def loose_and_detached(operator: Repo, _: Path) -> Repo:
    operator.git("checkout", "--quiet", "--detach", "HEAD~1")
    return operator


def locked(operator: Repo, _: Path) -> Repo:
    (operator.path / ".git/index.lock").write_bytes(b"left by a killed git")
    return operator


def linked_git_dir(operator: Repo, tmp: Path) -> Repo:
    (operator.path / ".git").rename(tmp / "elsewhere.git")
    (operator.path / ".git").symlink_to(tmp / "elsewhere.git")
    return operator


SHAPES = (
    normal,
    odd_path,
    bare,
    linked_worktree,
    shallow,
    submodule_checkout,
    borrowing,
    loose_and_detached,
    locked,
    linked_git_dir,
)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_repository_is_read_and_left_as_it_was(
    git: Git, operator: Repo, tmp_path: Path, shape: Callable[[Repo, Path], Repo]
) -> None:
    place = tmp_path / "shapes"
    place.mkdir()
    repo = shape(operator, place)
    head, tree = repo.head, repo.git("rev-parse", "HEAD^{tree}")
    before = snapshot(operator.path), snapshot(place)
    origin = find_origin(git, repo.path)
    assert read_head(git, origin, tmp_path / "asked.git").commit == head
    fetched = fetch_commit(git, origin, head, tmp_path / "ours.git")
    assert fetched.commit.name == head
    assert not_in_commit(git, origin, fetched).nothing
    assert materialise(git, fetched.repository, head, tmp_path / "source").tree == tree
    assert (snapshot(operator.path), snapshot(place)) == before
    # Nothing of ours needs the origin afterwards: no borrowed object, no path of the host.
    assert not (fetched.repository.path / "objects/info/alternates").exists()
    assert str(repo.path) not in (fetched.repository.path / "config").read_text()


def test_a_shallow_history_is_said_to_be_one(git: Git, operator: Repo, tmp_path: Path) -> None:
    repo = shallow(operator, tmp_path)
    origin = find_origin(git, repo.path)
    assert origin.shallow
    assert fetch_commit(git, origin, repo.head, tmp_path / "ours.git").shallow
    whole = find_origin(git, operator.path)
    assert not fetch_commit(git, whole, operator.head, tmp_path / "whole.git").shallow


def test_borrowed_objects_are_noticed(git: Git, operator: Repo, tmp_path: Path) -> None:
    assert find_origin(git, borrowing(operator, tmp_path).path).borrows
    assert not find_origin(git, operator.path).borrows


def test_a_commit_that_no_branch_reaches_is_read_by_its_exact_name(
    git: Git, operator: Repo, tmp_path: Path
) -> None:
    lost = operator.commit({"lost": "x"})
    operator.git("reset", "--quiet", "--hard", "HEAD~1")
    fetched = fetch_commit(git, find_origin(git, operator.path), lost, tmp_path / "ours.git")
    assert fetched.commit.name == lost


def test_sha256_repositories_are_read_too(git: Git, tmp_path: Path) -> None:
    repo = Repo.new(tmp_path / "operator", "--object-format=sha256")
    head = repo.commit({"a": "1"})
    origin = find_origin(git, repo.path)
    fetched = fetch_commit(git, origin, head, tmp_path / "ours.git")
    assert (len(head), fetched.commit.name) == (64, head)
    assert materialise(git, fetched.repository, head, tmp_path / "s").tree == fetched.commit.tree
    with pytest.raises(SourceRefused, match="not a full commit id"):
        fetch_commit(git, origin, head[:40], tmp_path / "other.git")


def test_somebody_elses_repository_is_trusted_by_its_exact_path_only(
    git: Git, operator: Repo, tmp_path: Path
) -> None:
    foreign = replace(git, environment={**git.environment, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"})
    origin = find_origin(foreign, operator.path)
    fetched = fetch_commit(foreign, origin, operator.head, tmp_path / "ours.git")
    assert fetched.commit.name == operator.head
    trusting = [file for file in git.folder.iterdir() if "[safe]" in file.read_text()]
    assert [file.read_text().count("directory = ") for file in trusting] == [1]
    assert f'directory = "{operator.path}/.git"\n' in trusting[0].read_text()
    assert "[safe]" not in (git.folder / "config").read_text()
    # Without it, or with the trust of another path, git refuses: so it is this line that is needed.
    for number, settings in enumerate((git.folder / "config", trusting[0])):
        other = Repo.new(tmp_path / "other")
        place = operator if number == 0 else other
        other.commit({"a": "1"})
        deaf = _Deaf(
            program=git.program,
            folder=git.folder,
            search_path=git.search_path,
            environment={**foreign.environment, "GIT_CONFIG_GLOBAL": str(settings)},
        )
        with pytest.raises(SourceRefused, match="dubious ownership"):
            fetch_commit(deaf, find_origin(git, place.path), place.head, tmp_path / f"{number}.git")


class _Deaf(Git):
    """A git that trusts what its environment says already, and nothing more."""

    def _trusting(self, _git_dir: Path) -> Git:
        return self


def promised_by_settings(repo: Repo) -> None:
    repo.git("config", "remote.origin.promisor", "true")


def promised_without_a_value(repo: Repo) -> None:
    with (repo.path / ".git/config").open("a") as file:
        file.write('[remote "origin"]\n\tpromisor\n')


def promised_by_a_filter(repo: Repo) -> None:
    repo.git("config", "remote.x.partialclonefilter", "blob:none")


def promised_by_extension(repo: Repo) -> None:
    repo.git("config", "extensions.partialClone", "origin")


def promised_by_a_pack(repo: Repo) -> None:
    (repo.path / ".git/objects/pack/pack-1.promisor").write_bytes(b"")


@pytest.mark.parametrize(
    "promise",
    [
        promised_by_settings,
        promised_without_a_value,
        promised_by_a_filter,
        promised_by_extension,
        promised_by_a_pack,
    ],
)
def test_a_partial_clone_is_refused_by_name(
    git: Git, operator: Repo, promise: Callable[[Repo], None]
) -> None:
    promise(operator)
    with pytest.raises(SourceRefused, match="a partial clone") as refused:
        find_origin(git, operator.path)
    assert (refused.value.reason, refused.value.code) == (SourceReason.PARTIAL_CLONE, ExitCode.USAGE)
    assert "--refetch" in refused.value.hint


def test_a_real_partial_clone_is_refused(git: Git, operator: Repo, tmp_path: Path) -> None:
    operator.git("config", "uploadpack.allowFilter", "true")
    operator.git(
        "clone",
        "--quiet",
        "--no-checkout",
        "--filter=blob:none",
        f"file://{operator.path}",
        str(tmp_path / "p"),
    )
    with pytest.raises(SourceRefused, match="a partial clone"):
        find_origin(git, tmp_path / "p")


def empty_directory(place: Path, _: Repo) -> Path:
    return place


def below_the_top(_: Path, operator: Repo) -> Path:
    return operator.path / "src"


def pointer_to_nothing(place: Path, _: Repo) -> Path:
    (place / ".git").write_text("gitdir: /nowhere/at/all\n")
    return place


def pointer_that_is_none(place: Path, _: Repo) -> Path:
    (place / ".git").write_text("something else\n")
    return place


def pointer_without_end(place: Path, _: Repo) -> Path:
    (place / ".git").write_text("gitdir: " + "x" * 100_000)
    return place


def missing(place: Path, _: Repo) -> Path:
    return place / "missing"


def circle(place: Path, _: Repo) -> Path:
    (place / "a").symlink_to("a")
    return place / "a"


def broken_settings(_: Path, operator: Repo) -> Path:
    (operator.path / ".git/config").write_text("[core\n")
    return operator.path


def unknown_format(_: Path, operator: Repo) -> Path:
    operator.git("config", "extensions.objectFormat", "md5")
    return operator.path


def other_storage(_: Path, operator: Repo) -> Path:
    with (operator.path / ".git/config").open("a") as file:
        file.write("[extensions]\n\trefStorage = reftable\n")
    return operator.path


NO, UNREADABLE = SourceReason.NOT_A_REPOSITORY, SourceReason.UNREADABLE
FORMAT = SourceReason.UNSUPPORTED_FORMAT


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (empty_directory, NO),
        (below_the_top, NO),
        (pointer_that_is_none, NO),
        (pointer_to_nothing, UNREADABLE),
        (pointer_without_end, UNREADABLE),
        (missing, UNREADABLE),
        (circle, UNREADABLE),
        (broken_settings, UNREADABLE),
        (unknown_format, FORMAT),
        (other_storage, FORMAT),
    ],
)
def test_what_is_no_repository_is_refused(
    git: Git,
    operator: Repo,
    tmp_path: Path,
    make: Callable[[Path, Repo], Path],
    reason: SourceReason,
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(SourceRefused) as refused:
        find_origin(git, make(place, operator))
    assert refused.value.reason == reason


@pytest.mark.parametrize("name", ["HEAD", "main", "", "0" * 40, "A" * 40, "--upload-pack=x", "a" * 39])
def test_only_a_full_commit_id_is_fetched(git: Git, operator: Repo, tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceRefused) as refused:
        fetch_commit(git, find_origin(git, operator.path), name, tmp_path / "ours.git")
    assert refused.value.reason == SourceReason.NOT_A_COMMIT_ID
    assert not (tmp_path / "ours.git").exists()


def test_another_object_than_a_commit_is_refused(git: Git, operator: Repo, tmp_path: Path) -> None:
    operator.git("tag", "-a", "-m", "x", "annotated")
    origin = find_origin(git, operator.path)
    for number, name in enumerate(("HEAD^{tree}", "HEAD:readme", "annotated")):
        with pytest.raises(SourceRefused) as refused:
            fetch_commit(git, origin, operator.git("rev-parse", name), tmp_path / f"{number}.git")
        assert refused.value.reason in {SourceReason.NOT_A_COMMIT_ID, SourceReason.FETCH}


def test_a_commit_that_is_not_there_is_refused(git: Git, operator: Repo, tmp_path: Path) -> None:
    with pytest.raises(SourceRefused, match="cannot be fetched") as refused:
        fetch_commit(git, find_origin(git, operator.path), "1" * 40, tmp_path / "ours.git")
    assert refused.value.reason == SourceReason.NO_SUCH_COMMIT


def test_a_damaged_repository_is_refused(git: Git, operator: Repo, tmp_path: Path) -> None:
    blob = operator.git("rev-parse", "HEAD:readme")
    (operator.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(SourceRefused) as refused:
        fetch_commit(git, find_origin(git, operator.path), operator.head, tmp_path / "ours.git")
    assert refused.value.reason == SourceReason.FETCH


def test_head_of_a_repository_without_a_commit(git: Git, tmp_path: Path) -> None:
    repo = Repo.new(tmp_path / "new")
    with pytest.raises(SourceRefused, match="no commit yet"):
        read_head(git, find_origin(git, repo.path), tmp_path / "asked.git")


def test_head_says_its_branch(git: Git, operator: Repo, tmp_path: Path) -> None:
    origin = find_origin(git, operator.path)
    assert read_head(git, origin, tmp_path / "1.git").branch == "refs/heads/main"
    operator.git("checkout", "--quiet", "--detach")
    assert read_head(git, origin, tmp_path / "2.git").branch == ""


def test_a_place_is_used_once(git: Git, operator: Repo, tmp_path: Path) -> None:
    origin = find_origin(git, operator.path)
    fetch_commit(git, origin, operator.head, tmp_path / "ours.git")
    with pytest.raises(StateError, match="already there"):
        fetch_commit(git, origin, operator.head, tmp_path / "ours.git")


@pytest.mark.parametrize("answer", ["git version 2.20.1", "something else"])
def test_an_old_or_strange_git_is_refused(tmp_path: Path, answer: str) -> None:
    (tmp_path / "git").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (tmp_path / "git").chmod(0o755)
    with pytest.raises(HostError, match="or newer is needed"):
        open_git(tmp_path, {"PATH": f"{tmp_path}:{ENVIRONMENT['PATH']}"})


def test_no_git_at_all_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no git on the PATH"):
        open_git(tmp_path, {"PATH": str(tmp_path)})


@pytest.mark.parametrize("shape", [linked_worktree, submodule_checkout, borrowing, linked_git_dir])
@pytest.mark.parametrize(
    ("pointer_owner", "target_owner", "fine"), [(7, 8, False), (7, 7, True), (0, 8, True)]
)
def test_a_pointer_does_not_lend_our_eyes_to_its_writer(
    *,
    git: Git,
    operator: Repo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: Callable[[Repo, Path], Repo],
    pointer_owner: int,
    target_owner: int,
    fine: bool,
) -> None:
    repo = shape(operator, tmp_path)
    pointers = {".git", "commondir", "alternates"}
    monkeypatch.setattr(
        module,
        "_owner",
        lambda path: pointer_owner if path.name in pointers and is_pointer(path) else target_owner,
    )
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    if fine:
        assert find_origin(git, repo.path)
        return
    with pytest.raises(SourceRefused, match="a pointer of uid 7 to what belongs to uid 8") as refused:
        find_origin(git, repo.path)
    assert refused.value.reason == SourceReason.FOREIGN_POINTER


def test_a_lenders_own_pointer_is_looked_at_too(
    git: Git, operator: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git reads through it, so its writer would have our eyes all the same."""
    repo = borrowing(operator, tmp_path)
    private = Repo.new(tmp_path / "private")
    lent = operator.path / ".git/objects/info/alternates"
    lent.write_text(f"{private.path}/.git/objects\n")
    assert find_origin(git, repo.path).borrows
    owners = {lent: 7, private.path / ".git/objects": 8}
    monkeypatch.setattr(module, "_owner", lambda path: owners.get(path, 7))
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    with pytest.raises(SourceRefused, match="a pointer of uid 7 to what belongs to uid 8"):
        find_origin(git, repo.path)


def is_pointer(path: Path) -> bool:
    """A file or a link; not the directory that has the same name."""
    return path.is_symlink() or path.is_file()
