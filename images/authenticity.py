"""Which artifacts can be authenticated how, and what the signer of each looks like: a law of every lock."""

from __future__ import annotations

import re
from typing import Final

from images.lock import Artifact, ArtifactKind, Authentication

MAX_SIGNER: Final = 500

# A kind without a line here can be authenticated as nothing, so that a new one cannot be forgotten. This
# version verifies no statements of publishers (NPM_PROVENANCE, PYPI_ATTESTED), so no lock may say so.
CAN_BE: Final = {
    ArtifactKind.NPM: frozenset({Authentication.TOFU, Authentication.NPM_SIGNATURE}),
    ArtifactKind.NODE: frozenset({Authentication.TOFU, Authentication.NPM_SIGNATURE}),
    ArtifactKind.SKILL: frozenset({Authentication.LOCAL}),
    ArtifactKind.DEB: frozenset({Authentication.DEBIAN_SIGNED}),
    ArtifactKind.WHEEL: frozenset({Authentication.TOFU}),
    ArtifactKind.ARCHIVE: frozenset({Authentication.LOCAL}),
}

SIGNER: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_SIGNER}}}")  # any of the forms below
SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/]{80,96}={0,2}", re.ASCII)  # DER of ECDSA P-256, base64
KEY_ID: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}", re.ASCII)  # of the key: base64 without padding
_FINGERPRINT: Final = re.compile(r"[0-9A-F]{40}|[0-9A-F]{64}", re.ASCII)  # of an OpenPGP key
_PUBLISHER: Final = re.compile(rf"[a-z][a-z0-9+.-]*:[\x21-\x7e]{{1,{MAX_SIGNER - 40}}}", re.ASCII)
_NOBODY: Final = re.compile("")

# What is not here has no signer.
SIGNERS: Final = {
    Authentication.NPM_SIGNATURE: (KEY_ID, "the key id SHA256: and 43 characters of base64"),
    Authentication.NPM_PROVENANCE: (_PUBLISHER, "the URI of its publisher"),
    Authentication.PYPI_ATTESTED: (_PUBLISHER, "the URI of its publisher"),
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
    return None
