"""`builder sessions`: what agents remember from run to run, a line each; or forget one. Needs no engine."""

from __future__ import annotations

from builder.cli.documents.sessions import SessionDocument, SessionRemovalDocument, SessionsDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import state_of
from builder.sessions import KeptSession, forget_session, kept_sessions
from provenance.statements import utc


def run(invocation: Invocation) -> Result[SessionsDocument | SessionRemovalDocument]:
    """Name, agents, bytes, when it was last kept, and whether a run has it; nothing where one is removed."""
    state, name = state_of(invocation), invocation.options.remove
    if name is not None:
        gone = forget_session(state, name)
        invocation.reporter.say(f"forgotten: the session {name}, {gone.size} bytes")
        return Result(document=SessionRemovalDocument(removed=_document(gone)))
    found = tuple(map(_document, kept_sessions(state)))
    if not found:
        invocation.reporter.say("no session is kept here; one begins with builder run --session NAME")
    return Result(line="\n".join(map(_line, found)), document=SessionsDocument(sessions=found))


def _document(kept: KeptSession) -> SessionDocument:
    return SessionDocument(
        name=kept.name, agents=kept.agents, bytes=kept.size, saved=utc(kept.saved), in_use=kept.in_use
    )


def _line(one: SessionDocument) -> str:
    agents = ", ".join(one.agents) or "nothing yet"
    return f"{one.name}\t{agents}\t{one.bytes} bytes\t{one.saved}\t{'in use' if one.in_use else 'free'}"
