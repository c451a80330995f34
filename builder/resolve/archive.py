"""The operator's own archives: looked up in the store by their hash, read whole, never fetched."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from isal import igzip
from isal.igzip_lib import IsalError

from builder.storage.store import ContentStore
from images.additions import ArchivePin
from images.digests import Integrity
from images.errors import PinError
from images.lock import Artifact, ArtifactKind, Authentication
from images.lock_additions import LOCAL_REGISTRY, ArchiveLock
from images.oci import Platform
from images.skills import collision
from provenance.stricttar import Bounded, StrictTar

MAX_MEMBERS: Final = 100_000
MAX_UNPACKED: Final = 8 << 30
MAX_PATH: Final = 400  # characters
_CHUNK: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
# Forms that somebody may well bring, by their first bytes: what a base may lack the program for.
_OTHERS: Final = (
    (b"PK\x03\x04", "a zip"),
    (b"\xfd7zXZ\0", "compressed with xz"),
    (b"BZh", "compressed with bzip2"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z"),
)


@dataclass(frozen=True, slots=True)
class _File:
    """One file or directory of an archive."""

    path: str
    executable: bool
    directory: bool = False


def lock_archives(
    pins: tuple[ArchivePin, ...], store: ContentStore, platforms: tuple[Platform, ...]
) -> tuple[tuple[ArchiveLock, ...], tuple[Artifact, ...]]:
    """Each archive and its artifact. PinError naming one that the store lacks or that cannot be unpacked."""
    return (
        tuple(ArchiveLock(pin.name) for pin in pins),
        tuple(_artifact(pin, store, platforms) for pin in pins),
    )


def missing_archive(place: str, integrity: Integrity) -> PinError:
    """What to say of an archive that the store lacks: nobody but the operator has it."""
    return PinError(
        f"{place}: {integrity} is not in this state's store, or damaged there",
        where=place,
        hint="builder store add FILE",
        reason="not-found",
    )


def _artifact(pin: ArchivePin, store: ContentStore, platforms: tuple[Platform, ...]) -> Artifact:
    place, integrity = f"archives.{pin.name}", Integrity("sha256", pin.sha256.hex)
    if not store.intact(integrity):
        raise missing_archive(place, integrity)
    with store.open(integrity, place) as file:
        check_commands(file, pin.bins, place)
    return Artifact(
        kind=ArtifactKind.ARCHIVE,
        name=pin.name,
        version="",
        integrity=integrity,
        size=store.path_of(integrity).stat().st_size,
        platforms=platforms,
        parents=(place,),
        bins=pin.bins,
        registry=LOCAL_REGISTRY,
        authenticated=Authentication.LOCAL,
    )


def check_commands(file: BinaryIO, bins: tuple[tuple[str, str], ...], place: str) -> None:
    """Read an archive whole; each command is a program in it. PinError naming what is not so."""
    files = {one.path: one for one in read_archive(file, place)}
    for name, path in bins:
        if path not in files:
            raise PinError(
                f"{place}.bins.{name}: the archive has no file {path!r}",
                where=place,
                hint=f"list it and correct builder.toml: tar -tf FILE; it has {len(files)} files",
            )
        if not files[path].executable:
            raise PinError(
                f"{place}.bins.{name}: {path!r} is not executable in the archive",
                where=place,
                hint=f"chmod 755 {path}, pack it again, then: builder store add FILE",
            )


def read_archive(file: BinaryIO, what: str) -> tuple[_File, ...]:
    """The files of a tar or tar.gz: files and directories only. PinError naming what is odd."""
    head = file.read(6)
    file.seek(0)
    for mark, kind in _OTHERS:
        if head.startswith(mark):
            raise PinError(
                f"{what}: is {kind}, and a base unpacks tar and tar.gz only",
                where=what,
                hint="unpack it, pack it again with tar -czf FILE DIRECTORY, then: builder store add FILE",
            )
    try:
        if head.startswith(_GZIP):
            with igzip.open(file, "rb") as plain:  # type: ignore[no-untyped-call]
                return _read(cast(BinaryIO, plain), what)
        return _read(file, what)
    except (tarfile.TarError, EOFError, OSError, IsalError, ValueError) as broken:  # type: ignore[misc]  # untyped
        raise _odd(what, f"is no whole tar or tar.gz ({type(broken).__name__})") from None


def _odd(what: str, why: str) -> PinError:
    return PinError(f"{what}: {why}", where=what, hint="pack it again without, then: builder store add FILE")


def _read(plain: BinaryIO, what: str) -> tuple[_File, ...]:
    bounded = cast(BinaryIO, Bounded(plain, MAX_UNPACKED))
    with StrictTar.open(fileobj=bounded, mode="r|", errorlevel=2) as archive:
        members = tuple(_members(archive, what))
    while bounded.read(_CHUNK):  # to the end, where a checksum is
        pass
    found = tuple(one for one in members if not one.directory)
    if not found:
        raise _odd(what, "holds no file")
    paths = [one.path for one in found]
    if len(set(paths)) != len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise _odd(what, f"holds {twice[:120]!r} twice")
    if (pair := collision(paths)) is not None:
        raise _odd(what, f"{pair[0][:120]!r} and {pair[1][:120]!r} differ in letter case alone")
    above = {path[: at.start()] for path in paths for at in re.finditer("/", path)}
    above |= {one.path for one in members if one.directory}
    if both := above & set(paths):
        raise _odd(what, f"{min(both)[:120]!r} is a file and a directory")
    return found


def _members(archive: tarfile.TarFile, what: str) -> Iterator[_File]:
    for number, member in enumerate(archive):
        if number > MAX_MEMBERS:
            raise _odd(what, f"holds more than {MAX_MEMBERS} members")
        path = member.name.removeprefix("./").removesuffix("/")
        if not (member.isreg() or member.isdir()) or member.issparse():
            raise _odd(what, f"holds a link or something else that is no file: {member.name[:120]!r}")
        if member.isdir() and path in ("", "."):
            continue
        if not path.isprintable() or "\\" in path or len(path) > MAX_PATH:
            raise _odd(what, f"holds a name that is not plain text of {MAX_PATH} characters")
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise _odd(what, f"holds a path that leaves it: {member.name[:120]!r}")
        yield _File(path, bool(member.mode & 0o111), member.isdir())
        archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep every header in memory
