"""An OCI layout: what is opened was re-hashed to the last byte, what is written is whole or absent."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import tarfile
import threading
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from images.digests import Digest
from images.errors import BuilderError, StateError, VerifyFailed
from images.oci import (
    MEDIA_CONFIG,
    MEDIA_EMPTY,
    MEDIA_INDEX,
    MEDIA_LAYER_GZIP,
    MEDIA_LAYER_TAR,
    MEDIA_LAYER_ZSTD,
    MEDIA_MANIFEST,
    Platform,
)
from provenance import layers
from provenance.layout import (
    Rehash,
    blob_path,
    list_images,
    open_image,
    open_layer,
    read_blob,
    read_index,
    read_manifest,
)
from provenance.layout_writing import add_manifest, export_single, import_image, init_layout, write_blob
from tests.fakes.layouts import COMPRESSIONS, flip, make_image, overwrite, put_manifest, tar_of

AMD64 = Platform("linux", "amd64")


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return tmp_path / "layout"


@pytest.mark.parametrize("media_type", COMPRESSIONS)
def test_an_image_opens_and_its_layers_read(layout: Path, media_type: str) -> None:
    files = {"a": b"x" * 3_000_000, "b": os.urandom(2_000_000)}
    digest = make_image(layout, (files, {"c": b"3"}), media_type=media_type)
    image = open_image(layout, digest, AMD64)
    assert image.digest == digest
    assert image.platform == AMD64
    with open_layer(image, 0) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        assert {m.name: tar.extractfile(m).read() for m in tar} == files  # type: ignore[union-attr]
    with open_layer(image, 1) as stream:
        assert stream.read() == tar_of({"c": b"3"})


@pytest.mark.parametrize("media_type", COMPRESSIONS)
def test_one_flipped_byte_in_any_blob_is_found(layout: Path, media_type: str) -> None:
    digest = make_image(layout, media_type=media_type)
    for path in sorted((layout / "blobs" / "sha256").iterdir()):
        original = path.read_bytes()
        for offset in (0, len(original) // 2, len(original) - 1):
            flip(path, offset)
            with pytest.raises(VerifyFailed) as caught:
                open_image(layout, digest)
            assert caught.value.where
            overwrite(path, original)
    assert open_image(layout, digest).digest == digest


@pytest.mark.parametrize("media_type", COMPRESSIONS)
def test_a_blob_cut_short_or_longer_or_missing_is_found(layout: Path, media_type: str) -> None:
    digest = make_image(layout, media_type=media_type)
    for path in sorted((layout / "blobs" / "sha256").iterdir()):
        original = path.read_bytes()
        for damaged in (original[:-1], original + b"\0", b""):
            overwrite(path, damaged)
            with pytest.raises(VerifyFailed):
                open_image(layout, digest)
        path.unlink()
        with pytest.raises(VerifyFailed, match="not here") as caught:
            open_image(layout, digest)
        assert caught.value.hint
        path.write_bytes(original)


def test_a_change_that_still_makes_sense_is_found(layout: Path) -> None:
    """No damaged JSON and no wrong size gives it away: only the hash does."""
    digest = make_image(layout, config={"User": "1000:1000"}, annotations={"a": "1"})
    config = blob_path(layout, open_image(layout, digest).manifest.config.digest)
    for path, old, new in (
        (config, b"1000:1000", b"0000:0000"),
        (blob_path(layout, digest), b'"a": "1"', b'"a": "2"'),
    ):
        original = path.read_bytes()
        assert original.count(old) == 1
        overwrite(path, original.replace(old, new))
        with pytest.raises(VerifyFailed, match="not those of its digest"):
            open_image(layout, digest)
        overwrite(path, original)


def test_bytes_alone_prove_identity_and_not_the_tar(layout: Path) -> None:
    digest = make_image(layout, ({"a": b"x" * 5000},))
    layer = open_image(layout, digest, rehash=Rehash.BYTES).manifest.layers[0]
    flip(blob_path(layout, layer.digest), 30)
    with pytest.raises(VerifyFailed, match="not those of its digest"):
        open_image(layout, digest, rehash=Rehash.BYTES)
    forged = reforged(layout, TAR, TAR + b"x", MEDIA_LAYER_TAR)
    assert open_image(layout, forged, rehash=Rehash.BYTES).digest == forged
    with pytest.raises(VerifyFailed, match="diff id"):
        open_image(layout, forged)


def test_layers_that_are_hashed_later_must_be_there_and_are_hashed_then(layout: Path) -> None:
    digest = make_image(layout, ({"a": b"x" * 5000},))
    path = blob_path(layout, open_image(layout, digest).manifest.layers[0].digest)
    whole = path.read_bytes()
    flip(path, 30)
    image = open_image(layout, digest, rehash=Rehash.LATER)
    with open_layer(image, 0) as stream, pytest.raises(VerifyFailed):
        stream.read()
    overwrite(path, whole[:-1])
    with pytest.raises(VerifyFailed, match="of its descriptor"):
        open_image(layout, digest, rehash=Rehash.LATER)
    path.unlink()
    with pytest.raises(VerifyFailed, match="not here"):
        open_image(layout, digest, rehash=Rehash.LATER)


def test_a_layer_changed_after_opening_is_found_at_the_end_of_its_stream(layout: Path) -> None:
    image = open_image(layout, make_image(layout, media_type=MEDIA_LAYER_TAR))
    flip(blob_path(layout, image.manifest.layers[0].digest), 600)
    with pytest.raises(VerifyFailed, match="digest"), open_layer(image, 0) as stream:
        stream.read()


def reforged(layout: Path, blob: bytes, tar: bytes, media_type: str) -> Digest:
    """An image whose one layer is exactly ``blob``, all its descriptors right."""
    init_layout(layout)
    layer = write_blob(layout, blob, media_type)
    rootfs = {"type": "layers", "diff_ids": [str(Digest.of(tar))]}
    config = {"architecture": "amd64", "os": "linux", "rootfs": rootfs}
    descriptor = write_blob(layout, json.dumps(config).encode(), MEDIA_CONFIG)
    return put_manifest(layout, {"config": descriptor.to_json(), "layers": [layer.to_json()]})


TAR = tar_of({"f": b"content" * 1000})
ZSTD = zstandard.ZstdCompressor().compress(TAR)
GZIP = gzip.compress(TAR, mtime=0)
SKIPPABLE = b"\x50\x2a\x4d\x18" + (6).to_bytes(4, "little") + b"hidden"


@pytest.mark.parametrize(
    ("blob", "media_type"),
    [
        (ZSTD + SKIPPABLE, MEDIA_LAYER_ZSTD),
        (SKIPPABLE + ZSTD, MEDIA_LAYER_ZSTD),
        (ZSTD + b"tail", MEDIA_LAYER_ZSTD),
        (ZSTD[:-3], MEDIA_LAYER_ZSTD),
        (ZSTD + ZSTD[:3], MEDIA_LAYER_ZSTD),
        (ZSTD[:5], MEDIA_LAYER_ZSTD),
        (b"", MEDIA_LAYER_ZSTD),
        (GZIP + b"tail of the stream", MEDIA_LAYER_GZIP),
        (GZIP + b"\0" * 20, MEDIA_LAYER_GZIP),
        (GZIP[:-3], MEDIA_LAYER_GZIP),
        (GZIP[:5], MEDIA_LAYER_GZIP),
        (GZIP[:3] + b"\x10" + GZIP[4:10] + b"hidden comment\0" + GZIP[10:], MEDIA_LAYER_GZIP),
        (GZIP[:3] + b"\x08" + GZIP[4:10] + b"hidden name\0" + GZIP[10:], MEDIA_LAYER_GZIP),
        (GZIP[:3] + b"\x04" + GZIP[4:10] + b"\x06\0hidden" + GZIP[10:], MEDIA_LAYER_GZIP),
        (TAR, MEDIA_LAYER_GZIP),
        (TAR, MEDIA_LAYER_ZSTD),
        (GZIP, MEDIA_LAYER_ZSTD),
        (ZSTD, MEDIA_LAYER_GZIP),
        (ZSTD, MEDIA_LAYER_TAR),
        (TAR + b"x", MEDIA_LAYER_TAR),
        (TAR, "application/vnd.oci.image.layer.nondistributable.v1.tar"),
        (TAR, "application/octet-stream"),
    ],
)
def test_a_layer_with_bytes_outside_of_its_tar_is_refused(layout: Path, blob: bytes, media_type: str) -> None:
    with pytest.raises(VerifyFailed):
        open_image(layout, reforged(layout, blob, TAR, media_type))


FRAMES = b"".join(
    zstandard.ZstdCompressor(write_checksum=bool(start & 4096)).compress(TAR[start : start + 4096])
    for start in range(0, len(TAR), 4096)
)


@pytest.mark.parametrize(
    ("blob", "media_type"),
    [
        (FRAMES, MEDIA_LAYER_ZSTD),
        (gzip.compress(TAR[:1000]) + gzip.compress(TAR[1000:]), MEDIA_LAYER_GZIP),
    ],
)
def test_several_frames_are_one_tar(layout: Path, blob: bytes, media_type: str) -> None:
    image = open_image(layout, reforged(layout, blob, TAR, media_type))
    with open_layer(image, 0) as stream:
        assert stream.read() == TAR


def test_a_decompression_bomb_is_refused(layout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = b"\0" * 50_000_000
    monkeypatch.setattr(layers, "FREE_TAR_BYTES", 1 << 20)
    for media_type, blob in (
        (MEDIA_LAYER_ZSTD, zstandard.ZstdCompressor().compress(zeros)),
        (MEDIA_LAYER_GZIP, gzip.compress(zeros)),
    ):
        monkeypatch.setattr(layers, "MAX_RATIO", 100)
        digest = reforged(layout, blob, zeros, media_type)
        with pytest.raises(VerifyFailed, match="expands to more"):
            open_image(layout, digest)


def test_an_index_is_followed_by_hash_and_platform(layout: Path) -> None:
    amd, arm = make_image(layout), make_image(layout, architecture="arm64")
    listed = {entry.digest: entry for entry in read_index(layout).manifests}

    def entry(digest: Digest, architecture: str) -> dict[str, object]:
        found: dict[str, object] = dict(listed[digest].to_json())
        return found | {"platform": {"os": "linux", "architecture": architecture}}

    unknown = dict(entry(arm, "x")) | {"platform": {"os": "unknown", "architecture": "unknown"}}
    both = {"schemaVersion": 2, "manifests": [entry(amd, "amd64"), entry(arm, "arm64"), unknown]}
    index = add_manifest(layout, json.dumps(both).encode(), media_type=MEDIA_INDEX).digest
    assert open_image(layout, index, AMD64).digest == amd
    assert open_image(layout, index, Platform("linux", "arm64")).digest == arm
    with pytest.raises(VerifyFailed, match="2 images without a platform"):
        open_image(layout, index)
    with pytest.raises(VerifyFailed, match="0 images for linux/s390x"):
        open_image(layout, index, Platform("linux", "s390x"))
    lying = {"schemaVersion": 2, "manifests": [entry(arm, "amd64")]}
    lie = add_manifest(layout, json.dumps(lying).encode(), media_type=MEDIA_INDEX).digest
    with pytest.raises(VerifyFailed, match="for linux/arm64, not for linux/amd64"):
        open_image(layout, lie, AMD64)
    single = add_manifest(
        layout,
        json.dumps({"schemaVersion": 2, "manifests": [entry(amd, "amd64")]}).encode(),
        media_type=MEDIA_INDEX,
    )
    assert open_image(layout, single.digest).digest == amd
    nested = {"schemaVersion": 2, "manifests": [single.to_json()]}
    with pytest.raises(VerifyFailed, match="index inside"):
        open_image(layout, add_manifest(layout, json.dumps(nested).encode(), media_type=MEDIA_INDEX).digest)


def test_what_is_not_an_image_is_refused(layout: Path) -> None:
    digest = make_image(layout)
    good = json.loads(read_manifest(layout, digest).raw)
    empty = write_blob(layout, b"{}", MEDIA_EMPTY).to_json()
    for change, why in (
        ({"manifests": []}, "both a manifest and an index"),
        ({"config": empty}, "not an image"),
        ({"artifactType": "application/x"}, "not an image"),
        ({"layers": good["layers"] * 2}, "2 layers, but 1 diff ids"),
        ({"layers": []}, "0 layers, but 1 diff ids"),
    ):
        with pytest.raises(VerifyFailed, match=why):
            open_image(layout, put_manifest(layout, good | change))


def test_list_images_believes_manifests_not_entries(layout: Path) -> None:
    digest = make_image(layout)
    empty = write_blob(layout, b"{}", MEDIA_EMPTY).to_json()
    artifact = {
        "mediaType": MEDIA_MANIFEST,
        "artifactType": "application/x",
        "config": empty,
        "layers": [empty],
    }
    put_manifest(layout, artifact)
    assert [entry.digest for entry in list_images(layout)] == [digest]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("oci-layout", b"{}"),
        ("oci-layout", b'{"imageLayoutVersion":"2.0.0"}'),
        ("oci-layout", b"x" * 5000),
        ("index.json", b'{"manifests":[],"manifests":[]}'),
        ("index.json", b'{"manifests":{}}'),
        ("index.json", b'{"manifests":[{"digest":"sha256:../../x","size":1,"mediaType":"x"}]}'),
        ("index.json", b'{"manifests":[{"size":-1}]}'),
        ("index.json", b"[" * 100_000),
        ("index.json", b"{} trailing"),
        ("index.json", b"\xff\xfe"),
        ("index.json", b'{"mediaType":"text/plain","manifests":[]}'),
        ("index.json", b" " * (5 << 20)),
    ],
)
def test_a_damaged_index_or_marker_is_an_expected_failure(layout: Path, name: str, data: bytes) -> None:
    digest = make_image(layout)
    (layout / name).write_bytes(data)
    for read in (lambda: open_image(layout, digest), lambda: list_images(layout)):
        with pytest.raises(VerifyFailed) as caught:
            read()
        assert caught.value.where


def test_links_pipes_and_folders_are_not_blobs(layout: Path, tmp_path: Path) -> None:
    digest = make_image(layout)
    path = blob_path(layout, open_image(layout, digest).manifest.config.digest)
    elsewhere = tmp_path / "same"
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere)
    with pytest.raises(VerifyFailed, match="cannot be read"):
        open_image(layout, digest)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(VerifyFailed):
        open_image(layout, digest)
    path.unlink()
    path.mkdir()
    with pytest.raises(VerifyFailed):
        open_image(layout, digest)


def test_no_layout_at_all(tmp_path: Path) -> None:
    with pytest.raises(VerifyFailed, match="not here"):
        open_image(tmp_path, Digest.of(b""))


def test_read_blob_is_bounded(layout: Path) -> None:
    init_layout(layout)
    blob = write_blob(layout, b"12345", "text/plain")
    assert read_blob(layout, blob.digest, 5) == b"12345"
    with pytest.raises(VerifyFailed, match="more than 4 bytes"):
        read_blob(layout, blob, 4)


def test_writing_refuses_another_digest_and_leaves_nothing(layout: Path) -> None:
    init_layout(layout)
    with pytest.raises(VerifyFailed, match="hash to"):
        write_blob(layout, io.BytesIO(b"abc"), "text/plain", expected=Digest.of(b"abd"))
    assert list((layout / "blobs" / "sha256").iterdir()) == []


def test_writing_again_mends_a_damaged_blob(layout: Path) -> None:
    init_layout(layout)
    blob = write_blob(layout, b"abc", "text/plain")
    flip(blob_path(layout, blob.digest))
    write_blob(layout, b"abc", "text/plain")
    assert read_blob(layout, blob) == b"abc"


def test_a_full_or_missing_disk_is_a_state_error(tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught:
        write_blob(tmp_path / "absent", b"", "text/plain")
    assert str(tmp_path) in caught.value.where
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StateError):
        init_layout(tmp_path / "file" / "layout")


def test_two_writers_at_once_lose_nothing(layout: Path) -> None:
    init_layout(layout)
    made: list[Digest] = []

    def work(number: int) -> None:
        made.extend(make_image(layout, ({f"{number}-{n}": b""},)) for n in range(10))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {entry.digest for entry in list_images(layout)} == set(made)
    assert len(made) == 40


def test_adding_the_same_manifest_again_changes_its_one_entry(layout: Path) -> None:
    digest = make_image(layout)
    raw = read_manifest(layout, digest).raw
    add_manifest(layout, raw, media_type=MEDIA_MANIFEST, annotations=(("b", "2"), ("a", "1")))
    (entry,) = read_index(layout).manifests
    assert entry.annotations == (("a", "1"), ("b", "2"))


def test_import_copies_and_checks(layout: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    digest = make_image(source)
    init_layout(layout)
    image = import_image(source, digest, layout)
    assert open_image(layout, digest) == image
    flip(blob_path(source, image.manifest.layers[0].digest))
    assert open_image(layout, digest) == image
    with pytest.raises(VerifyFailed):
        import_image(source, digest, tmp_path / "other")


def test_export_holds_one_image_alone(layout: Path, tmp_path: Path) -> None:
    digest, _ = make_image(layout), make_image(layout, ({"other": b""},))
    out = tmp_path / "out"
    entry = export_single(layout, digest, out, annotations=(("name", "x"),))
    assert read_index(out).manifests == (entry,)
    image = open_image(out, digest)
    assert len(list((out / "blobs" / "sha256").iterdir())) == 3
    layer = image.manifest.layers[0].digest
    assert blob_path(out, layer).samefile(blob_path(layout, layer))
    with pytest.raises(StateError, match="not empty"):
        export_single(layout, digest, out)


KEYS = ["config", "layers", "manifests", "mediaType", "digest", "size", "platform", "subject", "annotations"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_manifest_bytes_open_or_fail_as_expected(tmp_path: Path, raw: bytes) -> None:
    layout = tmp_path / "layout"
    init_layout(layout)
    digest = write_blob(layout, raw, MEDIA_MANIFEST).digest
    with pytest.raises(BuilderError):
        open_image(layout, digest)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.sampled_from([(ZSTD, MEDIA_LAYER_ZSTD), (GZIP, MEDIA_LAYER_GZIP)]),
    cut=st.tuples(st.integers(0, 200), st.integers(0, 30)),
    junk=st.binary(max_size=30),
)
def test_any_layer_bytes_read_or_fail_as_expected(
    tmp_path: Path, base: tuple[bytes, str], cut: tuple[int, int], junk: bytes
) -> None:
    blob = base[0][: cut[0]] + junk + base[0][cut[0] + cut[1] :]
    layout = tmp_path / "layout"
    digest = reforged(layout, blob, TAR, base[1])
    with contextlib.suppress(VerifyFailed):
        open_image(layout, digest)
