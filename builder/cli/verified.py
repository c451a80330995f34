"""The image that a verb was asked for, once it is verified under the policy of now: for verbs that read."""

from __future__ import annotations

from builder.cli.invocation import Invocation
from builder.cli.platform import host_platform
from builder.cli.session import policy_of
from builder.state import State
from builder.verifying import Chosen, Verification, choose_image, verify_image
from provenance.verify import Purpose, VerifiedImage


def verified_here(invocation: Invocation, state: State, purpose: Purpose) -> tuple[Chosen, VerifiedImage]:
    """By the options ``image`` and ``lock``; its bytes are not scanned again. VerifyFailed otherwise."""
    options, platform = invocation.options, host_platform()
    with state.in_use(lambda: invocation.reporter.say("builder gc is at work here; waiting for it")):
        chosen = choose_image(state, options.image, options.lock, platform, invocation.working_dir)
        policy = policy_of(invocation, beside=chosen.project_dir)
        what = Verification(
            state=state, policy=policy, purpose=purpose, platform=platform, now=invocation.now
        )
        with invocation.reporter.step(f"verify {chosen.digest}"):
            return chosen, verify_image(chosen, what, rescan=False).require()
