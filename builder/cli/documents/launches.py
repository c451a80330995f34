"""What `run` prints with --json: the plan of a dry run, or what became of a launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from backend.containers import Network
from backend.requests import LaunchClass, SourceRoute
from backend.space import ExportRule, WorkspaceStart
from backend.workspace.prepared import SourceKind
from builder.cli.documents import Document, Kind
from builder.cli.documents.shapes import Count, DigestText, Text
from provenance.policy import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsDocument:
    """``memory``: bytes."""

    cpus: float
    memory: Count
    pids: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSourceDocument:
    """The files. ``candidate_of``: the launch that exported them. ``not_seen``: files that no commit has."""

    kind: SourceKind
    candidate_of: str | None
    commit: Text
    tree: Text
    route: SourceRoute
    workspace: WorkspaceStart
    workspace_bytes: Count
    volumes: tuple[str, ...]
    export: ExportRule
    not_seen: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedIntegrationsDocument:
    """``turned_on``: ``mcp.NAME`` and ``skills.NAME``, by the policy; ``agents``: who is told.

    ``fenced``: whose own settings refuse any other server. ``server_secrets``: ``SERVER.VARIABLE``, no value.
    """

    turned_on: tuple[str, ...]
    agents: tuple[str, ...]
    server_secrets: tuple[str, ...]
    fenced: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLaunchDocument:
    """``tmpfs``: path to bytes. ``deadline``: seconds. ``source``: null for an empty /workspace in memory.

    ``allow``: host:port pairs, all that it could reach. ``terminal``: whether it would run on the caller's.
    With --json it never does. ``accepted``: by name in the policy, not enforced.
    """

    image: DigestText
    class_: LaunchClass
    run: Text
    step: Count
    engine: Text
    mode: Mode
    accepted: tuple[str, ...]
    credentials: tuple[str, ...]
    integrations: PlannedIntegrationsDocument
    user: Text
    watch_user: str
    command: tuple[str, ...]
    terminal: bool
    network: Network
    allow: tuple[str, ...]
    read_only_root: bool
    tmpfs: dict[str, Count]
    limits: LimitsDocument | None
    deadline: float
    source: PlannedSourceDocument | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument(Document):
    """The launch that would be. Nothing exists of it."""

    KIND: ClassVar = Kind("run-dry-run", "run --dry-run")

    plan: PlannedLaunchDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedCommitDocument:
    """The commit that came out; repository (a path) and reference that git fetches to bring it home."""

    commit: Text
    repository: Text
    reference: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedDocument(Document):
    """A launch whose command came to its end. The object is the last line; those before it are the command's.

    ``exit_code``: the command's, and builder's. ``statement``: digest of the signed record. ``exported``:
    null when no commit came out.
    """

    KIND: ClassVar = Kind("run", "run -- COMMAND")

    launch: Text
    run: Text
    step: Count
    launch_class: LaunchClass
    image: DigestText
    engine: Text
    mode: Mode
    exit_code: int
    statement: DigestText
    exported: ExportedCommitDocument | None
