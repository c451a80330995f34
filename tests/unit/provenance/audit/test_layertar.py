"""The strict tar reader: no byte of a layer without a meaning, nothing on which readers differ."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.errors import VerifyFailed
from images.rootfs import RootEntry, pack_root
from provenance.audit.layertar import Entry, Kind, read_entries
from tests.fakes.audited import Made, entry_bytes, header, layer_bytes, padded, record


def read(raw: bytes) -> list[Entry]:
    return list(read_entries(iter((raw,))))


def refused(raw: bytes, word: str) -> None:
    with pytest.raises(VerifyFailed, match=word):
        read(raw)


FILE = Made("dir/file", mode=0o755, uid=1, gid=2, mtime=1_767_225_600, content=b"hello\n")


def test_every_field_is_read() -> None:
    folder = Made("dir", b"5", 0o755)
    links = (Made("dir/link", b"2", 0o777, link="file"), Made("dir/hard", b"1", 0o755, link="dir/file"))
    found = read(layer_bytes([folder, FILE, *links]))
    assert found == [
        Entry("dir", Kind.DIRECTORY, 0o755, 0, 0, 0, 0, "", b""),
        Entry(
            "dir/file",
            Kind.FILE,
            0o755,
            1,
            2,
            1_767_225_600,
            6,
            "",
            hashlib.sha256(b"hello\n").digest(),
        ),
        Entry("dir/link", Kind.LINK, 0o777, 0, 0, 0, 0, "file", b""),
        Entry("dir/hard", Kind.HARD_LINK, 0o755, 0, 0, 0, 0, "dir/file", b""),
    ]


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1023, 1024, 1025, 10_000])
@pytest.mark.parametrize("piece", [1, 7, 512, 1000, 1 << 20])
def test_content_of_every_size_in_pieces_of_every_size(size: int, piece: int) -> None:
    content = bytes(n % 251 for n in range(size))
    raw = layer_bytes([Made("f", content=content), FILE])
    pieces = (raw[at : at + piece] for at in range(0, len(raw), piece))
    first, second = read_entries(pieces)
    assert (first.size, first.content) == (size, hashlib.sha256(content).digest())
    assert second == read(layer_bytes([FILE]))[0]


def test_names_split_into_two_fields() -> None:
    path = "/".join(["abcdefghi"] * 15)
    raw = bytearray(header(b"0", path[-100:].partition("/")[2].encode(), 0, Made("")))
    prefix = path[: -len(path[-100:].partition("/")[2]) - 1].encode()
    raw[345 : 345 + len(prefix)] = prefix
    raw[148:156] = b"        "
    raw[148:156] = b"%06o\0 " % sum(raw)
    (entry,) = read(bytes(raw) + bytes(1024))
    assert (entry.path, entry.odd) == (path, ())


def test_what_is_no_writers_of_ours_is_noted() -> None:
    """Python writes no device numbers, where Go writes zeros: readable, and not what BuildKit made."""
    (entry,) = read(pack_root([RootEntry("etc/x", 0o644, content=b"x")], 0)[: 3 * 512] + bytes(512))
    assert entry.odd == ("device numbers",)


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"", "cut short"),
        (bytes(512), "cut short"),
        (bytes(100), "cut short"),
        (entry_bytes(FILE), "cut short"),
        (entry_bytes(FILE)[:-512] + bytes(512), "cut short"),
        (entry_bytes(FILE)[:-1] + b"x" + bytes(1024), "between two entries"),
        (layer_bytes([FILE]) + b"x" * 512, "after the end"),
        (bytes(512) + entry_bytes(FILE), "after the end"),
        (layer_bytes([FILE]) + layer_bytes([FILE]), "after the end"),
        (header(b"5", b"dir/", 5, Made("")) + padded(b"hello") + bytes(1024), "with content"),
        (header(b"2", b"link", 5, Made("")) + padded(b"hello") + bytes(1024), "with content"),
        (header(b"g", b"x", 12, Made("")) + padded(record("path", "x")) + bytes(1024), "type"),
        (header(b"L", b"x", 1, Made("")) + padded(b"x") + bytes(1024), "type"),
        (header(b"S", b"x", 0, Made("")) + bytes(1024), "type"),
        (header(b"\0", b"x", 0, Made("")) + bytes(1024), "type"),
        (header(b"7", b"x", 0, Made("")) + bytes(1024), "type"),
        (header(b"x", b"x", 0, Made("")) + bytes(1024), "extended header of 0"),
        (header(b"x", b"x", 1 << 20, Made("")) + bytes(1 << 20), "extended header of"),
        (header(b"x", b"x", 9, Made("")) + padded(record("a", "bcde")) + bytes(1024), "after an extended"),
    ],
)
def test_a_broken_tar(raw: bytes, word: str) -> None:
    refused(raw, word)


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"3 x",
        b"99 path=x\n",
        b"9 path=x",
        b"010 path=x\n",
        b"10 path=x\n\n",
        b"9 pathx\n",
        record("path", "a") + record("path", "b"),
        record("size", "0"),
        record("path", "a\0b"),
        record("GNU.sparse.major", "1"),
    ],
)
def test_records_on_which_readers_differ(data: bytes) -> None:
    refused(header(b"x", b"x", len(data), Made("")) + padded(data) + entry_bytes(FILE) + bytes(1024), "PAX")


def test_two_extended_headers_in_a_row() -> None:
    data = record("path", "f")
    one = header(b"x", b"PaxHeaders.0/f", len(data), Made("", mode=0), device=b"") + padded(data)
    refused(one + one + entry_bytes(FILE) + bytes(1024), "two extended")


@pytest.mark.parametrize("at", [108, 116, 124, 136, 148, 257, 263])
def test_a_field_in_another_form(at: int) -> None:
    for value in (0x80, ord(" "), ord("9"), ord("-")):
        raw = bytearray(entry_bytes(FILE))
        raw[at] = value
        if at != 148:
            raw[148:156] = b"        "
            raw[148:156] = b"%06o\0 " % sum(raw[:512])
        with pytest.raises(VerifyFailed):
            read(bytes(raw) + bytes(1024))


@given(at=st.integers(0, 511), value=st.integers(1, 255))
def test_no_byte_of_a_header_changes_unnoticed(at: int, value: int) -> None:
    """With a right checksum, so as an attacker writes it: refused, odd, or another entry."""
    raw = bytearray(entry_bytes(FILE))
    before = read(bytes(raw) + bytes(1024))
    raw[at] ^= value
    if not 148 <= at < 156:
        raw[148:156] = b"        "
        raw[148:156] = b"%06o\0 " % sum(raw[:512])
    try:
        after = read(bytes(raw) + bytes(1024))
    except VerifyFailed:
        return
    assert after != before


@given(st.binary(max_size=2048))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        read(raw)
    except VerifyFailed:
        return
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        assert archive.getmembers() == []


def test_the_name_in_an_extended_header_is_the_writers() -> None:
    raw = bytearray(entry_bytes(Made("ü" * 3, content=b"x")))
    assert read(bytes(raw) + bytes(1024))[0].odd == ()
    raw[0:6] = b"hidden"
    raw[148:156] = b"        "
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    assert read(bytes(raw) + bytes(1024))[0].odd == ("another name in the extended header",)
