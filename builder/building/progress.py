"""Read buildx's raw progress: live plain lines for people, and the failed step with its last lines."""

from __future__ import annotations

import base64
import binascii
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from images.errors import UsageError
from images.redaction import Redactor, redact
from images.strictjson import JsonValue, read_object

OnLine = Callable[[str], None]
_MAX_LINE: Final = 1 << 20  # bytes of one progress document
_TAIL: Final = 20  # log lines kept per step
_MAX_STEPS: Final = 1000
_SHOWN: Final = 400  # characters of one line


@dataclass(slots=True)
class _Step:
    name: str
    started: bool = False
    completed: bool = False
    error: str = ""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL))
    partial: bytes = b""
    redactor: Redactor = field(default_factory=Redactor)  # a private key stretches over many lines


class BuildProgress:
    """Takes the bytes of ``--progress=rawjson`` as they come; what is not such a document is kept as text.

    Everything that leaves here is printable, short and redacted: a step's output is untrusted.
    """

    def __init__(self, on_line: OnLine) -> None:
        self._on_line = on_line
        self._pending = b""
        self._steps: dict[str, _Step] = {}
        self._text: deque[str] = deque(maxlen=_TAIL)

    def take(self, chunk: bytes) -> None:
        """The next bytes of buildx's standard error."""
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        if len(self._pending) > _MAX_LINE:
            lines.append(self._pending[:_MAX_LINE])
            self._pending = b""
        for line in lines:
            self._line(line)

    def close(self) -> None:
        """The last bytes have come."""
        if self._pending:
            self._line(self._pending)
            self._pending = b""

    @property
    def failed_step(self) -> str:
        """The name of the first step that ended with an error of its own; empty when none did."""
        step = self._failed()
        return step.name if step else ""

    def running_steps(self) -> tuple[str, ...]:
        """Steps that have begun and not ended, or were ended from outside."""
        return tuple(
            step.name
            for step in self._steps.values()
            if step.started and (not step.completed or "context canceled" in step.error)
        )

    def last_lines(self) -> tuple[str, ...]:
        """What the failed step printed last and how it ended; else what buildx itself said last."""
        step = self._failed()
        return (*step.tail, step.error) if step else tuple(self._text)

    def _failed(self) -> _Step | None:
        steps = [step for step in self._steps.values() if step.error]
        # Steps that others took down with them say so in these words; the culprit does not.
        own = [step for step in steps if "context canceled" not in step.error]
        return next(iter(own or steps), None)

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            document = read_object(line, "progress", max_bytes=_MAX_LINE)
        except UsageError:
            text = _clean(line)
            self._text.append(text)
            self._on_line(text)
            return
        for vertex in _objects(document, "vertexes"):
            self._vertex(vertex)
        for log in _objects(document, "logs"):
            self._log(log)

    def _vertex(self, vertex: dict[str, JsonValue]) -> None:
        digest, name = vertex.get("digest"), vertex.get("name")
        if not isinstance(digest, str) or not isinstance(name, str):
            return
        if digest not in self._steps and len(self._steps) >= _MAX_STEPS:
            return
        step = self._steps.setdefault(digest, _Step(_short(name)))
        if vertex.get("started") and not step.started:
            step.started = True
            self._on_line(step.name)
        if vertex.get("completed") and not step.completed:
            step.completed = True
            error = vertex.get("error")
            step.error = _clean(error.encode()) if isinstance(error, str) else ""
            how = "failed" if step.error else "unchanged" if vertex.get("cached") else "done"
            self._on_line(f"{step.name}: {how}")

    def _log(self, log: dict[str, JsonValue]) -> None:
        step, data = self._steps.get(str(log.get("vertex"))), log.get("data")
        if step is None or not isinstance(data, str):
            return
        try:
            raw = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return
        *lines, rest = (step.partial + step.redactor.feed(raw)).split(b"\n")
        step.partial = rest[-_MAX_LINE:]
        for line in lines:
            text = _clean(line)
            step.tail.append(text)
            self._on_line(text)


def _objects(document: dict[str, JsonValue], key: str) -> list[dict[str, JsonValue]]:
    found = document.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _short(name: str) -> str:
    """A step's name without its flags, which are the same for all."""
    return _clean(" ".join(re.sub(r"\s--\S+", "", name[:4096]).split()).encode())[:120]


def _clean(raw: bytes) -> str:
    """Redacted before it is cut, so that no half of a credential is left; control characters become ``?``."""
    text = redact(raw[:_MAX_LINE].decode("utf-8", "replace")).strip()
    return "".join(char if char.isprintable() else "?" for char in text)[:_SHOWN]
