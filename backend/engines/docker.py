"""The Docker dialect: Docker Engine, rootful or rootless, through its client program."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.containers import (
    ContainerPlan,
    EngineFacts,
    ImageIdKind,
    InspectedContainer,
    LoadedImage,
)
from backend.engines.archive import saved_archive, saved_layout
from backend.engines.calls import ContainerCalls
from backend.engines.docker_create import create_arguments
from backend.engines.docker_documents import (
    ContainerDocument,
    ImageDocument,
    InfoDocument,
    VersionDocument,
    container_of,
    facts_of,
    read_document,
)
from backend.engines.grammar import container_id
from backend.runner import run
from backend.together import both
from images.errors import HostError
from images.oci import OciImage

LOAD_SECONDS: Final = 900.0
# Begins with the rarest of keys, and a whole of it is typed by nobody.
DETACH_KEYS: Final = ",".join(("ctrl-^", "ctrl-]", "ctrl-_", "ctrl-\\") * 8)
CREATE_SECONDS: Final = 300.0  # over a minute while the daemon removes much else on a busy disk (seen)


@dataclass(frozen=True, slots=True)
class Docker(ContainerCalls):
    """Fulfils :class:`backend.engines.protocol.Engine`. ``endpoint`` is a ``unix://`` address."""

    endpoint: str

    @property
    def detach_keys(self) -> str:
        """Docker has no way to say none. A key that begins the sequence is held until the next one comes."""
        return DETACH_KEYS

    def facts(self) -> EngineFacts:
        """Identity, asked from the daemon."""
        machine = os.uname()
        version, info = both(self._version, self._info)
        return facts_of(
            version,
            info,
            endpoint=self.endpoint,
            host_name=machine.nodename,
            kernel=machine.release,
        )

    def find_image(self, image: OciImage) -> LoadedImage | None:
        """By its configuration's digest (classic store) or its manifest's (containerd store)."""
        candidates = (
            (image.settings.digest, ImageIdKind.CONFIG),
            (image.manifest.digest, ImageIdKind.MANIFEST),
        )
        for digest, kind in candidates:
            outcome = self.client.ask("image", "inspect", "--format={{json .}}", digest)
            if not outcome.ok:
                continue
            value = self.client.read(outcome.stdout, "image inspect")
            found = read_document(ImageDocument, value, "docker image inspect")
            if found.Id == digest and found.RootFS.Layers == image.settings.diff_ids:
                return LoadedImage(image=image, id=digest, id_kind=kind)
        return None

    def load(self, image: OciImage, staging: Path) -> LoadedImage:  # noqa: ARG002  (streamed: nothing on disk)
        """Stream the image into ``docker load``; what comes out must be found by its digest."""
        if (found := self.find_image(image)) is not None:
            return found
        archive = saved_layout(image) if self._info().containerd_store else saved_archive(image)
        outcome = run(self.client.command("image", "load", "--quiet", stdin=archive, deadline=LOAD_SECONDS))
        if not outcome.ok:
            raise self.client.failed(f"load image {image.digest}", outcome)
        if (found := self.find_image(image)) is not None:
            return found
        raise HostError(
            f"docker loaded image {image.digest}, but has no image of its configuration or manifest digest",
            where="docker",
            hint="builder doctor",
            reason="image-id",
        )

    def remove_image(self, image: LoadedImage) -> None:
        """Gone already is success; in use by a container is HostError."""
        outcome = self.client.ask("image", "rm", image.id)
        if not outcome.ok and self.find_image(image.image) is not None:
            raise self.client.failed(f"remove image {image.id}", outcome)

    def create(self, plan: ContainerPlan) -> str:
        """Create, without starting. An engine may fail after it made the container: find it by its labels."""
        outcome = self.client.ask(*create_arguments(plan), seconds=CREATE_SECONDS)
        if outcome.ok:
            return container_id(outcome.stdout.decode("ascii", "replace").strip())
        raise self.client.failed(f"create container {plan.name}", outcome)

    def read_container(self, data: bytes) -> InspectedContainer:
        """What one inspect call answered."""
        value = self.client.read(data, "container inspect")
        return container_of(read_document(ContainerDocument, value, "docker container inspect"))

    def _version(self) -> VersionDocument:
        value = self.client.document("version", "--format={{json .}}", what="tell its version")
        return read_document(VersionDocument, value, "docker version")

    def _info(self) -> InfoDocument:
        value = self.client.document("info", "--format={{json .}}", what="describe itself")
        return read_document(InfoDocument, value, "docker info")
