"""`builder sbom`: the signed bill of materials of a verified image, on standard output or in a file."""

from __future__ import annotations

import json
from pathlib import Path

from builder.cli.documents.bill import SbomDocument
from builder.cli.invocation import Invocation, Result
from builder.cli.session import state_of
from builder.cli.verified import verified_here
from images.digests import canonical_json
from images.errors import UsageError, VerifyFailed
from images.strictjson import read_object
from provenance.signing import Bundle
from provenance.statements import MAX_STATEMENT_BYTES
from provenance.verify import Purpose, VerifiedImage
from provenance.writing import replace_file


def run(invocation: Invocation) -> Result[SbomDocument]:
    """CycloneDX on standard output; with ``-o`` in a file, and the digest of its statement instead."""
    _, verified = verified_here(invocation, state_of(invocation), Purpose.INSPECTION)
    bill = _bill(verified)
    document = SbomDocument(
        image=str(verified.image.digest),
        statement=str(_signed(verified).statement.digest),
        components=len(bill["components"]) if isinstance(bill["components"], list) else 0,
        sbom=bill,
    )
    output: Path | None = invocation.options.output
    if output is None:
        return Result(line=json.dumps(bill, sort_keys=True), document=document)
    # The bytes that were signed, so that whoever compares digests can.
    replace_file(output, canonical_json(bill))
    invocation.reporter.say(f"wrote {output}: {document.components} components")
    return Result(line=document.statement, document=document)


def _bill(verified: VerifiedImage) -> dict[str, object]:
    predicate = _signed(verified).statement.predicate_json
    found = read_object(predicate, "bill of materials", max_bytes=MAX_STATEMENT_BYTES, error=VerifyFailed)
    return {**found}


def _signed(verified: VerifiedImage) -> Bundle:
    """The bundle that holds it. UsageError for an image that was built before there were any."""
    if verified.sbom is None:
        raise UsageError(
            "no bill of materials of this lock is attached to it",
            where=str(verified.image.digest),
            hint="builder build --no-cache",
        )
    return verified.sbom
