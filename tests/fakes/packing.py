"""Every way to put bytes into an archive or a compressed file that the scanner opens."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable

import zstandard

from tests.fakes.credentials import Entry, make_tar

Pack = Callable[[bytes], bytes]


def zipped(data: bytes, name: str = "inner.txt", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def ar(*members: tuple[bytes, bytes]) -> bytes:
    out = b"!<arch>\n"
    for name, data in members:
        out += b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (name, 0, 0, 0, 0o644, len(data))
        out += data + b"\n" * (len(data) % 2)
    return out


def deb(data: bytes) -> bytes:
    packed = lzma.compress(make_tar([Entry("./usr/share/doc/x", data)]))
    return ar(
        (b"debian-binary", b"2.0\n"),
        (b"control.tar.xz", lzma.compress(make_tar([]))),
        (b"data.tar.xz", packed),
    )


def zstd_of(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKS: dict[str, tuple[str, Pack]] = {
    "gzip": ("usr/share/man/a.1.gz", lambda data: gzip.compress(data, mtime=0)),
    "gzip-twice": ("a.gz", lambda data: gzip.compress(b"first") + gzip.compress(data)),
    "xz": ("a.xz", lzma.compress),
    "lzma": ("a.lzma", lambda data: lzma.compress(data, lzma.FORMAT_ALONE)),
    "bzip2": ("a.bz2", bz2.compress),
    "zstd": ("a.zst", zstd_of),
    "zip": ("a.zip", zipped),
    "zip-stored": ("a.jar", lambda data: zipped(data, method=zipfile.ZIP_STORED)),
    "zip-bzip2": ("a.whl", lambda data: zipped(data, method=zipfile.ZIP_BZIP2)),
    "git-object": ("r/.git/objects/ab/" + "c" * 38, lambda data: zlib.compress(b"blob 9\0" + data)),
    "tgz": ("p.tgz", lambda data: gzip.compress(make_tar([Entry("package/index.js", data)]))),
    "deb": ("var/cache/x.deb", deb),
    "zip-in-tar": ("b.tar", lambda data: make_tar([Entry("in/x.zip", zipped(data))])),
    "four-deep": (
        "b.tar",
        lambda data: make_tar([Entry("x.zip", zipped(gzip.compress(bz2.compress(data))))]),
    ),
}
