"""`builder verify`: every check with its own answer; ``--attest`` signs it, ``--rebuild`` builds again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.metadata import version

from builder.cli.checking_in_ci import check_in_ci, require_consistent
from builder.cli.documents.ci import CiDocument
from builder.cli.documents.verified import (
    AuditDifferenceDocument,
    AuditDocument,
    PlacedDocument,
    RebuiltDocument,
    VerifiedDocument,
    check_document,
)
from builder.cli.invocation import Invocation, Result
from builder.cli.platform import host_platform
from builder.cli.session import policy_of, state_of
from builder.cli.signing import signer_of
from builder.state import State
from builder.verifying import Chosen, Verification, choose_image, verify_image
from images.errors import BuilderError, UsageError
from images.lock import Lock
from images.oci import OciImage
from images.render import BuildContext
from provenance.attest import attest
from provenance.audit.layertar import Entry
from provenance.audit.report import AUDIT_RULES, AuditReport
from provenance.checks import Status
from provenance.marks import raise_marks
from provenance.policy import Policy
from provenance.policy_model import Role
from provenance.referrers import add_referrer
from provenance.signers import in_words
from provenance.verify import Purpose, VerificationReport


def run(invocation: Invocation) -> Result[VerifiedDocument | CiDocument]:
    """One line: the digest of a verified image. Otherwise exit 7, after all checks are shown."""
    require_consistent(invocation)
    state = state_of(invocation)
    with state.in_use(lambda: invocation.reporter.say("builder gc is at work here; waiting for it")):
        if invocation.options.ci:
            return check_in_ci(invocation, state, partial(_replay, invocation))
        return _verify(invocation, state)


def _verify(invocation: Invocation, state: State) -> Result[VerifiedDocument]:
    options = invocation.options
    platform = host_platform()
    chosen = choose_image(state, options.image, options.lock, platform, invocation.working_dir)
    policy = policy_of(invocation, beside=chosen.project_dir)
    what = Verification(
        state=state,
        policy=policy,
        purpose=Purpose.INSPECTION,
        platform=platform,
        now=invocation.now,
        replay=partial(_replay, invocation),
    )
    rebuilt = _rebuild(invocation, chosen, what)
    with invocation.reporter.step(f"verify {chosen.digest}"):
        report = verify_image(chosen, what, rescan=True, audit=True)
    _show(invocation, report)
    attested = _attest(invocation, state, report, policy) if options.attest else ""
    document = VerifiedDocument(
        digest=str(report.digest),
        verified=report.ok,
        image=report.image_name,
        policy=str(policy.digest),
        checks=tuple(map(check_document, report.checks)),
        ignored=report.ignored,
        attested=attested,
        audit=None if report.audit is None else _audit(report.audit),
        rebuilt=rebuilt,
    )
    return Result(line=str(report.digest), document=document, failure=report.failure)


def _audit(found: AuditReport) -> AuditDocument:
    """The same that is hashed, typed."""
    return AuditDocument(
        rules=AUDIT_RULES,
        image=str(found.image),
        key=str(found.key),
        entries=found.entries,
        bytes=found.bytes,
        origins=dict(found.origins),
        scripts=tuple(
            PlacedDocument(path=one.path, script=one.script, artifact=one.artifact, member=one.member)
            for one in found.scripts
        ),
        differences=tuple(
            AuditDifferenceDocument(kind=one.kind, layer=one.layer, path=one.path, what=one.what)
            for one in found.differences
        ),
        differenceCount=found.difference_count,
        unaudited=found.unaudited,
        replayed=found.replayed,
        unexplained=found.unexplained,
        unexplainedCount=found.unexplained_count,
    )


def _replay(
    invocation: Invocation, lock: Lock, base: OciImage, context: BuildContext
) -> Mapping[str, Entry] | None:
    """The toolchain layer once more; a host that cannot build says so, and its files stay unexplained."""
    from builder.building.replaying import replay_toolchain  # noqa: PLC0415
    from builder.cli.session import open_workshop  # noqa: PLC0415

    try:
        return replay_toolchain(open_workshop(invocation), lock, base, context)
    except BuilderError as broken:
        invocation.reporter.warn(f"the toolchain layer cannot be made again here: {broken}")
        return None


def _rebuild(invocation: Invocation, chosen: Chosen, what: Verification) -> RebuiltDocument | None:
    options = invocation.options
    if options.attest and options.sign_rebuild:
        raise UsageError(
            "--attest and --sign-rebuild take the keys of two roles",
            hint="builder verify --sign-rebuild, then builder verify --attest",
        )
    if not (options.rebuild or options.sign_rebuild):
        return None
    # Everything that builds: a plain verification needs none of it.
    from builder.cli.rebuilding import rebuild_chosen  # noqa: PLC0415

    return rebuild_chosen(invocation, chosen, what)


def _show(invocation: Invocation, report: VerificationReport) -> None:
    for check in report.checks:
        invocation.reporter.say(str(check))
    if report.audit is not None:
        for placed in report.audit.scripts:
            source = f"{placed.member} of {placed.artifact}"
            invocation.reporter.say(f"placed by script of {placed.script}: {placed.path} ({source})")
        for difference in report.audit.differences:
            invocation.reporter.say(f"audit: {difference}")
        for line in report.audit.unaudited:
            invocation.reporter.say(f"not audited: {line}")
    for line in report.ignored:
        invocation.reporter.say(f"ignored: {line}")
    counts = {status: sum(1 for check in report.checks if check.status is status) for status in Status}
    invocation.reporter.say(", ".join(f"{number} {status}" for status, number in counts.items()))


def _attest(invocation: Invocation, state: State, report: VerificationReport, policy: Policy) -> str:
    """Sign the summary; only a PASSED one is attached. Returns its statement's digest, or nothing."""
    if not report.ok:
        invocation.reporter.warn("not attested: the image is not verified")
        return ""
    verified = report.require()
    with signer_of(invocation, Role.VERIFIER, policy) as signer:
        made = attest(report, policy, signer, version=version("agent-image-builder"), now=invocation.now())
    add_referrer(verified.image, made.bundle)
    raise_marks(state.marks, policy)
    invocation.reporter.say(f"attested: {report.digest} PASSED, by {in_words(made.bundle.signer)}")
    return str(made.bundle.statement.digest)
