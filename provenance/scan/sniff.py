"""Tell by its first bytes what a file is: an archive or compressed member, or a layer."""

from __future__ import annotations

import re
from typing import Final

SNIFF_BYTES: Final = 265
_MAGIC: Final = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"!<arch>\ndebian-binary", "deb"),
    (b"\xed\xab\xee\xdb", "rpm"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"hsqs", "squashfs"),
    (b"PACK\x00\x00\x00", "git-pack"),
)
_FIRST_BYTES: Final = frozenset(magic[:1] for magic, _ in _MAGIC)
# What two or three bytes alone would find in many files that are something else.
_LONGER_MAGIC: Final = (
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)", re.DOTALL), "bzip2"),
    (re.compile(rb"\x5d\x00\x00.{2}(?:\xff{8}|.{5}\x00{3})", re.DOTALL), "lzma"),
)
_ZIP_END: Final = b"PK\x05\x06"
_GIT_OBJECT: Final = re.compile(r"(?:^|/)objects/[0-9a-f]{2}/[0-9a-f]{38,62}$")


def nested_format(path: str, head: bytes) -> str:
    """The format of an archive or compressed member, by content and never by name; empty for anything else.

    A git object has no magic but zlib's, so its place in an object store decides with it.
    """
    if head[:1] in _FIRST_BYTES:
        for magic, name in _MAGIC:
            if head.startswith(magic):
                return name
    if head[:1] in b"B\x5d":
        for pattern, name in _LONGER_MAGIC:
            if pattern.match(head):
                return name
    if is_tar(head):
        return "tar"
    if head[:1] == b"\x78" and _GIT_OBJECT.search(path):
        return "git-object"
    return ""


def ends_as_zip(tail: bytes) -> bool:
    """The last 22 bytes are the end of a zip: programs and scripts with an archive behind them."""
    return tail[:4] == _ZIP_END and tail[20:22] == b"\0\0"


def is_tar(head: bytes) -> bool:
    """A POSIX or GNU tar header."""
    return head[257:262] == b"ustar"
