"""A value in a parsed lock and where it stands: closed keys and bounds, each error with its dotted path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from images.additions import (
    ADDITION_NAME,
    MAX_ADDITION_NAME,
    MAX_ARGUMENTS,
    VARIABLE_NAME,
    check_arguments,
)
from images.digests import Digest, Integrity
from images.errors import BuilderError, CredentialFound, UsageError
from images.oci import Platform
from images.planted import HINT as TAKE_IT_OUT
from images.planted import CredentialRefused

if TYPE_CHECKING:
    from images.strictjson import JsonValue

_Choice = TypeVar("_Choice", bound=StrEnum)

HINT: Final = "restore it from version control, or run: builder lock"
PARENT: Final = re.compile(r"[\x21-\x7e]{1,400}")
COMMAND_NAME: Final = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9._@+-]{0,99}", re.ASCII)
_VARIABLE: Final = re.compile(VARIABLE_NAME, re.ASCII)
_LINE: Final = re.compile(r"[^\x00-\x1f\x7f]*")
_ADDITION: Final = re.compile(ADDITION_NAME, re.ASCII)


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


def read_addition_name(name: str, place: Place) -> str:
    """The name of a server, Skill, tool or archive."""
    if len(name) > MAX_ADDITION_NAME or not _ADDITION.fullmatch(name):
        place.fail("a name of lower case letters, digits and hyphens")
    return name


def read_command_name(name: str, place: Place) -> str:
    """The name of a command."""
    if not COMMAND_NAME.fullmatch(name):
        place.fail("a plain command name")
    return name


def read_integrity(place: Place) -> Integrity:
    """The hash that an artifact must have."""
    try:
        return Integrity.parse(place.value if isinstance(place.value, str) else "")
    except UsageError:
        place.fail("sha512: or sha256: and lowercase hexadecimal digits")


def read_platform(place: Place, text: JsonValue) -> Platform:
    """A platform."""
    try:
        return Platform.parse(text if isinstance(text, str) else "")
    except UsageError:
        place.fail("a platform such as linux/amd64")


def read_arguments(place: Place) -> tuple[str, ...]:
    """The arguments of a server: plain lines without a credential.

    In the operator's own lock a credential is CredentialFound; in anybody else's it does not verify.
    """
    args = tuple(item.text(_LINE, "one line") for item in place.list(MAX_ARGUMENTS))
    try:
        check_arguments(args)
    except CredentialRefused as planted:
        if place.error is UsageError:
            raise CredentialFound(f"{place.path}: {planted}", where=place.where, hint=TAKE_IT_OUT) from None
        place.fail("arguments without a credential")
    except ValueError:
        place.fail("arguments without a credential")
    return args


def read_variables(place: Place) -> tuple[str, ...]:
    """The names of the variables that a server reads."""
    return tuple(item.text(_VARIABLE, "the name of a variable") for item in place.list(MAX_ARGUMENTS))
