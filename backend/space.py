"""Plan /source and /workspace of a launch: bind or volume, what fills them, what comes out; see ADR 24."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from backend.account import WORKSPACE
from backend.containers import ContainerPlan, Purpose, ReadOnlyBind, VolumeMount, VolumePlan
from backend.ownership import LABEL_PURPOSE
from backend.requests import LaunchClass, LaunchSource, SourceRoute
from backend.workspace.archive import WORK_BRANCH

if TYPE_CHECKING:
    from backend.workspace.prepared import PreparedSource

SOURCE: Final = "/source"
# The container must outlive the command by what an export may take.
EXPORT_SECONDS: Final = 600.0


class WorkspaceStart(StrEnum):
    """REPOSITORY: the files, and a git repository at the commit. FILES: the files alone, without any git."""

    REPOSITORY = "repository"
    FILES = "files"


class ExportRule(StrEnum):
    """COMMITS: what the agent committed is taken home. NOTHING: nothing of this launch can come out."""

    COMMITS = "commits"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpacePlan:
    """The files of one launch. ``volumes``: made before the container, removed after it.

    ``fill``: a container that is created to copy /source into its volume, and never started; None when
    /source is bound. ``bound``: bytes that /workspace may grow to, by samples.
    """

    source: PreparedSource
    route: SourceRoute
    volumes: tuple[VolumePlan, ...]
    mounts: tuple[VolumeMount, ...]
    binds: tuple[ReadOnlyBind, ...]
    fill: ContainerPlan | None
    start: WorkspaceStart
    export: ExportRule
    bound: int
    branch: str = WORK_BRANCH


def plan_space(
    asked: LaunchSource, container: ContainerPlan, launch_class: LaunchClass, *, shared_files: bool
) -> SpacePlan:
    """Pure. ``container``: the launch's own, whose name and labels the volumes carry.

    ``shared_files``: whether a bind was proved; an operator may ask for the copy, and never for a bind.
    """
    bound = shared_files and asked.route is SourceRoute.BIND
    workspace, copied = f"{container.name}-workspace", f"{container.name}-source"
    mounts = [VolumeMount(name=workspace, target=WORKSPACE, writable=True)]
    fill = None
    if not bound:
        mounts.append(VolumeMount(name=copied, target=SOURCE, writable=False))
        fill = _fill(container, VolumeMount(name=copied, target=SOURCE, writable=True))
    return SpacePlan(
        source=asked.prepared,
        route=SourceRoute.BIND if bound else SourceRoute.COPY_IN,
        volumes=tuple(VolumePlan(name=mount.name, labels=container.labels) for mount in mounts),
        mounts=tuple(mounts),
        binds=(ReadOnlyBind(source=asked.prepared.tree.folder, target=SOURCE),) if bound else (),
        fill=fill,
        start=WorkspaceStart.FILES
        if launch_class is LaunchClass.EXPORT_COMMAND
        else WorkspaceStart.REPOSITORY,
        export=ExportRule.COMMITS
        if launch_class in (LaunchClass.EXECUTE, LaunchClass.FIX)
        else ExportRule.NOTHING,
        bound=asked.workspace_bytes,
    )


def with_space(container: ContainerPlan, space: SpacePlan) -> ContainerPlan:
    """The launch's container with its files: /workspace is a volume then, and no memory file system."""
    return replace(
        container,
        tmpfs=tuple(item for item in container.tmpfs if item.path != WORKSPACE),
        read_only_binds=space.binds,
        named_volumes=space.mounts,
    )


def _fill(container: ContainerPlan, mount: VolumeMount) -> ContainerPlan:
    labels = dict(container.labels) | {LABEL_PURPOSE: Purpose.FILL.value}
    return replace(
        container,
        purpose=Purpose.FILL,
        name=f"{container.name}-fill",
        labels=tuple(sorted(labels.items())),
        tmpfs=(),
        limits=None,
        keep_stdin=False,
        named_volumes=(mount,),
    )
