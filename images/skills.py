"""A Skill as one deterministic archive: path, content and the executable bit, nothing of its checkout."""

from __future__ import annotations

import io
import struct
import tarfile
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from images.lock import SkillFile

MAX_FILES: Final = 1000
MAX_FILE_BYTES: Final = 4 << 20
MAX_SKILL_BYTES: Final = 32 << 20
MAX_PATH: Final = 240  # bytes
MAX_DEPTH: Final = 12
REQUIRED: Final = "SKILL.md"
SKILL_REGISTRY: Final = "local"  # the alias of what came from beside builder.toml
_TOP: Final = "skill"
_BLOCK: Final = 0xFFFF


def path_problem(path: str) -> str | None:
    """What is wrong with a path below a Skill; None when nothing is."""
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    parts = path.split("/")
    if not path.isprintable() or "\\" in path:
        return "has a character that is not plain text"
    if any(part in ("", ".", "..") for part in parts):
        return "is no plain path"
    if len(raw) > MAX_PATH or len(parts) > MAX_DEPTH:
        return f"is longer than {MAX_PATH} bytes or deeper than {MAX_DEPTH} directories"
    return None


def collision(paths: Iterable[str]) -> tuple[str, str] | None:
    """Two paths, or directories of them, that are one on a file system that folds letter case or accents."""
    seen: dict[str, str] = {}
    for path in paths:
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            here = "/".join(parts[:count])
            folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", here).casefold())
            known = seen.setdefault(folded, here)
            if known != here:
                return known, here
    return None


def pack_skill(files: Sequence[tuple[SkillFile, bytes]]) -> bytes:
    """The archive: one top directory as npm tarballs have it, sorted, numeric owners, no time.

    It is gzip with stored blocks: its bytes depend on no version of a compressor, and it is unpacked, hashed
    and audited by the code that does so for every other artifact.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
        for file, content in sorted(files, key=lambda pair: pair[0].path.encode()):
            member = tarfile.TarInfo(f"{_TOP}/{file.path}")
            member.mode = 0o755 if file.executable else 0o644
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return _stored(out.getvalue())


def _stored(raw: bytes) -> bytes:
    """RFC 1952 around stored blocks of RFC 1951; ``raw`` is not empty."""
    parts = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff"]
    for start in range(0, len(raw), _BLOCK):
        block = raw[start : start + _BLOCK]
        last = start + _BLOCK >= len(raw)
        parts += [struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF), block]
    parts.append(struct.pack("<II", zlib.crc32(raw), len(raw) & 0xFFFFFFFF))
    return b"".join(parts)
