"""Which kind can be authenticated how, and by whom: every pair of the two closed lists."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from images.authenticity import CAN_BE, SIGNER, SIGNERS, authenticity_problem
from images.lock import ArtifactKind, Authentication
from tests.fakes.locks import KEY_ID, SIGNATURE, npm

GOOD = {
    Authentication.NPM_SIGNATURE: KEY_ID,
    Authentication.NPM_PROVENANCE: "https://forge.example/team/tool/.ci/release@refs/tags/v1",
    Authentication.PYPI_ATTESTED: "https://forge.example/team/tool/.ci/release@refs/tags/v1",
    Authentication.DEBIAN_SIGNED: "0123456789ABCDEF0123456789ABCDEF01234567",
}
# Statements of publishers: this version does not verify them, so no lock may say that they were.
UNVERIFIED = {Authentication.NPM_PROVENANCE, Authentication.PYPI_ATTESTED}
SIGNED = {Authentication.NPM_SIGNATURE: SIGNATURE}
ARTIFACT = npm("chalk", "1.0.0", "agents.pi")


def test_no_kind_is_forgotten() -> None:
    assert set(CAN_BE) == set(ArtifactKind)
    assert set(SIGNERS) == set(GOOD) == set(Authentication) - {Authentication.TOFU, Authentication.LOCAL}


@pytest.mark.parametrize(("kind", "said"), list(product(ArtifactKind, Authentication)))
def test_every_pair(kind: ArtifactKind, said: Authentication) -> None:
    signer, signature = GOOD.get(said, ""), SIGNED.get(said, "")
    artifact = replace(ARTIFACT, kind=kind, authenticated=said, signer=signer, signature=signature)
    problem = authenticity_problem(artifact)
    assert (problem is None) is (said in CAN_BE[kind])
    assert problem is None or f"{kind} cannot be authenticated as {said}" in problem


@pytest.mark.parametrize("said", Authentication)
def test_a_signer_there_or_not(said: Authentication) -> None:
    kind = next((kind for kind, can in CAN_BE.items() if said in can), None)
    if kind is None:  # known by name, claimed by nobody
        assert said in UNVERIFIED
        return
    assert said not in UNVERIFIED
    good, signature = GOOD.get(said, ""), SIGNED.get(said, "")
    artifact = replace(ARTIFACT, kind=kind, authenticated=said, signer=good, signature=signature)
    wrong = replace(artifact, signer="" if good else KEY_ID)
    assert "so the signer is" in (authenticity_problem(wrong) or "")
    wrong = replace(artifact, signature="" if signature else SIGNATURE)
    assert "a signature belongs" in (authenticity_problem(wrong) or "")


@pytest.mark.parametrize("said", GOOD)
@pytest.mark.parametrize("spoil", ["{}\n", " {}", "{} y", "{}\u00e9", "{}\x00", "{}" + "a" * 500])
def test_the_form_of_a_signer(said: Authentication, spoil: str) -> None:
    pattern, _ = SIGNERS[said]
    assert pattern.fullmatch(GOOD[said])
    assert SIGNER.fullmatch(GOOD[said])
    assert not pattern.fullmatch(spoil.format(GOOD[said]))
    assert not SIGNER.fullmatch(spoil.format(GOOD[said]))
