"""Any saved image: an OCI layout, an OCI archive, `docker save` of both kinds, untrusted and whole."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from images.errors import UsageError, VerifyFailed
from images.oci import MEDIA_MANIFEST
from provenance.layout_writing import add_manifest, write_blob
from provenance.scan.allow import shipped_allow_list
from provenance.scan.archive import open_archive
from provenance.scan.archive_sources import archive_sources
from provenance.scan.engine import Engine
from provenance.scan.passes import scan_sources
from provenance.scan.report import PlaceKind, ScanReport, Verdict
from provenance.scan.request import ScanRequest, Target
from tests.fakes.credentials import KEY, Entry, crc_dummy, make_layout, make_tar, token, zlib_gzip

ScanPath = Callable[[Path], ScanReport]
CLEAN_TAR = make_tar([Entry("etc/hello", b"hello")])
LEAKY_TAR = make_tar([Entry("app/key", token())])


@pytest.fixture
def scan_path(engine: Engine) -> ScanPath:
    def run(path: Path) -> ScanReport:
        request = ScanRequest(target=Target.ARCHIVE, path=path, digest=None, key=KEY)
        return scan_sources(archive_sources(open_archive(path)), request, shipped_allow_list(), engine)

    return run


def save_tar(path: Path, files: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    entries = [Entry(name, content) for name, content in files.items()]
    entries += [Entry(name, kind=tarfile.SYMTYPE, link=link) for name, link in (links or {}).items()]
    path.write_bytes(make_tar(entries))
    return path


def layout_files(layout: Path) -> dict[str, bytes]:
    return {str(path.relative_to(layout)): path.read_bytes() for path in layout.rglob("*") if path.is_file()}


def docker_save(
    layers: dict[str, bytes], *, config: dict[str, object] | None = None, compress: bool = False
) -> dict[str, bytes]:
    """What `docker save` wrote before it wrote OCI layouts too."""
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {
            "type": "layers",
            "diff_ids": ["sha256:" + hashlib.sha256(raw).hexdigest() for raw in layers.values()],
        },
    } | (config or {})
    raw = json.dumps(settings).encode()
    name = hashlib.sha256(raw).hexdigest() + ".json"
    manifest = [{"Config": name, "RepoTags": ["a:b"], "Layers": list(layers)}]
    stored = {layer: zlib_gzip(raw) if compress else raw for layer, raw in layers.items()}
    return {name: raw, "manifest.json": json.dumps(manifest).encode(), **stored}


def test_an_oci_layout_directory(scan_path: ScanPath, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [CLEAN_TAR])
    report = scan_path(image.layout)
    assert report.verdict is Verdict.CLEAN
    assert report.subject == image.digest
    assert {blob.kind for blob in report.coverage} == {"layer", "document"}


def test_an_oci_layout_with_a_leak_in_a_compressed_layer(scan_path: ScanPath, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [CLEAN_TAR, LEAKY_TAR], compress=True)
    report = scan_path(image.layout)
    assert [finding.place.path for finding in report.findings] == ["app/key"]


def test_an_oci_archive(scan_path: ScanPath, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [CLEAN_TAR, LEAKY_TAR], compress=True)
    report = scan_path(save_tar(tmp_path / "a.tar", layout_files(image.layout)))
    assert report.subject == image.digest
    assert [finding.place.path for finding in report.findings] == ["app/key"]
    assert not report.incomplete


def test_attestations_and_everything_else_in_a_layout_is_read(scan_path: ScanPath, tmp_path: Path) -> None:
    """The build argument of docker/docs#19281, in the attestation manifest beside the image."""
    image = make_layout(tmp_path, [CLEAN_TAR])
    predicate = {"invocation": {"parameters": {"args": {"build-arg:NPM_TOKEN": "swordfish-9"}}}}
    layer = write_blob(
        image.layout, json.dumps({"predicate": predicate}).encode(), "application/vnd.in-toto+json"
    )
    config = write_blob(image.layout, b"{}", "application/vnd.oci.empty.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "config": config.to_json(),
        "layers": [layer.to_json()],
    }
    add_manifest(image.layout, json.dumps(manifest).encode(), media_type=MEDIA_MANIFEST)
    report = scan_path(image.layout)
    assert [finding.rule for finding in report.findings] == ["name"]
    assert report.subject.startswith("archive:sha256:")


def test_a_cache_export_is_read_like_an_image(scan_path: ScanPath, tmp_path: Path) -> None:
    """mastra-ai/mastra#24216: the cache manifest's layers still hold the value of a throw-away stage."""
    image = make_layout(tmp_path, [CLEAN_TAR])
    layer = write_blob(image.layout, zlib_gzip(LEAKY_TAR), "application/vnd.oci.image.layer.v1.tar+gzip")
    config = write_blob(image.layout, b"{}", "application/vnd.buildkit.cacheconfig.v0")
    manifest = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "config": config.to_json(),
        "layers": [layer.to_json()],
    }
    add_manifest(image.layout, json.dumps(manifest).encode(), media_type=MEDIA_MANIFEST)
    assert [finding.place.path for finding in scan_path(image.layout).findings] == ["app/key"]


def test_a_blob_that_nothing_names_is_read_too(scan_path: ScanPath, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [CLEAN_TAR])
    write_blob(image.layout, LEAKY_TAR, "application/octet-stream")
    write_blob(image.layout, b"note: " + crc_dummy("ghp_"), "text/plain")
    assert {finding.rule for finding in scan_path(image.layout).findings} == {
        "anthropic-oauth",
        "github-token",
    }


@pytest.mark.parametrize("compress", [False, True])
def test_docker_save_of_old(scan_path: ScanPath, tmp_path: Path, compress: bool) -> None:
    files = docker_save({"1/layer.tar": CLEAN_TAR, "2/layer.tar": LEAKY_TAR}, compress=compress)
    report = scan_path(save_tar(tmp_path / "a.tar", files))
    assert [finding.place.path for finding in report.findings] == ["app/key"]
    config = next(name for name in files if name.endswith(".json") and name != "manifest.json")
    assert report.subject == "sha256:" + config.removesuffix(".json")
    assert not report.incomplete


def test_docker_save_with_equal_layers_linked(scan_path: ScanPath, tmp_path: Path) -> None:
    files = docker_save({"1/layer.tar": CLEAN_TAR, "2/layer.tar": CLEAN_TAR})
    del files["2/layer.tar"]
    report = scan_path(save_tar(tmp_path / "a.tar", files, {"2/layer.tar": "../1/layer.tar"}))
    assert report.verdict is Verdict.CLEAN


def test_history_of_a_saved_image(scan_path: ScanPath, tmp_path: Path) -> None:
    line = f"RUN |1 T={crc_dummy('ghp_').decode()} /bin/sh -c make"
    files = docker_save({"1/layer.tar": CLEAN_TAR}, config={"history": [{"created_by": line}]})
    report = scan_path(save_tar(tmp_path / "a.tar", files))
    assert {finding.place.kind for finding in report.findings} == {PlaceKind.CONFIG}


def without(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {key: value for key, value in files.items() if key != name}


def test_a_layer_that_is_named_and_missing_is_incomplete(scan_path: ScanPath, tmp_path: Path) -> None:
    files = docker_save({"1/layer.tar": CLEAN_TAR})
    report = scan_path(save_tar(tmp_path / "a.tar", without(files, "1/layer.tar")))
    assert report.verdict is Verdict.INCOMPLETE
    image = make_layout(tmp_path, [CLEAN_TAR])
    (image.layout / "blobs/sha256" / image.manifest.layers[0].digest.hex).unlink()
    assert scan_path(image.layout).verdict is Verdict.INCOMPLETE


def test_a_blob_under_a_wrong_name_is_incomplete(scan_path: ScanPath, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [CLEAN_TAR])
    for digest in (image.manifest.layers[0].digest, image.manifest.config.digest):
        path = image.layout / "blobs/sha256" / digest.hex
        good = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        assert scan_path(image.layout).verdict is Verdict.INCOMPLETE
        path.write_bytes(good)
    assert scan_path(image.layout).verdict is Verdict.CLEAN


def test_a_layer_that_differs_from_its_diff_id_is_incomplete(scan_path: ScanPath, tmp_path: Path) -> None:
    files = docker_save({"1/layer.tar": CLEAN_TAR}, compress=True)
    files["1/layer.tar"] = zlib_gzip(make_tar([Entry("other")]))
    assert scan_path(save_tar(tmp_path / "a.tar", files)).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    "raw", [b"", b"plain text" * 100, zlib_gzip(CLEAN_TAR)], ids=["empty", "text", "compressed"]
)
def test_no_archive_is_a_usage_error_with_a_hint(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(raw)
    with pytest.raises(UsageError) as caught:
        open_archive(path)
    assert "docker save" in caught.value.hint


def test_a_tar_that_is_no_image_is_a_usage_error(scan_path: ScanPath, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no image"):
        scan_path(save_tar(tmp_path / "a.tar", {"etc/passwd": b"x"}))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no image"):
        scan_path(tmp_path / "empty")
    with pytest.raises(UsageError, match="cannot be read"):
        scan_path(tmp_path / "gone")


def test_links_in_a_layout_directory_are_refused(scan_path: ScanPath, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [CLEAN_TAR])
    (image.layout / "blobs/sha256/link").symlink_to("/etc/passwd")
    with pytest.raises(VerifyFailed, match="neither a file nor a directory"):
        scan_path(image.layout)


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    files = [Entry("index.json", b"{}"), Entry("./index.json", b"{}")]
    (tmp_path / "a.tar").write_bytes(make_tar(files))
    with pytest.raises(VerifyFailed, match="two members"):
        open_archive(tmp_path / "a.tar")


@pytest.mark.parametrize(
    "top",
    [
        b"[]",
        b"{",
        b'{"manifests":[{}]}',
        b'{"manifests":{}}',
        b'{"manifests":[{"mediaType":"a","digest":"../../x","size":1}]}',
    ],
)
def test_a_bent_index_is_refused_without_a_traceback(scan_path: ScanPath, tmp_path: Path, top: bytes) -> None:
    with pytest.raises((VerifyFailed, UsageError)):
        scan_path(save_tar(tmp_path / "a.tar", {"index.json": top}))


@pytest.mark.parametrize(
    "top", [b"{}", b"[1]", b'[{"Config":"x","Layers":[]}]', b'[{"Config":1,"Layers":[]}]']
)
def test_a_bent_manifest_is_refused_without_a_traceback(
    scan_path: ScanPath, tmp_path: Path, top: bytes
) -> None:
    with pytest.raises((VerifyFailed, UsageError)):
        scan_path(save_tar(tmp_path / "a.tar", {"manifest.json": top}))


def test_sections_of_an_archive_are_read_like_files(tmp_path: Path) -> None:
    path = save_tar(tmp_path / "a.tar", {"index.json": b"0123456789", "b": b"x" * 2000})
    blobs = open_archive(path)
    with blobs.open("index.json") as file:
        assert file.read() == b"0123456789"
        assert file.seek(-3, io.SEEK_END) == 7
        assert file.read(2) == b"78"
        assert file.seek(1, io.SEEK_CUR) == 10
        assert file.read() == b""
    assert blobs.size("b") == 2000
    with pytest.raises(VerifyFailed, match="not in the archive"):
        blobs.open("c")
