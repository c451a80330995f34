"""`builder push`: an image, its lock and its evidence into a registry."""

from __future__ import annotations

from builder.cli.documents.shared_images import PushedDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.providing import open_resolver
from builder.registry.pushing import push
from builder.registry.reference import parse_reference
from builder.verifying import choose_image

MOST_TOLD = 20


def run(invocation: Invocation) -> Result[PushedDocument]:
    """One line: the reference with the digest, as others pull it."""
    options, reporter = invocation.options, invocation.reporter
    target = parse_reference(options.reference)
    workshop = open_workshop(invocation)
    state = workshop.state
    with workshop.at_work():
        chosen = choose_image(state, options.image, None, workshop.platform, invocation.working_dir)
        with (
            reporter.step(f"push {chosen.digest} to {target}") as step,
            open_resolver(workshop, step) as resolver,
        ):
            done = push(state.layout, chosen.digest, target, resolver, "builder push")
    for line in done.left[:MOST_TOLD]:
        reporter.say(f"left out: {line}")
    reporter.say(
        f"pushed: {done.sent} blobs ({done.sent_bytes} bytes) were not there, "
        f"{done.evidence} pieces of evidence"
    )
    if not done.evidence:
        reporter.warn("nothing is attached to it: nobody can verify it")
    pinned = f"{done.reference.name}@{done.digest}"
    return Result(
        line=pinned,
        document=PushedDocument(
            reference=pinned,
            digest=done.digest,
            tags=done.tags,
            evidence=done.evidence,
            sent=done.sent,
            sentBytes=done.sent_bytes,
            left=done.left,
        ),
    )
