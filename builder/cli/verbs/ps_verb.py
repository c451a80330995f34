"""`builder ps`: the containers of this state on the engine, a line each. Nothing is changed."""

from __future__ import annotations

from backend.engines.protocol import Engine
from backend.journal import Journal
from builder.cli.documents.runs import (
    ContainerDocument,
    EngineDocument,
    OwnerState,
    PsDocument,
    VolumeDocument,
)
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.running import Kept, Running, running, volumes_in_use
from provenance.statements import utc


def run(invocation: Invocation) -> Result[PsDocument]:
    """Launch (or purpose), status, owner, since when, image."""
    workshop = open_workshop(invocation)
    engine = workshop.connect()
    with Journal.open(workshop.state.journal, workshop.state.id) as journal:
        found = tuple(map(_document, running(workshop.state, engine, journal)))
        volumes = tuple(map(_volume, volumes_in_use(workshop.state, engine, journal)))
    owners = [*(one.owner for one in found), *(one.owner for one in volumes)]
    dead = owners.count(OwnerState.DEAD)
    if dead:
        invocation.reporter.warn(f"{dead} of a dead process: builder reap")
    if not found and not volumes:
        invocation.reporter.say("no container of this state is on this engine")
    document = PsDocument(engine=engine_document(engine), containers=found, volumes=volumes)
    lines = (*map(_line, found), *map(_volume_line, volumes))
    return Result(line="\n".join(lines), document=document)


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


def _volume(one: Kept) -> VolumeDocument:
    return VolumeDocument(
        name=one.found.name,
        owner=OwnerState.ALIVE if one.alive else OwnerState.DEAD,
        launch=one.entry.intent.launch_id if one.entry else None,
    )


def _volume_line(one: VolumeDocument) -> str:
    return f"{one.launch or '-'} volume owner-{one.owner} {one.name}"


def _line(one: ContainerDocument) -> str:
    what = one.launch or one.purpose
    words = (what, one.status, f"owner-{one.owner}", one.supervision or "-", one.since or "-")
    return " ".join((*words, one.image or one.image_id, one.container[:12]))
