"""The content store: files named by their integrity, written whole or not at all, checked when read."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from images.digests import Integrity
from images.errors import PinError, StateError, UsageError
from provenance.writing import move_into, settle, state_errors, temporary_file

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ContentStore:
    """Files under ``<root>/<algorithm>/<first two digits>/<the rest>``. Safe for several processes."""

    root: Path

    def path_of(self, integrity: Integrity) -> Path:
        """Where a file of this integrity lies, or would lie."""
        return self.root / integrity.algorithm / integrity.hex[:2] / integrity.hex[2:]

    def holds(self, integrity: Integrity) -> bool:
        """A file is there; its bytes are not read."""
        return self.path_of(integrity).is_file()

    def put(self, source: BinaryIO, integrity: Integrity, *, what: str, limit: int) -> int:
        """Store a stream of at most ``limit`` bytes and return its size.

        Raises PinError naming ``what`` when the bytes are not those of ``integrity`` or are too many,
        StateError when the disk does not take them; leaves nothing behind then.
        """
        path = self.path_of(integrity)
        with state_errors(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with temporary_file(path.parent) as (file, temporary):
                size = _pour(source, file, integrity, what, limit)
                settle(file, temporary, path, 0o444)
        return size

    def add(self, source: BinaryIO, *, what: str, limit: int) -> tuple[Integrity, int]:
        """Store a stream of at most ``limit`` bytes under whatever its SHA-256 turns out to be; and its size.

        Raises UsageError naming ``what`` for too many bytes, StateError when the disk does not take them.
        """
        with state_errors(self.root), temporary_file(self.root) as (file, temporary):
            found, size = hashlib.sha256(), 0
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                if size > limit:
                    raise UsageError(f"more than {limit} bytes", where=what)
                found.update(chunk)
                file.write(chunk)
            integrity = Integrity("sha256", found.hexdigest())
            path = self.path_of(integrity)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            settle(file, temporary, path, 0o444)
        return integrity, size

    def adopt(self, staged: Path, integrity: Integrity) -> bool:
        """Take a file that was written, hashed and put on disk in this state's own staging.

        What is there already and intact stays as it is: False.
        """
        path = self.path_of(integrity)
        if self.intact(integrity):
            return False
        with state_errors(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            move_into(staged, path, 0o444)
        return True

    def entries(self) -> Iterator[tuple[Integrity, Path]]:
        """Every file of the store by what its name says; nothing is hashed. Sorted by name."""
        for algorithm, length in (("sha256", 64), ("sha512", 128)):
            for path in sorted((self.root / algorithm).glob("??/*")):
                name = path.parent.name + path.name
                if len(name) == length and not set(name) - set("0123456789abcdef"):
                    yield Integrity(algorithm, name), path

    def intact(self, integrity: Integrity) -> bool:
        """A file is there and its bytes hash to its name."""
        try:
            with self.path_of(integrity).open("rb") as file:
                return _hash(file, integrity.algorithm) == integrity.hex
        except FileNotFoundError:
            return False
        except OSError as broken:
            raise StateError(
                f"cannot be read: {broken.strerror}", where=str(self.path_of(integrity))
            ) from None

    @contextmanager
    def open(self, integrity: Integrity, what: str) -> Iterator[BinaryIO]:
        """The file, re-hashed first. Raises StateError naming ``what`` when it is missing or damaged."""
        try:
            file = self.path_of(integrity).open("rb")
        except OSError:
            raise StateError(f"not in the store: {what}", where=str(integrity), hint="builder lock") from None
        with file:
            if _hash(file, integrity.algorithm) != integrity.hex:
                raise StateError(
                    f"damaged in the store: {what}",
                    where=str(self.path_of(integrity)),
                    hint="builder lock",
                )
            file.seek(0)
            yield file

    def link_into(self, folder: Path, name: str, integrity: Integrity, what: str) -> Path:
        """Give the file a name in ``folder``, by a hard link where that is possible; re-hashed first."""
        target = folder / name
        with self.open(integrity, what) as file, state_errors(target):
            try:
                target.hardlink_to(self.path_of(integrity))
            except OSError:
                with target.open("xb") as copy:
                    shutil.copyfileobj(file, copy, _CHUNK)
        return target


def _pour(source: BinaryIO, file: BinaryIO, integrity: Integrity, what: str, limit: int) -> int:
    found, size = hashlib.new(integrity.algorithm), 0
    while chunk := source.read(_CHUNK):
        size += len(chunk)
        if size > limit:
            raise PinError(f"{what}: more than {limit} bytes", where=str(integrity))
        found.update(chunk)
        file.write(chunk)
    if found.hexdigest() != integrity.hex:
        raise PinError(
            f"{what}: the bytes hash to {integrity.algorithm}:{found.hexdigest()}",
            where=f"locked as {integrity}",
            hint="something on the way changed it; if it was published anew, run: builder lock",
            reason="integrity",
        )
    return size


def _hash(file: BinaryIO, algorithm: str) -> str:
    found = hashlib.new(algorithm)
    while chunk := file.read(_CHUNK):
        found.update(chunk)
    return found.hexdigest()
