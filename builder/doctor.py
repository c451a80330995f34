"""Examine this host: what its engine and it can enforce, and where nothing answers, why nothing is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend.containers import EngineFacts
from backend.engines.protocol import Engine
from backend.host import Host, look_at_host
from backend.probe import HostProbe, ProbeLine, ProbeName, ProbeState, judge_engine
from builder.probing import probe_engine
from builder.workshop import Workshop
from images.errors import BuilderError, HostError, LaunchReason, PinError, UsageError

# Of what connecting says: the line that it is about. Anything else is about the engine's identity.
_ABOUT = {"engine-remote": ProbeName.LOCAL}
_REFUSE = frozenset({ProbeState.NOT_HELD, ProbeState.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """``lines``: one for each question, in the report's order. ``facts``: None when no engine answers."""

    facts: EngineFacts | None
    lines: tuple[ProbeLine, ...]

    @property
    def required_mode(self) -> bool:
        """Whether required mode can hold here, with what a policy may accept by name accepted."""
        return not self.refusing

    @property
    def refusing(self) -> tuple[ProbeLine, ...]:
        """The lines that required mode refuses this host for."""
        return tuple(line for line in self.lines if line.state in _REFUSE)


def examine(
    workshop: Workshop, keys: tuple[Path, ...], *, fresh: bool, before: Callable[[Engine], None]
) -> Examination:
    """Every line, whatever fails on the way. ``before``: what is done on the engine before it is probed."""
    facts: EngineFacts | None = None
    uid_map: tuple[tuple[int, int, int], ...] = ()
    try:
        engine = workshop.connect()
    except HostError as broken:
        lines = _unanswered((), _ABOUT.get(broken.reason, ProbeName.IDENTITY), broken)
    else:
        facts = engine.facts()
        before(engine)
        found = _probed(workshop, engine, fresh=fresh)
        if isinstance(found, HostProbe):
            lines, uid_map = found.lines, found.uid_map
        else:
            lines = _unanswered(judge_engine(facts, None), ProbeName.IMAGE_ID, found)
    host = Host(facts=facts, uid_map=uid_map, state=workshop.state.root, keys=keys)
    return Examination(facts=facts, lines=(*lines, *look_at_host(host)))


def _probed(workshop: Workshop, engine: Engine, *, fresh: bool) -> HostProbe | BuilderError:
    """The probe, or why there is none: the engine cannot run its container, or there is no base to run."""
    try:
        return probe_engine(workshop, engine, fresh=fresh)
    except (HostError, PinError, UsageError) as broken:
        return broken


def _unanswered(
    known: tuple[ProbeLine, ...], failed: ProbeName, broken: BuilderError
) -> tuple[ProbeLine, ...]:
    """``known`` as it is; ``failed`` is what could not be done; the rest stays unknown for that reason."""
    found = {line.name: line for line in known}
    lines = []
    for name in ProbeName:
        why = broken.what if name is failed else f"not asked: see {failed.value}"
        state = ProbeState.NOT_HELD if name is failed else ProbeState.UNKNOWN
        lines.append(
            found.get(
                name,
                ProbeLine(
                    name=name,
                    state=state,
                    detail=why,
                    remedy=broken.hint if name is failed else "",
                    reason=LaunchReason.ENGINE_IDENTITY,
                ),
            )
        )
    return tuple(lines)
