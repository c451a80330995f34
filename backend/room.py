"""Make, fill and check the files of one launch, and take the agent's commits out of them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from backend.account import ROOT, WORKSPACE, agent_exec
from backend.commands import BoundedFile
from backend.engines.client import complaint
from backend.engines.protocol import Engine
from backend.inside import InsideFacts
from backend.plan import LaunchPlan
from backend.requests import SourceRoute
from backend.space import EXPORT_SECONDS, SOURCE, ExportRule, SpacePlan, WorkspaceStart
from backend.supervise import end_agent
from backend.workspace.archive import Seed, write_archive
from backend.workspace.candidates import publish_candidate
from backend.workspace.checking import check_argv, faults
from backend.workspace.export_frame import FRAME_OVERHEAD
from backend.workspace.importing import ExportLimits, ImportedCommit, NothingNew, import_export
from backend.workspace.producer import check_producer, export_command, prepare_command
from backend.workspace.unseen import UnseenReport
from images.errors import HostError, LaunchReason, LaunchRefused
from provenance.writing import state_errors

CHECK_SECONDS: Final = 60.0
PREPARE_SECONDS: Final = 600.0


class ExportStatus(StrEnum):
    """What became of the agent's commits. NOT_REACHED: the launch ended before; NOT_ALLOWED: by its class."""

    EXPORTED = "exported"
    NOTHING_NEW = "nothing-new"
    REFUSED = "refused"
    NOT_ALLOWED = "not-allowed"
    NOT_REACHED = "not-reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceSeen:
    """What was really made of the files: for the record. ``place``: the published repository."""

    plan: SpacePlan
    status: ExportStatus
    reason: str = ""
    imported: ImportedCommit | None = None
    unseen: UnseenReport | None = None
    place: Path | None = None

    @property
    def fetch(self) -> tuple[str, str] | None:
        """Repository and reference that bring the commits home; None when nothing was exported."""
        if self.imported is None or self.place is None:
            return None
        return str(self.place), self.imported.reference


def first_seen(space: SpacePlan) -> SpaceSeen:
    """Before anything happened."""
    allowed = space.export is ExportRule.COMMITS
    return SpaceSeen(plan=space, status=ExportStatus.NOT_REACHED if allowed else ExportStatus.NOT_ALLOWED)


def make_volumes(engine: Engine, space: SpacePlan, staging: Path) -> None:
    """Make the volumes; where /source is not bound, fill its own by a container that never starts."""
    for volume in space.volumes:
        engine.create_volume(volume)
    if space.fill is None:
        return
    tar = staging / f"{space.fill.name}.tar"
    write_archive(tar, space.source.tree, ROOT)
    container = engine.create(space.fill)
    engine.copy_in(container, SOURCE, tar)
    engine.remove(container)
    tar.unlink()


def fill_workspace(engine: Engine, container: str, plan: LaunchPlan, space: SpacePlan, staging: Path) -> None:
    """Copy files, and a git repository where there is to be one, into a created container's volume."""
    seed = None
    if space.start is WorkspaceStart.REPOSITORY:
        seed = Seed(
            repository=space.source.fetched.repository, commit=space.source.commit, branch=space.branch
        )
    tar = staging / f"{plan.launch_id}.tar"
    write_archive(tar, space.source.tree, plan.account.ids, seed)
    engine.copy_in(container, WORKSPACE, tar)
    tar.unlink()


def check_room(
    engine: Engine, container: str, plan: LaunchPlan, space: SpacePlan, inside: InsideFacts
) -> None:
    """Before the agent: /workspace is its own and /source is not. LaunchRefused names mapping and remedy."""
    nonce = secrets.token_hex(8)
    check = agent_exec(plan.account, check_argv(WORKSPACE, SOURCE, nonce, space.source.witness))
    outcome = engine.exec(container, check, deadline=CHECK_SECONDS)
    found = faults(outcome.stdout, nonce)
    if not found and outcome.ok:
        return
    mapping = ", ".join(f"{first}->{host} ({count})" for first, host, count in inside.uid_map)
    why = "; ".join(found) or complaint(outcome.stderr) or outcome.ending.value
    raise LaunchRefused(
        LaunchReason.WORKSPACE,
        f"{why}; the agent is uid {plan.account.uid}, ids are mapped {mapping or 'not at all'}",
        where=plan.launch_id,
        hint="builder run --copy-in"
        if space.route is SourceRoute.BIND
        else f"builder doctor: the image's {WORKSPACE} must belong to uid {plan.account.uid}",
    )


def prepare_repository(engine: Engine, container: str, plan: LaunchPlan, space: SpacePlan) -> None:
    """Let git in the workspace know its files, as the agent, before anything of the agent runs."""
    if space.start is not WorkspaceStart.REPOSITORY:
        return
    outcome = engine.exec(container, agent_exec(plan.account, prepare_command()), deadline=PREPARE_SECONDS)
    if not outcome.ok:
        raise HostError(
            f"git in the workspace cannot be prepared: {complaint(outcome.stderr) or outcome.ending.value}",
            where=plan.launch_id,
            hint='the image needs git: [toolchain] debian = ["git"]',
            reason="workspace-git",
        )


def export_workspace(
    engine: Engine, container: str, plan: LaunchPlan, space: SpacePlan, staging: Path
) -> Path:
    """The one stream that comes out: written to a private file of ours, bounded. Raises CandidateRefused."""
    # What the agent left running must not change the workspace under its own export.
    end_agent(engine, container, plan.account)
    limits = ExportLimits()
    file = staging / f"{plan.launch_id}.export"
    argv = export_command(space.source.commit, limits.pack_bytes)
    with state_errors(file):
        outcome = engine.exec(
            container,
            agent_exec(plan.account, argv),
            stdout_to=BoundedFile(file, limits.pack_bytes + FRAME_OVERHEAD),
            deadline=EXPORT_SECONDS - 60.0,
        )
    check_producer(outcome)
    return file


def import_workspace(space: SpacePlan, launch_id: str, file: Path, seen: SpaceSeen) -> SpaceSeen:
    """The one import, into the repository of this run in staging. Raises CandidateRefused, StateError."""
    source = space.source
    found = import_export(source.git, source.fetched.repository, file, base=source.commit, run=launch_id)
    file.unlink()
    if isinstance(found, NothingNew):
        return replace(seen, status=ExportStatus.NOTHING_NEW, unseen=found.unseen)
    return replace(seen, status=ExportStatus.EXPORTED, imported=found, unseen=found.unseen)


def publish_workspace(seen: SpaceSeen, candidates: Path, launch_id: str) -> SpaceSeen:
    """Move what was imported to where it stays."""
    if seen.imported is None:
        return seen
    return replace(seen, place=publish_candidate(seen.imported, candidates, launch_id))
