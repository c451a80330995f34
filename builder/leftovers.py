"""Remove what dead processes of this state root left on the engine, before anything is started; say so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from backend.engines.protocol import Engine
from backend.journal import Journal
from backend.recovery import recover
from builder.workshop import Workshop


def remove_leftovers(
    workshop: Workshop, engine: Engine, journal: Journal, now: Callable[[], datetime]
) -> None:
    """Containers of launches, builds and probes whose owner died. Others' are never looked at."""
    state = workshop.state
    done = recover(engine, journal, state.leases, state.id, now, candidates=state.candidates)
    for removal in done.remove:
        workshop.reporter.warn(
            f"removed a container that a dead controller left: {removal.container_id[:12]}"
        )
    for removal in (*done.volumes, *done.candidates):
        workshop.reporter.warn(f"removed what a dead controller left: {removal.container_id}")
