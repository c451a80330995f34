"""Small real OCI layouts for tests: tars, layers of each compression, manifests."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import zstandard

from images.digests import Digest
from images.oci import (
    MEDIA_CONFIG,
    MEDIA_LAYER_GZIP,
    MEDIA_LAYER_TAR,
    MEDIA_LAYER_ZSTD,
    MEDIA_MANIFEST,
    OciImage,
)
from provenance.layout import open_layer
from provenance.layout_writing import add_manifest, init_layout, write_blob

COMPRESSIONS = (MEDIA_LAYER_ZSTD, MEDIA_LAYER_GZIP, MEDIA_LAYER_TAR)


def tar_of(files: dict[str, bytes]) -> bytes:
    """A tar with these files, root-owned, at time 0."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def compressed(tar: bytes, media_type: str) -> bytes:
    """The tar as this kind of layer stores it."""
    if media_type == MEDIA_LAYER_ZSTD:
        return zstandard.ZstdCompressor(level=3).compress(tar)
    if media_type == MEDIA_LAYER_GZIP:
        return gzip.compress(tar, mtime=0)
    return tar


def merged_tar(image: OciImage) -> bytes:
    """All files of the image as one tar, as an engine packs a container of it."""
    found: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
    for number in range(len(image.manifest.layers)):
        with open_layer(image, number) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                file = archive.extractfile(member)
                found[member.name] = member, file.read() if file else b""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for _, (member, content) in sorted(found.items()):
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def make_image(
    layout: Path,
    layers: tuple[dict[str, bytes], ...] = ({"etc/hello": b"hello\n"},),
    *,
    media_type: str = MEDIA_LAYER_ZSTD,
    config: dict[str, object] | None = None,
    architecture: str = "amd64",
    annotations: dict[str, str] | None = None,
) -> Digest:
    """An image in ``layout`` (made when it is not there); its platform manifest digest."""
    init_layout(layout)
    tars = [tar_of(files) for files in layers]
    blobs = [write_blob(layout, compressed(tar, media_type), media_type) for tar in tars]
    settings = {
        "architecture": architecture,
        "os": "linux",
        "config": config or {},
        "rootfs": {"type": "layers", "diff_ids": [str(Digest.of(tar)) for tar in tars]},
        "history": [{"created_by": "test"} for _ in tars],
    }
    config_blob = write_blob(layout, json.dumps(settings).encode(), MEDIA_CONFIG)
    manifest: dict[str, object] = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "config": config_blob.to_json(),
        "layers": [blob.to_json() for blob in blobs],
    }
    if annotations:
        manifest["annotations"] = annotations
    return add_manifest(layout, json.dumps(manifest).encode(), media_type=MEDIA_MANIFEST).digest


def put_manifest(layout: Path, document: Mapping[str, object]) -> Digest:
    """Any JSON as a manifest in ``layout``."""
    return add_manifest(layout, json.dumps(document).encode(), media_type=MEDIA_MANIFEST).digest


def overwrite(path: Path, data: bytes) -> None:
    """Damage a file in place, as an attacker with write access would."""
    path.chmod(0o644)
    path.write_bytes(data)


def flip(path: Path, offset: int = -1) -> None:
    """Flip one bit of one byte in place."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    overwrite(path, bytes(data))
