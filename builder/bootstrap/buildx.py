"""Take the buildx client out of the build container image, by digest, for the controller's own use."""

from __future__ import annotations

import tarfile
from pathlib import Path

from builder.bootstrap.contents import BUILDX_IN_IMAGE
from images.errors import StateError
from images.oci import OciImage
from provenance.layout import open_layer
from provenance.layout_writing import replace_file

_MOST_BYTES = 1 << 28


def take_out_buildx(image: OciImage, folder: Path) -> Path:
    """The buildx plugin of this build container image as an executable file in ``folder``.

    Its place there is named by the image's digest. Raises StateError when the image has none.
    """
    target = folder / image.digest.hex / "docker-buildx"
    if target.is_file():
        return target
    for number in reversed(range(len(image.manifest.layers))):
        found = _member(image, number)
        if found is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, found, mode=0o755)
            return target
    raise StateError(
        f"the build container image has no /{BUILDX_IN_IMAGE}", where=image.digest, hint="builder bootstrap"
    )


def _member(image: OciImage, number: int) -> bytes | None:
    """The plugin's bytes if the layer has it; the layer is read to its end, where its hashes are checked."""
    found = None
    with open_layer(image, number) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if member.name == BUILDX_IN_IMAGE and member.isreg() and member.size <= _MOST_BYTES:
                    extracted = archive.extractfile(member)
                    found = None if extracted is None else extracted.read()
        while stream.read(1 << 20):
            pass
    return found
