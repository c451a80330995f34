"""`builder runs`: the launches that the journal knows, a line each. Needs no engine; nothing is judged."""

from __future__ import annotations

from backend.journal import Journal
from builder.cli.documents.runs import RunDocument, RunsDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import state_of
from builder.running import Launched, launched
from images.strictjson import JsonValue
from provenance.statements import utc


def run(invocation: Invocation) -> Result[RunsDocument]:
    """Launch, class, when, how it ended (or how far it came), exit code, engine, image."""
    state = state_of(invocation)
    found: tuple[RunDocument, ...] = ()
    if state.journal.exists():
        with Journal.open(state.journal, state.id) as journal:
            found = tuple(map(run_document, launched(journal)))
    if not found:
        invocation.reporter.say("nothing was launched with this state")
    document = RunsDocument(launches=found)
    return Result(line="\n".join(map(run_line, found)), document=document)


def run_document(one: Launched) -> RunDocument:
    """One launch for programs."""
    intent, record = one.entry.intent, one.record or {}
    return RunDocument(
        launch=intent.launch_id,
        run=intent.run_id,
        step=intent.step,
        scope=intent.scope,
        launch_class=intent.launch_class,
        image=str(intent.image_digest),
        engine=intent.product,
        endpoint=intent.endpoint,
        mode=intent.mode,
        reached=one.entry.boundary,
        started=utc(one.passages[0].at),
        last=utc(one.passages[-1].at),
        ending=_text(record.get("ending")),
        reason=_text(record.get("reason")),
        exit_code=one.entry.exit_code,
        statement=str(one.statement) if one.statement else None,
    )


def run_line(one: RunDocument) -> str:
    """One launch for people."""
    how = one.ending or one.reached.value
    code = "-" if one.exit_code is None else str(one.exit_code)
    return f"{one.launch} {one.launch_class} {one.started} {how} {code} {one.engine} {one.mode} {one.image}"


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
