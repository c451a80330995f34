"""What a CI check found: problems with their places in the checkout, and the answers of verify."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.digests import Digest
from images.errors import BuilderError
from provenance.checks import Check, CheckId
from provenance.policy import Policy
from provenance.sarif import Level

_PLACED: Final = re.compile(r"(.+), line ([1-9][0-9]{0,8})", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """``rule``: which part of the check failed, a stable word. ``file`` and ``line``: as in SARIF."""

    rule: str
    message: str
    hint: str = ""
    file: str = ""
    line: int = 0
    level: Level = Level.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``failure``: the first thing that failed, with its exit code; None: all holds.

    ``checks``: the answers of verify, empty where it could not begin. ``ignored``: evidence that counts for
    nothing. ``image_name``: what builder.toml calls the image.
    """

    image: Digest | None
    image_name: str
    lock: Digest | None
    policy: Policy | None
    checks: tuple[Check, ...]
    ignored: tuple[str, ...]
    problems: tuple[Problem, ...]
    failure: BuilderError | None

    @property
    def ok(self) -> bool:
        """Everything that was asked for holds."""
        return self.failure is None


# Every rule that a problem can have, with what it asserts.
STEPS: Final = {
    "config": "builder.toml can be read",
    "lock": "builder.lock is the one of builder.toml",
    "policy": "a policy is given that the checkout cannot change",
    "image": "an image is named by its digest",
}


def rule_of(check: CheckId) -> str:
    """The rule of a check of verify: its own id, as in JSON."""
    return check.name.lower()


def rules() -> dict[str, str]:
    """Every rule and what it asserts."""
    return STEPS | {rule_of(check): check.title for check in CheckId}


def problem_of(rule: str, broken: BuilderError, checkout: Path) -> Problem:
    """A failure, at the line that it names if that is in the checkout."""
    file, line = place_in(broken.where, checkout)
    where = "" if file or not broken.where else f"{broken.where}: "
    return Problem(rule=rule, message=f"{where}{broken.what}", hint=broken.hint, file=file, line=line)


def place_in(where: str, checkout: Path) -> tuple[str, int]:
    """File and line of an error's place; nothing where that is no file under the checkout."""
    placed = _PLACED.fullmatch(where)
    name, line = (placed[1], int(placed[2])) if placed else (where, 0)
    if not name or "\0" in name:
        return "", 0
    path = checkout / name
    try:
        inside = path.is_relative_to(checkout) and ".." not in path.parts and path.is_file()
    except OSError:  # a text that is no name of a file
        inside = False
    return (path.relative_to(checkout).as_posix(), line) if inside else ("", 0)
