"""The one reader of the operator's repository: an exact commit and its history, copied into one of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
_REVISION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}")
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
    lines = _references(git, origin, place, ("HEAD",))
    commits = [found[1].decode() for line in lines if (found := _HEAD.fullmatch(line))]
    branches = [found[1].decode("utf-8", "replace") for line in lines if (found := _SYMREF.fullmatch(line))]
    if len(commits) != 1:
        raise SourceRefused(
            SourceReason.NO_SUCH_COMMIT, "HEAD is no commit yet", where=str(origin.git_dir), hint="git commit"
        )
    return Head(commit=commits[0], branch=branches[0] if branches else "")


def read_revision(git: Git, origin: Origin, place: Path, revision: str) -> str:
    """The full id of the commit that a person named: an id, ``HEAD``, a branch or a tag; nothing is guessed.

    ``place``: as fetch_commit's. Raises SourceRefused: no such name, or one that is a branch and a tag.
    """
    if origin.form.is_name(revision):
        return revision
    if revision == "HEAD":
        return read_head(git, origin, place).commit
    wanted = [f"refs/heads/{revision}", f"refs/tags/{revision}", f"refs/tags/{revision}^{{}}"]
    found: dict[str, str] = {}
    # What ls-remote takes is a pattern; a name of a reference has none of its signs.
    if _REVISION.fullmatch(revision) and ".." not in revision:
        for line in _references(git, origin, place, wanted):
            name, _, reference = line.decode("utf-8", "replace").partition("\t")
            if reference in wanted and origin.form.is_name(name):
                found[reference] = name
    # An annotated tag is an object of its own; the commit that it names comes with ^{}.
    tag = wanted[2] if wanted[2] in found else wanted[1]
    commits = {found[name] for name in (wanted[0], tag) if name in found}
    if len(commits) == 1:
        return commits.pop()
    raise SourceRefused(
        SourceReason.NO_SUCH_COMMIT,
        f"{revision[:80]!r} is {'a branch and a tag' if commits else 'no full commit id, branch or tag'}",
        where=str(origin.git_dir),
        hint=f"git -C {origin.worktree or origin.git_dir} rev-parse --verify {revision[:80]}^{{commit}}",
    )


def _references(git: Git, origin: Origin, place: Path, names: Sequence[str]) -> list[bytes]:
    repository = git.init(place, origin.form)
    outcome = git.references_of(repository, origin.git_dir, names)
    if not outcome.ok:
        raise SourceRefused(SourceReason.FETCH, explain(outcome), where=str(origin.git_dir))
    return outcome.stdout.split(b"\n")


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
