"""What this host can enforce: the backend's probe on the base, kept per boot and engine."""

from __future__ import annotations

from backend.containers import Purpose
from backend.engines.protocol import Engine
from backend.ownership import hold_lease
from backend.probe import HostProbe
from backend.probe_cache import probe
from builder.base_check import read_base
from builder.providing import provide
from builder.roles import Role
from builder.workshop import Workshop


def probe_engine(workshop: Workshop, engine: Engine, *, fresh: bool = False) -> HostProbe:
    """The kept answers, or new ones; ``fresh`` asks anew. The same code serves init, doctor and run."""
    base = provide(workshop, Role.BASE)
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
