"""`builder gc`: what goes, one line each, and how many bytes that frees."""

from __future__ import annotations

from datetime import timedelta

from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.cli.verbs.bootstrap_verb import bootstrap_host
from builder.storage.collecting import GcRequest, collect
from builder.storage.holding import Wish
from images.config import parse_duration
from images.errors import UsageError


def run(invocation: Invocation) -> Result:
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
    removals = [
        {"thing": one.thing.value, "name": one.name, "bytes": one.size, "why": one.why}
        for one in done.removals
    ]
    held = [{"digest": digest, "why": why} for digest, why in done.held]
    document = {"dry_run": options.dry_run, "freed": done.freed, "removed": removals, "held": held}
    return Result(line=str(done.freed), document={"gc": document})


def _age(option: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    if text == "0":
        return timedelta()
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError as broken:
        raise UsageError(f"{option}: {broken}") from None
