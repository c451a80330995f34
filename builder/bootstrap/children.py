"""How bootstrap calls the host's own clients (apt, pip, go): their settings, a time limit, one error form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from backend.runner import Command, Ending, Outcome, run
from images.credentials import Secret
from images.errors import HostError
from images.redaction import hide

Progress = Callable[[str], None]
Heard = Callable[[bytes], None]  # what a client says on standard error, while it says it
RunCommand = Callable[..., Outcome]  # of a Command, with ``on_stderr`` where somebody listens


def _run(command: Command, on_stderr: Heard | None = None) -> Outcome:
    return run(command, on_stderr=on_stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What bootstrap needs of the host.

    ``environment``: that of the host's clients, proxies and trust store included (the command line passes it
    down). ``cache``: a directory of ours for downloads. ``work``: where temporary trees may lie; every
    directory above it must be open to other users, because mmdebstrap reads it as another id.
    ``authorities``: certificates that settings.toml adds. ``hidden``: what no message may repeat.
    """

    environment: Mapping[str, str] = field(repr=False)
    cache: Path
    work: Path = Path("/var/tmp")  # noqa: S108  (only mkdtemp makes names in it)
    progress: Progress = field(default=lambda _text: None)
    run: RunCommand = _run
    authorities: Path | None = None
    hidden: tuple[Secret, ...] = ()

    def call(
        self,
        *argv: str,
        deadline: float = 600.0,
        extra: Mapping[str, str] | None = None,
        working_dir: Path = Path("/"),
        grace: float = 5.0,
        heard: Heard | None = None,
    ) -> Outcome:
        """Run one client to its end; ``extra`` overrides the environment. HostError when it cannot start."""
        listening = {} if heard is None else {"on_stderr": heard}
        environment = {**self.environment, "LC_ALL": "C.UTF-8", **(extra or {})}
        outcome = self.run(
            Command(
                argv=argv,
                environment=environment,
                deadline=deadline,
                working_dir=working_dir,
                capture=8 << 20,
                grace=grace,
            ),
            **listening,
        )
        if outcome.ending is Ending.NOT_FOUND:
            raise HostError(f"{argv[0]} is not installed", hint="tools/setup-machine")
        if outcome.ending is not Ending.EXITED:
            raise HostError(f"{argv[0]} {outcome.ending}: {outcome.detail or f'after {deadline:.0f} s'}")
        return replace(outcome, stderr=hide(outcome.stderr, self.hidden)) if self.hidden else outcome


class Told:
    """Says how far a client is that names each thing it has done on a line: each tenth of ``total``, or where
    that is not known each 50."""

    def __init__(self, progress: Progress, what: str, total: int = 0) -> None:
        self._progress, self._what, self._total = progress, what, total
        self._done = self._said = 0

    def hear(self, chunk: bytes) -> None:
        """Count the lines in it."""
        self._done += chunk.count(b"\n")
        reached = min(10, self._done * 10 // self._total) if self._total else self._done // 50
        if reached > self._said:
            self._said = reached
            of = f" of {self._total}" if self._total else ""
            self._progress(f"  {min(self._done, self._total or self._done)}{of} {self._what}")


def last_words(outcome: Outcome, lines: int = 3) -> str:
    """The end of what a client said on standard error, on one line, for a message."""
    text = outcome.stderr.decode("utf-8", "replace").strip().splitlines()
    return " / ".join(line.strip() for line in text[-lines:])[:600]
