"""The one reader of the operator's repository: an exact commit and its history, copied into one of ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.workspace.git import SOURCE_BRANCH, Git, Repository, explain
from backend.workspace.origin import Origin
from backend.workspace.refusals import CandidateRefused, SourceReason, SourceRefused
from backend.workspace.trees import Commit, Source, read_commit
from backend.workspace.unseen import UnseenReport, read_status
from images.errors import StateError

SOURCE_REFERENCE: Final = f"refs/heads/{SOURCE_BRANCH}"
_HEAD: Final = re.compile(rb"([0-9a-f]{40,64})\tHEAD")
_SYMREF: Final = re.compile(rb"ref: (\S{1,1000})\tHEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What HEAD is: its commit, and the full name of its branch, empty when detached."""

    commit: str
    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedCommit:
    """Permit: a commit that lies, with its history, in a repository of ours. Constructed only here.

    ``shallow``: the history ends where the operator's own copy ends.
    """

    repository: Repository
    commit: Commit
    shallow: bool


def fetch_commit(git: Git, origin: Origin, commit: str, place: Path) -> FetchedCommit:
    """Copy ``commit`` (a full object name) into a new repository at ``place``.

    Nothing is written beside it, nothing is checked out, no hook or program of the origin runs. Raises
    SourceRefused.
    """
    _check_name(origin, commit)
    repository = git.init(place, origin.form)
    outcome = git.fetch(repository, origin.git_dir, commit, SOURCE_REFERENCE)
    if not outcome.ok:
        reason = SourceReason.NO_SUCH_COMMIT if b"not our ref" in outcome.stderr else SourceReason.FETCH
        raise SourceRefused(
            reason,
            f"commit {commit} cannot be fetched: {explain(outcome)}",
            where=str(origin.git_dir),
            hint=f"git -C {origin.worktree or origin.git_dir} cat-file -t {commit}",
        )
    try:
        found = read_commit(Source.of(git, repository), commit)
    except CandidateRefused as broken:
        raise SourceRefused(SourceReason.NOT_A_COMMIT_ID, broken.what, where=commit) from None
    return FetchedCommit(repository=repository, commit=found, shallow=(repository.path / "shallow").exists())


def read_head(git: Git, origin: Origin, place: Path) -> Head:
    """What HEAD of the origin is, for a caller who wants "what is checked out". ``place``: as fetch_commit's.

    Raises SourceRefused for a repository without a commit.
    """
    repository = git.init(place, origin.form)
    outcome = git.head_of(repository, origin.git_dir)
    if not outcome.ok:
        raise SourceRefused(SourceReason.FETCH, explain(outcome), where=str(origin.git_dir))
    lines = outcome.stdout.split(b"\n")
    commits = [found[1].decode() for line in lines if (found := _HEAD.fullmatch(line))]
    branches = [found[1].decode("utf-8", "replace") for line in lines if (found := _SYMREF.fullmatch(line))]
    if len(commits) != 1:
        raise SourceRefused(
            SourceReason.NO_SUCH_COMMIT, "HEAD is no commit yet", where=str(origin.git_dir), hint="git commit"
        )
    return Head(commit=commits[0], branch=branches[0] if branches else "")


def not_in_commit(git: Git, origin: Origin, fetched: FetchedCommit) -> UnseenReport:
    """What lies in the origin's directory and is not in the commit; a bare origin has nothing.

    The directory is compared with the commit by an index of ours. What is ignored is left out, as is what is
    staged and was undone in the directory.
    """
    if origin.worktree is None:
        return UnseenReport(entries=(), total=0, complete=True)
    path = fetched.repository.path
    excludes = origin.common_dir / "info/exclude"
    outcome = git.compare(
        fetched.repository, fetched.commit.name, origin.worktree, path / "compared-index", excludes
    )
    if not outcome.ok:
        raise StateError(
            f"the directory cannot be compared with its commit: {explain(outcome)}",
            where=str(origin.worktree),
        )
    return read_status(outcome.stdout, complete=not outcome.stdout_truncated)


def _check_name(origin: Origin, commit: str) -> None:
    if not origin.form.is_name(commit):
        raise SourceRefused(
            SourceReason.NOT_A_COMMIT_ID,
            f"not a full commit id of a {origin.form.value} repository: {commit[:80]!r}",
            where=str(origin.git_dir),
            hint=f"git -C {origin.worktree or origin.git_dir} rev-parse --verify HEAD^{{commit}}",
        )
