"""How bootstrap calls the host's own clients (apt, pip, go): their settings, a time limit, one error form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backend.runner import Command, Ending, Outcome, run
from images.errors import HostError

Progress = Callable[[str], None]
RunCommand = Callable[[Command], Outcome]


def _run(command: Command) -> Outcome:
    return run(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What bootstrap needs of the host.

    ``environment``: that of the host's clients, proxies and trust store included (the command line passes it
    down). ``cache``: a directory of ours for downloads. ``work``: where temporary trees may lie; every
    directory above it must be open to other users, because mmdebstrap reads it as another id.
    """

    environment: Mapping[str, str]
    cache: Path
    work: Path = Path("/var/tmp")  # noqa: S108  (only mkdtemp makes names in it)
    progress: Progress = field(default=lambda _text: None)
    run: RunCommand = _run

    def call(
        self,
        *argv: str,
        deadline: float = 600.0,
        extra: Mapping[str, str] | None = None,
        working_dir: Path = Path("/"),
        grace: float = 5.0,
    ) -> Outcome:
        """Run one client to its end; ``extra`` overrides the environment. HostError when it cannot start."""
        environment = {**self.environment, "LC_ALL": "C.UTF-8", **(extra or {})}
        outcome = self.run(
            Command(
                argv=argv,
                environment=environment,
                deadline=deadline,
                working_dir=working_dir,
                capture=8 << 20,
                grace=grace,
            )
        )
        if outcome.ending is Ending.NOT_FOUND:
            raise HostError(f"{argv[0]} is not installed", hint="tools/setup-machine")
        if outcome.ending is not Ending.EXITED:
            raise HostError(f"{argv[0]} {outcome.ending}: {outcome.detail or f'after {deadline:.0f} s'}")
        return outcome


def last_words(outcome: Outcome, lines: int = 3) -> str:
    """The end of what a client said on standard error, on one line, for a message."""
    text = outcome.stderr.decode("utf-8", "replace").strip().splitlines()
    return " / ".join(line.strip() for line in text[-lines:])[:600]
