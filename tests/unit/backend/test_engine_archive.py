"""The archive that ``docker load`` reads: exact bytes, no tag, and damage noticed while it streams."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from backend.engines.archive import saved_archive, saved_layout
from images.digests import Digest
from images.errors import VerifyFailed
from images.oci import MEDIA_LAYER_GZIP, MEDIA_LAYER_TAR, MEDIA_LAYER_ZSTD, OciImage
from provenance.layout import blob_path, open_image, open_layer
from tests.fakes.layouts import flip, make_image

LAYERS = ({"etc/hello": b"hello\n"}, {"opt/big": b"x" * 3_000_000}, {"etc/hello": b"hello\n"})
MEDIA = [MEDIA_LAYER_ZSTD, MEDIA_LAYER_GZIP, MEDIA_LAYER_TAR]


def image_in(tmp_path: Path, media_type: str) -> OciImage:
    return open_image(tmp_path, make_image(tmp_path, LAYERS, media_type=media_type))


def members(chunks: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(chunks)) as tar:
        found = {}
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
        return found


@pytest.mark.parametrize("media_type", MEDIA)
def test_a_saved_archive_holds_the_configuration_and_each_layer(media_type: str, tmp_path: Path) -> None:
    image = image_in(tmp_path, media_type)
    found = members(b"".join(saved_archive(image)))
    manifest = json.loads(found.pop("manifest.json"))
    config = f"{image.settings.digest.hex}.json"
    assert [{**manifest[0], "Layers": 3}] == [{"Config": config, "Layers": 3, "RepoTags": None}]
    assert Digest.of(found.pop(config)) == image.settings.digest
    for number, name in enumerate(manifest[0]["Layers"]):
        data = found.pop(name)
        if media_type == MEDIA_LAYER_GZIP:
            assert Digest.of(data) == image.manifest.layers[number].digest
        else:
            assert Digest.of(data) == image.settings.diff_ids[number]
            with open_layer(image, number) as layer:
                assert layer.read() == data
    assert found == {}


def test_a_saved_layout_keeps_every_digest(tmp_path: Path) -> None:
    image = image_in(tmp_path, MEDIA_LAYER_ZSTD)
    found = members(b"".join(saved_layout(image)))
    index = json.loads(found.pop("index.json"))
    assert [entry["digest"] for entry in index["manifests"]] == [image.digest]
    assert json.loads(found.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    assert all(Digest.of(data).hex == name.removeprefix("blobs/sha256/") for name, data in found.items())
    wanted = {image.digest, image.settings.digest, *(layer.digest for layer in image.manifest.layers)}
    assert {f"blobs/sha256/{digest.hex}" for digest in wanted} == set(found)


@pytest.mark.parametrize("media_type", [MEDIA_LAYER_ZSTD, MEDIA_LAYER_TAR])
def test_a_layer_changed_after_it_was_opened_is_noticed(media_type: str, tmp_path: Path) -> None:
    image = image_in(tmp_path, media_type)
    path = blob_path(tmp_path, image.manifest.layers[1].digest)
    if media_type == MEDIA_LAYER_ZSTD:
        flip(path)
    else:
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-512])
    with pytest.raises(VerifyFailed):
        b"".join(saved_archive(image))
