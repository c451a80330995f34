"""Which attached bundles go along with an image: a closed list of predicates about this very image."""

from __future__ import annotations

from typing import Final

from images.digests import Digest
from images.errors import VerifyFailed
from provenance.bundles import open_bundle
from provenance.predicates import LAUNCH_TYPE, PREDICATE_TYPES, VSA_TYPE, VsaPredicate, read_predicate
from provenance.statements import parse_statement

# A launch is nobody's business but the launching machine's.
TRAVELLING: Final = PREDICATE_TYPES - {LAUNCH_TYPE}


def why_it_stays(raw: bytes, image: Digest) -> str:
    """Why a bundle is left out, in words; empty when it goes along. Its signature is verify's matter."""
    try:
        statement = parse_statement(open_bundle(raw, "bundle").payload, "statement")
        if not statement.is_only_about(image):
            return "it is not about this image"
        if statement.predicate_type not in TRAVELLING:
            return f"predicates of type {statement.predicate_type[:100]!r} do not travel"
        if statement.predicate_type == VSA_TYPE:
            summary = read_predicate(VsaPredicate, statement.predicate_json, "verification summary")
            if summary.verification_result != "PASSED":
                # Tools exist that take any attached statement for an approval.
                return "a verification summary that is not PASSED stays where it is"
    except VerifyFailed as broken:
        return broken.what
    return ""
