"""What a publisher states of a package, held against the package and against who was expected."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from images.attestation import MAX_BUNDLE_BYTES, Attestation
from images.authenticity import BY_PUBLISHER
from images.digests import Integrity
from images.errors import PinError, VerifyFailed
from images.lock import Artifact, ArtifactKind
from images.strictjson import read_object
from provenance.attestation_documents import MAX_STATEMENTS
from provenance.publishers import Publishers
from provenance.sigstore_root import Signer, SigstoreRoot
from provenance.statements import PAYLOAD_TYPE, STATEMENT_TYPE

if TYPE_CHECKING:
    from provenance.keyless import KeylessStatement

_MAX_DEPTH: Final = 24
_SHOWN: Final = 3
_FIRST_STATEMENT: Final = "https://in-toto.io/Statement/v0.1"  # npm's, until a while ago
_SLSA: Final = "https://slsa.dev/provenance/v1"
# What a publisher must have said of a package for it to count.
PREDICATES: Final = {
    ArtifactKind.NPM: frozenset({_SLSA, "https://slsa.dev/provenance/v0.2"}),
    ArtifactKind.NODE: frozenset({_SLSA, "https://slsa.dev/provenance/v0.2"}),
    ArtifactKind.WHEEL: frozenset({_SLSA, "https://docs.pypi.org/attestations/publish/v1"}),
}


@dataclass(frozen=True, slots=True)
class Published:
    """The package that a statement must be about. ``filename``: a wheel's."""

    kind: ArtifactKind
    name: str
    version: str
    integrity: Integrity
    filename: str = ""

    @property
    def label(self) -> str:
        """For people."""
        return self.filename or f"{self.name}@{self.version}"

    @property
    def subject(self) -> str:
        """What a statement calls it: a package URL, or the name of the wheel."""
        return self.filename or f"pkg:npm/{self.name.replace('@', '%40', 1)}@{self.version}"

    def is_called(self, name: str) -> bool:
        """Whether a subject of this name is it; the name of a wheel has several spellings."""
        if name == self.subject or not self.filename:
            return name == self.subject
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415

        try:
            return parse_wheel_filename(name) == parse_wheel_filename(self.filename)
        except InvalidWheelFilename:
            return False


def published(artifact: Artifact) -> Published:
    """What statements of a lock's artifact must be about."""
    return Published(
        artifact.kind, artifact.name, artifact.version, artifact.integrity, filename=artifact.filename
    )


def find_statement(
    about: Published, bundles: Iterable[bytes], publishers: Publishers, root: SigstoreRoot
) -> Attestation | str:
    """The statement that holds: of the expected publisher, with its bundle; or, where nobody is expected,
    the first one that anybody signed, without. A text: why there is none.

    Raises PinError where a publisher is expected and no statement is his: nothing less was asked for.
    """
    expected = publishers.of(about.kind, about.name)
    problems = []
    for bundle in tuple(bundles)[:MAX_STATEMENTS]:
        try:
            signer = _checked(about, bundle, root)
        except VerifyFailed as broken:
            problems.append(broken.what)
            continue
        if expected is None:
            return Attestation(signer.identity, signer.issuer)
        problem = expected.problem(signer)
        if problem is None:
            return Attestation(signer.identity, signer.issuer, base64.b64encode(bundle).decode())
        problems.append(problem)
    why = "; ".join(dict.fromkeys(problems[:_SHOWN])) or "there is no statement of its publisher"
    if expected is None:
        return why
    raise PinError(
        f"{expected} should have published it: {why}",
        where=about.label,
        hint="find out who published it, or take its line out of [publishers]; nothing of it is taken",
        reason="integrity",
    )


def problem_with_attestation(artifact: Artifact, publishers: Publishers) -> str | None:
    """Why what a lock says of an artifact's publisher is not so, or not enough; None when all is well."""
    expected = publishers.of(artifact.kind, artifact.name)
    if artifact.authenticated is not BY_PUBLISHER.get(artifact.kind):
        if expected is None:
            return None
        return f"{artifact.id} is {artifact.authenticated}, but {expected} should have published it"
    if publishers.root is None:
        return f"{artifact.id} is {artifact.authenticated}, and no sigstore_root is named to check that with"
    if expected is None:
        return f"{artifact.id} is {artifact.authenticated}, but nobody is expected here ([publishers])"
    try:
        signer = _locked_signer(artifact, publishers.root)
    except VerifyFailed as broken:
        return f"{artifact.id}: {broken.what}"
    problem = expected.problem(signer)
    return None if problem is None else f"{artifact.id}: {problem}"


def _locked_signer(artifact: Artifact, root: SigstoreRoot) -> Signer:
    """Who signed the bundle in a lock, who must be whom the lock names. Raises VerifyFailed."""
    said, about = artifact.attestation, published(artifact)
    try:
        bundle = base64.b64decode(said.bundle if said else "", validate=True)
    except (binascii.Error, ValueError):
        raise VerifyFailed("its attestation is no base64", where=about.label) from None
    signer = _checked(about, bundle, root)
    if said is None or (said.publisher, said.issuer) != (signer.identity, signer.issuer):
        raise VerifyFailed(
            f"published by {signer.identity}, but the lock says another one", where=about.label
        )
    return signer


def _checked(about: Published, bundle: bytes, root: SigstoreRoot) -> Signer:
    """Who signed a statement about exactly this package. Raises VerifyFailed."""
    # X.509, which a lock without attestations does not need.
    from provenance.keyless import open_keyless  # noqa: PLC0415

    signed = open_keyless(bundle, root, about.label)
    _check_statement(about, signed)
    return signed.signer


def _check_statement(about: Published, signed: KeylessStatement) -> None:
    where = about.label
    if signed.payload_type != PAYLOAD_TYPE:
        raise VerifyFailed(f"the signed payload is not of type {PAYLOAD_TYPE}", where=where)
    document = read_object(
        signed.payload, where, max_bytes=MAX_BUNDLE_BYTES, max_depth=_MAX_DEPTH, error=VerifyFailed
    )
    if document.get("_type") not in (STATEMENT_TYPE, _FIRST_STATEMENT):
        raise VerifyFailed(f"not a statement of type {STATEMENT_TYPE}", where=where)
    kind = str(document.get("predicateType"))[:100]
    if kind not in PREDICATES[about.kind]:
        raise VerifyFailed(f"a statement of type {kind!r} does not say who published it", where=where)
    subjects = document.get("subject")
    if not isinstance(subjects, list) or len(subjects) != 1:
        raise VerifyFailed("a statement that is not about exactly one package", where=where)
    subject = subjects[0] if isinstance(subjects[0], dict) else {}
    name, digests = subject.get("name"), subject.get("digest")
    if not isinstance(name, str) or not about.is_called(name):
        raise VerifyFailed(f"a statement about {str(name)[:100]!r}, not about {about.subject}", where=where)
    found = digests.get(about.integrity.algorithm) if isinstance(digests, dict) else None
    if found != about.integrity.hex:
        raise VerifyFailed(f"a statement about other bytes ({about.integrity.algorithm})", where=where)
