"""`builder verify --rebuild` and `--sign-rebuild`: whose image is built again, and who signs a match."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

from builder.building.rebuilding import Signer, rebuild
from builder.cli.documents.verified import RebuiltDocument
from builder.cli.invocation import Invocation
from builder.cli.session import open_workshop
from builder.cli.signing import signer_of
from builder.verifying import Chosen, Verification, verify_image
from provenance.attest import signer_id
from provenance.policy_model import Role
from provenance.signers import in_words


def rebuild_chosen(invocation: Invocation, chosen: Chosen, what: Verification) -> RebuiltDocument | None:
    """Build the lock of a verified image again; what ``--json`` says of it.

    One that is not verified is not built (None): its checks say why.
    """
    if not invocation.options.sign_rebuild:
        return _rebuild(invocation, chosen, what, None)
    # Read first: an unusable key must not cost a build.
    with signer_of(invocation, Role.REBUILDER, what.policy) as who:
        rebuilder_id = signer_id(what.policy, Role.REBUILDER, who.who)
        return _rebuild(invocation, chosen, what, Signer(who, rebuilder_id, version("agent-image-builder")))


def _rebuild(
    invocation: Invocation, chosen: Chosen, what: Verification, signer: Signer | None
) -> RebuiltDocument | None:
    # Rebuilds that are still missing are no reason not to make one.
    without = replace(what, policy=replace(what.policy, min_rebuilds=0))
    verified = verify_image(chosen, without, rescan=False).verified
    if verified is None:
        invocation.reporter.warn("not built again: the image is not verified")
        return None
    done = rebuild(open_workshop(invocation), verified, now=invocation.now, signer=signer)
    if signer is not None:
        invocation.reporter.say(f"signed: rebuilt by {signer.rebuilder_id}, {in_words(signer.signer.who)}")
    return RebuiltDocument(engine=done.engine, statement=str(done.statement) if done.statement else None)
