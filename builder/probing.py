"""What this host can enforce: the backend's probe on the bootstrap base, kept per boot and engine."""

from __future__ import annotations

from backend.containers import Purpose
from backend.engines.protocol import Engine
from backend.ownership import hold_lease
from backend.probe import HostProbe
from backend.probe_cache import probe
from builder.base_check import read_base
from builder.bootstrap import bootstrapped_images
from builder.workshop import Workshop, open_tool
from images.digests import Digest
from images.errors import UsageError


def probe_engine(workshop: Workshop, engine: Engine, *, fresh: bool = False) -> HostProbe:
    """The kept answers, or new ones; ``fresh`` asks anew. The same code serves init, doctor and run."""
    base = open_tool(workshop, probe_base(workshop), "base")
    cache = workshop.state.probe / f"{engine.product}.json"
    if fresh:
        cache.unlink(missing_ok=True)
    with (
        hold_lease(workshop.state.leases, workshop.state.id) as owner,
        workshop.state.staging("probe") as staging,
        workshop.reporter.step(f"look at what {engine.product} can enforce here"),
    ):
        return probe(
            engine,
            base,
            init=read_base(base).init,
            staging=staging,
            labels=owner.labels(Purpose.PROBE),
            cache=cache,
        )


def probe_base(workshop: Workshop) -> Digest:
    """The base that probes run on: of settings.toml, else what bootstrap made."""
    if workshop.settings.base is not None:
        return workshop.settings.base
    made = bootstrapped_images(workshop.state.layout, lock_copy=workshop.state.bootstrap / "bootstrap.lock")
    if made is None:
        raise UsageError(
            "there is no base image to probe the engine with: neither settings.toml nor bootstrap gives one",
            hint="builder bootstrap",
        )
    return made.base
