"""Say in a signed statement what a verification found; only a PASSED one may travel with the image."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from images.errors import UsageError
from provenance.policy import Policy
from provenance.policy_model import Role
from provenance.signers import Who, in_words
from provenance.signing import Bundle, StatementSigner
from provenance.statements import Decision, vsa_statement
from provenance.verify import VerificationReport


@dataclass(frozen=True, slots=True)
class Attestation:
    """A signed summary. When not ``passed`` it is a note for this machine: it cannot be attached."""

    bundle: Bundle
    passed: bool


def signer_id(policy: Policy, role: Role, who: Who) -> str:
    """The id that the policy pairs with this signer in this role. UsageError: nobody would believe him."""
    for entry in policy.trust:
        if entry.role is role and entry.who == who:
            return min(entry.ids)
    raise UsageError(
        f"{in_words(who)} is not a {role} of this policy, so nobody would believe it",
        where=str(policy.path),
        hint="builder init --rebuilder" if role is Role.REBUILDER else "builder init",
    )


def attest(
    report: VerificationReport, policy: Policy, signer: StatementSigner, *, version: str, now: datetime
) -> Attestation:
    """Sign the verification summary of ``report``, which was made under ``policy``."""
    if not report.inputs or not report.image_name:
        raise UsageError(
            "nothing trusted was found, so there is nothing to summarise",
            where=str(report.digest),
            hint=f"builder verify {report.digest}",
        )
    decision = Decision(
        image=report.digest,
        image_name=report.image_name,
        passed=report.verified is not None and report.verified.policy.digest == policy.digest,
        verifier_id=signer_id(policy, Role.VERIFIER, signer.who),
        verifier_version=version,
        policy=policy.digest,
        inputs=report.inputs,
        at=now,
        audit=report.audit if report.audit is not None and report.audit.ok else None,
    )
    (bundle,) = signer.sign((vsa_statement(decision),))
    return Attestation(bundle, decision.passed)
