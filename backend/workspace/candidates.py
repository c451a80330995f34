"""Candidates at home: a repository of ours for each exported commit, published whole, found by its commit."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path
from typing import Final

from backend.workspace.git import Git
from backend.workspace.importing import QUARANTINE, ImportedCommit
from backend.workspace.origin import find_origin
from backend.workspace.prepared import REPOSITORY, PreparedSource, prepared
from backend.workspace.reading import fetch_commit
from backend.workspace.refusals import CandidateReason, CandidateRefused
from backend.workspace.unseen import UnseenReport
from provenance.small_files import read_small
from provenance.writing import state_errors

SUFFIX: Final = ".git"
_GOING: Final = ".going-"  # withdrawn already: no launch's name begins with a dot
_REFERENCE_BYTES: Final = 200


def place_of(candidates: Path, launch_id: str) -> Path:
    """Where the repository of a launch's candidate lies, or would."""
    return candidates / f"{launch_id}{SUFFIX}"


def publish_candidate(imported: ImportedCommit, candidates: Path, launch_id: str) -> Path:
    """Move the repository of a run, with its quarantined commit, to where it stays. Raises StateError.

    One rename on one file system: it is there whole or not at all.
    """
    place = place_of(candidates, launch_id)
    with state_errors(place):
        imported.repository.path.rename(place)
        _sync(candidates)
    return place


def published(candidates: Path) -> tuple[str, ...]:
    """The launches whose candidates lie there, in one order."""
    if not candidates.is_dir():
        return ()
    with state_errors(candidates):
        names = sorted(entry.name for entry in os.scandir(candidates))
    return tuple(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))


def withdraw(candidates: Path, launch_id: str) -> None:
    """Remove a published candidate; gone already is success. One rename takes it away: whole, or not at all.

    What a withdrawal leaves that is killed after it, :func:`finish_withdrawals` removes.
    """
    place = place_of(candidates, launch_id)
    with state_errors(place):
        going = candidates / f"{_GOING}{secrets.token_hex(8)}"
        try:
            place.rename(going)
        except FileNotFoundError:
            return
        _sync(candidates)
        _remove(going)


def finish_withdrawals(candidates: Path) -> None:
    """Remove what was withdrawn, and whose remover died; two at once do each other no harm."""
    if not candidates.is_dir():
        return
    with state_errors(candidates):
        for name in sorted(entry.name for entry in os.scandir(candidates)):
            if name.startswith(_GOING):
                _remove(candidates / name)


def _remove(going: Path) -> None:
    while going.exists():
        with contextlib.suppress(FileNotFoundError):  # somebody else removes it too
            shutil.rmtree(going)


def _sync(candidates: Path) -> None:
    handle = os.open(candidates, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prepare_candidate(
    git: Git, candidates: Path, launch_id: str, commit: str, staging: Path
) -> PreparedSource:
    """The exact commit that this launch exported, as the source of a later launch; never anything newer.

    It is fetched into a repository of the later launch's own: nothing of an earlier container is used.
    Raises CandidateRefused when ``commit`` is not what the launch exported.
    """
    place = place_of(candidates, launch_id)
    if launch_id not in published(candidates):
        raise CandidateRefused(
            CandidateReason.NO_CANDIDATE,
            f"launch {launch_id[:60]!r} exported no candidate",
            where="candidates",
            hint="builder runs",
        )
    with state_errors(place):
        held = read_small(place / QUARANTINE / launch_id, _REFERENCE_BYTES).decode("ascii", "replace").strip()
    if commit != held:
        raise CandidateRefused(
            CandidateReason.NO_CANDIDATE,
            f"launch {launch_id} exported commit {held}, not {commit[:80]!r}",
            where="candidates",
            hint=f"builder show {launch_id}",
        )
    fetched = fetch_commit(git, find_origin(git, place), commit, staging / REPOSITORY)
    nothing = UnseenReport(entries=(), total=0, complete=True)
    return prepared(git, fetched, staging, unseen=nothing, candidate_of=launch_id)
