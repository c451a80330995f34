"""One invocation: parsed arguments, where the operator's files are, the clock, and the reporter."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

from builder.cli.documents import Document
from builder.report import ProgressStyle, Reporter
from images.errors import BuilderError, ExitCode, UsageError

APPLICATION = "agent-image-builder"

# What a verb can say is in the type of what it returns: a test reads it there.
Said_co = TypeVar("Said_co", bound=Document, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[Said_co]):
    """What a command leaves for standard output: lines for people's pipes, or its document as JSON.

    ``failure``: the answer is there, and is a bad one (not verified, a credential); the exit code is its own.
    ``code``: else the exit code; other than 0 for ``run`` alone, whose command's own it is.
    """

    document: Said_co
    line: str = ""
    failure: BuilderError | None = None
    code: int = ExitCode.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Everything a command may know about the outside. ``environment`` is the one we were started with."""

    command: str
    options: argparse.Namespace
    environment: Mapping[str, str] = field(repr=False)
    reporter: Reporter
    state_root: Path
    config_dir: Path
    working_dir: Path
    json_output: bool

    @property
    def owns_exit_code(self) -> bool:
        """In ``run`` every failure of ours is 125: other codes belong to the command inside."""
        return self.command == "run" and not getattr(self.options, "dry_run", False)

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)


def make_invocation(options: argparse.Namespace, environment: Mapping[str, str]) -> Invocation:
    """Resolve the places of the XDG base directory specification, ``--state`` and ``--config-dir``."""
    working_dir = _working_dir()
    home = _xdg(environment, "HOME", Path("/"))
    state = options.state or _xdg(environment, "XDG_STATE_HOME", home / ".local/state") / APPLICATION
    config = options.config_dir or _xdg(environment, "XDG_CONFIG_HOME", home / ".config") / APPLICATION
    style = ProgressStyle(options.progress)
    terminal = sys.stderr.isatty()
    reporter = Reporter(
        style=style,
        quiet=options.quiet,
        verbose=options.verbose,
        color=terminal and "NO_COLOR" not in environment,
        live=terminal and style is ProgressStyle.AUTO and not options.verbose,
        guarded=getattr(options, "ci", False) or bool(environment.get("CI") or environment.get("TF_BUILD")),
    )
    return Invocation(
        command=options.command,
        options=options,
        environment=dict(environment),
        reporter=reporter,
        state_root=_absolute(state),
        config_dir=_absolute(config),
        working_dir=working_dir,
        json_output=options.json,
    )


def _working_dir() -> Path:
    try:
        return Path.cwd()
    except OSError as broken:
        why = f"the working directory cannot be used: {broken.strerror}"
        raise UsageError(why, hint="cd to a directory that exists") from None


def _absolute(path: Path) -> Path:
    """Made absolute by words alone: a link in the path is judged later, not followed now."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _xdg(environment: Mapping[str, str], name: str, otherwise: Path) -> Path:
    """The specification says that a relative path in these variables is to be ignored; so is such a HOME."""
    value = environment.get(name, "")
    return Path(value) if value.startswith("/") else otherwise
