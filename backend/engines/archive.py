"""An image as the archive that ``docker load`` reads, streamed: classic form, or an OCI layout."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import BinaryIO, Final

from images.digests import Digest, canonical_json
from images.errors import VerifyFailed
from images.oci import MEDIA_INDEX, MEDIA_LAYER_GZIP, MEDIA_LAYER_TAR, Descriptor, OciImage
from provenance.layout import open_blob, open_layer

_CHUNK: Final = 1 << 20
_BLOCK: Final = 512


def saved_archive(image: OciImage) -> Iterator[bytes]:
    """Chunks of the archive: the configuration's exact bytes, each layer, a ``manifest.json`` without a tag.

    A zstd layer is unpacked on the way (Docker before 23 cannot), so it is read twice: a tar member names its
    size first. Its bytes are checked against its digests as they pass: VerifyFailed.
    """
    settings = image.settings
    config = f"{settings.digest.hex}.json"
    yield from _member(config, settings.raw)
    names = []
    for number in range(len(image.manifest.layers)):
        names.append(f"{number:03d}/layer.tar")
        yield from _layer(image, number, names[-1])
    yield from _member(
        "manifest.json", canonical_json([{"Config": config, "Layers": names, "RepoTags": None}])
    )
    yield bytes(2 * _BLOCK)


def saved_layout(image: OciImage) -> Iterator[bytes]:
    """Chunks of a tar of an OCI layout of this one image: for stores that keep manifests as they are."""
    manifest = image.manifest
    entry = Descriptor(manifest.media_type, manifest.digest, len(manifest.raw), platform=image.platform)
    yield from _member("oci-layout", canonical_json({"imageLayoutVersion": "1.0.0"}))
    index = {"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": [entry.to_json()]}
    yield from _member("index.json", canonical_json(index))
    yield from _member(_blob_name(manifest.digest), manifest.raw)
    yield from _member(_blob_name(image.settings.digest), image.settings.raw)
    for digest in dict.fromkeys(layer.digest for layer in manifest.layers):
        layer = next(item for item in manifest.layers if item.digest == digest)
        with open_blob(image.layout, layer) as blob:
            yield from _stream(_blob_name(digest), layer.size, blob)
    yield bytes(2 * _BLOCK)


def _blob_name(digest: Digest) -> str:
    return f"blobs/sha256/{digest.hex}"


def _layer(image: OciImage, number: int, name: str) -> Iterator[bytes]:
    descriptor = image.manifest.layers[number]
    if descriptor.media_type in (MEDIA_LAYER_TAR, MEDIA_LAYER_GZIP):
        with open_blob(image.layout, descriptor) as blob:
            yield from _stream(name, descriptor.size, blob)
        return
    size = 0
    with open_layer(image, number) as layer:
        while chunk := layer.read(_CHUNK):
            size += len(chunk)
    with open_layer(image, number) as layer:
        yield from _stream(name, size, layer)


def _member(name: str, data: bytes) -> Iterator[bytes]:
    yield from _stream(name, len(data), io.BytesIO(data))


def _stream(name: str, size: int, source: BinaryIO) -> Iterator[bytes]:
    header = tarfile.TarInfo(name)
    header.size = size
    header.mode = 0o644
    yield header.tobuf(tarfile.PAX_FORMAT)
    passed = 0
    while chunk := source.read(_CHUNK):
        passed += len(chunk)
        if passed > size:
            break
        yield chunk
    if passed != size:
        raise VerifyFailed(f"{name} changed while it was read: {passed} bytes instead of {size}")
    yield bytes(-size % _BLOCK)
