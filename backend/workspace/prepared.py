"""The source of a launch, made ready in staging: an exact commit with its history, and its verified files."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from backend.workspace.git import Git
from backend.workspace.materialise import MaterialisedTree, materialise
from backend.workspace.origin import Origin
from backend.workspace.reading import FetchedCommit, fetch_commit, not_in_commit
from backend.workspace.unseen import UnseenReport
from provenance.writing import state_errors

REPOSITORY: Final = "run.git"
TREE: Final = "source"
_WITNESS_BYTES: Final = 16 * 1024 * 1024


class SourceKind(StrEnum):
    """OPERATOR: a commit of the operator's repository. CANDIDATE: one that an earlier launch exported."""

    OPERATOR = "operator"
    CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class Witness:
    """One file of the tree, by which a container shows that it sees this tree and no other."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSource:
    """Permit: a commit and its verified files in staging, for one launch. Constructed only here.

    ``unseen``: what lies beside the commit in the operator's directory. ``candidate_of``: the launch that
    exported the commit; empty for the operator's own. ``witness``: None where the tree has no file.
    """

    git: Git = field(repr=False)
    kind: SourceKind
    fetched: FetchedCommit
    tree: MaterialisedTree
    unseen: UnseenReport
    candidate_of: str
    witness: Witness | None

    @property
    def commit(self) -> str:
        """The full name of the commit."""
        return self.fetched.commit.name


def prepare_source(git: Git, origin: Origin, commit: str, staging: Path) -> PreparedSource:
    """Fetch ``commit`` (a full id) of the operator's repository, and write its files below ``staging``.

    ``staging``: private, ours, without an earlier source; the caller removes it. Raises SourceRefused,
    CandidateRefused (a tree that we do not write), StateError.
    """
    fetched = fetch_commit(git, origin, commit, staging / REPOSITORY)
    unseen = not_in_commit(git, origin, fetched)
    return prepared(git, fetched, staging, unseen=unseen, candidate_of="")


def prepared(
    git: Git, fetched: FetchedCommit, staging: Path, *, unseen: UnseenReport, candidate_of: str
) -> PreparedSource:
    """The files of a fetched commit, written and proved; see :func:`prepare_source`."""
    tree = materialise(git, fetched.repository, fetched.commit.name, staging / TREE)
    with state_errors(tree.folder):
        witness = _witness(tree.folder, tree.folder)
    return PreparedSource(
        git=git,
        kind=SourceKind.CANDIDATE if candidate_of else SourceKind.OPERATOR,
        fetched=fetched,
        tree=tree,
        unseen=unseen,
        candidate_of=candidate_of,
        witness=witness,
    )


def _witness(folder: Path, top: Path) -> Witness | None:
    """The first file, in one order everywhere, that is quickly read and has a name that argv takes."""
    with os.scandir(folder) as found:
        items = sorted(found, key=lambda item: os.fsencode(item.name))
    for item in items:
        status = item.stat(follow_symlinks=False)
        path = Path(item.path)
        if stat.S_ISREG(status.st_mode) and status.st_size <= _WITNESS_BYTES:
            return Witness(str(path.relative_to(top)), hashlib.sha256(path.read_bytes()).hexdigest())
        if stat.S_ISDIR(status.st_mode) and (deeper := _witness(path, top)) is not None:
            return deeper
    return None
