"""`builder policy`: explain what the policy decides, or take it as the newest accepted one, on purpose."""

from __future__ import annotations

from builder.cli.documents.judged import (
    DecisionDocument,
    PolicyCheckDocument,
    PolicyLineDocument,
    PolicyPinDocument,
)
from builder.cli.invocation import Invocation, Result
from builder.cli.platform import host_platform
from builder.cli.session import policy_of, state_of
from builder.state import State
from builder.verifying import Chosen, Verification, choose_image, verify_image
from images.errors import BuilderError, UsageError, VerifyFailed
from provenance.marks import pin_marks, read_marks
from provenance.policy import Policy
from provenance.policy_words import DECIDED_BY, Bearing, PolicyLine, explain_policy
from provenance.verify import Purpose, VerificationReport


def run(invocation: Invocation) -> Result[PolicyCheckDocument | PolicyPinDocument]:
    """``pin`` or ``check``."""
    if invocation.options.act == "check":
        return _check(invocation)
    for name, given in (("IMAGE", invocation.options.image), ("--lock", invocation.options.lock)):
        if given is not None:
            raise UsageError(f"policy pin takes no {name}", hint="builder policy check")
    return _pin(invocation)


def _pin(invocation: Invocation) -> Result[PolicyPinDocument]:
    """Rollback marks are trust state: only an operator's own act lowers or restores them."""
    state = state_of(invocation)
    policy = policy_of(invocation, beside=None)
    marks = pin_marks(state.marks, policy)
    invocation.reporter.say(f"pinned: policy serial {marks.serial}, {marks.policy}")
    return Result(
        line=str(marks.policy), document=PolicyPinDocument(serial=marks.serial, policy=str(marks.policy))
    )


def _check(invocation: Invocation) -> Result[PolicyCheckDocument]:
    """Every line of the policy; with an image, every check that a launch makes, and who decides it.

    Exit 7 when no launch would be admitted. Nothing is written, and no engine is asked.
    """
    state = state_of(invocation)
    chosen = _chosen(invocation, state)
    policy = policy_of(invocation, beside=chosen.project_dir if chosen else None)
    lines = explain_policy(policy, lambda: read_marks(state.marks), invocation.now())
    invocation.reporter.say(f"policy: {policy.path} ({policy.digest})")
    for line in lines:
        invocation.reporter.say(_in_words(line))
    report = _judge(invocation, state, chosen, policy) if chosen else None
    admits = all(line.bearing is not Bearing.REFUSES for line in lines) and (report is None or report.ok)
    what = (
        f"an image may be launched under it: {report.digest}" if report else "images may be launched under it"
    )
    invocation.reporter.say(
        what if admits else "no launch is admitted" + (" of any image" if not report else "")
    )
    return Result(
        line=str(policy.digest) if admits else "",
        document=_document(policy, lines, report, admits=admits),
        failure=None if admits else _failure(policy, lines, report),
    )


def _failure(
    policy: Policy, lines: tuple[PolicyLine, ...], report: VerificationReport | None
) -> BuilderError:
    """What the policy refuses everything for; else the first check that this image fails."""
    refusing = next((line for line in lines if line.bearing is Bearing.REFUSES), None)
    if refusing is not None or report is None or report.failure is None:
        what = _in_words(refusing) if refusing else "no launch is admitted"
        hint = f"correct {policy.path}, and raise its serial"
        return VerifyFailed(what, where=str(policy.path), hint=hint, reason="policy")
    return report.failure


def _chosen(invocation: Invocation, state: State) -> Chosen | None:
    """The image that was named, or that of the builder.toml here; none where there is neither."""
    words, here = invocation.options.image, invocation.working_dir
    if words is None and invocation.options.lock is None and not (here / "builder.toml").exists():
        return None
    return choose_image(state, words, invocation.options.lock, host_platform(), here)


def _judge(invocation: Invocation, state: State, chosen: Chosen, policy: Policy) -> VerificationReport:
    what = Verification(
        state=state,
        policy=policy,
        purpose=Purpose.ADMISSION,
        platform=host_platform(),
        now=invocation.now,
    )
    with invocation.reporter.step(f"verify {chosen.digest} as a launch does"):
        report = verify_image(chosen, what, rescan=False)
    for check in report.checks:
        decided_by = ", ".join(DECIDED_BY.get(check.id, ()))
        invocation.reporter.say(f"{check} [{decided_by or 'no setting: the bytes decide'}]")
    return report


def _in_words(line: PolicyLine) -> str:
    mark = {Bearing.HOLDS: "", Bearing.NOTE: "note: ", Bearing.REFUSES: "REFUSES EVERYTHING: "}[line.bearing]
    return f"{mark}{line.setting}: {line.says}"


def _document(
    policy: Policy, lines: tuple[PolicyLine, ...], report: VerificationReport | None, *, admits: bool
) -> PolicyCheckDocument:
    return PolicyCheckDocument(
        policy=str(policy.digest),
        path=str(policy.path),
        serial=policy.serial,
        lines=tuple(
            PolicyLineDocument(setting=line.setting, says=line.says, bearing=line.bearing) for line in lines
        ),
        image=str(report.digest) if report else None,
        decisions=tuple(
            DecisionDocument(
                number=int(check.id),
                title=check.id.title,
                status=check.status,
                message=check.message,
                decided_by=DECIDED_BY.get(check.id, ()),
            )
            for check in (report.checks if report else ())
        ),
        admits=admits,
    )
