"""Take the buildx client out of the build container's image: pinned by its digest, downloaded by nobody."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path
from typing import Final

from builder.bootstrap.contents import BUILDX_IN_IMAGE
from images.digests import Digest
from images.errors import HostError, StateError, VerifyFailed
from images.oci import OciImage
from provenance.layout import open_layer
from provenance.stricttar import StrictTar
from provenance.writing import replace_file

_MAX_BYTES: Final = 256 << 20
_CHUNK: Final = 1 << 20


def take_buildx(image: OciImage, folder: Path) -> Path:
    """The plugin as an executable file in ``folder`` (private, ours), taken out once per image.

    Its name holds the image's digest and its own hash, which is checked each time. Raises HostError when the
    image has none, VerifyFailed when its bytes are not those of its digest.
    """
    for known in sorted(folder.glob(f"buildx-{image.digest.hex}-*")):
        if known.name.endswith(f"-{_hash_of(known)}"):
            return known
    for number in reversed(range(len(image.manifest.layers))):
        content = _member(image, number)
        if content is not None:
            path = folder / f"buildx-{image.digest.hex}-{Digest.of(content).hex}"
            replace_file(path, content, mode=0o500)
            return path
    raise HostError(
        f"the build container's image has no /{BUILDX_IN_IMAGE}",
        where=image.digest,
        hint="builder bootstrap",
        reason="build-container",
    )


def _member(image: OciImage, number: int) -> bytes | None:
    """The plugin's bytes if the layer has it; the layer is read to its end, where its hashes are checked."""
    found = None
    try:
        with open_layer(image, number) as stream:
            with StrictTar.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    if member.name == BUILDX_IN_IMAGE and member.isreg() and member.size <= _MAX_BYTES:
                        extracted = archive.extractfile(member)
                        found = None if extracted is None else extracted.read()
            while stream.read(_CHUNK):
                pass
    except (tarfile.TarError, EOFError, ValueError) as broken:
        raise VerifyFailed(f"layer {number} is not a readable tar: {broken}", where=image.digest) from None
    return found


def _hash_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as broken:
        raise StateError(f"cannot be read: {broken.strerror}", where=str(path)) from None
