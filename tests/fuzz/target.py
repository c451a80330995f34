"""What one reader is fuzzed with: good inputs to start from, how they are changed, and what must hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from images.errors import BuilderError

Dice: TypeAlias = random.Random
Mutate: TypeAlias = Callable[[Dice, Sequence[bytes]], bytes]


class WrongAccept(AssertionError):
    """A law that an accepted input breaks: the reader took what it must not take."""


@dataclass(frozen=True)
class Ready:
    """``seeds`` are all accepted. ``read``: gives something, or raises a refusal."""

    seeds: Sequence[bytes]
    read: Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """``make`` is given an empty folder of its own. ``share``: of a run's inputs, beside 1 for others."""

    name: str
    make: Callable[[Path], Ready]
    mutate: Mutate
    share: float = 1.0
    refusals: tuple[type[Exception], ...] = (BuilderError,)


_TARGETS: Final[dict[str, Target]] = {}


def target(
    mutate: Mutate, *, share: float = 1.0, refusals: tuple[type[Exception], ...] = (BuilderError,)
) -> Callable[[Callable[[Path], Ready]], Callable[[Path], Ready]]:
    """Enter a function that makes a reader ready, under its own name."""

    def enter(make: Callable[[Path], Ready]) -> Callable[[Path], Ready]:
        name = make.__name__.replace("_", "-")
        if name in _TARGETS:
            raise ValueError(f"two targets are called {name}")
        _TARGETS[name] = Target(name, make, mutate, share, refusals)
        return make

    return enter


def all_targets() -> dict[str, Target]:
    """Every target by its name; the modules that enter them are read here."""
    import tests.fuzz.targets  # noqa: F401, PLC0415  (they import this module)

    return dict(sorted(_TARGETS.items()))


def law(holds: object, broken: str) -> None:
    """Raise WrongAccept unless it holds."""
    if not holds:
        raise WrongAccept(broken)
