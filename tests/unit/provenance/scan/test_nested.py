"""Archives inside of a layer: opened within bounds, or named as opaque; never passed over."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import os
import random
import tarfile
import zipfile
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.digests import Digest
from images.errors import CredentialFound
from provenance.scan import nested, unpack
from provenance.scan.accept import require_opened
from provenance.scan.allow import Packages, shipped_allow_list
from provenance.scan.collect import Collected, Collector
from provenance.scan.engine import Engine
from provenance.scan.nested import FileReading, Opener
from provenance.scan.places import PathTable
from provenance.scan.report import ScanReport, Verdict
from provenance.scan.sniff import nested_format
from provenance.scan.unpack import OPENED, NotOpened
from tests.fakes.credentials import KEY, Entry, make_tar, token
from tests.fakes.packing import PACKS, deb, zipped

ScanFiles = Callable[..., ScanReport]


@pytest.mark.parametrize("name", PACKS)
def test_what_is_packed_is_found_at_its_place_and_its_twin_is_silent(
    scan_files: ScanFiles, name: str
) -> None:
    path, pack = PACKS[name]
    noise = random.Random(name).randbytes(5000)  # noqa: S311  (noise)
    report = scan_files(Entry(path, pack(noise + token() + noise)))
    assert report.verdict is Verdict.FOUND
    assert report.opaque == ()
    # What does not get smaller is often stored as it is, and then found there too.
    assert any(finding.place.path.startswith(f"{path}!") for finding in report.findings)
    assert token().decode() not in str(report)
    twin = scan_files(Entry(path, pack(noise + noise)))
    assert (twin.verdict, twin.opaque) == (Verdict.CLEAN, ())
    assert twin.opened >= 1
    assert twin.opened_bytes >= len(noise)


def test_paths_inside_are_held_against_the_table(scan_files: ScanFiles) -> None:
    secret = b"machine git.example login me password swordfish-9\n"
    report = scan_files(
        Entry("home.tgz", gzip.compress(make_tar([Entry("root/.netrc", secret)]))),
        Entry("home.zip", zipped(secret, "root/.netrc")),
    )
    assert [(finding.rule, finding.place.path) for finding in report.findings] == [
        ("path-netrc", "home.tgz!root/.netrc"),
        ("path-netrc", "home.zip!root/.netrc"),
    ]


def test_a_key_across_the_blocks_of_a_large_part(scan_files: ScanFiles) -> None:
    for shift in (-20, 0, 9):
        data = bytes((4 << 20) + shift) + token() + bytes(2 << 20)
        report = scan_files(Entry("a.gz", gzip.compress(data, 1)))
        (finding,) = report.findings
        assert finding.place.offset == (4 << 20) + shift


def encrypted() -> bytes:
    raw = bytearray(zipped(b"x" * 100))
    raw[6] |= 1
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    return bytes(raw)


OPAQUE: dict[str, tuple[str, bytes, str]] = {
    "7z": ("a", b"7z\xbc\xaf\x27\x1c" + bytes(300), "7z is not opened"),
    "encrypted": ("a.zip", encrypted(), "encrypted"),
    "gzip-cut": ("a.gz", gzip.compress(os.urandom(4000))[:-900], "cut short"),
    "gzip-flipped": ("a.gz", gzip.compress(b"abc" * 900)[:-8] + bytes(8), "corrupt"),
    "gzip-tail": ("a.gz", gzip.compress(b"abc") + b"and more", "something else follows"),
    "xz-cut": ("a.xz", lzma.compress(b"abc" * 900)[:-20], "cut short"),
    "zip-prefix": (
        "tool.pyz",
        b"#!/usr/bin/env python3\n" + zipped(b"x" * 99),
        "other content stands before it",
    ),
    "zip-broken": ("a.zip", b"PK\x03\x04" + bytes(300), "corrupt zip"),
    "zip-crc": (
        "a.zip",
        zipped(b"x" * 99, method=zipfile.ZIP_STORED).replace(b"xxx", b"xyx", 1),
        "check sum",
    ),
    "tar-cut": ("a.tgz", gzip.compress(make_tar([Entry("k", b"x" * 900)])[:800]), "corrupt tar"),
    "deb-cut": ("a.deb", deb(b"x" * 900)[:-40], "cut short"),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_cannot_be_opened_is_opaque_with_its_reason(scan_files: ScanFiles, name: str) -> None:
    path, content, why = OPAQUE[name]
    report = scan_files(Entry(path, content))
    assert report.verdict is Verdict.CLEAN
    assert report.opaque_count == len(report.opaque) == report.unanswered == 1
    (member,) = report.opaque
    assert why in member.reason
    assert member.path.startswith(path)
    assert member.file == Digest.of(content) or "tar" in name
    with pytest.raises(CredentialFound, match="not opened"):
        require_opened(report, accepted=frozenset())
    require_opened(report, accepted=frozenset({member.digest}))


def test_a_member_that_the_directory_does_not_name_is_not_passed_over(scan_files: ScanFiles) -> None:
    hidden = zipped(token(), "hidden")
    body = hidden[: hidden.index(b"PK\x01\x02")]
    seen = bytearray(zipped(b"harmless"))
    at = seen.index(b"PK\x01\x02")
    end = seen.index(b"PK\x05\x06")
    seen[at + 42 : at + 46] = len(body).to_bytes(4, "little")
    seen[end + 16 : end + 20] = (at + len(body)).to_bytes(4, "little")
    report = scan_files(Entry("a.zip", body + bytes(seen)))
    assert report.unanswered == 1
    assert "does not name" in report.opaque[0].reason


def test_a_bomb_and_a_deep_one_end_within_bounds(
    scan_files: ScanFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = gzip.compress(bytes(20 << 20))
    monkeypatch.setattr(unpack, "FREE_BYTES", 1 << 20)
    monkeypatch.setattr(unpack, "MAX_RATIO", 10)
    report = scan_files(Entry("bomb.gz", bomb))
    assert "expands to more than" in report.opaque[0].reason
    assert report.opened_bytes < 3 << 20
    deep = token()
    for _ in range(nested.MAX_DEPTH + 1):
        deep = gzip.compress(deep)
    report = scan_files(Entry("deep.gz", deep))
    assert "deeper than" in report.opaque[0].reason


def test_the_budget_of_a_layer_is_for_all_of_its_files(
    scan_files: ScanFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested.Budget.__init__, "__defaults__", (1 << 20, 3))
    many = [Entry(f"{number}.gz", gzip.compress(b"x")) for number in range(5)]
    assert scan_files(*many).unanswered == 2
    large = [Entry(f"{number}.gz", gzip.compress(os.urandom(400_000), 1)) for number in range(3)]
    assert scan_files(*large).unanswered == 1


def test_a_file_that_is_too_large_to_be_held_is_named(
    scan_files: ScanFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested, "MAX_PACKED", 1000)
    monkeypatch.setattr(unpack, "MAX_PACKED", 1000)
    content = gzip.compress(os.urandom(3000))
    report = scan_files(Entry("a.gz", content))
    (member,) = report.opaque
    assert (member.size, member.digest) == (len(content), Digest.of(content))
    assert "more than 1000 bytes" in member.reason


def test_what_begins_like_an_archive_and_is_none_is_a_file(scan_files: ScanFiles) -> None:
    report = scan_files(
        Entry("a", b"\x1f\x8bx"),
        Entry("b", b"BZhello there"),
        Entry("c", b"\x5d\x00\x00abc"),
        Entry("d.gz", b"text"),
    )
    assert (report.opened, report.opaque_count) == (0, 0)


@pytest.mark.parametrize("format", sorted(OPENED))
@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300), flip=st.integers(0, 5000), keep=st.integers(0, 5000))
def test_no_bytes_end_in_anything_but_parts_or_a_reason(
    format: str, data: bytes, flip: int, keep: int
) -> None:
    packs = {**{name: pack for name, (_, pack) in PACKS.items()}, "deb": deb}
    good = bytearray(packs[format](data * 9))
    good[flip % len(good)] ^= 1 + flip % 255
    for content in (bytes(good), bytes(good[: keep % len(good)]), data):
        with contextlib.suppress(NotOpened):
            for part in unpack.unpack(format, content):
                assert sum(map(len, part.chunks)) < 1 << 25


@settings(max_examples=25, deadline=None)
@given(
    st.binary(min_size=1, max_size=2000),
    st.lists(st.integers(1, 400), max_size=8),
    st.sampled_from(sorted(PACKS)),
)
def test_how_a_file_arrives_changes_nothing(data: bytes, cuts: list[int], name: str) -> None:
    path, pack = PACKS[name]
    content = pack(data)
    whole, pieces = collected(path, [content]), []
    rest = content
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    got = collected(path, [*pieces, rest])
    assert (got.opened, got.opened_bytes, got.opaque) == (whole.opened, whole.opened_bytes, whole.opaque)


ENGINE = Engine()


def collected(path: str, pieces: list[bytes]) -> Collected:
    collector = Collector(KEY, shipped_allow_list(), Packages())
    reading: FileReading = Opener("sha256:" + "0" * 64, ENGINE.finder(), PathTable(), collector).reading(
        path, ()
    )
    for piece in pieces:
        reading.feed(memoryview(piece))
    reading.finish()
    return collector.collected


def test_a_tar_of_every_old_kind_is_opened(scan_files: ScanFiles) -> None:
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        packed = gzip.compress(make_tar([Entry("k" * 90, token())], format=kind))
        assert scan_files(Entry("a.tgz", packed)).verdict is Verdict.FOUND


def test_git_objects_are_told_by_their_place() -> None:
    head = zlib.compress(b"blob 1\0x")
    assert nested_format("a/.git/objects/ab/" + "c" * 38, head) == "git-object"
    assert nested_format("a/objects.bin", head) == ""
