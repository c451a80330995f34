"""What a CI service shows of a check: annotations, a summary, SARIF. Every word in it may be an attacker's.

Names, versions and messages come from builder.toml, images and evidence. None of them may become a command of
the service that reads our lines (GitHub's ``::error::`` and ``##[…]``), a link, a mention or a heading.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from builder.ci.problems import Outcome, Problem, rules
from builder.report import visible
from images.redaction import redact
from provenance.checks import Status
from provenance.sarif import SarifResult, SarifRule, sarif_log

MAX_ANNOTATIONS: Final = 50  # more are not shown
MAX_TEXT: Final = 600
MAX_IGNORED: Final = 20
# Outside of these a character means something somewhere in Markdown, in a line or at its beginning.
_PLAIN: Final = frozenset(" ,;/=")
_MARKS: Final = {Status.PASSED: "✅", Status.FAILED: "❌", Status.NOT_PERFORMED: "⚪"}


def annotation_lines(outcome: Outcome) -> Iterator[str]:
    """A line for each problem, as GitHub reads it from a step's output: ``::error file=…,line=…::…``."""
    for problem in outcome.problems[:MAX_ANNOTATIONS]:
        place = {"file": problem.file, "line": str(problem.line) if problem.line else ""}
        properties = {**place, "title": f"builder verify: {problem.rule}"}
        said = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
        yield f"::{problem.level} {said}::{_data(_in_words(problem))}"


def _data(text: str) -> str:
    """As GitHub's own toolkit escapes a message. What does not print was spelled out before."""
    return _shown(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _in_words(problem: Problem) -> str:
    return f"{problem.message} (next: {problem.hint})" if problem.hint else problem.message


def _shown(text: str) -> str:
    shown = visible(redact(text), "")
    return shown if len(shown) <= MAX_TEXT else shown[: MAX_TEXT - 1] + "…"


def summary(outcome: Outcome) -> str:
    """A short text in Markdown: the verdict, what was looked at, what is wrong, and every check."""
    verdict = "✅ verified" if outcome.ok else "❌ not verified"
    lines = [f"### Image provenance: {verdict}", ""]
    facts = (
        ("image", outcome.image),
        ("lock", outcome.lock),
        ("policy", outcome.policy.digest if outcome.policy else None),
    )
    lines += ["| | |", "|---|---|"]
    if outcome.image_name:
        lines.append(f"| name | {plain(outcome.image_name)} |")
    # Digests are 64 hexadecimal digits, whoever gave them.
    lines += [f"| {name} | {f'`{value}`' if value else 'none'} |" for name, value in facts]
    if outcome.policy:
        lines.append(f"| mode | {outcome.policy.mode}, policy serial {outcome.policy.serial} |")
    if outcome.problems:
        lines += ["", "| what | why | next |", "|---|---|---|"]
    for problem in outcome.problems[:MAX_ANNOTATIONS]:
        place = f"{problem.file}, line {problem.line}: " if problem.file and problem.line else ""
        lines.append(f"| {problem.rule} | {plain(place + problem.message)} | {plain(problem.hint)} |")
    if len(outcome.problems) > MAX_ANNOTATIONS:
        lines += ["", f"and {len(outcome.problems) - MAX_ANNOTATIONS} more"]
    if outcome.checks:
        lines += ["", "| | check | |", "|---|---|---|"]
    for check in outcome.checks:
        answer = f"{check.status}: {plain(check.message)}"
        lines.append(f"| {_MARKS[check.status]} | {int(check.id)} {plain(check.id.title)} | {answer} |")
    if outcome.ignored:
        lines += ["", f"{len(outcome.ignored)} attached statements count for nothing:", ""]
        lines += [f"* {plain(line)}" for line in outcome.ignored[:MAX_IGNORED]]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text that Markdown and HTML show as it is: all but letters, digits and a few signs as references."""
    return "".join(
        char if char in _PLAIN or (char.isascii() and char.isalnum()) else f"&#{ord(char)};"
        for char in _shown(text)
    )


def sarif(outcome: Outcome, version: str) -> bytes:
    """The problems as SARIF; an empty list when all holds, so that earlier ones are closed."""
    known = [SarifRule(name, title) for name, title in sorted(rules().items())]
    results = (
        SarifResult(
            rule=problem.rule,
            level=problem.level,
            message=_in_words(problem),
            path=problem.file,
            line=max(problem.line, 1),  # code hosts show nothing without one
            same_as=_in_words(problem),
        )
        for problem in outcome.problems
    )
    return sarif_log(known, results, version=version)
