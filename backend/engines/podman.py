"""The Podman dialect: Podman on this machine, rootless or rootful, through its client program."""

from __future__ import annotations

import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from backend.containers import (
    ContainerPlan,
    EngineFacts,
    ImageIdKind,
    InspectedContainer,
    LoadedImage,
)
from backend.engines.calls import ContainerCalls
from backend.engines.docker_documents import read_document
from backend.engines.grammar import container_id
from backend.engines.podman_create import create_arguments, user_namespace
from backend.engines.podman_documents import (
    ContainerDocument,
    ImageDocument,
    InfoDocument,
    VersionDocument,
    container_of,
    digest_of_id,
    facts_of,
)
from images.errors import HostError
from images.oci import OciImage
from provenance.layout_writing import export_single

LOAD_SECONDS: Final = 900.0
CREATE_SECONDS: Final = 300.0  # the first container of a mapping copies the image

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Podman(ContainerCalls):
    """Fulfils :class:`backend.engines.protocol.Engine`. ``signature_policy`` is the file that pull is given.

    Pulling is from a private layout that was just re-hashed, so the file accepts anything; it is ours, so
    that the machine's own never decides. ``told``: its full account of itself, once it was asked.
    """

    signature_policy: Path
    rootless: bool
    told: EngineFacts | None = None

    @property
    def detach_keys(self) -> str:
        """Podman takes nothing for none."""
        return ""

    def facts(self) -> EngineFacts:
        """Identity, asked from Podman: all of it once, then whether it is still the same program.

        Its full account takes 0.4 s, since it asks the package manager about its parts; where it stores and
        how it runs is settled by our own files, so only program, machine and kernel can change under us.
        """
        machine = os.uname()
        if self.told is not None and self._is_still(self.told, machine):
            return self.told
        info = read_document(
            InfoDocument,
            self.client.document("info", "--format={{json .}}", what="describe itself"),
            "podman info",
        )
        return facts_of(info, host_name=machine.nodename, kernel=machine.release)

    def _is_still(self, told: EngineFacts, machine: os.uname_result) -> bool:
        value = self.client.document("version", "--format={{json .}}", what="tell its version")
        client = read_document(VersionDocument, value, "podman version").Client
        now = (client.Version, client.APIVersion, machine.nodename, machine.release)
        return now == (told.version, told.api_version, told.host_name, told.kernel)

    def find_image(self, image: OciImage) -> LoadedImage | None:
        """By its configuration's digest, which is Podman's image id, and by its layers."""
        digest = image.settings.digest
        outcome = self.client.ask("image", "inspect", "--format={{json .}}", digest.hex)
        if not outcome.ok:
            return None
        found = self._only(ImageDocument, outcome.stdout, "image inspect")
        if digest_of_id(found.Id) != digest or found.RootFS.Layers != image.settings.diff_ids:
            return None
        return LoadedImage(image=image, id=digest, id_kind=ImageIdKind.CONFIG)

    def load(self, image: OciImage, staging: Path) -> LoadedImage:
        """Pull from a private layout of this one image, by configuration digest."""
        if (found := self.find_image(image)) is not None:
            return found
        with tempfile.TemporaryDirectory(dir=staging, prefix="load-") as folder:
            # Podman makes a name of this path, and refuses what is no name: capital letters, "-_", a blank.
            # So it gets the last part alone, which nobody chooses.
            source = Path(folder) / f"image-{secrets.token_hex(8)}"
            export_single(image.layout, image.digest, source)
            pulled = self.client.ask(
                "image",
                "pull",
                "--quiet",
                f"--signature-policy={self.signature_policy}",
                f"oci:{source.name}",
                directory=source.parent,
                seconds=LOAD_SECONDS,
            )
        found = self.find_image(image)
        if found is None and not pulled.ok:
            raise self.client.failed(f"load image {image.digest}", pulled)
        # Who loads it at the same time takes its names away, and then this pull may fail though all is there.
        if found is None:
            raise HostError(
                f"podman loaded image {image.digest}, but has no image of its configuration digest",
                where="podman",
                hint="builder doctor",
                reason="image-id",
            )
        # Pulling named it after its directory: an image of ours has no name.
        self.client.ask("image", "untag", found.id.hex)
        return found

    def remove_image(self, image: LoadedImage) -> None:
        """Gone already is success; in use by a container is HostError."""
        outcome = self.client.ask("image", "rm", image.id.hex)
        if not outcome.ok and self.find_image(image.image) is not None:
            raise self.client.failed(f"remove image {image.id}", outcome)

    def create(self, plan: ContainerPlan) -> str:
        """Create, without starting. An engine may fail after it made the container: find it by its labels."""
        userns = user_namespace(plan.purpose, rootless=self.rootless)
        outcome = self.client.ask(*create_arguments(plan, userns=userns), seconds=CREATE_SECONDS)
        if outcome.ok:
            return container_id(outcome.stdout.decode("ascii", "replace").strip())
        raise self.client.failed(f"create container {plan.name}", outcome)

    def read_container(self, data: bytes) -> InspectedContainer:
        """What one inspect call answered."""
        return container_of(self._only(ContainerDocument, data, "container inspect"))

    def _only(self, model: type[Model], data: bytes, verb: str) -> Model:
        """Podman answers an inspect with a list of one."""
        value = self.client.read(data, verb)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        return read_document(model, value, f"podman {verb}")
