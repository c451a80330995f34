"""The one export and the one import, between honest parties: the same commit arrives, the rest is named."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import jsonschema
import pytest

from backend.workspace.export_frame import read_frame
from backend.workspace.export_manifest import json_schema
from backend.workspace.git import Git
from backend.workspace.importing import ImportedCommit, NothingNew
from backend.workspace.materialise import materialise
from backend.workspace.producer import check_producer
from backend.workspace.refusals import CandidateReason, CandidateRefused
from backend.workspace.unseen import MAX_UNSEEN, Unseen, UnseenKind
from images.errors import UsageError
from tests.fakes.exports import MAX_PACK, Desk, desk
from tests.fakes.repositories import Repo


@pytest.fixture
def at(git: Git, operator: Repo, tmp_path: Path) -> Desk:
    return desk(git, operator, tmp_path)


def exported(at: Desk, run: str = "run") -> ImportedCommit:
    outcome = at.produce()
    assert outcome.ok, outcome.stderr
    found = at.bring(run)
    assert isinstance(found, ImportedCommit)
    return found


def test_the_same_commit_arrives_under_its_quarantine_reference_only(at: Desk) -> None:
    at.workspace.commit({"src/new.txt": "n\n", "readme": "two\n"})
    tip = at.workspace.commit({"src/new.txt": "m\n"}, "again")
    found = exported(at, "run-1.3")
    assert found.commit.name == tip
    assert (found.branch, found.base) == ("work", at.base)
    assert found.unseen.nothing
    ours = Repo(at.source.repository.path)
    assert ours.git("for-each-ref", "--format=%(refname) %(objectname)").split("\n") == [
        f"refs/agent-image-builder/quarantine/run-1.3 {tip}",
        f"refs/heads/source {at.base}",
    ]
    ours.git("fsck", "--strict", "--full")
    tree = at.workspace.git("rev-parse", "HEAD^{tree}")
    assert materialise(at.git, at.source.repository, tip, at.folder / "candidate").tree == tree
    assert not list(ours.path.glob("incoming-*"))


def test_a_fix_starts_from_an_accepted_candidate(at: Desk) -> None:
    first = at.workspace.commit({"a": "1"})
    exported(at, "run.1")
    second = at.workspace.commit({"a": "2"})
    assert at.produce(base=first).ok
    # Made against the candidate, it is no export of a run that started from the source.
    with pytest.raises(CandidateRefused, match="for base"):
        at.bring("run.2")
    assert at.produce().ok
    found = at.bring("run.2")
    assert isinstance(found, ImportedCommit)
    assert found.commit.name == second


def test_a_merge_arrives_with_its_parents(at: Desk) -> None:
    at.workspace.git("checkout", "--quiet", "-b", "side")
    side = at.workspace.commit({"side": "1"})
    at.workspace.git("checkout", "--quiet", "work")
    main = at.workspace.commit({"main": "1"})
    at.workspace.git("merge", "--quiet", "--no-ff", "-m", "both", "side")
    assert exported(at).commit.parents == (main, side)


def test_no_commit_is_nothing_new_and_still_says_what_was_left(at: Desk) -> None:
    at.workspace.write({"left": "x"})
    before = at.everything()
    assert at.produce().ok
    found = at.bring()
    assert isinstance(found, NothingNew)
    assert found.unseen.entries == (Unseen(UnseenKind.UNTRACKED, "left"),)
    assert at.everything() == before


@pytest.mark.parametrize("clone", [("--depth=1",), ()])
def test_from_shallow_and_full_workspaces_and_sources(
    git: Git, operator: Repo, tmp_path: Path, clone: tuple[str, ...]
) -> None:
    operator.git("clone", "--quiet", "--depth=1", f"file://{operator.path}", str(tmp_path / "shallow"))
    shallow = Repo(tmp_path / "shallow")
    for number, source in enumerate((operator, shallow)):
        folder = tmp_path / str(number)
        folder.mkdir()
        at = desk(git, source, folder, *clone)
        tip = at.workspace.commit({"new": "x"})
        assert exported(at).commit.name == tip


def test_sha256_repositories(git: Git, tmp_path: Path) -> None:
    operator = Repo.new(tmp_path / "operator", "--object-format=sha256")
    operator.commit({"a": "1"})
    at = desk(git, operator, tmp_path)
    tip = at.workspace.commit({"a": "2"})
    assert exported(at).commit.name == tip


def test_what_was_not_exported_is_named(at: Desk, tmp_path: Path) -> None:
    inner = Repo.new(tmp_path / "inner")
    inner.commit({"x": "1"})
    at.workspace.git("submodule", "--quiet", "add", str(inner.path), "sub")
    at.workspace.git("submodule", "--quiet", "add", str(inner.path), "moved")
    at.workspace.commit({})
    Repo(at.workspace.path / "moved").commit({"x": "2"})
    at.workspace.commit({})
    at.workspace.git("branch", "contained")
    at.workspace.git("checkout", "--quiet", "-b", "other")
    at.workspace.commit({"other": "1"})
    at.workspace.git("checkout", "--quiet", "work")
    Repo(at.workspace.path / "sub").write({"x": "dirty"})
    Repo.new(at.workspace.path / 'nes"ted').commit({"n": "1"})
    Repo.new(at.workspace.path / "plain").commit({"n": "1"})
    at.workspace.write({"readme": "dirty\n", 'odd "\n\\ name': "x", "grüße": "x", "a b": "x", '"}': "x"})
    found = exported(at)
    assert found.unseen.complete
    assert set(found.unseen.entries) == {
        Unseen(UnseenKind.SUBMODULE, "sub"),
        Unseen(UnseenKind.MODIFIED, "readme"),
        Unseen(UnseenKind.NESTED_REPOSITORY, '"nes\\"ted/"'),
        Unseen(UnseenKind.NESTED_REPOSITORY, "plain/"),
        Unseen(UnseenKind.UNTRACKED, '"odd \\"\\n\\\\ name"'),
        Unseen(UnseenKind.UNTRACKED, '"gr\\303\\274\\303\\237e"'),
        Unseen(UnseenKind.UNTRACKED, "a b"),
        Unseen(UnseenKind.UNTRACKED, '"\\"}"'),
        Unseen(UnseenKind.REFERENCE, "refs/heads/other"),
    }
    assert found.unseen.total == 9
    assert set(found.moved_submodules) == {b"sub", b"moved"}


def test_a_conflict_and_a_stash_are_named(at: Desk) -> None:
    at.workspace.write({"readme": "stashed\n"})
    at.workspace.git("stash", "--quiet")
    at.workspace.git("checkout", "--quiet", "-b", "other")
    at.workspace.commit({"readme": "theirs\n"})
    at.workspace.git("checkout", "--quiet", "work")
    at.workspace.commit({"readme": "ours\n"})
    with pytest.raises(AssertionError):
        at.workspace.git("merge", "--quiet", "other")
    assert set(exported(at).unseen.entries) == {
        Unseen(UnseenKind.MODIFIED, "readme"),
        Unseen(UnseenKind.REFERENCE, "refs/heads/other"),
        Unseen(UnseenKind.REFERENCE, "refs/stash"),
    }


def test_names_are_bounded_and_all_are_counted(at: Desk) -> None:
    at.workspace.commit({"a": "1"})
    at.workspace.write({f"{'d' * 200}/{'e' * 200}/{number:>0200}": "" for number in range(MAX_UNSEEN + 5)})
    found = exported(at).unseen
    assert found.total == MAX_UNSEEN + 5
    assert 500 < len(found.entries) < MAX_UNSEEN


def test_a_workspace_that_git_cannot_look_over_is_exported_and_said_to_be_one(at: Desk) -> None:
    tip = at.workspace.commit({"a": "1"})
    (at.workspace.path / ".git/index").write_bytes(b"garbage")
    found = exported(at)
    assert found.commit.name == tip
    assert not found.unseen.complete


def test_a_stale_lock_is_no_obstacle_and_stays(at: Desk) -> None:
    at.workspace.commit({"a": "1"})
    lock = at.workspace.path / ".git/index.lock"
    lock.write_bytes(b"")
    exported(at)
    assert lock.exists()


@pytest.mark.parametrize("branch", ["", 'quo"te', "grüße", "feature/x"])
def test_any_branch_or_none(at: Desk, branch: str) -> None:
    at.workspace.git("checkout", "--quiet", *(("-b", branch) if branch else ("--detach",)))
    at.workspace.commit({"a": "1"})
    assert exported(at).branch == ("feature/x" if branch == "feature/x" else "")


def test_the_manifest_is_as_its_schema_says(at: Desk) -> None:
    at.workspace.commit({"a": "1"})
    at.workspace.write({"left": "x"})
    assert at.produce().ok
    manifest = json.loads(read_frame(at.folder / "export", MAX_PACK).manifest)
    jsonschema.validate(manifest, json_schema())
    assert sorted(manifest) == sorted(json_schema()["properties"])


def orphan(at: Desk) -> None:
    at.workspace.git("checkout", "--quiet", "--orphan", "lonely")
    at.workspace.commit({"a": "1"})


def older(at: Desk) -> None:
    at.workspace.git("reset", "--quiet", "--hard", "HEAD~1")


def unborn(at: Desk) -> None:
    at.workspace.git("checkout", "--quiet", "--orphan", "lonely")


def no_repository(at: Desk) -> None:
    shutil.rmtree(at.workspace.path / ".git")


def large(at: Desk) -> None:
    at.workspace.commit({"large": os.urandom(100_000)})


def damaged(at: Desk) -> None:
    at.workspace.commit({"a": "something of its own"})
    blob = at.workspace.git("rev-parse", "HEAD:a")
    (at.workspace.path / ".git/objects" / blob[:2] / blob[2:]).unlink()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (orphan, CandidateReason.NOT_DESCENDED),
        (older, CandidateReason.NOT_DESCENDED),
        (unborn, CandidateReason.PRODUCER),
        (no_repository, CandidateReason.PRODUCER),
        (damaged, CandidateReason.PRODUCER),
        (large, CandidateReason.TOO_LARGE),
    ],
)
def test_what_cannot_be_exported_says_why(at: Desk, spoil: object, reason: CandidateReason) -> None:
    assert callable(spoil)
    spoil(at)
    with pytest.raises(CandidateRefused, match="nothing was exported: export: ") as refused:
        check_producer(at.produce(max_pack=50_000))
    assert refused.value.reason == reason
    assert not list((at.folder / "export").read_bytes())


def test_a_missing_tool_is_named(at: Desk) -> None:
    at.workspace.commit({"a": "1"})
    tools = at.folder / "tools"
    tools.mkdir()
    for name in ("sh", "git", "sed", "od", "wc", "head", "mktemp", "rm", "cat"):
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)
    outcome = _with_path(at, str(tools))
    with pytest.raises(CandidateRefused, match="the image has no sha256sum"):
        check_producer(outcome)


def _with_path(at: Desk, path: str) -> object:
    from backend.commands import Command  # noqa: PLC0415
    from backend.runner import run  # noqa: PLC0415
    from backend.workspace.producer import export_command  # noqa: PLC0415

    return run(
        Command(
            argv=export_command(at.base, MAX_PACK),
            environment={"PATH": path},
            deadline=30,
            working_dir=at.workspace.path,
        )
    )


def test_a_run_has_one_candidate(at: Desk) -> None:
    at.workspace.commit({"a": "1"})
    exported(at)
    before = at.everything()
    at.workspace.commit({"a": "2"})
    assert at.produce().ok
    with pytest.raises(CandidateRefused) as refused:
        at.bring()
    assert refused.value.reason == CandidateReason.TAKEN
    assert at.everything() == before


def test_the_same_export_under_another_run(at: Desk) -> None:
    at.workspace.commit({"a": "1"})
    assert exported(at, "run-1").commit == exported(at, "run-2").commit
    assert at.everything()["refs/agent-image-builder/quarantine/run-2"]


@pytest.mark.parametrize("run", ["", "../x", "A", "a/b", "a.b", "a.0", "x" * 41, "a..1", "-a"])
def test_a_run_id_is_no_path(at: Desk, run: str) -> None:
    at.workspace.commit({"a": "1"})
    assert at.produce().ok
    with pytest.raises(UsageError, match="not a run id"):
        at.bring(run)
