"""`builder run --review|--fix|--check LAUNCH`: the candidate by its recorded commit, as a step of its run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from backend.journal import Journal
from backend.requests import LaunchRequest, LaunchSource, SourceRoute
from backend.room import ExportStatus
from backend.workspace.candidates import prepare_candidate, published
from backend.workspace.git import Git
from backend.workspace.refusals import CandidateReason, CandidateRefused
from builder.running import Launched, launched
from builder.sourcing import controllers_git, tell_tree
from builder.state import State
from builder.workshop import Workshop


class RunOf(StrEnum):
    """CANDIDATE: the next step of the run that made it; it keeps image, engine and mode. OWN: a new run."""

    CANDIDATE = "candidate"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRequest:
    """What the command line says. ``commit``: the full id that it must have; None: what the record says."""

    launch_id: str
    commit: str | None
    run: RunOf
    route: SourceRoute
    workspace_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCandidate:
    """A candidate that is there, its exact commit, and which step of which run works on it."""

    asked: CandidateRequest
    git: Git
    commit: str
    run_id: str
    step: int


def find_candidate(workshop: Workshop, asked: CandidateRequest) -> FoundCandidate:
    """Cheap: what is refused about a candidate is refused before an image is looked at.

    Only a launch that came to its end, with a signed record of what it exported, has one.
    """
    state = workshop.state
    one, last = _launched(state, asked.launch_id)
    commit = _exported(one)
    if asked.commit not in (None, commit):
        raise _none(
            f"launch {asked.launch_id} exported commit {commit}, not {(asked.commit or '')[:80]!r}",
            f"leave --commit out, or give --commit {commit}",
        )
    if asked.launch_id not in published(state.candidates):
        raise _none(
            f"the candidate of launch {asked.launch_id} was removed", "builder run --source DIR --commit REV"
        )
    return FoundCandidate(
        asked=asked,
        git=controllers_git(workshop),
        commit=commit,
        run_id=one.entry.intent.run_id,
        step=last + 1,
    )


def continued(
    workshop: Workshop, found: FoundCandidate, request: LaunchRequest, staging: Path
) -> LaunchRequest:
    """The same request, over the candidate's files, written below ``staging``; as a step of its run."""
    asked, reporter = found.asked, workshop.reporter
    # `builder gc` must not take it meanwhile; afterwards the launch has a copy of its own.
    with workshop.at_work(), reporter.step("fetch and write the candidate"):
        prepared = prepare_candidate(
            found.git, workshop.state.candidates, asked.launch_id, found.commit, staging
        )
    reporter.say(f"candidate: commit {prepared.commit}, which launch {asked.launch_id} exported")
    tell_tree(reporter, prepared)
    source = LaunchSource(prepared=prepared, route=asked.route, workspace_bytes=asked.workspace_bytes)
    if asked.run is RunOf.OWN:
        return replace(request, source=source)
    return replace(request, source=source, run_id=found.run_id, step=found.step)


def _launched(state: State, name: str) -> tuple[Launched, int]:
    """The launch of that name, and the last step that its run has."""
    if not state.journal.exists():
        raise _none(f"no launch {name[:100]!r}: nothing was launched with this state", "builder runs")
    with Journal.open(state.journal, state.id) as journal:
        found = launched(journal, name)
        one = next((item for item in found if item.entry.intent.launch_id == name), None)
        if one is not None:
            steps = [entry.intent.step for entry in journal.entries(one.entry.intent.run_id)]
            return one, max(steps)
    kept = set(published(state.candidates))
    has = [item.entry.intent.launch_id for item in found if item.entry.intent.launch_id in kept]
    if found:
        raise _none(
            f"{name} is a run, and a candidate is named by its launch; it has: {', '.join(has) or 'none'}",
            f"builder show {name}",
        )
    raise _none(f"no launch {name[:100]!r}", "builder runs")


def _exported(one: Launched) -> str:
    """The commit that the signed record names."""
    name = one.entry.intent.launch_id
    if one.record is None:
        raise _none(f"launch {name} has no record: it is {one.entry.boundary.value}", "builder ps")
    export = one.record.get("export")
    status = export.get("status") if isinstance(export, dict) else "it had no repository"
    commit = export.get("commit") if isinstance(export, dict) else None
    if status != ExportStatus.EXPORTED.value or not isinstance(commit, str):
        raise _none(f"launch {name} exported no candidate: {status}", f"builder show {name}")
    return commit


def _none(what: str, hint: str) -> CandidateRefused:
    return CandidateRefused(CandidateReason.NO_CANDIDATE, what, where="candidates", hint=hint)
