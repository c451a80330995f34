"""One layer: nothing hides at a border, in a header, in the tail or in a replaced file; all bytes count."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provenance.scan.allow import Packages, shipped_allow_list
from provenance.scan.bytescan import BLOCK_BYTES
from provenance.scan.collect import Collector
from provenance.scan.engine import Engine
from provenance.scan.judge import RIGHT_CONTEXT
from provenance.scan.layer import LayerPass
from provenance.scan.places import PathTable
from provenance.scan.report import PlaceKind, ScanReport, Verdict
from tests.fakes.credentials import KEY, Entry, der, make_layout, make_tar, pem, sample, shape_named, token

from .conftest import ScanImage

ScanFiles = Callable[..., ScanReport]
TABLE = PathTable()


def scan_chunks(engine: Engine, chunks: Iterator[bytes] | list[bytes]) -> tuple[Collector, LayerPass]:
    collector = Collector(KEY, shipped_allow_list(), Packages())
    layer = LayerPass("sha256:" + "0" * 64, engine.finder(), TABLE, collector)
    layer.run(iter(chunks))
    return collector, layer


def kinds(report: ScanReport) -> set[tuple[str, PlaceKind, str]]:
    return {(finding.rule, finding.place.kind, finding.place.path) for finding in report.findings}


def test_a_key_in_a_file_is_found_with_its_place(scan_files: ScanFiles) -> None:
    report = scan_files(Entry("opt/app/readme", b"0123456789" + token()))
    assert report.verdict is Verdict.FOUND
    (finding,) = report.findings
    assert (finding.place.path, finding.place.offset) == ("opt/app/readme", 10)
    assert token().decode() not in str(report)


def test_a_clean_layer_is_clean_and_every_byte_is_counted(scan_files: ScanFiles) -> None:
    tar_size = len(make_tar([Entry("a", b"x" * 1000), Entry("b", b"")]))
    report = scan_files(Entry("a", b"x" * 1000), Entry("b", b""))
    assert report.verdict is Verdict.CLEAN
    (layer,) = [blob for blob in report.coverage if blob.kind == "layer"]
    assert (layer.total, layer.scanned, layer.members) == (tar_size, tar_size, 2)


BORDER = BLOCK_BYTES  # where the judged part of the first block ends


@pytest.mark.parametrize("shift", [*range(-130, 10, 7), -RIGHT_CONTEXT, RIGHT_CONTEXT - 40, RIGHT_CONTEXT])
@pytest.mark.parametrize("value", [token(), pem("rsa"), sample(shape_named("private-key-der"), 1)])
def test_no_block_border_hides_a_key(engine: Engine, shift: int, value: bytes) -> None:
    lead = BORDER + shift - 512
    raw = make_tar([Entry("big", b"\0" * lead + value + b"\0" * (RIGHT_CONTEXT * 3))])
    chunk = 1 << 20
    collector, layer = scan_chunks(engine, [raw[at : at + chunk] for at in range(0, len(raw), chunk)])
    (finding,) = collector.collected.findings.values()
    assert finding.place.path == "big"
    assert finding.place.offset is not None
    assert abs(finding.place.offset - lead) <= 4  # a DER key is known by a marker a few bytes inside
    assert layer.scanned == layer.total == len(raw)


@pytest.mark.parametrize("shift", range(-8, 2))
@pytest.mark.parametrize("kind", ["rsa", "ec", "ed25519"])
def test_a_marker_on_the_border_is_judged_with_what_stands_before_it(
    engine: Engine, shift: int, kind: str
) -> None:
    raw = make_tar([Entry("big", b"\0" * (BORDER + shift - 512) + der(kind) + b"\0" * RIGHT_CONTEXT)])
    collector, _ = scan_chunks(engine, [raw])
    assert {finding.rule for finding in collector.collected.findings.values()} == {"private-key-der"}


@pytest.mark.parametrize("shift", range(-3, 3))
def test_a_letter_before_the_border_is_still_an_edge(engine: Engine, shift: int) -> None:
    value = sample(shape_named("huggingface-token"), 2)
    raw = make_tar([Entry("big", b"\0" * (BORDER + shift - 513) + b"x" + value + b"\0" * RIGHT_CONTEXT)])
    collector, _ = scan_chunks(engine, [raw])
    assert not collector.collected.findings


@settings(max_examples=25, deadline=None)
@given(at=st.integers(0, 2 * BLOCK_BYTES), chunk=st.sampled_from([65_536, 1 << 20, 3_000_001]))
def test_wherever_it_lies_and_however_it_is_fed_it_is_found_once(engine: Engine, at: int, chunk: int) -> None:
    raw = make_tar([Entry("big", b"\0" * at + token() + b"\0" * 100_000)])
    collector, layer = scan_chunks(
        engine, [raw[begin : begin + chunk] for begin in range(0, len(raw), chunk)]
    )
    assert [finding.place.offset for finding in collector.collected.findings.values()] == [at]
    assert layer.scanned == len(raw)


def test_a_key_between_nuls_in_a_member_of_over_256_megabytes(engine: Engine) -> None:
    size, at = 300 << 20, (271 << 20) + 17
    info = tarfile.TarInfo("opt/agents/cli")
    info.size = size

    def stream() -> Iterator[bytes]:
        yield info.tobuf(tarfile.USTAR_FORMAT)
        zeros = bytes(1 << 20)
        for _ in range(271):
            yield zeros
        planted = b"\0" * 17 + token() + b"\0"
        yield planted + zeros[len(planted) :]
        for _ in range(28):
            yield zeros
        yield bytes(1024)

    collector, layer = scan_chunks(engine, stream())
    (finding,) = collector.collected.findings.values()
    assert (finding.place.path, finding.place.offset) == ("opt/agents/cli", at)
    assert layer.scanned == size + 512 + 1024
    assert not collector.collected.incomplete


def test_a_file_name_that_is_a_key(scan_files: ScanFiles) -> None:
    report = scan_files(Entry("srv/" + token().decode(), b"x"))
    assert report.verdict is Verdict.FOUND
    assert token().decode() not in str(report)


def test_a_name_split_between_two_header_fields(scan: ScanImage, tmp_path: Path) -> None:
    value = "hooks.slack.com/services/T0AB1CD2EF/B3GH4IJ5KL/" + "m6NoPqRsTuVwXyZ7a8B9c0D1"
    tar = make_tar([Entry(value + "/" + "e" * 60, b"x")], format=tarfile.USTAR_FORMAT)
    assert value.encode() not in tar
    report = scan(make_layout(tmp_path, [tar]))
    assert [(finding.rule, finding.place.kind) for finding in report.findings] == [
        ("slack-webhook", PlaceKind.MEMBER_NAME)
    ]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_target_that_is_a_key(scan_files: ScanFiles, kind: bytes) -> None:
    report = scan_files(Entry("srv/link", kind=kind, link=token().decode()))
    assert {finding.rule for finding in report.findings} == {"anthropic-oauth"}


def test_an_extended_attribute(scan_files: ScanFiles) -> None:
    report = scan_files(Entry("srv/f", b"x", pax=(("SCHILY.xattr.user.note", token().decode()),)))
    assert {finding.rule for finding in report.findings} == {"anthropic-oauth"}


def test_bytes_after_the_end_of_the_archive(scan: ScanImage, tmp_path: Path) -> None:
    report = scan(make_layout(tmp_path, [make_tar([Entry("a", b"x")]) + b"\0" * 512 + token() + b"\0" * 400]))
    (finding,) = report.findings
    assert finding.place.kind is PlaceKind.TAIL


@pytest.mark.parametrize(
    "later",
    [
        [Entry("app/.wh.key", b"")],
        [Entry("app/.wh..wh..opq", b"")],
        [Entry("app/key", b"nothing")],
        [Entry(".wh.app", b"")],
    ],
    ids=["whiteout", "opaque", "overwrite", "directory"],
)
def test_a_later_layer_hides_nothing(scan: ScanImage, tmp_path: Path, later: list[Entry]) -> None:
    report = scan(make_layout(tmp_path, [make_tar([Entry("app/key", token())]), make_tar(later)]))
    assert [finding.place.path for finding in report.findings] == ["app/key"]


def test_a_file_replaced_within_one_layer(scan_files: ScanFiles) -> None:
    report = scan_files(Entry("app/key", token()), Entry("app/key", b"nothing"))
    assert [finding.place.path for finding in report.findings] == ["app/key"]


def test_an_uncompressed_tar_inside_is_read_as_bytes_and_opened(scan_files: ScanFiles) -> None:
    report = scan_files(Entry("backup.tar", make_tar([Entry("k", token())])))
    assert report.verdict is Verdict.FOUND
    assert (report.opened, report.opaque) == (1, ())


@pytest.mark.parametrize(
    "damage",
    [lambda tar: tar[:700], lambda tar: b"x" * 512 + tar, lambda tar: tar[:156] + b"S" + tar[157:]],
    ids=["cut", "no-header", "sparse"],
)
def test_a_broken_tar_is_incomplete_and_never_clean(
    scan: ScanImage, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    report = scan(make_layout(tmp_path, [damage(make_tar([Entry("a", b"x" * 600)]))]))
    assert report.verdict is Verdict.INCOMPLETE
    assert report.incomplete


def test_a_blob_changed_after_it_was_opened_is_incomplete(scan: ScanImage, tmp_path: Path) -> None:
    image = make_layout(tmp_path, [make_tar([Entry("a", b"x" * 600)])])
    path = image.layout / "blobs" / "sha256" / image.manifest.layers[0].digest.hex
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    report = scan(image)
    assert report.verdict is Verdict.INCOMPLETE
    path.unlink()
    assert scan(image).verdict is Verdict.INCOMPLETE


def test_a_gzip_layer_is_read(scan: ScanImage, tmp_path: Path) -> None:
    report = scan(make_layout(tmp_path, [make_tar([Entry("a", token())])], compress=True))
    assert report.verdict is Verdict.FOUND


def test_a_hard_link_at_a_known_path_is_looked_into_in_whatever_layer(
    scan: ScanImage, tmp_path: Path
) -> None:
    secret = b"machine example.com login me password hunter2hunter2\n"
    lower = make_tar([Entry("etc/data", secret)])
    upper = make_tar([Entry("root/.netrc", kind=tarfile.LNKTYPE, link="etc/data")])
    report = scan(make_layout(tmp_path, [lower, upper]))
    assert kinds(report) == {("path-netrc", PlaceKind.MEMBER_PATH, "root/.netrc")}


@pytest.mark.parametrize("link", ["/etc/data", "../etc/data", "../root/../etc/data"])
def test_a_symbolic_link_at_a_known_path_is_followed_inside_of_the_image(
    scan_files: ScanFiles, link: str
) -> None:
    report = scan_files(
        Entry("root/.netrc", kind=tarfile.SYMTYPE, link=link),
        Entry("etc/data", b"machine example.com login me password hunter2hunter2\n"),
    )
    assert kinds(report) == {("path-netrc", PlaceKind.MEMBER_PATH, "root/.netrc")}


def test_a_path_is_known_however_it_is_written(scan_files: ScanFiles) -> None:
    report = scan_files(Entry("./root/x/..//.netrc", b"machine a login me password hunter2hunter2\n"))
    assert kinds(report) == {("path-netrc", PlaceKind.MEMBER_PATH, "root/.netrc")}


def test_a_hard_link_to_nothing_is_incomplete(scan_files: ScanFiles) -> None:
    report = scan_files(Entry("root/.netrc", kind=tarfile.LNKTYPE, link="etc/gone"))
    assert report.verdict is Verdict.INCOMPLETE


def test_a_known_path_that_is_too_large_to_look_into_is_incomplete(scan_files: ScanFiles) -> None:
    report = scan_files(Entry("root/.npmrc", b"#" * (5 << 20)))
    assert report.verdict is Verdict.INCOMPLETE


def test_more_findings_than_anybody_reads_end_the_pass(engine: Engine) -> None:
    values = b"\n".join(token(seed) for seed in range(1200))
    collector, _ = scan_chunks(engine, [make_tar([Entry("all", values)])])
    assert collector.collected.incomplete
    assert len(collector.collected.findings) >= 1000


def test_a_key_that_nul_ends_in_a_program_of_more_than_256_mb(engine: Engine) -> None:
    """A peer's limit, beyond which it says nothing; and its keys must end with a quote or a blank."""
    blank, size = bytes(1 << 20), 300 << 20
    header = tarfile.TarInfo("usr/bin/claude")
    header.size = size
    at = 290 << 20

    def chunks() -> Iterator[bytes]:
        yield header.tobuf()
        for start in range(0, size, len(blank)):
            if start == at:
                value = b"\x7fELF\0" + token() + b"\0"
                yield value + blank[len(value) :]
            else:
                yield blank
        yield bytes(1024)

    collector, layer = scan_chunks(engine, chunks())
    (finding,) = collector.collected.findings.values()
    assert (finding.place.path, finding.place.offset) == ("usr/bin/claude", at + 5)
    assert layer.scanned == layer.total == 512 + size + 1024
    assert collector.collected.incomplete == []
