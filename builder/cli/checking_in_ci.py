"""`builder verify --ci`: one command for a CI job; the answer in the forms that the job's service shows."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from builder.ci.checking import CiRequest, check_for_ci
from builder.ci.problems import Outcome
from builder.ci.saying import annotation_lines, sarif, summary
from builder.cli.documents.ci import CiDocument, CiProblemDocument
from builder.cli.documents.verified import check_document
from builder.cli.invocation import Invocation, Result
from builder.cli.options.making import CI_ONLY
from builder.cli.platform import host_platform
from builder.cli.session import policy_of, settings_of
from builder.state import State
from builder.verifying import Chosen, ReplayLayer, Verification, verify_image
from images.errors import StateError, UsageError
from provenance.policy import Policy
from provenance.verify import Purpose, VerificationReport

_NOT_WITH_CI = ("attest", "rebuild", "sign_rebuild", "lock", "key", "passphrase_fd", "passphrase_file")


def require_consistent(invocation: Invocation) -> None:
    """--ci signs nothing, builds nothing and takes the project's own lock; its options need it."""
    options = vars(invocation.options)
    given = [name for name in _NOT_WITH_CI if options[name] not in (None, False)]
    if options["ci"] and given:
        flag = given[0].replace("_", "-")
        raise UsageError(f"--ci checks, and --{flag} is for something else", hint="builder verify --ci")
    lonely = [name for name in CI_ONLY if options[name] is not None]
    if not options["ci"] and lonely:
        flag = lonely[0].replace("_", "-")
        raise UsageError(f"--{flag} belongs to --ci", hint=f"builder verify --ci --{flag} …")


def check_in_ci(invocation: Invocation, state: State, replay: ReplayLayer) -> Result[CiDocument]:
    """One line: the digest of an image that holds. The exit code is that of the first part that failed."""
    options = invocation.options

    def judge(chosen: Chosen, policy: Policy) -> VerificationReport:
        what = Verification(
            state=state,
            policy=policy,
            purpose=Purpose.INSPECTION,
            platform=host_platform(),
            now=invocation.now,
            replay=replay,
        )
        with invocation.reporter.step(f"verify {chosen.digest}"):
            return verify_image(chosen, what, rescan=True, audit=True)

    outcome = check_for_ci(
        CiRequest(
            config=invocation.working_dir / (options.config or Path("builder.toml")),
            checkout=invocation.working_dir,
            words=options.image,
            digest_file=options.digest_file,
            settings=lambda: settings_of(invocation),
            open_policy=lambda folder: policy_of(invocation, beside=folder),
            judge=judge,
        )
    )
    _say(invocation, outcome)
    return Result(line=str(outcome.image), document=_document(outcome), failure=outcome.failure)


def _say(invocation: Invocation, outcome: Outcome) -> None:
    options, reporter = invocation.options, invocation.reporter
    for check in outcome.checks:
        reporter.say(str(check))
    for line in outcome.ignored:
        reporter.say(f"ignored: {line}")
    for problem in outcome.problems:
        place = f"{problem.file}, line {problem.line}: " if problem.file and problem.line else ""
        reporter.say(f"{problem.rule}: {place}{problem.message}")
    if options.annotations == "github":
        # On standard error like all that is for people; GitHub reads both.
        reporter.put("".join(f"{line}\n" for line in annotation_lines(outcome)))
    checkout = invocation.working_dir
    if options.summary is not None:
        _write(checkout / options.summary, summary(outcome).encode(), checkout)
    if options.sarif is not None:
        _write(checkout / options.sarif, sarif(outcome, version("agent-image-builder")), checkout)


def _write(path: Path, content: bytes, checkout: Path) -> None:
    """In place: a service that gives a file keeps it open, and a terminal is a file too.

    Whoever proposes a change lays links into the checkout as he likes: none says what is written over.
    """
    if path.is_relative_to(checkout) and path.resolve() != checkout.resolve() / path.relative_to(checkout):
        raise StateError(
            "a link in the checkout leads elsewhere, so nothing was written",
            where=str(path),
            hint="name a file outside of the checkout",
        )
    try:
        path.write_bytes(content)
    except OSError as broken:
        raise StateError(
            f"cannot be written: {broken.strerror}", where=str(path), hint="name a file that can be written"
        ) from None


def _document(outcome: Outcome) -> CiDocument:
    return CiDocument(
        digest=str(outcome.image) if outcome.image else None,
        verified=outcome.ok,
        image=outcome.image_name,
        lock=str(outcome.lock) if outcome.lock else None,
        policy=str(outcome.policy.digest) if outcome.policy else None,
        problems=tuple(
            CiProblemDocument(
                rule=one.rule,
                level=one.level,
                message=one.message,
                hint=one.hint,
                file=one.file,
                line=one.line,
            )
            for one in outcome.problems
        ),
        checks=tuple(map(check_document, outcome.checks)),
        ignored=outcome.ignored,
    )
