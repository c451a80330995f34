"""The stations of a build: engine and lease, the build container, the scan, the detection."""

from __future__ import annotations

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
from builder.building.base_check import read_base
from builder.building.buildkit import build_image
from builder.building.buildx import take_buildx
from builder.building.memory import state_bytes
from builder.building.scanning import scan_built
from builder.leftovers import remove_leftovers
from builder.probing import probe_engine
from builder.providing import provide, provide_base, require_buildkit
from builder.report import Reporter
from builder.roles import Role
from builder.settings.own_values import OwnValue, own_values
from builder.workshop import Workshop, load_image, template_text
from images.lock import Lock, LockSummary
from images.oci import OciImage, Platform
from images.render import BuildContext, render
from provenance.scan.accept import CleanImage, accept
from provenance.scan.known import KNOWN_RULE
from provenance.scan.memory import LayerMemory
from provenance.scan.report import ScanReport
from provenance.statements import DetectedImage


@dataclass(frozen=True, slots=True)
class Bench:
    """One build under way: the workshop, its engine, and the lease that its containers carry."""

    workshop: Workshop
    engine: Engine
    owner: Owner


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
    base = provide_base(bench.workshop, lock, platform)
    context = render(lock, platform, template_text(), read_base(base))
    return build_context(bench, context, base, lock.recipe.buildkit, staging)


def build_context(
    bench: Bench, context: BuildContext, base: OciImage, buildkit: str, staging: Path, *, target: str = ""
) -> OciImage:
    """Build what was rendered; ``buildkit``: the version it must be. ``target``: only this stage."""
    workshop = bench.workshop
    tool = provide(workshop, Role.BUILD_CONTAINER)
    loaded = load_image(workshop, bench.engine, tool, "build container")
    require_buildkit(workshop, bench.engine, loaded, bench.owner, buildkit)
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
            target=target,
        )


def scan_for_credentials(
    bench: Bench, image: OciImage, lock: Lock, memory: LayerMemory | None = None
) -> CleanImage:
    """Scan every byte in a child, for this host's own logins too, and say what was seen. CredentialFound.

    ``memory``: layers that it found clean before are hashed, and not scanned again; unless there are logins.
    """
    workshop = bench.workshop
    reporter, own = workshop.reporter, own_values(workshop.settings, workshop.given)
    with reporter.step("scan every byte for credentials"):
        known = tuple(one.value for one in own)
        report = scan_built(image, lock, image.platform, workshop.store, memory=memory, known=known)
    _say_whose(reporter, own, report)
    before = f", {memory.recalled} layers of it in an earlier build" if memory and memory.recalled else ""
    reporter.say(
        f"scan: {report.verdict}, {report.bytes_scanned / 1e6:.0f} MB{before}, ruleset {report.ruleset}, "
        f"{len(report.cleared)} published samples cleared, {report.opened} archives inside opened, "
        f"{report.unanswered} not"
    )
    return accept(report, image)


def _say_whose(reporter: Reporter, own: tuple[OwnValue, ...], report: ScanReport) -> None:
    """A finding names a known value by its number alone."""
    if own:
        reporter.say(f"scan: {len(own)} values of this host's own logins were looked for")
    found = {one.rule for one in report.findings}
    for number, one in enumerate(own, 1):
        if f"{KNOWN_RULE}-{number}" in found:
            reporter.say(f"{KNOWN_RULE}-{number} is of {one.place}")


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
