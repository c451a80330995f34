"""The index of an artifact: what a tar of any usual format holds, each file once, and nothing unreadable."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.errors import StateError
from images.lock import Artifact
from provenance.audit.members import Member, index_artifact
from tests.fakes.locks import npm

ARTIFACT = npm("chalk", "5.6.2")
FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def index(raw: bytes) -> tuple[Member, ...]:
    @contextmanager
    def open_artifact(_: Artifact) -> Iterator[BinaryIO]:
        with io.BytesIO(raw) as file:
            yield file

    return index_artifact(ARTIFACT, open_artifact)


def packed(*members: tuple[tarfile.TarInfo, bytes], how: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=how) as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def file(name: str, mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.mode, made.type, made.linkname = mode, kind, link
    return made


def wanted(path: str, content: bytes, executable: bool = False) -> Member:
    return Member(path, executable, hashlib.sha256(content).digest())


@pytest.mark.parametrize("how", FORMATS)
def test_files_and_directories_below_the_one_top(how: int) -> None:
    raw = packed(
        (file("package", 0o755, tarfile.DIRTYPE), b""),
        (file("package/lib", 0o755, tarfile.DIRTYPE), b""),
        (file("package/lib/./run", 0o744), b"run"),
        (file("package//empty"), b""),
        (file("top-level"), b"x"),
        how=how,
    )
    assert index(raw) == (Member("lib", False, b""), wanted("lib/run", b"run", True), wanted("empty", b""))


@pytest.mark.parametrize("how", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names(how: int) -> None:
    names = ("a" * 300, "/".join(["bcdefghi"] * 25), "grüße/日本語")
    raw = packed(*((file(f"package/{name}"), name.encode()) for name in names), how=how)
    assert index(raw) == tuple(wanted(name, name.encode()) for name in names)


def test_links_and_special_files_are_left_out() -> None:
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    raw = packed(*((file(f"package/{n}", kind=kind, link="x"), b"") for n, kind in enumerate(kinds)))
    assert index(raw) == ()


def test_of_one_name_twice_the_later_counts() -> None:
    raw = packed((file("package/a"), b"1"), (file("package/b"), b"2"), (file("package/a", 0o755), b"3"))
    assert index(raw) == (wanted("b", b"2"), wanted("a", b"3", True))


def test_a_global_header_changes_nothing() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "x"}) as tar:
        tar.addfile(file("package/a"), io.BytesIO())
    assert index(gzip.compress(out.getvalue())) == (wanted("a", b""),)


def test_a_tar_without_its_end() -> None:
    """GNU tar takes it, so the build does."""
    raw = gzip.decompress(packed((file("package/a"), b"x")))[:1024]
    assert index(gzip.compress(raw)) == (wanted("a", b"x"),)


@pytest.mark.parametrize(
    "raw",
    [
        b"no gzip",
        gzip.compress(b"no tar" * 1000),
        packed((file("package/a"), b"x" * 5000))[:-40],
        gzip.compress(gzip.decompress(packed((file("package/a"), b"x" * 5000)))[:1000]),
        packed((file("package/a", kind=b"S"), b"")),
        packed((file("package/a", kind=b"Z"), b"")),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_name(raw: bytes) -> None:
    with pytest.raises(StateError, match=ARTIFACT.id):
        index(raw)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=30)
PATHS = st.lists(NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=8)


@given(
    st.dictionaries(PATHS.map("/".join), st.binary(max_size=2000), max_size=8), st.sampled_from(FORMATS[1:])
)
def test_it_reads_what_the_library_reads(files: dict[str, bytes], how: int) -> None:
    raw = packed(*((file(f"package/{path}"), content) for path, content in files.items()), how=how)
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        theirs = {
            member.name.partition("/")[2]: hashlib.sha256(content.read()).digest()
            for member in tar
            if (content := tar.extractfile(member))
        }
    assert {member.path: member.content for member in index(raw)} == theirs
