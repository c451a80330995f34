"""`builder logs`: what the command of a launch said, where it was kept. Needs no engine."""

from __future__ import annotations

from backend.journal import Journal
from builder.cli.documents.logs import KeptLogDocument, LogsDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import state_of
from builder.running import find_launches
from builder.storage.kept_output import kept_output
from images.errors import UsageError


def run(invocation: Invocation) -> Result[LogsDocument]:
    """The text on standard output; UsageError where nothing was kept."""
    state, name = state_of(invocation), invocation.options.run
    with Journal.open(state.journal, state.id) as journal:
        launches = [one.entry.intent.launch_id for one in find_launches(journal, name)]
    found: list[KeptLogDocument] = []
    for launch in launches:
        kept = kept_output(state.logs, launch)
        text = None if kept is None else kept.data.decode("utf-8", "replace")
        dropped = 0 if kept is None else kept.dropped
        found.append(KeptLogDocument(launch=launch, text=text, dropped=dropped))
        if kept is not None and len(launches) > 1:
            invocation.reporter.say(f"launch {launch}")
        if dropped:
            invocation.reporter.warn(f"launch {launch}: {dropped} bytes before these were not kept")
    if all(one.text is None for one in found):
        raise UsageError(
            "no output was kept: only run --keep-log keeps it, and a foreground launch has none",
            where=name,
            hint=f"builder show {name}, for what is on record; builder run --keep-log -- COMMAND",
        )
    line = "".join(one.text or "" for one in found).removesuffix("\n")
    return Result(line=line, document=LogsDocument(logs=tuple(found)))
