"""One export as one stream: a line with two sizes, the manifest, the pack, and nothing after it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from backend.workspace.export_manifest import FORMAT, MAX_MANIFEST
from backend.workspace.refusals import CandidateReason, CandidateRefused

FRAME_OVERHEAD: Final = 128 + MAX_MANIFEST  # most bytes of an export beside its pack
_HEADER: Final = re.compile(rf"{FORMAT} 1 (0|[1-9][0-9]{{0,7}}) (0|[1-9][0-9]{{0,14}})\n".encode())
_HEADER_BYTES: Final = 128
_CHUNK: Final = 1 << 16
_PACK_HEADER: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """An export whose sizes add up. ``objects``: what the pack's own header says; 0 without a pack."""

    file: Path
    manifest: bytes
    pack_at: int
    pack_size: int
    pack_sha256: str
    objects: int

    def pack(self) -> Iterator[bytes]:
        """The pack's bytes, in chunks."""
        with self.file.open("rb") as file:
            file.seek(self.pack_at)
            while chunk := file.read(_CHUNK):
                yield chunk


def read_frame(file: Path, max_pack: int) -> Frame:
    """Read the stream that an export left in ``file``, which is ours. Raises CandidateRefused."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags), "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            _refuse("not a regular file")
        line = opened.readline(_HEADER_BYTES)
        header = _HEADER.fullmatch(line)
        if not header:
            _refuse("does not start with the line of an export")
        manifest_size, pack_size = int(header[1]), int(header[2])
        if manifest_size > MAX_MANIFEST:
            _refuse(f"a manifest of {manifest_size} bytes; at most {MAX_MANIFEST} are read")
        if pack_size > max_pack:
            raise CandidateRefused(
                CandidateReason.TOO_LARGE, f"a pack of {pack_size} bytes; at most {max_pack} are taken"
            )
        start = len(line) + manifest_size
        if status.st_size != start + pack_size:
            _refuse(f"{status.st_size} bytes, where its first line says {start + pack_size}")
        manifest = opened.read(manifest_size)
        objects = _objects(opened, pack_size)
        opened.seek(start)
        return Frame(
            file=file,
            manifest=manifest,
            pack_at=start,
            pack_size=pack_size,
            pack_sha256=hashlib.file_digest(opened, "sha256").hexdigest(),
            objects=objects,
        )


def _objects(opened: BinaryIO, pack_size: int) -> int:
    if not pack_size:
        return 0
    header = opened.read(_PACK_HEADER)
    if len(header) != _PACK_HEADER or header[:8] != b"PACK\0\0\0\2":
        raise CandidateRefused(CandidateReason.PACK, "not a pack of version 2")
    return int.from_bytes(header[8:], "big")


def _refuse(what: str) -> NoReturn:
    raise CandidateRefused(CandidateReason.FRAME, what, where="export")
