"""`builder verify --rebuild` and `--sign-rebuild`: whose image is built again, and who signs a match."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

from builder.building.rebuilding import Signer, rebuild
from builder.cli.invocation import Invocation
from builder.cli.session import key_of, open_workshop
from builder.verifying import Chosen, Verification, verify_image
from provenance.attest import signer_id
from provenance.policy import Policy
from provenance.policy_model import Role


def rebuild_chosen(
    invocation: Invocation, chosen: Chosen, what: Verification
) -> dict[str, str | None] | None:
    """Build the lock of a verified image again; what ``--json`` says of it.

    One that is not verified is not built (None): its checks say why.
    """
    signer = _signer(invocation, what.policy) if invocation.options.sign_rebuild else None
    # Rebuilds that are still missing are no reason not to make one.
    without = replace(what, policy=replace(what.policy, min_rebuilds=0))
    verified = verify_image(chosen, without, rescan=False).verified
    if verified is None:
        invocation.reporter.warn("not built again: the image is not verified")
        return None
    done = rebuild(open_workshop(invocation), verified, now=invocation.now, signer=signer)
    if signer is not None:
        fingerprint = signer.key.public.fingerprint
        invocation.reporter.say(f"signed: rebuilt by {signer.rebuilder_id}, key {fingerprint}")
    return {"engine": done.engine, "statement": str(done.statement) if done.statement else None}


def _signer(invocation: Invocation, policy: Policy) -> Signer:
    """Read first: an unusable key must not cost a build."""
    key = key_of(invocation, Role.REBUILDER)
    return Signer(key, signer_id(policy, Role.REBUILDER, key), version("agent-image-builder"))
