"""Lock, policy and image in one check for a CI job: every part is tried, so that one run tells all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from builder.ci.problems import Outcome, Problem, place_in, problem_of, rule_of
from builder.locking import (
    MAX_CONFIG_BYTES,
    Project,
    open_project,
    read_bounded,
    read_lock_file,
    require_true_signatures,
    stale_reasons,
)
from builder.settings.settings_file import Settings
from builder.verifying import Chosen
from images.digests import Digest
from images.errors import BuilderError, UsageError
from images.tomlfile import line_of
from provenance.checks import Check, Status
from provenance.expectations import Expectation
from provenance.policy import Policy
from provenance.sarif import Level
from provenance.verify import VerificationReport

MAX_DIGEST_FILE: Final = 4096
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
# NAME@sha256:…: what registries are asked for. The name is anybody's; the digest decides.
_REFERENCE: Final = re.compile(r"[\x21-\x3f\x41-\x7e]{1,512}@(sha256:[0-9a-f]{64})", re.ASCII)
_DOTTED: Final = re.compile(r"((?:[\w-]+\.){1,4}[\w-]+): ", re.ASCII)

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class CiRequest:
    """What a job asks. ``words``: a digest or NAME@digest; ``digest_file``: a file with one; one of the two.

    ``open_policy``: reads the policy, which must not lie under the folder that it is given. ``judge``: all
    checks of verify. ``checkout``: where file names in the answer are relative to.
    """

    config: Path
    checkout: Path
    words: str | None
    digest_file: Path | None
    settings: Callable[[], Settings]
    open_policy: Callable[[Path], Policy]
    judge: Callable[[Chosen, Policy], VerificationReport]


@dataclass(slots=True)
class _Findings:
    """What failed so far; the first failure is the answer's."""

    checkout: Path
    problems: list[Problem] = field(default_factory=list)
    failure: BuilderError | None = None

    def attempt(self, rule: str, act: Callable[[], _Found]) -> _Found | None:
        """What ``act`` gives, or None after its failure was noted."""
        try:
            return act()
        except BuilderError as broken:
            self.note(broken, problem_of(rule, broken, self.checkout))
            return None

    def note(self, broken: BuilderError, *problems: Problem) -> None:
        self.problems.extend(problems)
        self.failure = self.failure or broken


def check_for_ci(asked: CiRequest) -> Outcome:
    """Every part that can be tried; what fails is in the answer, not raised."""
    found = _Findings(asked.checkout)
    project = found.attempt("config", lambda: open_project(asked.config))
    raw = found.attempt("lock", lambda: _read_lock(project, asked, found)) if project else None
    home = working_tree(asked.config)
    policy = found.attempt("policy", lambda: asked.open_policy(home))
    digest = found.attempt("image", lambda: digest_asked(asked.words, asked.digest_file))
    report = None
    if project and raw is not None and policy and digest:
        expectation = Expectation(image_name=project.config.name, lock=raw)
        chosen = Chosen(digest, expectation, project)
        report = found.attempt("image", lambda: asked.judge(chosen, policy))
    if project and report is not None and report.failure is not None:
        lock_file, _ = place_in(str(project.lock_path), asked.checkout)
        found.note(report.failure, *_failed_checks(report, lock_file))
    return Outcome(
        image=digest,
        image_name=project.config.name if project else "",
        lock=Digest.of(raw) if raw is not None else None,
        policy=policy,
        checks=report.checks if report else (),
        ignored=report.ignored if report else (),
        problems=tuple(found.problems),
        failure=found.failure,
    )


def digest_asked(words: str | None, file: Path | None) -> Digest:
    """The digest that a job means. A tag names nothing: what it points to changes."""
    if (words is None) is (file is None):
        raise UsageError(
            "with --ci the image is a digest, NAME@sha256:…, or --digest-file FILE: exactly one of them",
            hint="builder verify --ci --digest-file digest.txt",
        )
    where, text = "IMAGE", words or ""
    if file is not None:
        raw = read_bounded(file, MAX_DIGEST_FILE, hint="builder build --quiet >digest.txt")
        where, text = str(file), raw.decode("ascii", "replace").strip()
    reference = _REFERENCE.fullmatch(text)
    found = reference[1] if reference else text
    if not _DIGEST.fullmatch(found):
        raise UsageError(
            "not one digest: expected sha256: and 64 hexadecimal digits, alone or after NAME@",
            where=where,
            hint="builder build --quiet >digest.txt",
        )
    return Digest(found)


def working_tree(config: Path) -> Path:
    """The top of the checkout of builder.toml, by the nearest .git above it; its folder where there is none.

    Who may write there proposes the image, so the policy may not come from there.
    """
    folder = config.resolve().parent
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


def _read_lock(project: Project, asked: CiRequest, found: _Findings) -> bytes:
    """The lock's bytes, which are the expectation even if it is stale: both are told then."""
    _, raw = read_lock_file(project.lock_path)
    found.attempt("lock", lambda: _check_lock(project, asked.settings(), found))
    return raw


def _check_lock(project: Project, settings: Settings, found: _Findings) -> None:
    """What `builder lock --check` checks; each change is a problem at its own line of builder.toml."""
    reasons = stale_reasons(project, settings)
    if reasons:
        where = str(project.lock_path)
        stale = UsageError(
            "the lock is stale: " + "; ".join(reasons), where=where, hint="builder lock", reason="stale-lock"
        )
        found.note(stale, *_stale(project, reasons, found.checkout))
        return
    lock, _ = read_lock_file(project.lock_path)
    require_true_signatures(lock, settings, where=str(project.lock_path))


def _stale(project: Project, reasons: tuple[str, ...], checkout: Path) -> Iterator[Problem]:
    text = read_bounded(project.config_path, MAX_CONFIG_BYTES, hint="builder init").decode()
    file, _ = place_in(str(project.config_path), checkout)
    for reason in reasons:
        dotted = _DOTTED.match(reason)
        line = line_of(text, dotted[1].split(".")) if dotted else None
        message = f"the lock is stale: {reason}"
        yield Problem(rule="lock", message=message, hint="builder lock", file=file, line=line or 0)


def _failed_checks(report: VerificationReport, lock_file: str) -> Iterator[Problem]:
    """Every check that failed; where none did, the first that was not made and is needed."""
    failed = [check for check in report.checks if check.status is Status.FAILED]
    for check in failed:
        yield _problem_of_check(check, report.digest, lock_file)
    if not failed and report.failure is not None:
        reason = report.failure.reason
        left_out = (check for check in report.checks if rule_of(check.id) == reason)
        for check in left_out:
            yield _problem_of_check(check, report.digest, lock_file)


def _problem_of_check(check: Check, image: Digest, lock_file: str) -> Problem:
    return Problem(
        rule=rule_of(check.id),
        message=f"check {int(check.id)} ({check.id.title}) {check.status}: {check.message}",
        hint=check.next_step(image),
        file=lock_file,
        line=1 if lock_file else 0,
        level=Level.ERROR,
    )
