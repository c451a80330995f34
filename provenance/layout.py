"""Read an OCI image layout and re-hash what it holds: the one way an OciImage comes into being."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Final, cast

from images.digests import Digest
from images.errors import VerifyFailed
from images.oci import (
    DOCKER_CONFIG,
    DOCKER_LAYER_GZIP,
    DOCKER_MANIFEST,
    LAYER_TYPES,
    MAX_MANIFEST_BYTES,
    MEDIA_CONFIG,
    MEDIA_MANIFEST,
    Descriptor,
    ImageSettings,
    Index,
    Manifest,
    OciImage,
    Platform,
    parse_index,
    parse_manifest,
    parse_settings,
)
from images.strictjson import read_object
from provenance.layers import LayerStream, layer_chunks

CONFIG_TYPES: Final = frozenset({MEDIA_CONFIG, DOCKER_CONFIG})
IMAGE_MANIFEST_TYPES: Final = frozenset({MEDIA_MANIFEST, DOCKER_MANIFEST})
IMAGE_LAYER_TYPES: Final = LAYER_TYPES | {DOCKER_LAYER_GZIP}
LAYOUT_VERSION: Final = "1.0.0"


class Rehash(Enum):
    """How much of each layer is hashed. BYTES proves that these are the bytes of the digest.

    TARS decompresses them too, and proves that the diff ids are right and that nothing lies outside of a tar:
    once for an image from elsewhere. What a digest names never changes, so afterwards, and for what a trusted
    builder signed, BYTES says as much in a tenth of the time.

    LATER is for who reads each layer to its end next, through :func:`open_layer`, which hashes as TARS does:
    only that each is there with its size is looked at before.
    """

    TARS = "bytes and tars"
    BYTES = "bytes"
    LATER = "by whoever reads them"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the kernel says of a blob's file: while it says the same, the bytes that were hashed are there.

    Good against damage and accident. Not against who may write the file and set the clock: re-hash for that.
    """

    size: int
    device: int
    inode: int
    changed_ns: int


def open_image(
    layout: Path,
    digest: Digest,
    platform: Platform | None = None,
    *,
    rehash: Rehash = Rehash.TARS,
    known: Mapping[Digest, Stamp] | None = None,
) -> OciImage:
    """Re-hash manifest, configuration and every layer of an image in ``layout``.

    ``digest`` is a platform manifest's, or an index's: then the platform's manifest is followed by hash
    (``platform`` may be left out when the index holds one image only). ``known``: stamps of layers that this
    machine hashed before; such a layer is not read again while its stamp is the same. Raises VerifyFailed.
    """
    image = _open_described(layout, digest, platform)
    for number, layer in enumerate(image.manifest.layers):
        with open_blob(layout, layer) as file:
            if rehash is Rehash.LATER or (known is not None and known.get(layer.digest) == _stamp(file)):
                continue
            if rehash is Rehash.BYTES:
                _check_bytes(file, layer)
            else:
                for _ in _chunks(image, number, file):
                    pass
    return image


def stamp_layers(image: OciImage) -> dict[Digest, Stamp]:
    """The stamps of an image's layers, to be recorded right after they were hashed."""
    found = {}
    for layer in image.manifest.layers:
        with open_blob(image.layout, layer) as file:
            found[layer.digest] = _stamp(file)
    return found


def layer_tar(image: OciImage, number: int) -> Iterator[bytes]:
    """The tar of layer ``number`` in pieces. Its hashes are checked at its end, as in :func:`open_layer`."""
    with open_blob(image.layout, image.manifest.layers[number]) as file:
        yield from _chunks(image, number, file)


def open_layer(image: OciImage, number: int) -> BinaryIO:
    """The tar of layer ``number`` as a stream. Its hashes are checked at its end: VerifyFailed."""
    file = open_blob(image.layout, image.manifest.layers[number])
    raw = LayerStream(file, _chunks(image, number, file))
    return cast(BinaryIO, io.BufferedReader(raw, buffer_size=1 << 20))


def read_blob(layout: Path, blob: Descriptor | Digest, limit: int = MAX_MANIFEST_BYTES) -> bytes:
    """The bytes of a blob of at most ``limit`` bytes, re-hashed. Raises VerifyFailed naming the digest."""
    with open_blob(layout, blob) as file:
        data = file.read(limit + 1)
    digest = blob.digest if isinstance(blob, Descriptor) else blob
    if len(data) > limit:
        raise VerifyFailed(f"more than {limit} bytes", where=str(digest))
    if Digest.of(data) != digest:
        raise VerifyFailed(
            "the blob's bytes are not those of its digest: it was changed or damaged",
            where=str(blob_path(layout, digest)),
            hint="builder build",
        )
    return data


def read_index(layout: Path) -> Index:
    """The layout's ``index.json``; the layout version is checked first."""
    marker = _read_file(layout / "oci-layout", 4096)
    version = read_object(marker, str(layout / "oci-layout"), error=VerifyFailed)
    if version.get("imageLayoutVersion") != LAYOUT_VERSION:
        raise VerifyFailed(f"not an OCI image layout of version {LAYOUT_VERSION}", where=str(layout))
    path = layout / "index.json"
    return parse_index(_read_file(path, MAX_MANIFEST_BYTES), str(path))


def list_images(layout: Path) -> tuple[Descriptor, ...]:
    """The images that ``index.json`` names, in its order, without referrers and other artifacts.

    What an entry is, its manifest says, not the entry: annotations and types in ``index.json`` are unproved.
    Indexes are listed as they are. An entry that cannot be read raises VerifyFailed.
    """
    found = []
    for entry in read_index(layout).manifests:
        manifest = read_manifest_or_index(layout, entry)
        if isinstance(manifest, Index) or is_image(manifest):
            found.append(entry)
    return tuple(found)


def open_blob(layout: Path, blob: Descriptor | Digest) -> io.BufferedReader:
    """A blob's file, of the descriptor's size, not hashed yet. Raises VerifyFailed."""
    digest = blob.digest if isinstance(blob, Descriptor) else blob
    path = blob_path(layout, digest)
    file = _open_regular(path)
    size = os.fstat(file.fileno()).st_size
    if isinstance(blob, Descriptor) and size != blob.size:
        file.close()
        raise VerifyFailed(f"{size} bytes, not the {blob.size} of its descriptor", where=str(path))
    return file


def read_manifest(layout: Path, digest: Digest) -> Manifest:
    """One image or artifact manifest, re-hashed; nothing it names is looked at. Raises VerifyFailed."""
    found = read_manifest_or_index(layout, digest)
    if isinstance(found, Index):
        raise VerifyFailed("an index, not a manifest", where=str(digest))
    return found


def blob_path(layout: Path, digest: Digest) -> Path:
    """Where a blob lies."""
    return layout / "blobs" / "sha256" / digest.hex


def _open_described(layout: Path, digest: Digest, platform: Platform | None) -> OciImage:
    """Manifest and configuration re-hashed, layers not yet."""
    read_index(layout)
    found = read_manifest_or_index(layout, digest)
    if isinstance(found, Index):
        chosen = _choose(found, platform)
        manifest = read_manifest_or_index(layout, chosen)
        if isinstance(manifest, Index):
            raise VerifyFailed("an index inside an index", where=str(chosen.digest))
    else:
        manifest = found
    where = str(manifest.digest)
    if not is_image(manifest):
        raise VerifyFailed("not an image: its configuration or its artifact type says so", where=where)
    for layer in manifest.layers:
        if layer.media_type not in IMAGE_LAYER_TYPES:
            raise VerifyFailed(f"a layer of type {layer.media_type[:100]!r} is not accepted", where=where)
    settings = parse_settings(read_blob(layout, manifest.config), f"configuration {manifest.config.digest}")
    _check_pair(manifest, settings, platform)
    return OciImage(layout=layout, manifest=manifest, settings=settings)


def _check_pair(manifest: Manifest, settings: ImageSettings, platform: Platform | None) -> None:
    where = str(manifest.digest)
    if len(settings.diff_ids) != len(manifest.layers):
        raise VerifyFailed(
            f"{len(manifest.layers)} layers, but {len(settings.diff_ids)} diff ids",
            where=where,
        )
    if platform is not None and settings.platform != platform:
        raise VerifyFailed(f"the image is for {settings.platform}, not for {platform}", where=where)


def _choose(index: Index, platform: Platform | None) -> Descriptor:
    """The one entry for ``platform``. Entries for an unknown platform are attestations, not images."""
    entries = [entry for entry in index.manifests if entry.platform is None or entry.platform.os != "unknown"]
    if platform is not None:
        entries = [entry for entry in entries if entry.platform == platform]
    if len(entries) != 1:
        listed = ", ".join(str(entry.platform) for entry in index.manifests[:20]) or "none"
        asked = f"for {platform}" if platform else "without a platform given"
        raise VerifyFailed(
            f"{len(entries)} images {asked} in the index; it lists: {listed}", where=str(index.digest)
        )
    return entries[0]


def read_manifest_or_index(layout: Path, blob: Descriptor | Digest) -> Manifest | Index:
    """What these bytes are, re-hashed; bytes that can be read as both are refused (CVE-2021-41190)."""
    raw = read_blob(layout, blob)
    digest = str(blob.digest if isinstance(blob, Descriptor) else blob)
    document = read_object(raw, f"manifest {digest}", error=VerifyFailed)
    is_index = "manifests" in document
    if is_index and ("layers" in document or "config" in document):
        raise VerifyFailed("both a manifest and an index", where=digest)
    if is_index:
        return parse_index(raw, f"index {digest}")
    return parse_manifest(raw, f"manifest {digest}")


def is_image(manifest: Manifest) -> bool:
    """An image, and not another artifact: its own configuration and artifact type say so."""
    return manifest.config.media_type in CONFIG_TYPES and not manifest.artifact_type


def _chunks(image: OciImage, number: int, file: BinaryIO) -> Iterator[bytes]:
    layer = image.manifest.layers[number]
    return layer_chunks(file, layer, image.settings.diff_ids[number], f"layer {layer.digest}")


def _check_bytes(file: io.BufferedReader, layer: Descriptor) -> None:
    if hashlib.file_digest(file, "sha256").hexdigest() != layer.digest.hex:
        raise VerifyFailed("the layer's bytes are not those of its digest", where=f"layer {layer.digest}")


def _stamp(file: BinaryIO) -> Stamp:
    status = os.fstat(file.fileno())
    return Stamp(status.st_size, status.st_dev, status.st_ino, status.st_ctime_ns)


def _read_file(path: Path, limit: int) -> bytes:
    with _open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise VerifyFailed(f"more than {limit} bytes", where=str(path))
    return data


def _open_regular(path: Path) -> io.BufferedReader:
    """A regular file, never through a link and never waiting for a pipe's other end."""
    flags = (
        os.O_RDONLY
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_CLOEXEC", 0)
    )
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise VerifyFailed(
            "not here: the layout lacks it", where=str(path), hint="builder build", reason="not-found"
        ) from None
    except (OSError, ValueError) as broken:
        why = getattr(broken, "strerror", None) or "not a path"
        raise VerifyFailed(f"cannot be read: {why}", where=str(path)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise VerifyFailed("not a regular file", where=str(path))
    return os.fdopen(descriptor, "rb")
