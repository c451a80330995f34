"""A .deb is read whole or not at all."""

from __future__ import annotations

import hashlib
import io
import lzma
from dataclasses import replace

import pytest

from images.errors import VerifyFailed
from provenance import debs
from provenance.debs import DebKind, read_control, read_data
from tests.fakes.debs import PACK, Package, ar_member

PACKAGE = Package(
    "tool",
    fields={"Depends": "libtool (>= 1), other | third"},
    files={"postinst": b"#!/bin/sh\n", "md5sums": b""},
    members=(
        ("usr/", None, 0o755),
        ("usr/bin/", None, 0o755),
        ("usr/bin/tool", b"\x7fELF", 0o755),
        ("usr/bin/alias", "tool", 0o777),
        ("etc/tool.conf", b"a = 1\n", 0o640),
    ),
    hard_links=(("usr/bin/same", "usr/bin/tool"),),
)


@pytest.mark.parametrize("pack", PACK)
def test_every_compression_reads_alike(pack: str) -> None:
    raw = io.BytesIO(replace(PACKAGE, pack=pack).to_bytes())
    control = read_control(raw, "tool")
    assert control.fields["Package"] == "tool"
    assert control.fields["Description"] == "a test\n It has two lines."
    assert control.files == {"control": PACKAGE.control(), "postinst": b"#!/bin/sh\n", "md5sums": b""}
    found = {member.path: member for member in read_data(raw, "tool")}
    assert list(found) == [
        "",
        "usr",
        "usr/bin",
        "usr/bin/tool",
        "usr/bin/alias",
        "etc/tool.conf",
        "usr/bin/same",
    ]
    assert found["usr/bin/tool"].content == hashlib.sha256(b"\x7fELF").digest()
    assert (found["usr/bin/alias"].kind, found["usr/bin/alias"].link) == (DebKind.LINK, "tool")
    assert (found["usr/bin/same"].kind, found["usr/bin/same"].link) == (DebKind.HARD_LINK, "usr/bin/tool")
    assert found["etc/tool.conf"].mode == 0o640


RAW = PACKAGE.to_bytes()
BOMB = b"!<arch>\n" + b"".join(
    (
        ar_member("debian-binary", b"2.0\n"),
        ar_member("control.tar.xz", lzma.compress(bytes(debs.MAX_CONTROL + (1 << 20)))),
        ar_member("data.tar.xz", b""),
    )
)


def second_stream(more: bytes) -> bytes:
    """The package with something behind the compressed data; only some readers go on there."""
    data = RAW[RAW.index(b"data.tar.xz") + 60 :].removesuffix(b"\n" if len(RAW) % 2 else b"")
    data = data[: data.rindex(b"YZ") + 2]
    return RAW[: RAW.index(b"data.tar.xz")] + ar_member("data.tar.xz", data + more)


class Sparing(io.BytesIO):
    """Tells whoever asks for more than it could need."""

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert 0 <= size <= 1 << 20
        return super().read(size)


def test_a_size_that_is_said_is_not_a_size_that_is_read() -> None:
    raw = RAW.replace(b"4         `\n2.0\n", b"4000000000`\n2.0\n", 1)
    assert raw != RAW
    with pytest.raises(VerifyFailed, match="a broken header"):
        read_control(Sparing(raw), "tool")
    read_control(Sparing(RAW), "tool")


def read_all(raw: bytes) -> None:
    read_control(io.BytesIO(raw), "deb:tool:amd64@1.0")
    list(read_data(io.BytesIO(raw), "deb:tool:amd64@1.0"))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no archive",
        RAW[: len(RAW) // 2],
        RAW[:-30],
        RAW.replace(b"debian-binary", b"debian-binarz", 1),
        RAW.replace(b"2.0\n", b"3.0\n", 1),
        RAW.replace(b"control.tar.xz", b"control.tar.7z", 1),
        RAW.replace(b"data.tar.xz ", b"data.tar.gz ", 1),
        BOMB,
        second_stream(lzma.compress(bytes(10240))),
        second_stream(b"tail"),
        replace(PACKAGE, members=(("../etc/passwd", b"x", 0o644),)).to_bytes(),
        replace(PACKAGE, hard_links=(("usr/x", "../../etc/passwd"),)).to_bytes(),
    ],
)
def test_what_is_no_whole_package_is_refused(raw: bytes) -> None:
    with pytest.raises(VerifyFailed, match=r"not a readable \.deb") as refused:
        read_all(raw)
    assert refused.value.where == "deb:tool:amd64@1.0"


def test_a_package_of_too_many_members_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debs, "MAX_MEMBERS", 3)
    with pytest.raises(VerifyFailed, match="too many members"):
        list(read_data(io.BytesIO(RAW), "tool"))
