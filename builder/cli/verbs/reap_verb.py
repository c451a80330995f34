"""`builder reap`: remove what dead processes of this state left, a line each; ``--dry-run`` only says it."""

from __future__ import annotations

from backend.journal import Journal
from backend.recovery import VOLUME_PREFIX
from builder.cli.documents.runs import ReapDocument, ReapedDocument, ReapedThing
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.cli.verbs.ps_verb import engine_document
from builder.running import Reaped, reap


def run(invocation: Invocation) -> Result[ReapDocument]:
    """The same recovery as before every launch and build; one line of output for each removal."""
    dry_run = invocation.options.dry_run
    workshop = open_workshop(invocation)
    engine = workshop.connect()
    with Journal.open(workshop.state.journal, workshop.state.id) as journal:
        done = reap(workshop.state, engine, journal, invocation.now, dry_run=dry_run)
    removed = tuple(_removed(done))
    said = "would remove" if dry_run else "removed"
    for one in removed:
        invocation.reporter.say(f"{said} {one.thing} {one.name}: {one.why}")
    if not removed:
        invocation.reporter.say("nothing is left of a dead process")
    elsewhere = tuple(
        f"{entry.intent.launch_id} on {entry.intent.product} at {entry.intent.endpoint}"
        for entry in done.elsewhere
    )
    for text in elsewhere:
        invocation.reporter.warn(f"not looked at, on another engine: {text}; builder reap --engine NAME")
    document = ReapDocument(
        engine=engine_document(engine), dry_run=dry_run, removed=removed, elsewhere=elsewhere
    )
    return Result(
        line="\n".join(f"{one.thing} {one.name}" for one in removed),
        document=document,
    )


def _removed(done: Reaped) -> list[ReapedDocument]:
    return [
        *(
            ReapedDocument(thing=ReapedThing.CONTAINER, name=one.container_id, why=one.why)
            for one in done.plan.remove
        ),
        *(
            ReapedDocument(
                thing=ReapedThing.VOLUME, name=one.container_id.removeprefix(VOLUME_PREFIX), why=one.why
            )
            for one in done.plan.volumes
        ),
        *(
            ReapedDocument(thing=ReapedThing.CANDIDATE, name=one.container_id, why=one.why)
            for one in done.plan.candidates
        ),
        *(
            ReapedDocument(thing=ReapedThing.LAUNCH, name=launch, why="its controller died")
            for launch in done.plan.close
        ),
        *(
            ReapedDocument(thing=ReapedThing.STAGING, name=name, why="its process is dead")
            for name in done.staging
        ),
    ]
