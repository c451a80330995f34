"""A value in a parsed lock and where it stands: closed keys and bounds, each error with its dotted path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from images.digests import Digest
from images.errors import BuilderError, UsageError

if TYPE_CHECKING:
    from images.strictjson import JsonValue

_Choice = TypeVar("_Choice", bound=StrEnum)

HINT: Final = "restore it from version control, or run: builder lock"


@dataclass(frozen=True, slots=True)
class Place:
    """A value and where it stands."""

    value: JsonValue
    path: str
    where: str
    error: type[BuilderError]

    def fail(self, expected: str) -> NoReturn:
        raise self.error(f"{self.path or 'the top'}: expected {expected}", where=self.where, hint=HINT)

    def fields(self, *names: str, optional: tuple[str, ...] = ()) -> dict[str, Place]:
        """Exactly these keys."""
        if not isinstance(self.value, dict):
            self.fail("an object")
        for name in names:
            if name not in self.value:
                self.fail(f"the key {name}")
        for name in self.value:
            if name not in names and name not in optional:
                self.fail(f"no key {name[:60]!r}")
        return self._below(self.value)

    def map(self, most: int) -> dict[str, Place]:
        if not isinstance(self.value, dict) or len(self.value) > most:
            self.fail(f"an object of at most {most} keys")
        return self._below(self.value)

    def list(self, most: int) -> tuple[Place, ...]:
        if not isinstance(self.value, list) or len(self.value) > most:
            self.fail(f"a list of at most {most}")
        return tuple(
            Place(item, f"{self.path}[{n}]", self.where, self.error) for n, item in enumerate(self.value)
        )

    def text(self, pattern: re.Pattern[str], expected: str) -> str:
        if not isinstance(self.value, str) or not pattern.fullmatch(self.value):
            self.fail(expected)
        return self.value

    def choice(self, choices: type[_Choice]) -> _Choice:
        if not isinstance(self.value, str) or self.value not in set(choices):
            self.fail("one of " + ", ".join(choices))
        return choices(self.value)

    def integer(self, least: int, most: int) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.fail("a whole number")
        if not least <= self.value <= most:
            self.fail(f"a number from {least} to {most}")
        return self.value

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail("true or false")
        return self.value

    def digest(self) -> Digest:
        try:
            return Digest(self.value if isinstance(self.value, str) else "")
        except UsageError:
            self.fail("sha256: and 64 lowercase hexadecimal digits")

    def _below(self, value: dict[str, JsonValue]) -> dict[str, Place]:
        dot = f"{self.path}." if self.path else ""
        return {
            name: Place(item, f"{dot}{name[:120]}", self.where, self.error) for name, item in value.items()
        }
