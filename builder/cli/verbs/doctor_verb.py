"""`builder doctor`: what this host can enforce, with the remedy for what it cannot."""

from __future__ import annotations

from backend.containers import EngineFacts
from backend.engines.protocol import Engine
from backend.journal import Journal
from backend.probe import ProbeState
from builder.cli.documents.host import DoctorDocument, HostEngineDocument, HostLineDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop, role_keys
from builder.doctor import Examination, examine
from builder.leftovers import remove_leftovers
from images.errors import HostError


def run(invocation: Invocation) -> Result[DoctorDocument]:
    """Exit 3 when required mode cannot hold on this host, whatever a policy accepts."""
    workshop = open_workshop(invocation)

    def before(engine: Engine) -> None:
        with Journal.open(workshop.state.journal, workshop.state.id) as journal:
            remove_leftovers(workshop, engine, journal, invocation.now)

    found = examine(workshop, role_keys(invocation), fresh=invocation.options.fresh, before=before)
    for line in found.lines:
        remedy = f" -> {line.remedy}" if line.remedy and line.state is not ProbeState.HELD else ""
        invocation.reporter.say(f"{line.state.value:<12} {line.name.value}: {line.detail}{remedy}")
    document = DoctorDocument(
        engine=None if found.facts is None else _engine(found.facts),
        required_mode=found.required_mode,
        lines=tuple(
            HostLineDocument(name=line.name.value, state=line.state, detail=line.detail, remedy=line.remedy)
            for line in found.lines
        ),
    )
    return Result(document=document, failure=_failure(found))


def _failure(found: Examination) -> HostError | None:
    if found.required_mode:
        return None
    why = ", ".join(line.name.value for line in found.refusing)
    remedies = [line.remedy for line in found.refusing if line.remedy]
    return HostError(
        f"required mode cannot hold on this host: {why}",
        hint=remedies[0] if remedies else "do what the lines above say",
        reason="required-mode",
    )


def _engine(facts: EngineFacts) -> HostEngineDocument:
    return HostEngineDocument(
        product=facts.product,
        version=facts.version,
        api_version=facts.api_version,
        endpoint=facts.endpoint,
        rootless=facts.rootless,
    )
