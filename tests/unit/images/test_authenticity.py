"""Which kind can be authenticated how, and by whom: every pair of the two closed lists."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from images.attestation import Attestation
from images.authenticity import BY_PUBLISHER, CAN_BE, SIGNER, SIGNERS, authenticity_problem
from images.lock import Artifact, ArtifactKind, Authentication
from tests.fakes.locks import KEY_ID, SIGNATURE, npm

GOOD = {
    Authentication.NPM_SIGNATURE: KEY_ID,
    Authentication.NPM_PROVENANCE: "https://forge.example/team/tool/.ci/release@refs/tags/v1",
    Authentication.PYPI_ATTESTED: "https://forge.example/team/tool/.ci/release@refs/tags/v1",
    Authentication.DEBIAN_SIGNED: "0123456789ABCDEF0123456789ABCDEF01234567",
}
SIGNED = {Authentication.NPM_SIGNATURE: SIGNATURE}
STATED = {
    said: Attestation(GOOD[said], "https://token.ci.example", bundle="e30K")
    for said in (Authentication.NPM_PROVENANCE, Authentication.PYPI_ATTESTED)
}
ARTIFACT = npm("chalk", "1.0.0", "agents.pi")


def test_no_kind_is_forgotten() -> None:
    assert set(CAN_BE) == set(ArtifactKind)
    assert set(SIGNERS) == set(GOOD) == set(Authentication) - {Authentication.TOFU, Authentication.LOCAL}


def good(kind: ArtifactKind, said: Authentication) -> Artifact:
    return replace(
        ARTIFACT,
        kind=kind,
        authenticated=said,
        signer=GOOD.get(said, ""),
        signature=SIGNED.get(said, ""),
        attestation=STATED.get(said),
    )


@pytest.mark.parametrize(("kind", "said"), list(product(ArtifactKind, Authentication)))
def test_every_pair(kind: ArtifactKind, said: Authentication) -> None:
    artifact = good(kind, said)
    problem = authenticity_problem(artifact)
    assert (problem is None) is (said in CAN_BE[kind])
    assert problem is None or f"{kind} cannot be authenticated as {said}" in problem


@pytest.mark.parametrize("said", Authentication)
def test_a_signer_there_or_not(said: Authentication) -> None:
    artifact = good(next(kind for kind, can in CAN_BE.items() if said in can), said)
    assert authenticity_problem(artifact) is None
    wrong = replace(artifact, signer="" if artifact.signer else KEY_ID)
    assert "so the signer is" in (authenticity_problem(wrong) or "")
    wrong = replace(artifact, signature="" if artifact.signature else SIGNATURE)
    assert "a signature belongs" in (authenticity_problem(wrong) or "")


SEEN = Attestation("https://forge.example/x", "https://token.ci.example")


@pytest.mark.parametrize(("kind", "said"), [(kind, said) for kind, can in CAN_BE.items() for said in can])
def test_where_an_attestation_may_stand(kind: ArtifactKind, said: Authentication) -> None:
    """With its bundle exactly where it authenticates; without, wherever a publisher can make one."""
    artifact = good(kind, said)
    counts = said is BY_PUBLISHER.get(kind)
    own = replace(SEEN, publisher=artifact.signer or SEEN.publisher)
    with_bundle = replace(artifact, attestation=replace(own, bundle="e30K"))
    assert (authenticity_problem(with_bundle) is None) is counts
    seen = replace(artifact, attestation=own)
    assert (authenticity_problem(seen) is None) is (kind in BY_PUBLISHER and not counts)
    none = replace(artifact, attestation=None)
    assert (authenticity_problem(none) is None) is not counts
    if counts:
        other = replace(artifact, attestation=replace(SEEN, bundle="e30K"))
        assert "the signer is the publisher of its attestation" in (authenticity_problem(other) or "")


@pytest.mark.parametrize("said", GOOD)
@pytest.mark.parametrize("spoil", ["{}\n", " {}", "{} y", "{}\u00e9", "{}\x00", "{}" + "a" * 500])
def test_the_form_of_a_signer(said: Authentication, spoil: str) -> None:
    pattern, _ = SIGNERS[said]
    assert pattern.fullmatch(GOOD[said])
    assert SIGNER.fullmatch(GOOD[said])
    assert not pattern.fullmatch(spoil.format(GOOD[said]))
    assert not SIGNER.fullmatch(spoil.format(GOOD[said]))
