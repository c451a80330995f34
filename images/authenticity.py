"""Which artifacts can be authenticated how, and what the signer of each looks like: a law of every lock."""

from __future__ import annotations

import re
from typing import Final

from images.attestation import MAX_PUBLISHER, PUBLISHER
from images.lock import Artifact, ArtifactKind, Authentication

# A kind without a line here can be authenticated as nothing, so that a new one cannot be forgotten.
CAN_BE: Final = {
    ArtifactKind.NPM: frozenset(
        {Authentication.TOFU, Authentication.NPM_SIGNATURE, Authentication.NPM_PROVENANCE}
    ),
    ArtifactKind.NODE: frozenset(
        {Authentication.TOFU, Authentication.NPM_SIGNATURE, Authentication.NPM_PROVENANCE}
    ),
    ArtifactKind.SKILL: frozenset({Authentication.LOCAL}),
    ArtifactKind.DEB: frozenset({Authentication.DEBIAN_SIGNED}),
    ArtifactKind.WHEEL: frozenset({Authentication.TOFU, Authentication.PYPI_ATTESTED}),
    ArtifactKind.ARCHIVE: frozenset({Authentication.LOCAL}),
}
# By the statement of a publisher that somebody expected; its bundle is in the lock.
BY_PUBLISHER: Final = {
    ArtifactKind.NPM: Authentication.NPM_PROVENANCE,
    ArtifactKind.NODE: Authentication.NPM_PROVENANCE,
    ArtifactKind.WHEEL: Authentication.PYPI_ATTESTED,
}

SIGNER: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_PUBLISHER}}}")  # any of the forms below
SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/]{80,96}={0,2}", re.ASCII)  # DER of ECDSA P-256, base64
KEY_ID: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}", re.ASCII)  # of the key: base64 without padding
_FINGERPRINT: Final = re.compile(r"[0-9A-F]{40}|[0-9A-F]{64}", re.ASCII)  # of an OpenPGP key
_NOBODY: Final = re.compile("")

# What is not here has no signer.
SIGNERS: Final = {
    Authentication.NPM_SIGNATURE: (KEY_ID, "the key id SHA256: and 43 characters of base64"),
    Authentication.NPM_PROVENANCE: (PUBLISHER, "the URI of its publisher"),
    Authentication.PYPI_ATTESTED: (PUBLISHER, "the URI of its publisher"),
    Authentication.DEBIAN_SIGNED: (_FINGERPRINT, "the fingerprint of the key, in upper case"),
}


def authenticity_problem(artifact: Artifact) -> str | None:
    """Why this artifact cannot be authenticated as it says; None when it can."""
    said = artifact.authenticated
    if said not in CAN_BE.get(artifact.kind, frozenset()):
        return f"the kind {artifact.kind} cannot be authenticated as {said}"
    pattern, expected = SIGNERS.get(said, (_NOBODY, "nobody"))
    if not pattern.fullmatch(artifact.signer):
        return f"authenticated as {said}, so the signer is {expected}"
    if bool(artifact.signature) != (said is Authentication.NPM_SIGNATURE):
        return f"a signature belongs to {Authentication.NPM_SIGNATURE}, and to nothing else"
    return _attestation_problem(artifact)


def _attestation_problem(artifact: Artifact) -> str | None:
    said, found = artifact.authenticated, artifact.attestation
    by_publisher = BY_PUBLISHER.get(artifact.kind)
    problem = None
    if said is by_publisher and (found is None or not found.bundle):
        problem = f"authenticated as {said}, so it has an attestation with its bundle"
    elif said is by_publisher and found is not None and found.publisher != artifact.signer:
        problem = f"authenticated as {said}, so the signer is the publisher of its attestation"
    elif found is not None and by_publisher is None:
        problem = f"nobody makes attestations of the kind {artifact.kind}"
    elif found is not None and said is not by_publisher and found.bundle:
        problem = f"the bundle of an attestation belongs to {by_publisher}, and to nothing else"
    return problem
