"""Tars on which readers differ, or that cost whoever reads them: each must be refused by every reader."""

from __future__ import annotations

import tarfile
from typing import Final

_BLOCK: Final = 512
END: Final = bytes(2 * _BLOCK)


def block(name: str, *, kind: bytes = b"0", size: bytes = b"00000000000\0", mtime: bytes = b"") -> bytes:
    """A header with fields as they are given."""
    member = tarfile.TarInfo(name)
    member.type = kind
    raw = bytearray(member.tobuf(tarfile.USTAR_FORMAT))
    raw[124:136] = size
    if mtime:
        raw[136:148] = mtime
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def extended(kind: bytes, data: bytes) -> bytes:
    """A header that says more about the next one."""
    return block("PaxHeaders/x", kind=kind, size=b"%011o\0" % len(data)) + data + bytes(-len(data) % _BLOCK)


_FILE: Final = block("package/file")
_COMMENT: Final = b"20 comment=aaaaaaaa\n"

# After a first good member, so that no reader can call it "no tar".
HOSTILE: Final = {
    "a header with a wrong sum": _FILE + b"x" * _BLOCK + END,
    "a number that old GNU writers wrote": _FILE + block("package/b", mtime=b"+AAAAAAAAAA\0") + END,
    "a header that is cut": _FILE + _FILE[:100],
    "a sparse member": _FILE + block("package/s", kind=b"S") + END,
    "a sparse member by its records": _FILE
    + extended(b"x", b"22 GNU.sparse.size=99\n")
    + block("package/s")
    + END,
    "a negative size by its records": _FILE + extended(b"x", b"12 size=-99\n") + block("package/s") + END,
    "a negative size": _FILE + block("package/d", kind=b"5", size=b"-0000000001\0") + END,
    "a record of a length beyond all numbers": _FILE
    + extended(b"x", b"1000000000000000000000000000000 a=b\n")
    + _FILE
    + END,
    "a size of more bytes than there are": _FILE + block("package/b", size=b"\x80" + b"\xff" * 11) + END,
    "a size of some terabytes": _FILE + block("package/b", size=b"\x80\0\0\0\0\x10" + bytes(6)) + END,
    "a record that ends elsewhere than it says": _FILE
    + extended(b"x", b"12 path=abcX11 path=ab\n")
    + _FILE
    + END,
    "a size by its records that is no number": _FILE
    + extended(b"x", b"12 size=nan\n")
    + block("package/b")
    + END,
    "a record of no length": _FILE + extended(b"x", b"0 a=b\n") + _FILE + END,
    "long records": _FILE + extended(b"x", bytes(1 << 21)) + _FILE + END,
    "a long name": _FILE + extended(b"L", b"a" * (1 << 21)) + _FILE + END,
    "records upon records": _FILE + extended(b"g", _COMMENT) * 2000 + _FILE + END,
    "names upon names": _FILE + extended(b"L", b"abc\0") * 2000 + _FILE + END,
}
# An audit looks at no times, and follows extended headers without recursion: it reads these like any other.
HARMLESS_FOR_AUDIT: Final = frozenset(
    {"a number that old GNU writers wrote", "records upon records", "names upon names"}
)
