"""What an image holds at each path: layers merged as engines merge them, and a tar of all of it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.errors import VerifyFailed
from images.oci import MEDIA_LAYER_TAR, OciImage
from provenance.file_tree import FileTree, Node, image_tree, packed_tree
from provenance.layout import open_image
from tests.fakes import layouts

SHA_A = "559aead08264d5795d3909718cdd05abd49572e84fe55590eef31a88a08fdffd"  # of "A"


Entry = tuple[tarfile.TarInfo, bytes]


def entry(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **more: object) -> Entry:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, len(content)
    for key, value in more.items():
        setattr(member, key, value)
    return member, content


def tar(*entries: Entry) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for member, content in entries:
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def image_of(folder: Path, monkeypatch: pytest.MonkeyPatch, *layers: bytes) -> OciImage:
    tars: Iterator[bytes] = iter(layers)
    monkeypatch.setattr(layouts, "tar_of", lambda _: next(tars))
    digest = layouts.make_image(folder, ({},) * len(layers), media_type=MEDIA_LAYER_TAR)
    return open_image(folder, digest)


Merge = Callable[..., FileTree]


@pytest.fixture
def merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Merge:
    def merge(*layers: bytes) -> FileTree:
        return image_tree(image_of(tmp_path / "layout", monkeypatch, *layers))

    return merge


def test_a_node_is_all_that_a_reader_could_notice(merged: Merge) -> None:
    found = merged(
        tar(
            entry("a/", tarfile.DIRTYPE, mode=0o1777, uid=3, gid=4),
            entry("./a/file", content=b"A", mode=0o4755),
            entry("a/hard", tarfile.LNKTYPE, linkname="a/file"),
            entry("a/soft", tarfile.SYMTYPE, linkname="../b", mode=0o777),
            entry("a/tty", tarfile.CHRTYPE, devmajor=5, devminor=1),
            entry("deep/er/file"),
        )
    )
    assert found["a"] == Node("directory", 0o1777, 3, 4)
    assert found["a/file"] == found["a/hard"] == Node("file", 0o4755, 0, 0, size=1, content=SHA_A)
    assert found["a/soft"] == Node("symbolic link", 0o777, 0, 0, link="../b")
    assert (found["a/tty"].kind, found["a/tty"].link) == ("character device", "5:1")
    assert found["deep"] == found["deep/er"] == Node("directory", 0o755, 0, 0)
    assert len(found) == 8


@pytest.mark.parametrize("late", [False, True])
def test_what_a_layer_calls_gone_is_gone_of_those_below_alone(merged: Merge, late: bool) -> None:
    below = tar(entry("a/x", content=b"1"), entry("a/y/z"), entry("b/one"), entry("b/two"), entry("c"))
    signs = [
        entry("a/.wh.x"),
        entry("a/.wh.y"),
        entry("b/.wh..wh..opq"),
        entry(".wh.c"),
        entry(".wh.nothing"),
    ]
    anew = [entry("a/x", content=b"A"), entry("b/three"), entry("c/", tarfile.DIRTYPE), entry("c/d")]
    found = merged(below, tar(*((*anew, *signs) if late else (*signs, *anew))))
    assert set(found) == {"a", "a/x", "b", "b/three", "c", "c/d"}
    assert found["a/x"].content == SHA_A
    assert found["c"].kind == "directory"


def test_a_file_in_the_place_of_a_directory_takes_all_below_it(merged: Merge) -> None:
    found = merged(tar(entry("a/b/c"), entry("ab")), tar(entry("a", content=b"A")))
    assert set(found) == {"a", "ab"}
    assert merged(tar(entry("a/b")), tar(entry("a/", tarfile.DIRTYPE, mode=0o700))).keys() == {"a", "a/b"}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ((entry("a"), entry("a")), "two entries"),
        ((entry("a/../../b"),), "'..'"),
        ((entry("a", tarfile.LNKTYPE, linkname="nowhere"),), "hard link to no file"),
        ((entry("d/", tarfile.DIRTYPE), entry("a", tarfile.LNKTYPE, linkname="d")), "hard link to no file"),
        ((entry("./"),), "root that is no directory"),
        ((entry("a", b"Z"),), "not a readable tar|unknown type"),
    ],
)
def test_a_tar_that_could_be_read_in_two_ways_is_refused(entries: tuple[Entry, ...], said: str) -> None:
    with pytest.raises(VerifyFailed, match=said):
        packed_tree(io.BytesIO(tar(*entries)), "here")


def test_a_packed_name_of_a_whiteout_is_a_file(tmp_path: Path) -> None:
    found = packed_tree(io.BytesIO(tar(entry("a"), entry(".wh.a"))), "here")
    assert set(found) == {"a", ".wh.a"}


def test_no_cut_tar_is_taken_for_whole() -> None:
    whole = tar(entry("a", content=b"A" * 3000), entry("b"))
    for length in (1, 511, 513, 2000, 3583):
        with pytest.raises(VerifyFailed, match="not a readable tar"):
            packed_tree(io.BytesIO(whole[:length]), "here")
