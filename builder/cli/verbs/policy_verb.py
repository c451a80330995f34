"""`builder policy pin`: take the policy as the newest accepted one, on purpose."""

from __future__ import annotations

from builder.cli.invocation import Invocation, Result
from builder.cli.session import policy_of, state_of
from provenance.marks import pin_marks


def run(invocation: Invocation) -> Result:
    """Rollback marks are trust state: only an operator's own act lowers or restores them."""
    state = state_of(invocation)
    policy = policy_of(invocation, beside=None)
    marks = pin_marks(state.marks, policy)
    invocation.reporter.say(f"pinned: policy serial {marks.serial}, {marks.policy}")
    return Result(line=str(marks.policy), document={"serial": marks.serial, "policy": str(marks.policy)})
