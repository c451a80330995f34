"""The calls that the Docker and Podman clients spell alike, over one container named by its full id."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from backend.commands import BoundedFile, Ending, Input, OnChunk
from backend.containers import ExecPlan, InspectedContainer
from backend.engines.client import complaint
from backend.engines.grammar import check_exec, container_id, flag
from backend.engines.volumes import VolumeCalls
from backend.runner import Outcome, run
from images.errors import HostError

COPY_SECONDS: Final = 900.0
GONE_SECONDS: Final = 30.0
# A build container's state is some 60,000 files: over a minute on a busy disk (seen).
REMOVE_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class ContainerCalls(VolumeCalls, ABC):
    """The part of the engine protocol that is the same in both dialects."""

    @property
    def product(self) -> str:
        """``docker`` or ``podman``."""
        return self.client.product

    @property
    @abstractmethod
    def detach_keys(self) -> str:
        """What no one types by accident, in this dialect's own words; empty where none can be had."""

    @abstractmethod
    def read_container(self, data: bytes) -> InspectedContainer:
        """What one inspect call answered, in this dialect's own document."""

    def inspect(self, container: str) -> InspectedContainer | None:
        """None when the engine lists no such container."""
        outcome = self.client.ask("container", "inspect", "--format={{json .}}", container_id(container))
        if outcome.ok:
            return self.read_container(outcome.stdout)
        if not self.listed(f"id={container}"):
            return None
        raise self.client.failed(f"inspect container {container[:12]}", outcome)

    def exec(
        self,
        container: str,
        plan: ExecPlan,
        *,
        stdin: Input = None,
        on_stdout: OnChunk | None = None,
        on_stderr: OnChunk | None = None,
        deadline: float = 60.0,
        cancelled: Callable[[], bool] | None = None,
        stdout_to: BoundedFile | None = None,
    ) -> Outcome:
        """Run one command inside. A time-out ends the client only: the command inside lives on."""
        arguments = exec_arguments(container_id(container), plan, stdin=stdin is not None)
        command = self.client.command(*arguments, stdin=stdin, deadline=deadline)
        if stdout_to is not None:
            command = replace(command, stdout_path=stdout_to.path, stdout_limit=stdout_to.limit)
        return run(command, on_stdout=on_stdout, on_stderr=on_stderr, cancelled=cancelled)

    def exec_argv(self, container: str, plan: ExecPlan) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """For a supervisor that watches the exec itself."""
        arguments = exec_arguments(container_id(container), plan, stdin=False)
        return self.client.argv(*arguments), self.client.environment

    def terminal_argv(self, container: str, plan: ExecPlan) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """For a supervisor that gives the client a terminal."""
        arguments = terminal_arguments(container_id(container), plan, detach_keys=self.detach_keys)
        return self.client.argv(*arguments), self.client.environment

    def start(self, container: str) -> None:
        """Start detached."""
        self.client.need(
            "container", "start", container_id(container), what=f"start container {container[:12]}"
        )

    def attach_argv(self, container: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """For a supervisor that holds the pipe itself."""
        return self.client.argv(*_attached(container)), self.client.environment

    def start_attached(
        self,
        container: str,
        *,
        stdin: Input,
        on_stdout: OnChunk | None,
        on_stderr: OnChunk | None,
        deadline: float,
        stdout_path: Path | None = None,
        hold_stdin: bool = False,
    ) -> Outcome:
        """Start and stay until it ends. A time-out ends the client only: the caller removes the container."""
        command = self.client.command(
            *_attached(container), stdin=stdin, deadline=deadline, stdout_path=stdout_path
        )
        command = replace(command, hold_stdin=hold_stdin)
        return run(command, on_stdout=on_stdout, on_stderr=on_stderr)

    def copy_in(self, container: str, target: str, tar: Path) -> None:
        """A tar with numeric owners into a created container's volume."""
        # Podman's default gives every file to PID 1's user; Docker's own default is this one.
        destination = f"{container_id(container)}:{target}"
        outcome = run(
            self.client.command(
                "container", "cp", "--archive=false", "-", destination, stdin=tar, deadline=COPY_SECONDS
            )
        )
        if not outcome.ok:
            raise self.client.failed(f"copy into container {container[:12]}", outcome)

    def pack(self, container: str, target: BoundedFile) -> bool:
        """All files of a created container as one tar. False: more than ``target`` takes."""
        command = self.client.command("container", "export", container_id(container), deadline=COPY_SECONDS)
        outcome = run(replace(command, stdout_path=target.path, stdout_limit=target.limit))
        if outcome.ending is Ending.OVERFLOWED:
            return False
        if not outcome.ok:
            raise self.client.failed(f"pack container {container[:12]}", outcome)
        return True

    def logs(self, container: str, limit: int) -> bytes:
        """What the container wrote last, both streams; empty when there is none."""
        outcome = self.client.ask("container", "logs", "--tail=200", container_id(container))
        return (outcome.stdout + outcome.stderr)[-limit:]

    def remove(self, container: str) -> None:
        """Force-remove with anonymous volumes. Somebody else removing it at the same time is success too."""
        until = time.monotonic() + GONE_SECONDS
        while True:
            outcome = self.client.ask(
                "container",
                "rm",
                "--force",
                "--volumes",
                container_id(container),
                seconds=REMOVE_SECONDS,
            )
            if not self.listed(f"id={container}"):
                return
            if time.monotonic() > until:
                raise HostError(
                    f"{self.product} cannot remove container {container[:12]}: {complaint(outcome.stderr)}",
                    where=self.product,
                    hint=f"{self.product} container rm --force {container}",
                )
            time.sleep(0.1)

    def list_labelled(self, label: str, value: str) -> tuple[str, ...]:
        """Full ids in any state."""
        return self.listed(f"label={label}={value}")

    def listed(self, wanted: str) -> tuple[str, ...]:
        """Full ids of the containers in any state that one engine filter lets through."""
        said = self.client.need(
            "container", "ls", "--all", "--no-trunc", "--quiet", f"--filter={wanted}", what="list containers"
        )
        return tuple(container_id(line) for line in said.decode("ascii", "replace").split())


def exec_arguments(container: str, plan: ExecPlan, *, stdin: bool) -> tuple[str, ...]:
    """Arguments of ``container exec``. Raises HostError for a plan that breaks the grammar."""
    check_exec(plan)
    return (
        "container",
        "exec",
        *(("--interactive",) if stdin else ()),
        flag("user", f"{plan.user[0]}:{plan.user[1]}"),
        flag("workdir", plan.working_dir),
        *(flag("env", f"{name}={value}") for name, value in plan.environment),
        container,
        *plan.argv,
    )


def terminal_arguments(container: str, plan: ExecPlan, *, detach_keys: str) -> tuple[str, ...]:
    """Arguments of ``container exec`` on a terminal. Raises HostError for a plan that breaks the grammar."""
    verb, name, interactive, *rest = exec_arguments(container, plan, stdin=True)
    return (verb, name, interactive, "--tty", flag("detach-keys", detach_keys), *rest)


def _attached(container: str) -> tuple[str, ...]:
    return ("container", "start", "--attach", "--interactive", container_id(container))
