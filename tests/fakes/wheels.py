"""Wheels made on the spot: a zip with the metadata that a package has, and whatever a test puts beside it."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

Content = bytes | tuple[bytes, int]  # bytes; with a mode where it is not 0644


@dataclass(frozen=True)
class Odd:
    """One member as no honest tool writes it."""

    info: zipfile.ZipInfo
    content: bytes = b""


def make_wheel(
    name: str,
    version: str,
    files: Mapping[str, Content],
    *,
    requires: tuple[str, ...] = (),
    entry_points: str = "",
    licence: str = "",
    odd: tuple[Odd, ...] = (),
    without: tuple[str, ...] = (),
) -> bytes:
    """The bytes of a wheel; ``files`` by path in it; ``licence``: a line; ``without``: metadata left out."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {one}\n" for one in requires]
    metadata += [f"{licence}\n"] if licence else []
    members: dict[str, Content] = {
        **files,
        f"{info}/METADATA": "".join(metadata).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    if entry_points:
        members[f"{info}/entry_points.txt"] = entry_points.encode()
    for part in without:
        del members[f"{info}/{part}"]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, given in members.items():
            content, mode = given if isinstance(given, tuple) else (given, 0o644)
            member = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            member.external_attr = (0o100000 | mode) << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
        for one in odd:
            archive.writestr(one.info, one.content)
    return out.getvalue()


def shadowed(raw: bytes, path: str, content: bytes) -> bytes:
    """Two directories: readers of the 64 bit form see ``raw``'s members, all others just this one."""
    length, start = struct.unpack("<II", raw[-10:-2])
    directory, count = raw[start : start + length], struct.unpack("<H", raw[-12:-10])[0]
    name, sums = path.encode(), (zlib.crc32(content), len(content), len(content))
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, *sums, len(name), 0) + name + content
    begin = start + len(local)
    inside = begin + 46 + len(name)  # the other directory is the comment of the one entry
    large = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, inside)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, inside + length, 1)
    comment = directory + large + locator
    fields = (*sums, len(name), 0, len(comment), 0, 0, 0o100644 << 16, start)
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 788, 20, 0, 0, 0, 33, *fields) + name + comment
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(entry), begin, 0)
    return raw[:start] + local + entry + end
