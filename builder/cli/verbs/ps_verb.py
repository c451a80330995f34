"""`builder ps`: the containers of this state on the engine, a line each. Nothing is changed."""

from __future__ import annotations

from dataclasses import asdict

from backend.engines.protocol import Engine
from backend.journal import Journal
from builder.cli.invocation import Invocation, Result
from builder.cli.run_documents import PS, ContainerDocument, EngineDocument, OwnerState, PsDocument
from builder.cli.session import open_workshop
from builder.running import Running, running
from provenance.statements import utc


def run(invocation: Invocation) -> Result:
    """Launch (or purpose), status, owner, since when, image."""
    workshop = open_workshop(invocation)
    engine = workshop.connect()
    with Journal.open(workshop.state.journal, workshop.state.id) as journal:
        found = tuple(map(_document, running(workshop.state, engine, journal)))
    dead = sum(one.owner is OwnerState.DEAD for one in found)
    if dead:
        invocation.reporter.warn(f"{dead} of a dead process: builder reap")
    document = PsDocument(engine=engine_document(engine), containers=found)
    return Result(line="\n".join(map(_line, found)), document={"result": PS, **asdict(document)})


def engine_document(engine: Engine) -> EngineDocument:
    """Which engine this is."""
    facts = engine.facts()
    return EngineDocument(
        product=facts.product, version=facts.version, endpoint=facts.endpoint, rootless=facts.rootless
    )


def _document(one: Running) -> ContainerDocument:
    intent = one.entry.intent if one.entry else None
    return ContainerDocument(
        container=one.found.container_id,
        name=one.found.name,
        purpose=one.found.purpose,
        status=one.found.status,
        owner=OwnerState.ALIVE if one.alive else OwnerState.DEAD,
        launch=intent.launch_id if intent else None,
        run=intent.run_id if intent else None,
        step=intent.step if intent else None,
        scope=intent.scope if intent else None,
        image=str(intent.image_digest) if intent else None,
        image_id=one.found.image_id,
        supervision=one.found.supervision or None,
        since=utc(one.since) if one.since else None,
    )


def _line(one: ContainerDocument) -> str:
    what = one.launch or one.purpose
    words = (what, one.status, f"owner-{one.owner}", one.supervision or "-", one.since or "-")
    return " ".join((*words, one.image or one.image_id, one.container[:12]))
