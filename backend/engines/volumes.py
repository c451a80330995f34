"""The volume calls that the Docker and Podman clients spell alike: made with labels, read back, removed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from backend.containers import InspectedVolume, VolumePlan
from backend.engines.client import Client, complaint
from backend.engines.docker_documents import Document, TextMap, read_document
from backend.engines.grammar import check_volume, flag, volume_name
from images.errors import HostError

REMOVE_SECONDS: Final = 600.0
GONE_SECONDS: Final = 30.0


class _VolumeDocument(Document):
    """One volume of ``volume inspect``."""

    Name: str
    Driver: str
    Labels: TextMap = Field(default_factory=dict)
    Options: TextMap = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VolumeCalls:
    """The part of the engine protocol that is about volumes."""

    client: Client

    def create_volume(self, plan: VolumePlan) -> None:
        """Make a volume and read it back: Docker takes a name that exists already without a word."""
        check_volume(plan)
        labels = tuple(flag("label", f"{name}={value}") for name, value in plan.labels)
        self.client.need("volume", "create", *labels, plan.name, what=f"make volume {plan.name}")
        planned = InspectedVolume(
            name=plan.name, driver="local", labels=tuple(sorted(plan.labels)), options=()
        )
        if self.inspect_volume(plan.name) != planned:
            raise HostError(
                f"volume {plan.name} is not the one that was planned: one of that name was there already",
                where=self.client.product,
                hint="builder reap",
                reason="volume",
            )

    def inspect_volume(self, name: str) -> InspectedVolume | None:
        """None when the engine lists no such volume."""
        outcome = self.client.ask("volume", "inspect", "--format={{json .}}", volume_name(name))
        if not outcome.ok:
            if name in self._listed(f"name={name}"):
                raise self.client.failed(f"inspect volume {name}", outcome)
            return None
        value = self.client.read(outcome.stdout, "volume inspect")
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        found = read_document(_VolumeDocument, value, f"{self.client.product} volume inspect")
        return InspectedVolume(
            name=found.Name,
            driver=found.Driver,
            labels=tuple(sorted(found.Labels.items())),
            options=tuple(sorted(found.Options.items())),
        )

    def remove_volume(self, name: str) -> None:
        """Gone already is success, as is somebody else removing it at the same time."""
        until = time.monotonic() + GONE_SECONDS
        while True:
            outcome = self.client.ask("volume", "rm", volume_name(name), seconds=REMOVE_SECONDS)
            if outcome.ok or name not in self._listed(f"name={name}"):
                return
            if time.monotonic() > until:
                raise HostError(
                    f"{self.client.product} cannot remove volume {name}: {complaint(outcome.stderr)}",
                    where=self.client.product,
                    hint=f"{self.client.product} volume rm {name}",
                )
            time.sleep(0.1)

    def list_volumes(self, label: str, value: str) -> tuple[str, ...]:
        """Names of the volumes that carry the label."""
        return self._listed(f"label={label}={value}")

    def _listed(self, wanted: str) -> tuple[str, ...]:
        said = self.client.need("volume", "ls", "--quiet", f"--filter={wanted}", what="list volumes")
        return tuple(line for line in said.decode("utf-8", "replace").split("\n") if line)
