"""Change archives where readers look: tar headers with a right sum, extended ones, fields of zip and ar."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from typing import Final

from tests.fuzz.mutate_bytes import change_bytes
from tests.fuzz.target import Dice, Mutate

BLOCK: Final = 512
# Of a ustar header: where a field begins, and how long it is.
_FIELDS: Final = {
    "name": (0, 100),
    "mode": (100, 8),
    "uid": (108, 8),
    "gid": (116, 8),
    "size": (124, 12),
    "mtime": (136, 12),
    "sum": (148, 8),
    "type": (156, 1),
    "link": (157, 100),
    "magic": (257, 8),
    "uname": (265, 32),
    "gname": (297, 32),
    "major": (329, 8),
    "minor": (337, 8),
    "prefix": (345, 155),
    "rest": (500, 12),
}
_NUMBERS: Final = (
    b"00000000000\0",
    b"00000000001\0",
    b"00000000777\0",
    b"77777777777\0",
    b"777777777777",
    b"-0000000001\0",
    b"+0000000001\0",
    b"           \0",
    b"0 0 0 0 0 0\0",
    b"0x000000001\0",
    b"0000000000 \0",
    b"00000000008\0",
    b"\x80" + bytes(10) + b"\x01",
    b"\x80" + b"\xff" * 11,
    b"\xff" * 12,
    b"\xff" + bytes(11),
    b"\0" * 12,
    b"1_0\0\0\0\0\0\0\0\0\0",
    "٣٣٣".encode().ljust(12, b"\0"),
)
_NAMES: Final = (
    b"",
    b"/",
    b"/etc/passwd",
    b"../x",
    b"a/../../x",
    b"./",
    b".",
    b"..",
    b"a//b",
    b"a\\b",
    b"a\nb",
    b"a\0b",
    b"\xff\xfe",
    b"x" * 100,
    b"package/package.json",
    b"./control",
    b"result.json",
    b".wh.x",
    b".wh..wh..opq",
    "é".encode(),
    "e\u0301".encode(),
)
_TYPES: Final = b"0\x001234567xgLKSMDVNXA\xff"
_RECORDS: Final = (
    b"path=../x\n",
    b"path=\n",
    b"path=a\0b\n",
    b"size=0\n",
    b"size=-1\n",
    b"size=99999999999999999999\n",
    b"size=1.5\n",
    b"linkpath=/etc/passwd\n",
    b"mtime=nan\n",
    b"mtime=1e400\n",
    b"uid=99999999999999999999\n",
    b"GNU.sparse.major=1\n",
    b"GNU.sparse.size=9\n",
    b"GNU.sparse.map=0,1,x\n",
    b"GNU.sparse.name=x\n",
    b"SCHILY.xattr.security.capability=\1\0\n",
    b"hdrcharset=BINARY\n",
    b"\xff\xfe=x\n",
    b"x=\xff\n",
    b"=\n",
)


def headers(data: bytes) -> list[int]:
    """Where headers with a right sum begin."""
    return [
        at
        for at in range(0, len(data) - BLOCK + 1, BLOCK)
        if data[at + 257 : at + 262] == b"ustar"
        and _digits(data[at + 148 : at + 154]) == _sum(data[at : at + BLOCK])
    ]


def _digits(field: bytes) -> int:
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return -1


def _sum(header: bytes) -> int:
    return sum(header) - sum(header[148:156]) + 8 * 32


def with_sum(header: bytes) -> bytes:
    """The header with the sum that it should have."""
    return header[:148] + b"%06o\0 " % (_sum(header) & 0o777777) + header[156:]


def extended(kind: bytes, data: bytes, like: bytes) -> bytes:
    """A header of this kind over these bytes, otherwise like another one."""
    raw = bytearray(like)
    raw[124:136] = b"%011o\0" % len(data)
    raw[156:157] = kind
    return with_sum(bytes(raw)) + data + bytes(-len(data) % BLOCK)


def record(dice: Dice) -> bytes:
    """A PAX record, mostly with its right length."""
    text = dice.choice(_RECORDS)
    size = len(text) + 1
    while len(b"%d " % size) + len(text) != size:
        size = len(b"%d " % size) + len(text)
    if dice.random() < 0.15:
        size = dice.choice((0, 1, size - 1, size + 1, 10**6, 10**30))
    return b"%d " % size + text


def change_tar(dice: Dice, data: bytes) -> bytes:
    """One change at a header, or of the order of members."""
    found = headers(data)
    if not found or dice.random() < 0.1:
        return change_bytes(dice, data)
    at = dice.choice(found)
    header = data[at : at + BLOCK]
    way = dice.randrange(8)
    if way <= 3:
        return data[:at] + _change_header(dice, header) + data[at + BLOCK :]
    if way == 4:
        kind = dice.choice((b"x", b"x", b"g", b"X", b"L", b"K"))
        inside = (
            b"".join(record(dice) for _ in range(dice.choice((1, 1, 2))))
            if kind in b"xgX"
            else dice.choice(_NAMES)
        )
        return data[:at] + extended(kind, inside, header) * dice.choice((1, 1, 1, 2, 12)) + data[at:]
    if way == 5:  # a member once more, elsewhere
        end = next((one for one in found if one > at), len(data))
        other = dice.choice(found)
        return data[:other] + data[at:end] + data[other:]
    if way == 6:
        return data[:at] + bytes(BLOCK * dice.choice((1, 2))) + data[at:]
    return data[:at] + data[at + BLOCK * dice.choice((1, 1, 2)) :]


def _change_header(dice: Dice, header: bytes) -> bytes:
    name = dice.choice(list(_FIELDS))
    at, size = _FIELDS[name]
    if name in ("name", "link", "prefix", "uname", "gname"):
        value = dice.choice(_NAMES)
    elif name == "type":
        value = bytes([dice.choice(_TYPES)])
    elif name == "magic":
        value = dice.choice((b"ustar  \0", b"ustar\x0000", b"\0" * 8, b"ustar\x0001"))
    elif name == "rest":
        value = b"x" * 12
    else:
        number = dice.choice(_NUMBERS)
        value = number if size == 12 else number[-size:]
    new = header[:at] + value[:size].ljust(size, b"\0") + header[at + size :]
    return new if name == "sum" or dice.random() < 0.05 else with_sum(new)


def mutate_tar(dice: Dice, seeds: Sequence[bytes]) -> bytes:
    """A plain tar."""
    data = dice.choice(seeds)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        data = change_tar(dice, data)
    return data


def mutate_tar_gzip(dice: Dice, seeds: Sequence[bytes]) -> bytes:
    """A compressed tar: mostly the tar inside."""
    data = dice.choice(seeds)
    if dice.random() < 0.15:
        return change_bytes(dice, data)
    inner = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        inner = change_tar(dice, inner)
    return gzip.compress(inner, compresslevel=1, mtime=0)


_EOCD: Final = struct.Struct("<4s4H2IH")
_SHORT: Final = (0, 1, 2, 0xFFFF, 0x800, 0x41, 99, 8)
_LONG: Final = (0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 100)


def mutate_zip(dice: Dice, seeds: Sequence[bytes]) -> bytes:
    """A zip: fields of the end, of an entry of its directory, of a local header; names in both places."""
    data = dice.choice(seeds)
    for _ in range(dice.choice((1, 1, 2, 3))):
        way = dice.randrange(6)
        if way == 0:
            data = change_bytes(dice, data)
            continue
        mark = dice.choice((b"PK\5\6", b"PK\1\2", b"PK\1\2", b"PK\3\4"))
        places = [at for at in range(len(data) - 4) if data[at : at + 4] == mark]
        if not places:
            continue
        at = dice.choice(places)
        if way == 1:  # a name of as many letters, everywhere
            size_at = at + (28 if mark == b"PK\1\2" else 26)
            begin = at + (46 if mark == b"PK\1\2" else 30)
            size = int.from_bytes(data[size_at : size_at + 2], "little")
            old = data[begin : begin + size]
            if mark != b"PK\5\6" and old:
                new = dice.choice((b"../", b"/", b"a\\", b"\0", "é".encode(), b"\xff", b".", b"A"))
                new = (new + old[len(new) :])[: len(old)]
                data = (
                    data.replace(old, new)
                    if dice.random() < 0.7
                    else data[:begin] + new + data[begin + size :]
                )
            continue
        size = dice.choice((2, 2, 4))
        field = at + 4 + 2 * dice.randrange(20 if mark == b"PK\1\2" else 13 if mark == b"PK\3\4" else 9)
        number = dice.choice(_SHORT if size == 2 else _LONG)
        if dice.random() < 0.3:
            number = (int.from_bytes(data[field : field + size], "little") + dice.choice((-1, 1))) % (
                1 << 8 * size
            )
        data = data[:field] + number.to_bytes(size, "little") + data[field + size :]
    return data


def deb_mutator(pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes], suffix: str) -> Mutate:
    """A .deb whose two tars are compressed in this way: the ar around, or a tar inside."""

    def mutate(dice: Dice, seeds: Sequence[bytes]) -> bytes:
        data = dice.choice(seeds)
        if dice.random() < 0.3:
            return _change_ar(dice, data)
        parts = _ar_members(data)
        number = dice.choice((1, 2))
        header, content = parts[number]
        try:
            inner = unpack(content) if suffix else content
        except Exception:  # noqa: BLE001  (an earlier change broke it)
            return change_bytes(dice, data)
        for _ in range(dice.choice((1, 1, 2))):
            inner = change_tar(dice, inner)
        packed = pack(inner)
        parts[number] = (header[:48] + f"{len(packed):<10}".encode() + header[58:], packed)
        return data[:8] + b"".join(head + body + b"\n" * (len(body) % 2) for head, body in parts)

    return mutate


def _ar_members(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at + 60 <= len(data):
        header = data[at : at + 60]
        size = int(header[48:58])
        found.append((header, data[at + 60 : at + 60 + size]))
        at += 60 + size + size % 2
    return found


def _change_ar(dice: Dice, data: bytes) -> bytes:
    places = [at for at in range(8, len(data) - 60) if data[at + 58 : at + 60] == b"`\n"]
    if not places or dice.random() < 0.3:
        return change_bytes(dice, data)
    at = dice.choice(places)
    begin, size = dice.choice(((0, 16), (16, 12), (28, 6), (34, 6), (40, 8), (48, 10), (48, 10)))
    value = dice.choice(
        (
            b"0",
            b"-1",
            b"9999999999",
            b"1",
            b"",
            b"0x1",
            b"/",
            b"//",
            b"control.tar",
            b"data.tar.bz2",
            b"data.tar.gz",
        )
    )
    return data[: at + begin] + value[:size].ljust(size) + data[at + begin + size :]
