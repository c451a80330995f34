"""What builder.toml adds to the agents: MCP servers with arguments that hold no secret, and Skills."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from images.credential_names import RULE_NAME, least_literal
from images.credential_places import HARMLESS_VALUES
from images.digests import Digest
from images.planted import CredentialRefused, rule_of

ADDITION_NAME: Final = r"^[a-z0-9]+(-[a-z0-9]+)*$"  # a directory in the image, a stage, a key in TOML
MAX_ADDITION_NAME: Final = 40
MAX_ADDITIONS: Final = 50
MAX_ARGUMENTS: Final = 50
MAX_ARGUMENT: Final = 1000
VARIABLE_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"


class Index(StrEnum):
    """Where packages come from; also the alias in a lock."""

    NPM = "npm"
    PYPI = "pypi"


@dataclass(frozen=True, slots=True, order=True)
class McpPin:
    """One MCP server: a package at one exact version, its arguments, the names of its variables."""

    name: str
    package: str
    version: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()  # sorted
    index: Index = Index.NPM


@dataclass(frozen=True, slots=True, order=True)
class ToolPin:
    """One tool from PyPI: its package is its name."""

    name: str
    version: str


@dataclass(frozen=True, slots=True, order=True)
class ArchivePin:
    """One archive of the operator's own, and its commands: name -> file in it."""

    name: str
    sha256: Digest
    bins: tuple[tuple[str, str], ...] = ()  # sorted


@dataclass(frozen=True, slots=True, order=True)
class SkillPin:
    """One Skill: its name in the image and its directory beside builder.toml."""

    name: str
    directory: str


def check_arguments(args: Sequence[str]) -> None:
    """ValueError when an argument is no plain line, CredentialRefused when it holds a credential."""
    for number, arg in enumerate(args):
        if len(arg) > MAX_ARGUMENT or not arg.isprintable():
            raise ValueError(f"args[{number}]: expected one line of at most {MAX_ARGUMENT} characters")
        following = args[number + 1] if number + 1 < len(args) else ""
        rule = rule_of(arg) or (RULE_NAME if _names_secret(arg, following) else None)
        if rule is not None:
            raise CredentialRefused(
                rule,
                f"args[{number}] holds a credential by rule {rule}, and everybody with the image could read "
                'it; expected the name of its variable alone, as in env = ["GITHUB_TOKEN"]',
            )


def _names_secret(arg: str, following: str) -> bool:
    """``--token=…``, ``--token …``, ``TOKEN=…``: by the tables that the scanner uses."""
    name, equals, value = arg.lstrip("-").partition("=")
    if not equals:
        if not arg.startswith("-") or following.startswith("-"):
            return False
        value = following
    return least_literal(name) is not None and not HARMLESS_VALUES.fullmatch(value)


def check_directory(text: str) -> str:
    """A directory below builder.toml's, as ``skills/code-review``; ValueError for any other form."""
    parts = text.split("/")
    plain = len(text) <= 200 and text.isprintable() and "\\" not in text
    if not plain or any(part in ("", ".", "..") or part != part.strip() for part in parts):
        raise ValueError(f"{text[:60]!r}: expected a directory below this file's, such as skills/code-review")
    return text


# Programs that the image's own start needs, or that are ours: an addition must not come before them.
TAKEN_COMMANDS: Final = frozenset(
    {"bash", "cat", "claude", "git", "node", "opencode", "pi", "python3", "sh", "tar", "timeout", "env"}
)
COMMAND: Final = r"^[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}$"


def check_archive_path(text: str) -> str:
    """A file in an archive, as ``bin/tool``; ValueError for any other form."""
    parts = text.split("/")
    plain = len(text) <= 200 and re.fullmatch(r"[A-Za-z0-9._@+/ -]+", text) is not None
    if not plain or any(part in ("", ".", "..") or part != part.strip() for part in parts):
        raise ValueError(f"{text[:60]!r}: expected a file in the archive, such as tool-1.2/bin/tool")
    return text
