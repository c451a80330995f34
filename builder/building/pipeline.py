"""`builder build`: from a fresh lock to a proved image, stage by stage, each taking the last one's permit."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from builder.building.evidence import attach_evidence, find_proved, remember
from builder.locking import Project, fetch_missing, keep_skills, read_fresh_lock, require_true_signatures
from builder.storage.references import refer_to_project
from builder.workshop import Workshop
from images.config import BaseReference
from images.digests import Digest
from images.key import summarise
from images.lock import Lock, LockSummary
from images.oci import Platform
from provenance.layout_writing import import_image
from provenance.policy import Policy
from provenance.scan.accept import accept
from provenance.signing import StatementSigner
from provenance.statements import BuildFacts, DetectedImage

MEMORY_KEY: Final = "scan-memory.key"  # in the configuration directory


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One build: of what, signed by whom, under which builder id. ``now`` is the wall clock.

    ``policy``: what a known image must still satisfy. ``fresh``: build again although the key is known.
    ``cache``: a repository of a registry that may have it. ``memory_key``: of the codes under which is kept
    which layers were clean.
    """

    project: Project
    platform: Platform
    signer: StatementSigner
    builder_id: str
    version: str
    policy: Policy
    now: Callable[[], datetime]
    memory_key: Path
    fresh: bool = False
    cache: BaseReference | None = None

    @property
    def image_name(self) -> str:
        """What people call the image; the identity is the digest."""
        return self.project.config.name


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The platform manifest digest, the content key, the lock's digest; ``reused``: it was there already."""

    digest: Digest
    key: Digest
    lock: Digest
    reused: bool


def build(workshop: Workshop, request: BuildRequest) -> BuildResult:
    """The proved image of a lock: found by its key and checked again, or built."""
    with workshop.at_work():
        return _build(workshop, request)


def _build(workshop: Workshop, request: BuildRequest) -> BuildResult:
    lock, lock_raw = read_fresh_lock(request.project, workshop.settings)
    refer_to_project(workshop.state, request.project.lock_path, lock_raw)
    summary = summarise(lock, request.platform)
    known = _known(workshop, request, summary, lock_raw)
    if known is not None:
        return known
    with workshop.state.turn(summary.key.hex, lambda: _waiting(workshop, summary)):
        # Whoever had the turn before us may have built it meanwhile.
        known = _known(workshop, request, summary, lock_raw)
        known = known or _cached(workshop, request, summary, lock_raw)
        return known or _build_new(workshop, request, lock, summary, lock_raw)


def _known(
    workshop: Workshop, request: BuildRequest, summary: LockSummary, lock_raw: bytes
) -> BuildResult | None:
    if request.fresh:
        return None
    digest = find_proved(workshop.state, request, summary, lock_raw)
    if digest is None:
        return None
    workshop.reporter.say(f"nothing changed: {digest} is built and still proved")
    return BuildResult(digest, summary.key, summary.digest, reused=True)


def _cached(
    workshop: Workshop, request: BuildRequest, summary: LockSummary, lock_raw: bytes
) -> BuildResult | None:
    if request.fresh or request.cache is None:
        return None
    from builder.registry.cached import Lookup, find_in_cache  # noqa: PLC0415  (a known image asks nobody)

    lookup = Lookup(
        cache=request.cache,
        project=request.project,
        summary=summary,
        lock_raw=lock_raw,
        policy=request.policy,
        now=request.now,
    )
    digest = find_in_cache(workshop, lookup)
    return None if digest is None else BuildResult(digest, summary.key, summary.digest, reused=True)


def _waiting(workshop: Workshop, summary: LockSummary) -> None:
    workshop.reporter.say(f"another process builds this key already, {summary.key}; waiting for it")


def _build_new(
    workshop: Workshop, request: BuildRequest, lock: Lock, summary: LockSummary, lock_raw: bytes
) -> BuildResult:
    started = request.now()
    require_true_signatures(lock, workshop.settings, where=str(request.project.lock_path))
    keep_skills(workshop, request.project, lock)
    detected = _build_and_look(workshop, lock, summary, request.now, request.memory_key)
    facts = BuildFacts(
        image_name=request.image_name,
        builder_id=request.builder_id,
        builder_version=request.version,
        started=started,
        finished=request.now(),
        invocation=uuid.uuid4().urn,
    )
    from builder.building.billing import bill_of  # noqa: PLC0415  (only what is built new needs it)

    bill = bill_of(detected.image, lock, summary, facts, workshop.store)
    attach_evidence(detected, summary, facts, lock_raw, request.signer, sbom=bill)
    remember(workshop.state, detected.image, summary, facts)
    return BuildResult(detected.image.digest, summary.key, summary.digest, reused=False)


def _build_and_look(
    workshop: Workshop, lock: Lock, summary: LockSummary, now: Callable[[], datetime], memory_key: Path
) -> DetectedImage:
    """Build, scan, detect. Nothing is in the state's layout before the image is known to be clean."""
    # Imported when they are needed: a known image is answered without engine, BuildKit and scanner.
    from builder.building.bench import build_lock, detect_agents, open_bench, scan_for_credentials  # noqa: PLC0415
    from builder.script_check import require_own_commands, require_own_scripts  # noqa: PLC0415
    from provenance.scan.memory import LayerMemory  # noqa: PLC0415

    fetch_missing(workshop, lock)
    require_own_scripts(lock, workshop.store)
    require_own_commands(lock, workshop.store)
    with open_bench(workshop, now) as bench, workshop.state.staging("build") as staging:
        built = build_lock(bench, lock, summary.platform, staging)
        memory = LayerMemory(workshop.state.scans, memory_key)
        clean = scan_for_credentials(bench, built, lock, memory)
        # By hash into the state's own layout; what BuildKit wrote goes away with the staging directory.
        image = import_image(built.layout, built.digest, workshop.state.layout)
        return detect_agents(bench, accept(clean.report, image), summary)
