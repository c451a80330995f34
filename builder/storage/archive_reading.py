"""Read a team archive from untrusted bytes into staging: each byte is compared, hashed, or refused."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from builder.storage.archive_format import (
    BLOCK,
    END,
    MANIFEST_NAME,
    MAX_EXPORT_BYTES,
    ExportManifest,
    blob_name,
    header,
    parse_export,
)
from images.digests import Digest, Integrity
from images.errors import PinError, UsageError
from provenance.layout_writing import init_layout
from provenance.writing import state_errors

_CHUNK: Final = 1 << 20
_HINT: Final = "copy it again, or ask for another: builder store export"


@dataclass(frozen=True, slots=True)
class StagedArchive:
    """A whole archive in a private directory: a layout without an index yet. Each blob has its digest."""

    manifest: ExportManifest
    layout: Path

    def blob(self, digest: Digest) -> Path:
        """Where one lies."""
        return self.layout / blob_name(digest)


def stage_archive(path: Path, staging: Path, update: Callable[[str], None]) -> StagedArchive:
    """Read ``path`` to its end, each blob onto the disk below ``staging`` (empty, private, of this state).

    Raises UsageError for what is not such an archive, is cut short or goes on; PinError for a blob of other
    bytes than its digest; StateError when the disk does not take it.
    """
    layout = staging / "layout"
    with _open(path) as file:
        reader = _Reader(file, str(path))
        manifest = reader.manifest()
        reader.check_size(manifest.size())
        for name, data in list(manifest.small_members())[1:]:
            reader.expect(header(name, len(data)) + data + bytes(-len(data) % BLOCK), name)
        init_layout(layout)
        wanted = _integrities(manifest)
        for number, (digest, size) in enumerate(manifest.blobs):
            update(f"{number + 1} of {len(manifest.blobs)}")
            reader.expect(header(blob_name(digest), size), blob_name(digest))
            reader.take(layout / blob_name(digest), size, (str(digest), *map(str, wanted.get(digest, ()))))
            reader.expect(bytes(-size % BLOCK), blob_name(digest))
        reader.expect(END, "the end")
        if reader.read(1):
            reader.refuse("there are bytes behind its end")
    return StagedArchive(manifest, layout)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The archive from front to back, never twice. ``where``: its path, for messages."""

    file: BinaryIO
    where: str

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; fewer at the end only."""
        try:
            return self.file.read(size)
        except OSError as broken:
            raise UsageError(f"cannot be read: {broken.strerror}", where=self.where, hint=_HINT) from None

    def refuse(self, why: str) -> NoReturn:
        raise UsageError(why, where=self.where, hint=_HINT, reason="archive")

    def expect(self, wanted: bytes, what: str) -> None:
        """The next bytes are these and no others."""
        found = self.read(len(wanted))
        if len(found) < len(wanted):
            self.refuse("it is cut short")
        if found != wanted:
            self.refuse(f"other bytes than its manifest asks for, at {what}")

    def manifest(self) -> ExportManifest:
        """The first member. Only its size is read from the header, which must then be that size's."""
        block = self.read(BLOCK)
        digits = block[124:135]
        if len(digits) != 11 or digits.strip(b"01234567"):
            self.refuse("not an archive of builder store export")
        size = int(digits, 8)
        if size > MAX_EXPORT_BYTES or block != header(MANIFEST_NAME, size):
            self.refuse("not an archive of builder store export")
        raw = self.read(size)
        if len(raw) != size:
            self.refuse("it is cut short")
        try:
            found = parse_export(raw, self.where)
        except UsageError as broken:
            self.refuse(broken.what)
        self.expect(bytes(-size % BLOCK), MANIFEST_NAME)
        return found

    def check_size(self, wanted: int) -> None:
        """Before anything is written: the manifest says how long the archive is."""
        size = os.fstat(self.file.fileno()).st_size
        if size < wanted:
            self.refuse(f"it is cut short: {size} of {wanted} bytes")
        if size > wanted:
            self.refuse(f"there are {size - wanted} bytes behind its end")

    def take(self, target: Path, size: int, names: tuple[str, ...]) -> None:
        """The next ``size`` bytes onto the disk; they must hash to each of ``names`` (algorithm:hex)."""
        hashes = {name: hashlib.new(name.partition(":")[0]) for name in names}
        left = size
        with state_errors(target), target.open("xb") as copy:
            while left:
                chunk = self.read(min(left, _CHUNK))
                if not chunk:
                    self.refuse("it is cut short")
                left -= len(chunk)
                for found in hashes.values():
                    found.update(chunk)
                copy.write(chunk)
            copy.flush()
            os.fsync(copy.fileno())
        for name, found in hashes.items():
            if found.hexdigest() != name.partition(":")[2]:
                why = f"a blob of the archive does not hash to {name}"
                raise PinError(why, where=self.where, hint=_HINT, reason="integrity")


def _open(path: Path) -> BinaryIO:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as broken:
        raise UsageError(f"cannot be read: {broken.strerror}", where=str(path)) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UsageError("not a regular file", where=str(path))
    return os.fdopen(handle, "rb")


def _integrities(manifest: ExportManifest) -> dict[Digest, tuple[Integrity, ...]]:
    found: dict[Digest, tuple[Integrity, ...]] = {}
    for one in manifest.artifacts:
        found[one.digest] = (*found.get(one.digest, ()), one.integrity)
    return found
