"""What this host can enforce: the backend's probe on the base, kept per boot and engine."""

from __future__ import annotations

from backend.containers import Purpose
from backend.engines.protocol import Engine
from backend.ownership import hold_lease
from backend.probe import HostProbe, ProbeName, ProbeState
from backend.probe_cache import probe
from builder.building.base_check import read_base
from builder.providing import provide
from builder.roles import Role
from builder.workshop import Workshop, tool_digest
from images.errors import HostError, UsageError, VerifyFailed
from images.oci import OciImage
from provenance.layout import Rehash, open_image

# What tells a rootful engine from a rootless one: for policy to judge, not for the choice.
_POLICY_JUDGES = frozenset({ProbeName.ROOTLESS, ProbeName.USER_NAMESPACE})


def probe_engine(workshop: Workshop, engine: Engine, *, fresh: bool = False) -> HostProbe:
    """The kept answers, or new ones; ``fresh`` asks anew. The same code serves init, doctor and run."""
    return _probe_on(workshop, engine, _find_base(workshop) or provide(workshop, Role.BASE), fresh=fresh)


def _find_base(workshop: Workshop) -> OciImage | None:
    """The base, if it is here. Who asks anew reads its layers, and so hashes them; kept answers do not."""
    try:
        digest = tool_digest(workshop, Role.BASE)
        return open_image(workshop.state.layout, digest, workshop.platform, rehash=Rehash.LATER)
    except (UsageError, VerifyFailed):
        return None


def _probe_on(workshop: Workshop, engine: Engine, base: OciImage, *, fresh: bool = False) -> HostProbe:
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
            find_init=lambda: read_base(base).init,
            staging=staging,
            labels=owner.labels(Purpose.PROBE),
            cache=cache,
        )


def why_not(workshop: Workshop, engine: Engine) -> str:
    """What the probe says against an engine where several answer; empty when it passes.

    Before there is a base image nothing can be probed, and nothing speaks against any.
    """
    base = _find_base(workshop)
    if base is None:
        return ""
    try:
        probe = _probe_on(workshop, engine, base)
    except HostError as broken:
        return broken.what
    failed = (line for line in probe.lines if line.state is ProbeState.NOT_HELD)
    return next((f"{one.name.value}: {one.detail}" for one in failed if one.name not in _POLICY_JUDGES), "")
