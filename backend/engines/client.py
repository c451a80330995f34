"""One engine client program: the fixed start of its argv, its own environment, a limit on every call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.commands import Input
from backend.runner import Command, Ending, Outcome, run
from backend.together import abandoned
from images.errors import HostError
from images.redaction import redact
from images.strictjson import JsonValue, read_json

CALL_SECONDS: Final = 60.0
DOCUMENT_BYTES: Final = 4 * 1024 * 1024
_SAID: Final = 400  # characters of an engine's complaint that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """``start``: the program and the options before every verb; ``environment``: all that it sees."""

    product: str
    start: tuple[str, ...]
    environment: Mapping[str, str]

    def argv(self, *arguments: str) -> tuple[str, ...]:
        """The whole argv of one call."""
        return (*self.start, *arguments)

    def command(
        self,
        *arguments: str,
        deadline: float,
        stdin: Input = None,
        stdout_path: Path | None = None,
        directory: Path = Path("/"),
    ) -> Command:
        """One call as the process runner takes it; ``directory``: where it runs."""
        return Command(
            argv=self.argv(*arguments),
            environment=self.environment,
            deadline=deadline,
            stdin=stdin,
            stdout_path=stdout_path,
            working_dir=directory,
            capture=DOCUMENT_BYTES,
        )

    def ask(self, *arguments: str, seconds: float = CALL_SECONDS, directory: Path = Path("/")) -> Outcome:
        """One short call; its outcome is the caller's to judge, but a client that cannot run is HostError."""
        command = self.command(*arguments, deadline=seconds, directory=directory)
        outcome = run(command, cancelled=abandoned())
        if outcome.ending is not Ending.EXITED:
            raise self.failed(f"do {' '.join(arguments[:2])}", outcome)
        return outcome

    def need(
        self, *arguments: str, what: str, seconds: float = CALL_SECONDS, directory: Path = Path("/")
    ) -> bytes:
        """One short call that must succeed; its output. ``what`` completes "cannot …" in the error."""
        outcome = self.ask(*arguments, seconds=seconds, directory=directory)
        if not outcome.ok:
            raise self.failed(what, outcome)
        return outcome.stdout

    def document(self, *arguments: str, what: str) -> JsonValue:
        """One short call whose standard output is one strict JSON document."""
        return self.read(self.need(*arguments, what=what), " ".join(arguments[:2]))

    def read(self, data: bytes, verb: str) -> JsonValue:
        """What the engine answered to ``verb``, as strict JSON."""
        return read_json(data, f"{self.product} {verb}", max_bytes=DOCUMENT_BYTES, error=HostError)

    def failed(self, what: str, outcome: Outcome) -> HostError:
        """The error for a call that did not succeed; never the argv, which may be long."""
        why = outcome.detail or complaint(outcome.stderr) or f"exit code {outcome.exit_code}"
        return HostError(
            f"{self.product} cannot {what}: {why}", where=self.product, hint="builder doctor", reason="engine"
        )


def complaint(stderr: bytes) -> str:
    """The last line an engine wrote, made printable and short, without anything like a credential."""
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    return "".join(char if char.isprintable() else "?" for char in redact(text.strip()))[:_SAID]
