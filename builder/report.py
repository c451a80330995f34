"""What people see on standard error: steps, warnings, errors; as a bar, plain lines or JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TextIO

from images.errors import BuilderError
from images.redaction import redact


class ProgressStyle(StrEnum):
    """``--progress``: AUTO is a live line on a terminal and plain lines elsewhere."""

    AUTO = "auto"
    PLAIN = "plain"
    JSON = "json"


def visible(text: str, plain: str = "\n\t") -> str:
    """Text from files, images and packages without terminal codes: what does not print is spelled out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in plain else ascii(char)[1:-1] for char in text)


_COMMAND = re.compile(r"##(?=[\w.-]*\[)")


def harmless(text: str) -> str:
    """Lines of which no CI service takes one for a command: none begins ``::``, none holds ``##[name]``."""
    lines = (_COMMAND.sub("# #", line) for line in visible(text).split("\n"))
    return "\n".join(f"'{line.lstrip()}" if line.lstrip().startswith("::") else line for line in lines)


def mute(stream: TextIO) -> None:
    """Let what is buffered, and all that follows, go nowhere: else the interpreter's end fails on it."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


@dataclass(slots=True)
class Reporter:
    """Writes to one stream (standard error). Standard output is never touched: it carries data only."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    style: ProgressStyle = ProgressStyle.PLAIN
    quiet: bool = False
    verbose: bool = False
    color: bool = False
    live: bool = False
    guarded: bool = False  # a CI service reads along: text from elsewhere must not become its commands
    _started: float = field(default_factory=time.monotonic)
    _said_once: set[str] = field(default_factory=set)

    def say(self, text: str) -> None:
        """One line for people."""
        if not self.quiet:
            self._line("say", text)

    def say_once(self, text: str) -> None:
        """One line for people, the first time only."""
        if text not in self._said_once:
            self._said_once.add(text)
            self.say(text)

    def detail(self, text: str) -> None:
        """One line that only ``--verbose`` shows."""
        if self.verbose:
            self._line("detail", text)

    def warn(self, text: str) -> None:
        """Shown even with ``--quiet``."""
        self._line("warning", text, paint="33")

    def note(self, label: str, text: str) -> None:
        """A line under a label of its own, shown even with ``--quiet``."""
        self._line(label, text)

    def error(self, broken: BuilderError) -> None:
        """``error: …``, a blank line, ``hint: …``."""
        self._line("error", str(broken), paint="31")
        if broken.hint:
            if self.style is not ProgressStyle.JSON:
                self.put("\n")
            self._line("hint", broken.hint, paint="36")

    @contextmanager
    def step(self, title: str) -> Iterator[Progress]:
        """A step that may take over a second: says when it starts, how far it is, and how long it took."""
        progress = Progress(self, title)
        began = time.monotonic()
        self.say(f"{title} …")
        yield progress
        progress.clear()
        took = time.monotonic() - began
        if took >= 1.0:
            self.say(f"{title}: done in {took:.1f} s")

    def _line(self, kind: str, text: str, paint: str = "") -> None:
        text = harmless(redact(text)) if self.guarded else redact(text)
        if self.style is ProgressStyle.JSON:
            elapsed = round(time.monotonic() - self._started, 3)
            self.put(json.dumps({"kind": kind, "text": text, "elapsed": elapsed}) + "\n")
            return
        label = "" if kind in ("say", "detail") else f"{kind}: "
        if label and self.color:
            label = f"\x1b[{paint}m{label}\x1b[0m"
        self.put(f"{label}{visible(text)}\n")

    def put(self, text: str) -> None:
        """Write as it is. A reader who went away, or a full disk, does not end what is being reported."""
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError:
            mute(self.stream)


def in_words(value: object) -> str:
    """A value of a document for people, on one line: no quotes and brackets of a programming language."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case None:
            return "none"
        case dict():
            return " ".join(f"{key}={in_words(one)}" for key, one in value.items()) or "none"
        case list() | tuple():
            return " ".join(in_words(one) for one in value) or "none"
        case _:
            return str(value)


@dataclass(slots=True)
class Progress:
    """How far one step is. Live lines on a terminal; elsewhere at most one line in ten seconds."""

    reporter: Reporter
    title: str
    _last: float = field(default_factory=time.monotonic)
    _shown: bool = False

    def update(self, text: str) -> None:
        """The newest state of the step, one line."""
        reporter = self.reporter
        if reporter.quiet:
            return
        now = time.monotonic()
        if reporter.live:
            if now - self._last >= 0.1:
                self._last = now
                self._shown = True
                reporter.put(f"\r\x1b[K  {visible(redact(text), '')[:100]}")
        elif reporter.verbose or now - self._last >= 10.0:
            self._last = now
            reporter.say(f"  {text[:300]}")

    def clear(self) -> None:
        """Take the live line away."""
        if self._shown:
            self.reporter.put("\r\x1b[K")
            self._shown = False
