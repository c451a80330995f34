"""OCI layouts, which anybody may have written: index, manifest, configuration, layers, referrers."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from images.digests import Digest
from images.oci import (
    MEDIA_LAYER_GZIP,
    MEDIA_LAYER_ZSTD,
    Descriptor,
    parse_index,
    parse_manifest,
    parse_settings,
)
from provenance.layers import layer_chunks
from provenance.layout import (
    blob_path,
    layer_tar,
    list_images,
    open_image,
    read_blob,
    read_index,
    read_manifest_or_index,
)
from provenance.referrers import read_referrers
from tests.fakes.layouts import compressed, make_image, tar_of
from tests.fakes.proved import World, make_world
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_json import mutate_json
from tests.fuzz.target import Ready, law, target


def _documents(folder: Path) -> tuple[World, bytes, bytes, bytes]:
    world = make_world(folder)
    world.prove()
    config = read_blob(world.layout, world.image.manifest.config)
    return world, (world.layout / "index.json").read_bytes(), world.image.manifest.raw, config


@target(mutate_json)
def oci_index(folder: Path) -> Ready:
    """An index by itself."""
    _, index, _, _ = _documents(folder)

    def look(raw: bytes) -> object:
        found = parse_index(raw, "index")
        law(found.digest == Digest.of(raw), "another digest than that of its bytes")
        law(all(one.size >= 0 for one in found.manifests), "a negative size")
        return found

    return Ready((index,), look)


@target(mutate_json, share=3)
def oci_manifest(folder: Path) -> Ready:
    """A manifest by itself, an image's and a referrer's."""
    world, _, manifest, _ = _documents(folder)
    referrers = [
        read_blob(world.layout, entry)
        for entry in read_index(world.layout).manifests
        if (found := read_manifest_or_index(world.layout, entry)) and getattr(found, "subject", None)
    ]

    def look(raw: bytes) -> object:
        found = parse_manifest(raw, "manifest")
        law(found.digest == Digest.of(raw), "another digest than that of its bytes")
        return found

    return Ready((manifest, *referrers), look)


@target(mutate_json, share=3)
def oci_configuration(folder: Path) -> Ready:
    """An image's configuration by itself."""
    _, _, _, config = _documents(folder)
    return Ready((config,), lambda raw: parse_settings(raw, "config"))


@target(mutate_json, share=0.3)
def layout_index(folder: Path) -> Ready:
    """index.json of a layout: whatever it says, an image has the bytes of its digest."""
    world, index, manifest, _ = _documents(folder)

    def look(raw: bytes) -> object:
        (world.layout / "index.json").write_bytes(raw)
        for entry in list_images(world.layout):
            law(Digest.of(read_blob(world.layout, entry)) == entry.digest, "a blob of another digest")
        found = open_image(world.layout, world.image.digest)
        law(found.manifest.raw == manifest, "another manifest under this digest")
        for one in read_referrers(world.layout, world.image.digest).bundles:
            law(one.manifest != world.image.digest, "an image as its own referrer")
        return found

    return Ready((index,), look)


def _in_place(folder: Path, choose: Callable[[World], Digest]) -> Ready:
    """A blob replaced by other bytes: nothing but the bytes of its digest is taken."""
    world = make_world(folder)
    world.prove()
    path = blob_path(world.layout, choose(world))
    original = path.read_bytes()
    path.chmod(0o644)

    def look(raw: bytes) -> object:
        path.write_bytes(raw)
        found = open_image(world.layout, world.image.digest)
        list(layer_tar(found, 1))
        law(raw == original, "a changed blob was taken")
        return found

    return Ready((original,), look)


@target(mutate_json, share=0.6)
def manifest_in_a_layout(folder: Path) -> Ready:
    """The manifest's blob."""
    return _in_place(folder, lambda world: world.image.digest)


@target(mutate_json, share=0.6)
def configuration_in_a_layout(folder: Path) -> Ready:
    """The configuration's blob."""
    return _in_place(folder, lambda world: world.image.settings.digest)


@target(mutate_bytes, share=0.3)
def layer_in_a_layout(folder: Path) -> Ready:
    """A layer's blob."""
    return _in_place(folder, lambda world: world.image.manifest.layers[1].digest)


@target(mutate_bytes, share=0.6)
def layout_marker(folder: Path) -> Ready:
    """oci-layout."""
    layout = folder / "layout"
    digest = make_image(layout)
    path = layout / "oci-layout"
    original = path.read_bytes()

    def look(raw: bytes) -> object:
        path.write_bytes(raw)
        return open_image(layout, digest)

    return Ready((original,), look)


def _layer(media_type: str) -> Callable[[Path], Ready]:
    """A layer whose descriptor fits its bytes, as who pushes an image can make it."""

    def make(folder: Path) -> Ready:
        tars = [tar_of({"etc/a": b"text\n" * 200}), tar_of({f"f{n}": bytes(n) for n in range(6)})]

        def look(raw: bytes) -> object:
            layer = Descriptor(media_type, Digest.of(raw), len(raw))
            tar = b"".join(layer_chunks(io.BytesIO(raw), layer, None, "layer"))
            again = list(layer_chunks(io.BytesIO(raw), layer, Digest.of(tar), "layer"))
            law(b"".join(again) == tar, "the same layer expands differently")
            return len(tar)

        return Ready([compressed(tar, media_type) for tar in tars], look)

    return make


def _named(name: str, make: Callable[[Path], Ready]) -> Callable[[Path], Ready]:
    make.__name__ = name
    return make


target(mutate_bytes, share=3)(_named("layer_gzip", _layer(MEDIA_LAYER_GZIP)))
target(mutate_bytes, share=3)(_named("layer_zstd", _layer(MEDIA_LAYER_ZSTD)))
