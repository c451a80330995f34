"""The tar walk: the same members whatever the pieces, and an admission wherever readers may differ."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provenance.scan.tarwalk import Member, MemberKind, TarWalker, Unreadable, clean_name
from tests.fakes.credentials import Entry, make_tar

FORMATS = [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]


class Walked:
    """Everything that a walk called back."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.members: list[Member] = []
        self.contents: dict[str, bytes] = {}
        self.texts: list[bytes] = []
        self.finished: list[str] = []
        walker = TarWalker(self._member, self._content, lambda _header, text: self.texts.append(text))
        for piece in pieces:
            walker.feed(memoryview(piece))
        walker.finish()
        self.ended = walker.ended

    def _member(self, member: Member) -> bool:
        self.members.append(member)
        return member.kind in (MemberKind.FILE, MemberKind.OTHER)

    def _content(self, member: Member, piece: memoryview, last: bool) -> None:
        self.contents[member.name] = self.contents.get(member.name, b"") + bytes(piece)
        if last:
            self.finished.append(member.name)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


names = st.text("abc/.é", min_size=1, max_size=140).filter(lambda name: clean_name(name) != "")


@settings(max_examples=60, deadline=None)
@given(
    files=st.dictionaries(names, st.binary(max_size=1500), max_size=6),
    size=st.sampled_from([1, 7, 100, 511, 512, 513, 4096, 100_000]),
    form=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
)
def test_any_cut_gives_what_the_standard_library_reads(files: dict[str, bytes], size: int, form: int) -> None:
    raw = make_tar([Entry(name, content) for name, content in files.items()], format=form)
    walked = Walked(cut(raw, size))
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        expected = [(clean_name(member.name), member.size, member.offset_data) for member in tar]
    assert [(member.name, member.size, member.start) for member in walked.members] == expected
    assert sorted(walked.finished) == sorted(clean_name(name) for name in files)
    assert walked.ended


@pytest.mark.parametrize("form", FORMATS)
def test_long_names_and_links_are_whole(form: int) -> None:
    path, link = "d" * 90 + "/" + "f" * 90, "t" * 90
    walked = Walked([make_tar([Entry(path, b"x"), Entry("l", kind=tarfile.SYMTYPE, link=link)], format=form)])
    assert [member.name for member in walked.members] == [path, "l"]
    assert walked.members[1].link == link
    assert walked.members[1].kind is MemberKind.SYMLINK
    assert walked.texts == ([path.encode()] if form == tarfile.USTAR_FORMAT else [])


def header(name: str = "f", size: int = 0, kind: bytes = b"0") -> bytearray:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return bytearray(info.tobuf(tarfile.USTAR_FORMAT))


def sealed(raw: bytearray) -> bytes:
    """With the check sum that its bytes now call for."""
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def test_a_size_in_base_256_is_read() -> None:
    raw = header()
    raw[124:136] = b"\x80" + (3).to_bytes(11, "big")
    walked = Walked([sealed(raw), b"abc".ljust(512, b"\0"), bytes(1024)])
    assert walked.contents == {"f": b"abc"}


END = bytes(1024)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([bytes(header(size=5)), b"ab"], "ends inside a member"),
        ([bytes(header())[:300]], "ends inside a header"),
        ([b"no tar at all".ljust(1024)], "no tar header"),
        ([b""], "empty"),
        ([bytes(512), bytes(header()), END], "single zero block"),
        ([sealed(header(kind=b"S")), END], "sparse"),
        ([sealed(header(kind=b"!")), END], "unknown type"),
        ([sealed(header(size=5, kind=b"2")), b"hello".ljust(512), END], "readers differ"),
        ([sealed(header(size=2 << 20, kind=b"x"))], "extended header of"),
        ([sealed(header(size=9, kind=b"x")), b"broken!!!".ljust(512, b"\0"), END], "PAX record"),
        ([sealed(header(size=9, kind=b"g")), b"9 path=a\n".ljust(512, b"\0"), END], "readers differ"),
        ([sealed(header(size=9, kind=b"x")), b"9 size=x\n".ljust(512, b"\0"), END], "no number"),
        ([sealed(header(size=9, kind=b"x")), b"9 path=a\n".ljust(512, b"\0"), END], "without its member"),
        (
            [
                sealed(header(size=18, kind=b"x")),
                b"9 path=a\n9 path=b\n".ljust(512, b"\0"),
                bytes(header()),
                END,
            ],
            "two names",
        ),
        ([sealed(header(size=9, kind=b"x")), b"9 path=\0\n".ljust(512, b"\0"), bytes(header()), END], "NUL"),
        ([sealed(header(size=20, kind=b"x")), b"20 GNU.sparse.map=0\n".ljust(512, b"\0"), END], "sparse"),
    ],
)
def test_what_readers_may_differ_on_is_admitted(pieces: list[bytes], words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        Walked(pieces)
    with pytest.raises(Unreadable, match=words):
        Walked(cut(b"".join(pieces), 100))


def test_a_wrong_check_sum_is_no_header() -> None:
    raw = header()
    raw[0] ^= 1
    with pytest.raises(Unreadable, match="no tar header"):
        Walked([bytes(raw), END])


def test_members_after_the_end_are_still_seen() -> None:
    raw = make_tar([Entry("a", b"1")]) + make_tar([Entry("root/.netrc", b"2")])
    assert [member.name for member in Walked(cut(raw, 1000)).members] == ["a", "root/.netrc"]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=3000), st.integers(1, 3000))
def test_any_bytes_end_in_members_or_in_an_admission(data: bytes, size: int) -> None:
    good = make_tar([Entry("a", b"x" * 700), Entry("b", b"y")])
    with suppress(Unreadable):
        Walked(cut(good[: len(data)] + data, size))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("./a/b", "a/b"),
        ("/a//b/", "a/b"),
        ("a/./b", "a/b"),
        ("../a", "a"),
        ("a/x/../b", "a/b"),
        ("a/..", ""),
        ("./", ""),
    ],
)
def test_names_are_compared_without_ornament(name: str, expected: str) -> None:
    assert clean_name(name) == expected
