"""The evidence of a build: signed and attached, read back, remembered; and found again for a known key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from builder.state import State
from images.digests import Digest
from images.errors import BuildFailed
from images.lock import LockSummary
from images.oci import OciImage, Platform
from images.strictjson import JsonValue
from provenance.bundles import open_bundle
from provenance.expectations import Expectation
from provenance.layout import Stamp, stamp_layers
from provenance.ledger import LedgerEntry, open_ledger
from provenance.policy import Policy
from provenance.predicates import DETECTION_TYPE, PROVENANCE_TYPE, SBOM_TYPE, SCAN_TYPE
from provenance.referrers import add_lock, add_referrer, read_referrers
from provenance.signing import StatementSigner
from provenance.statements import (
    BuildFacts,
    DetectedImage,
    detection_statement,
    parse_statement,
    provenance_statement,
    sbom_statement,
    scan_statement,
    utc,
)
from provenance.verify import VerifyRequest, verify


class Known(Protocol):
    """What a search for a known key needs of a build request."""

    @property
    def platform(self) -> Platform: ...
    @property
    def image_name(self) -> str: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def now(self) -> Callable[[], datetime]: ...


def find_proved(state: State, request: Known, summary: LockSummary, lock_raw: bytes) -> Digest | None:
    """The image that the ledger has for this key, if it still verifies under the policy; else None.

    The ledger is an index: manifest, configuration, bundles and signatures are checked again; layers by the
    size, inode and change time that they had when they were hashed, and hashed again where these differ.
    """
    with open_ledger(state.ledger) as ledger:
        entry = ledger.find(summary.key, request.platform)
        stamps = ledger.stamps()
    if entry is None or entry.lock != summary.digest:
        return None
    begun = request.now()
    report = verify(
        VerifyRequest(
            layout=state.layout,
            digest=entry.digest,
            platform=request.platform,
            # A build cannot supply what others must: it would only be made again each time.
            policy=replace(request.policy, min_rebuilds=0),
            expectation=Expectation(image_name=request.image_name, lock=lock_raw),
            now=begun,
            known=stamps,
        )
    )
    if report.verified is None:
        return None
    _renew_stamps(state, entry, report.verified.image, stamps, begun)
    return entry.digest


def _renew_stamps(
    state: State, entry: LedgerEntry, image: OciImage, known: Mapping[Digest, Stamp], begun: datetime
) -> None:
    """Keep the stamps of layers that were just hashed: a link made elsewhere changes a file's stamp for good.

    Only of files that did not change after the hashing ``begun``.
    """
    fresh = {
        digest: stamp
        for digest, stamp in stamp_layers(image).items()
        if stamp != known.get(digest) and stamp.changed_ns < begun.timestamp() * 1e9
    }
    if fresh:
        with open_ledger(state.ledger) as ledger:
            ledger.record(entry, fresh)


def attach_evidence(
    detected: DetectedImage,
    summary: LockSummary,
    facts: BuildFacts,
    lock_raw: bytes,
    signer: StatementSigner,
    *,
    sbom: dict[str, JsonValue],
) -> None:
    """Sign the four statements, attach them and the lock, and read back that they are there.

    All are signed before one is attached. That a step ended well is no evidence that something was written;
    what can be read is.
    """
    image = detected.image
    statements = (
        provenance_statement(detected, summary, facts),
        scan_statement(detected.clean, facts),
        detection_statement(detected, facts),
        sbom_statement(detected, sbom),
    )
    bundles = signer.sign(statements)
    add_lock(image, lock_raw)
    for bundle in bundles:
        add_referrer(image, bundle)
    attached = read_referrers(image.layout, image.digest)
    kinds = {
        parse_statement(open_bundle(one.data, "bundle").payload, "bundle").predicate_type
        for one in attached.bundles
    }
    if not {PROVENANCE_TYPE, SCAN_TYPE, DETECTION_TYPE, SBOM_TYPE} <= kinds or not attached.locks:
        raise BuildFailed("the evidence is not in the layout after it was written", where=str(image.digest))


def remember(state: State, image: OciImage, summary: LockSummary, facts: BuildFacts) -> None:
    """Enter the image into the ledger under its key, with the stamps of its freshly hashed layers."""
    with open_ledger(state.ledger) as ledger:
        ledger.record(
            LedgerEntry(
                key=summary.key,
                platform=summary.platform,
                digest=image.digest,
                image_name=facts.image_name,
                lock=summary.digest,
                built=utc(facts.finished),
            ),
            stamp_layers(image),
        )
