"""Two images of one lock: which layer, which entry, and what of it differs."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
import zstandard

from builder.building.layer_difference import MOST_ENTRIES, describe_difference
from images.digests import Digest
from images.errors import VerifyFailed
from images.oci import MEDIA_CONFIG, MEDIA_LAYER_ZSTD, MEDIA_MANIFEST, OciImage
from provenance.layout import blob_path, open_image
from provenance.layout_writing import add_manifest, init_layout, write_blob
from tests.fakes.layouts import overwrite


def tar(**changes: dict[str, object]) -> bytes:
    """Three entries, in this order; ``changes`` by name without its folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("a", "b", "c"):
            change = dict(changes.get(name, {}))
            content = change.pop("content", b"same")
            assert isinstance(content, bytes)
            member = tarfile.TarInfo(f"opt/{name}")
            member.size = len(content)
            for field, value in change.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def image(root: Path, *tars: bytes, level: int = 3, config: dict[str, object] | None = None) -> OciImage:
    """An image with these layers."""
    layout = root / "layout"
    init_layout(layout)
    layers = [
        write_blob(layout, zstandard.ZstdCompressor(level=level).compress(raw), MEDIA_LAYER_ZSTD)
        for raw in tars
    ]
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": config or {},
        "rootfs": {"type": "layers", "diff_ids": [str(Digest.of(raw)) for raw in tars]},
    }
    document = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "config": write_blob(layout, json.dumps(settings).encode(), MEDIA_CONFIG).to_json(),
        "layers": [layer.to_json() for layer in layers],
    }
    digest = add_manifest(layout, json.dumps(document).encode(), media_type=MEDIA_MANIFEST).digest
    return open_image(layout, digest)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"content": b"else"}, "content"),
        ({"content": b"longer"}, "size, content"),
        ({"mode": 0o600}, "mode"),
        ({"uid": 7}, "owner"),
        ({"uname": "me"}, "owner"),
        ({"mtime": 5}, "mtime"),
        ({"pax_headers": {"SCHILY.xattr.user.a": "b"}}, "headers"),
        ({"type": tarfile.SYMTYPE, "size": 0, "linkname": "x"}, "kind, size, link, content"),
    ],
)
def test_the_entry_and_what_of_it(tmp_path: Path, change: dict[str, object], words: str) -> None:
    lines = describe_difference(image(tmp_path, tar(), tar()), image(tmp_path, tar(), tar(b=change)))
    assert len(lines) == 3
    assert lines[0].startswith("layer 1: sha256:")
    assert lines[1] == f"  ~ opt/b: {words}"
    assert lines[2] == "configuration: history, dates or layers"


def test_added_and_removed_entries(tmp_path: Path) -> None:
    lines = describe_difference(image(tmp_path, tar()), image(tmp_path, tar(c={"name": "opt/d"})))
    assert lines[1:3] == ("  - opt/c", "  + opt/d")


def test_the_first_entries_and_how_many_more(tmp_path: Path) -> None:
    def many(content: bytes) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for number in range(25):
                member = tarfile.TarInfo(f"f{number:02}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return out.getvalue()

    lines = describe_difference(image(tmp_path, many(b"a")), image(tmp_path, many(b"b")))
    assert lines[1] == "  ~ f00: content"
    assert lines[1 + MOST_ENTRIES] == "  and 15 more"


def test_order_compression_and_number_of_layers(tmp_path: Path) -> None:
    swapped = tar(a={"name": "opt/b"}, b={"name": "opt/a"})
    assert "another order" in describe_difference(image(tmp_path, tar()), image(tmp_path, swapped))[1]
    big = tar(a={"content": bytes(range(256)) * 300})
    lines = describe_difference(image(tmp_path, big), image(tmp_path, big, level=1))
    assert lines[1:] == ("  the same tar, compressed otherwise",)
    lines = describe_difference(image(tmp_path, tar(), tar()), image(tmp_path, tar()))
    assert lines[0] == "layer 1 is in the first image alone"


def test_settings_alone(tmp_path: Path) -> None:
    lines = describe_difference(image(tmp_path, tar()), image(tmp_path, tar(), config={"User": "7"}))
    assert lines == ("configuration: user",)


def test_names_are_cleaned_for_a_terminal(tmp_path: Path) -> None:
    lines = describe_difference(image(tmp_path, tar()), image(tmp_path, tar(c={"name": "opt/\x1b[2J"})))
    assert "\x1b" not in "".join(lines)


def test_a_layer_that_cannot_be_read(tmp_path: Path) -> None:
    one, other = image(tmp_path, tar()), image(tmp_path, tar(b={"mode": 0o600}))
    overwrite(blob_path(other.layout, other.manifest.layers[0].digest), b"damaged")
    with pytest.raises(VerifyFailed):
        describe_difference(one, other)
