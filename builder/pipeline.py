"""`builder build`: from a fresh lock to a proved image, stage by stage, each taking the last one's permit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from backend.containers import Purpose
from backend.detect import DETECT_LIMITS, detect
from backend.engines.protocol import Engine
from backend.journal import Journal
from backend.ownership import Owner, hold_lease
from backend.tools import build_container
from builder.base_check import read_base
from builder.bootstrap import Role
from builder.build_memory import state_bytes
from builder.buildkit import build_image
from builder.buildx import take_buildx
from builder.evidence import attach_evidence, find_proved, remember
from builder.leftovers import remove_leftovers
from builder.locking import Project, fetch_missing, keep_skills, read_fresh_lock
from builder.probing import probe_engine
from builder.providing import provide, provide_base, require_buildkit
from builder.scanning import scan_built
from builder.workshop import Workshop, load_tool, template_text
from images.digests import Digest
from images.key import summarise
from images.lock import Lock, LockSummary
from images.oci import OciImage, Platform
from images.render import render
from provenance.keys import PrivateKey
from provenance.layout_writing import import_image
from provenance.policy import Policy
from provenance.scan.accept import CleanImage, accept
from provenance.statements import BuildFacts, DetectedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One build: of what, signed by whom, under which builder id. ``now`` is the wall clock.

    ``policy``: what a known image must still satisfy. ``fresh``: build again although the key is known.
    """

    project: Project
    platform: Platform
    signer: PrivateKey
    builder_id: str
    version: str
    policy: Policy
    now: Callable[[], datetime]
    fresh: bool = False

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


@dataclass(frozen=True, slots=True)
class Bench:
    """One build under way: the workshop, its engine, and the lease that its containers carry."""

    workshop: Workshop
    engine: Engine
    owner: Owner


def build(workshop: Workshop, request: BuildRequest) -> BuildResult:
    """The proved image of a lock: found by its key and checked again, or built."""
    lock, lock_raw = read_fresh_lock(request.project, workshop.settings)
    summary = summarise(lock, request.platform)
    known = _known(workshop, request, summary, lock_raw)
    if known is not None:
        return known
    with workshop.state.turn(summary.key.hex, lambda: _waiting(workshop, summary)):
        # Whoever had the turn before us may have built it meanwhile.
        known = _known(workshop, request, summary, lock_raw)
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


def _waiting(workshop: Workshop, summary: LockSummary) -> None:
    workshop.reporter.say(f"another process builds this key already, {summary.key}; waiting for it")


def _build_new(
    workshop: Workshop, request: BuildRequest, lock: Lock, summary: LockSummary, lock_raw: bytes
) -> BuildResult:
    started = request.now()
    keep_skills(workshop, request.project, lock)
    detected = _build_and_look(workshop, lock, summary, request.now)
    facts = BuildFacts(
        image_name=request.image_name,
        builder_id=request.builder_id,
        builder_version=request.version,
        started=started,
        finished=request.now(),
        invocation=uuid.uuid4().urn,
    )
    attach_evidence(detected, summary, facts, lock_raw, request.signer)
    remember(workshop.state, detected.image, summary, facts)
    return BuildResult(detected.image.digest, summary.key, summary.digest, reused=False)


def _build_and_look(
    workshop: Workshop, lock: Lock, summary: LockSummary, now: Callable[[], datetime]
) -> DetectedImage:
    """Build, scan, detect. Nothing is in the state's layout before the image is known to be clean."""
    fetch_missing(workshop, lock)
    with open_bench(workshop, now) as bench, workshop.state.staging("build") as staging:
        built = build_lock(bench, lock, summary.platform, staging)
        clean = scan_for_credentials(bench, built, lock)
        # By hash into the state's own layout; what BuildKit wrote goes away with the staging directory.
        image = import_image(built.layout, built.digest, workshop.state.layout)
        return detect_agents(bench, accept(clean.report, image), summary)


@contextmanager
def open_bench(workshop: Workshop, now: Callable[[], datetime]) -> Iterator[Bench]:
    """The engine, without what dead builds left there, and a lease for as long as this one may live."""
    engine, state = workshop.connect(), workshop.state
    with hold_lease(state.leases, state.id) as owner:
        with Journal.open(state.journal, state.id) as journal:
            remove_leftovers(workshop, engine, journal, now)
        yield Bench(workshop, engine, owner)


def build_lock(bench: Bench, lock: Lock, platform: Platform, staging: Path) -> OciImage:
    """Build a lock whose artifacts are in the store, in a fresh build container, below ``staging``."""
    workshop = bench.workshop
    base = provide_base(workshop, lock, platform)
    context = render(lock, platform, template_text(), read_base(base))
    tool = provide(workshop, Role.BUILD_CONTAINER)
    loaded = load_tool(workshop, bench.engine, tool, "build container")
    require_buildkit(workshop, bench.engine, loaded, bench.owner, lock.recipe.buildkit)
    private, work = staging / "socket", staging / "work"
    for folder in (private, work):
        folder.mkdir(mode=0o700)
    with (
        workshop.reporter.step("build") as step,
        build_container(
            bench.engine,
            loaded,
            private,
            bench.owner.labels(Purpose.BUILD),
            state_bytes=state_bytes(context, base, bench.engine.facts()),
        ) as container,
    ):
        return build_image(
            context,
            base,
            store=workshop.store,
            container=container,
            buildx=take_buildx(tool, workshop.state.client_home),
            staging=work,
            on_line=step.update,
        )


def scan_for_credentials(bench: Bench, image: OciImage, lock: Lock) -> CleanImage:
    """Scan every byte in a child, and say what was seen. CredentialFound otherwise."""
    reporter = bench.workshop.reporter
    with reporter.step("scan every byte for credentials"):
        report = scan_built(image, lock, image.platform)
    reporter.say(
        f"scan: {report.verdict}, {report.bytes_scanned / 1e6:.0f} MB, ruleset {report.ruleset}, "
        f"{len(report.cleared)} published samples cleared, {report.nested_count} archives not opened"
    )
    return accept(report, image)


def detect_agents(bench: Bench, clean: CleanImage, summary: LockSummary) -> DetectedImage:
    """Start each agent inside, as a launch on this host will."""
    workshop = bench.workshop
    # As a launch on this host will be: with limits where they bind.
    enforced = probe_engine(workshop, bench.engine).limits_enforced
    with (
        workshop.reporter.step("start each agent inside and ask for its version"),
        workshop.state.staging("detect") as staging,
    ):
        detected = detect(
            bench.engine,
            clean,
            summary.agents,
            owner=bench.owner,
            staging=staging,
            limits=DETECT_LIMITS if enforced else None,
        )
    for agent in detected.agents:
        workshop.reporter.say(f"detected: {agent.name} {agent.reported}")
    return detected
