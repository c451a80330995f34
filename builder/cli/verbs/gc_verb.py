"""`builder gc`: what goes, one line each, and how many bytes that frees."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from builder.cli.documents.collected import CollectionDocument, GcDocument, HeldDocument, RemovalDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.cli.verbs.bootstrap_verb import bootstrap_host
from builder.sessions import kept_sessions
from builder.storage.collecting import Collected, GcRequest, collect
from builder.storage.holding import Wish
from images.config import parse_duration
from images.errors import UsageError

_SESSIONS_STAY: Final = "builder sessions lists them, --sessions AGE lets old ones go"


def run(invocation: Invocation) -> Result[GcDocument]:
    """One line: the bytes freed."""
    options = invocation.options
    if options.keep is not None and options.keep < 0:
        raise UsageError("--keep: a number of images, 0 or more")
    wish = Wish(now=invocation.now(), keep=options.keep, older_than=_age("--older-than", options.older_than))
    grace = _age("--grace", options.grace) or timedelta()
    workshop = open_workshop(invocation)
    done = collect(
        workshop,
        GcRequest(
            wish=wish,
            grace=grace,
            host=bootstrap_host(invocation, workshop),
            candidates=_age("--candidates", options.candidates),
            sessions=_age("--sessions", options.sessions),
            logs=_age("--logs", options.logs) or timedelta(),
            dry_run=options.dry_run,
            engine_images=options.images,
        ),
    )
    said = "would remove" if options.dry_run else "removed"
    for one in done.removals:
        invocation.reporter.say(f"{said} {one}")
    for digest, why in done.held:
        invocation.reporter.detail(f"held {digest}: {why}")
    invocation.reporter.say(f"{said} {len(done.removals)} things, {done.freed} bytes; {len(done.held)} held")
    if left := kept_sessions(workshop.state):
        size = sum(one.size for one in left)
        invocation.reporter.say(f"sessions: {len(left)}, {size} bytes; {_SESSIONS_STAY}")
    return Result(line=str(done.freed), document=_document(done, dry_run=options.dry_run))


def _document(done: Collected, *, dry_run: bool) -> GcDocument:
    return GcDocument(
        gc=CollectionDocument(
            dry_run=dry_run,
            freed=done.freed,
            removed=tuple(
                RemovalDocument(thing=one.thing, name=one.name, bytes=one.size, why=one.why)
                for one in done.removals
            ),
            held=tuple(HeldDocument(digest=str(digest), why=why) for digest, why in done.held),
        )
    )


def _age(option: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    if text == "0":
        return timedelta()
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError as broken:
        raise UsageError(f"{option}: {broken}") from None
