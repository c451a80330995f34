"""`builder pull`: an image and its evidence from a registry into the state; verify tells what it is worth."""

from __future__ import annotations

from builder.cli.documents.shared_images import PulledDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import open_workshop
from builder.registry.pulling import pull_image
from builder.registry.reference import parse_reference
from images.errors import UsageError

MOST_TOLD = 20


def run(invocation: Invocation) -> Result[PulledDocument]:
    """One line: the digest of the image for this machine."""
    reporter = invocation.reporter
    reference = parse_reference(invocation.options.reference)
    if not reference.tag and reference.digest is None:
        raise UsageError(
            "names neither a digest nor a tag",
            where=str(reference),
            hint=f"builder pull {reference}@sha256:…, as builder push printed it",
        )
    done = pull_image(open_workshop(invocation), reference)
    if reference.digest is None:
        reporter.note("what the tag names now", f"{reference.name}@{done.asked}")
    for line in done.left[:MOST_TOLD]:
        reporter.say(f"left out: {line}")
    if len(done.left) > MOST_TOLD:
        reporter.say(f"left out: {len(done.left) - MOST_TOLD} more")
    reporter.say(
        f"pulled: {done.blobs} blobs and {done.manifests} manifests were new, "
        f"{done.evidence} pieces of evidence"
    )
    reporter.say(f"nothing of it is trusted yet: builder verify {done.digest} --lock builder.lock")
    return Result(
        line=str(done.digest),
        document=PulledDocument(
            reference=f"{reference.name}@{done.asked}",
            digest=done.digest,
            locks=done.locks,
            evidence=done.evidence,
            blobs=done.blobs,
            manifests=done.manifests,
            left=done.left,
        ),
    )
