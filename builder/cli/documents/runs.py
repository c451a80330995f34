"""What `ps`, `runs`, `reap` and `show RUN` print with --json."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from backend.containers import ContainerStatus
from backend.journal import Boundary
from builder.cli.documents import Document, Kind


class OwnerState(StrEnum):
    """Whether the process that made it still lives, by the kernel's word."""

    ALIVE = "alive"
    DEAD = "dead"


class ReapedThing(StrEnum):
    """What is removed. LAUNCH: nothing is left of it, and the journal says so."""

    CONTAINER = "container"
    VOLUME = "volume"
    CANDIDATE = "candidate"
    LAUNCH = "launch"
    STAGING = "staging"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDocument:
    """Which engine was asked."""

    product: str
    version: str
    endpoint: str
    rootless: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDocument:
    """One container. The fields of a launch are null for a tool's container (build, probe, …).

    ``image``: the manifest digest; ``image_id``: what the engine calls it. ``since``: when the launch was
    intended, for a tool when its process started to work.
    """

    container: str
    name: str
    purpose: str
    status: ContainerStatus
    owner: OwnerState
    launch: str | None
    run: str | None
    step: int | None
    scope: str | None
    image: str | None
    image_id: str
    supervision: str | None
    since: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeDocument:
    """One volume of a launch; the launch is null when the journal does not know it."""

    name: str
    owner: OwnerState
    launch: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PsDocument(Document):
    """Every container and volume of this state on one engine."""

    KIND: ClassVar = Kind("ps", "ps")

    engine: EngineDocument
    containers: tuple[ContainerDocument, ...]
    volumes: tuple[VolumeDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapedDocument:
    """One removal. ``name``: container id, launch id, or path below the state root."""

    thing: ReapedThing
    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapDocument(Document):
    """``elsewhere``: launches of dead processes on another engine, as ``launch on product at endpoint``."""

    KIND: ClassVar = Kind("reap", "reap")

    engine: EngineDocument
    dry_run: bool
    removed: tuple[ReapedDocument, ...]
    elsewhere: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """One launch. ``ending`` and ``reason`` are those of its record, null while it has none.

    ``exit_code``: the command's own. ``statement``: digest of the signed record.
    """

    launch: str
    run: str
    step: int
    scope: str
    launch_class: str
    image: str
    engine: str
    endpoint: str
    mode: str
    reached: Boundary
    started: str
    last: str
    ending: str | None
    reason: str | None
    exit_code: int | None
    statement: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsDocument(Document):
    """Every launch of this state, oldest first."""

    KIND: ClassVar = Kind("runs", "runs")

    launches: tuple[RunDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageDocument:
    """One boundary that the launch crossed."""

    boundary: Boundary
    at: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDocument:
    """One launch with its way. ``record``: the predicate of its signed record, null while it has none."""

    launch: RunDocument
    passed: tuple[PassageDocument, ...]
    record: dict[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRunDocument(Document):
    """Each launch of a run, or the one asked for."""

    KIND: ClassVar = Kind("show-run", "show RUN")

    launches: tuple[LaunchDocument, ...]
