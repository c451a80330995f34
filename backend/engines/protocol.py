"""The protocol that every engine dialect fulfils, and the scripted fake too; one contract suite holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from backend.commands import BoundedFile, Input, OnChunk
from backend.containers import (
    ContainerPlan,
    EngineFacts,
    ExecPlan,
    InspectedContainer,
    InspectedVolume,
    LoadedImage,
    VolumePlan,
)
from backend.runner import Outcome
from images.oci import OciImage


class Engine(Protocol):
    """A container engine. Every call has a time limit; failures of the engine itself are HostError."""

    @property
    def product(self) -> str:
        """``docker`` or ``podman``."""

    def facts(self) -> EngineFacts:
        """Identity, asked from the engine."""

    def find_image(self, image: OciImage) -> LoadedImage | None:
        """The image in the engine's store, found by id and never by name; None when it is not there."""

    def load(self, image: OciImage, staging: Path) -> LoadedImage:
        """Put the image into the engine's store (skipped when there) and check the id that came out.

        ``staging``: a private directory for what the engine must read from disk; the caller removes it.
        """

    def remove_image(self, image: LoadedImage) -> None:
        """Remove it if nobody uses it; gone already is success."""

    def create(self, plan: ContainerPlan) -> str:
        """Create, without starting. Returns the full container id."""

    def inspect(self, container: str) -> InspectedContainer | None:
        """None when no such container exists."""

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
        """Start and stay until it ends. A time-out ends the client only: the caller removes the container.

        ``hold_stdin``: its input stays open after ``stdin``, and ends when this process dies.
        """

    def start(self, container: str) -> None:
        """Start detached."""

    def attach_argv(self, container: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """argv and environment of ``start --attach --interactive``, for a supervisor that holds the pipe."""

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
        """Run one command inside. The exit code is the client's: judge engine failures by inspect.

        ``stdout_to``: a file of ours instead of memory; more than it takes is OVERFLOWED.

        ``cancelled`` is asked often, and may answer from another thread. A time-out or cancellation ends the
        client only: the command lives on until the caller ends it inside.
        """

    def exec_argv(self, container: str, plan: ExecPlan) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """argv and environment of an exec without input, for a supervisor that watches it itself."""

    def terminal_argv(self, container: str, plan: ExecPlan) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """argv and environment of an exec on a terminal, for a supervisor that gives its client one.

        No key that is typed has a meaning for the client: none detaches it.
        """

    def copy_in(self, container: str, target: str, tar: Path) -> None:
        """A tar with numeric owners through ``cp -`` into a created container's volume."""

    def pack(self, container: str, target: BoundedFile) -> bool:
        """All files of a created container as one tar, without what is mounted. False: more than it takes."""

    def logs(self, container: str, limit: int) -> bytes:
        """The last ``limit`` bytes of the engine's log of a BUILD container."""

    def remove(self, container: str) -> None:
        """Force-remove with its anonymous volumes; idempotent; returns when the id is really gone."""

    def list_labelled(self, label: str, value: str) -> tuple[str, ...]:
        """Full ids of containers in any state that carry the label."""

    def create_volume(self, plan: VolumePlan) -> None:
        """Make a volume. HostError when one of that name is there that is not the planned one."""

    def inspect_volume(self, name: str) -> InspectedVolume | None:
        """None when no such volume exists."""

    def remove_volume(self, name: str) -> None:
        """Remove a volume that no container mounts; idempotent; returns when it is really gone."""

    def list_volumes(self, label: str, value: str) -> tuple[str, ...]:
        """Names of the volumes that carry the label."""
