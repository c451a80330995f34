"""What outside of a state needs what is in it: locks of projects, imported locks, files added by hand."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from builder.state import State
from images.digests import Digest, Integrity
from images.errors import StateError
from images.lockfile import MAX_LOCK_BYTES
from provenance.small_files import read_small
from provenance.writing import replace_file, state_errors

_MENTIONED: Final = re.compile(rb"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_NAME: Final = re.compile(r"(project|imported|added)-[0-9a-f]{64}")
_MAX_BYTES: Final = MAX_LOCK_BYTES + 64 * 1024


class Kind(StrEnum):
    """Why something is needed. PROJECT: by the lock that lies at a path, as long as a file is there."""

    PROJECT = "project"
    IMPORTED = "imported"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Reference:
    """One reason to keep things. ``file``: where it is written down; ``since``: when it last was.

    ``what``: for people, the path of a lock, or a digest. ``lock``: the digest of the lock, if it is one.
    ``mentioned``: every digest and integrity in it. ``dead``: the project's lock is not there any more.
    """

    file: Path
    kind: Kind
    what: str
    since: datetime
    mentioned: frozenset[str]
    lock: Digest | None = None
    dead: bool = False


def mentioned_in(raw: bytes) -> frozenset[str]:
    """Every digest and integrity that a lock names, whatever version of the format it has.

    Read as text and not as a lock: what an older or a newer program wrote must be held too.
    """
    return frozenset(found.decode() for found in _MENTIONED.findall(raw))


def refer_to_project(state: State, lock_path: Path, raw: bytes) -> None:
    """Hold what this project's lock names, as it will be when asked; ``raw`` if it cannot be read then."""
    path = os.fsencode(lock_path.absolute())
    _write(state.references / f"{Kind.PROJECT}-{Digest.of(path).hex}", path + b"\0" + raw)


def refer_to_import(state: State, raw: bytes) -> None:
    """Hold what an imported lock names."""
    _write(state.references / f"{Kind.IMPORTED}-{Digest.of(raw).hex}", raw)


def refer_to_added(state: State, integrity: Integrity) -> None:
    """Hold a file that the operator added, from now on for a while."""
    replace_file(state.references / f"{Kind.ADDED}-{integrity.hex}", f"{integrity}\n".encode(), 0o600)


def read_references(state: State) -> tuple[Reference, ...]:
    """All of them, sorted by file. StateError when one cannot be read: then nobody knows what it holds."""
    found = []
    with state_errors(state.references):
        files = sorted(state.references.iterdir())
    for file in files:
        match = _NAME.fullmatch(file.name)
        if match is not None:
            found.append(_read(file, Kind(match[1])))
    return tuple(found)


def _read(file: Path, kind: Kind) -> Reference:
    try:
        raw = read_small(file, _MAX_BYTES)
        since = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError as broken:
        hint = f"rm {file} (builder lock or builder build in the project writes it again)"
        raise StateError(f"cannot be read: {broken.strerror}", where=str(file), hint=hint) from None
    if kind is not Kind.PROJECT:
        lock = Digest.of(raw) if kind is Kind.IMPORTED else None
        # Whatever stands there: what it mentions is held.
        what = str(lock or raw.decode("utf-8", "backslashreplace").strip())
        return Reference(file, kind, what, since, mentioned_in(raw), lock)
    words, _, last = raw.partition(b"\0")
    path = Path(os.fsdecode(words))
    now, dead = _lock_at(path, last)
    return Reference(file, kind, str(path), since, mentioned_in(now), Digest.of(now), dead)


def _lock_at(path: Path, last: bytes) -> tuple[bytes, bool]:
    """The lock as it lies there now; as it last was if it cannot be read; and whether it is gone."""
    try:
        return read_small(path, MAX_LOCK_BYTES), False
    except (FileNotFoundError, NotADirectoryError):
        return last, True
    except OSError:
        return last, False


def _write(file: Path, data: bytes) -> None:
    try:
        if read_small(file, _MAX_BYTES) == data:
            return
    except OSError:
        pass  # not there yet, or to be written anew
    replace_file(file, data, 0o600)
