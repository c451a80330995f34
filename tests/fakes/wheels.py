"""Wheels made on the spot: a zip with the metadata that a package has, and whatever a test puts beside it."""

from __future__ import annotations

import io
import zipfile
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
    odd: tuple[Odd, ...] = (),
    without: tuple[str, ...] = (),
) -> bytes:
    """The bytes of a wheel; ``files`` by path in it, ``without``: metadata that is left out."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {one}\n" for one in requires]
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
