"""``min_release_age``: versions that are too young are not taken, since a hijack is often found within days.

When a version was published is the registry's word; how long ago that is, the operator's clock says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from images.errors import PinError
from images.moments import parse_moment

TOO_YOUNG: Final = "too-young"
_SHOWN: Final = 10
_UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


@dataclass(frozen=True, slots=True)
class AgeGate:
    """``least``: how old a version must be at ``now``. ``excepted``: ``name@version`` that may be younger."""

    least: timedelta
    now: datetime
    excepted: frozenset[str] = frozenset()

    @property
    def cutoff(self) -> datetime:
        """What was published later is too young."""
        return self.now - self.least

    @property
    def excepted_names(self) -> tuple[str, ...]:
        """Of what may be younger, for clients that except packages and not versions: refuse the rest."""
        return tuple(sorted({label.rpartition("@")[0] for label in self.excepted}))

    def problem(self, label: str, published: str) -> str | None:
        """Why this ``name@version`` is refused; None when it is not."""
        if label in self.excepted:
            return None
        if not published:
            return f"{label}: the registry does not say when it was published"
        moment = parse_moment(published)
        if moment is None:
            return f"{label}: the registry says no time of publication that can be read"
        if moment > self.now:
            return f"{label} was published in {in_words(moment - self.now)}, by this machine's clock"
        if moment > self.cutoff:
            return f"{label} is {in_words(self.now - moment)} old"
        return None


def require_old_enough(gate: AgeGate, releases: Iterable[tuple[str, str]], *, where: str = "") -> None:
    """Of pairs of ``name@version`` and time of publication. PinError names those that are too young."""
    problems = list(dict.fromkeys(filter(None, (gate.problem(*one) for one in releases))))
    if not problems:
        return
    more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
    raise PinError(
        f"min_release_age asks for {in_words(gate.least)}: {'; '.join(problems[:_SHOWN])}{more}",
        where=where,
        hint="wait, or pin an older version, or name it in settings.toml: "
        'min_release_age_except = ["name@version"]',
        reason=TOO_YOUNG,
    )


def in_words(span: timedelta) -> str:
    """In the largest unit that fits, rounded down: ``5 hours``."""
    seconds = int(span.total_seconds())
    for unit, size in _UNITS:
        count = seconds // size
        if count:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than a second"
