"""What a command is told of the terminal that it is shown on: three variables with closed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from images.errors import UsageError

# Those that Debian's ncurses-base describes: programs inside find nothing about any other.
TERMS: Final = frozenset(
    {
        "ansi",
        "dumb",
        "linux",
        "rxvt",
        "screen",
        "screen-256color",
        "tmux",
        "tmux-256color",
        "vt100",
        "vt102",
        "vt220",
        "xterm",
        "xterm-256color",
    }
)
OTHERWISE: Final = "xterm-256color"  # what the terminals of today that have a name of their own also obey
_TRUE_COLOR: Final = ("truecolor", "24bit")


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalKind:
    """``term``: one of TERMS. ``true_color``: it shows 24 bits. ``no_color``: its user wants none."""

    term: str
    true_color: bool = False
    no_color: bool = False

    def __post_init__(self) -> None:
        if self.term not in TERMS:
            raise UsageError(f"not a kind of terminal: {self.term[:40]!r}", hint=f"one of {sorted(TERMS)}")

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """Names and values, for a command that is shown on it."""
        color = (("COLORTERM", "truecolor"),) if self.true_color else ()
        none = (("NO_COLOR", "1"),) if self.no_color else ()
        return (*color, *none, ("TERM", self.term))


NO_TERMINAL: Final = TerminalKind(term="dumb")


def kind_of(environment: Mapping[str, str]) -> TerminalKind:
    """From the caller's own variables, of which no other text gets inside."""
    term = environment.get("TERM", "")
    return TerminalKind(
        term=term if term in TERMS else OTHERWISE,
        true_color=environment.get("COLORTERM") in _TRUE_COLOR,
        no_color=bool(environment.get("NO_COLOR")),
    )
