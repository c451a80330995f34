"""Read a .deb strictly (deb(5)): its control files whole, the members of its data, all within bounds."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, BinaryIO, Final, cast

import zstandard

from images.errors import VerifyFailed
from provenance.stricttar import Bounded, StrictTar

MAX_CONTROL: Final = 16 << 20
MAX_CONTROL_FILES: Final = 200
MAX_DATA: Final = 8 << 30
MAX_MEMBERS: Final = 200_000
_CHUNK: Final = 1 << 20
_MEMORY: Final = 256 << 20  # of one decompressor
_MAGIC: Final = b"!<arch>\n"
_HEADER: Final = re.compile(
    rb"([\x21-\x7e]{1,16}) *[0-9 ]{12}[0-9 ]{6}[0-9 ]{6}[0-7 ]{8}([0-9]{1,10}) *`\n", re.DOTALL
)
_FIELD: Final = re.compile(r"([!-9;-~]{1,100}):(.*)")
_BROKEN: Final = (
    tarfile.TarError,
    lzma.LZMAError,
    zstandard.ZstdError,
    zlib.error,
    EOFError,
    ValueError,
    OSError,
)


class DebKind(StrEnum):
    """What a member of the data is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    HARD_LINK = "hard link"
    SPECIAL = "device or pipe"


@dataclass(frozen=True, slots=True)
class DebMember:
    """One member of the data. ``path`` without slashes at its ends, empty for the root.

    ``link``: where a link leads; for a hard link a path like ``path``. ``content``: SHA-256 of a file.
    """

    path: str
    kind: DebKind
    mode: int
    uid: int
    gid: int
    link: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Control:
    """What a package says of itself: the fields of its control file, and all control files by name."""

    fields: dict[str, str]
    files: dict[str, bytes]


def read_control(file: BinaryIO, what: str) -> Control:
    """The control part of the .deb in ``file`` (seekable). Raises VerifyFailed naming ``what``."""
    try:
        files: dict[str, bytes] = {}
        for member, content in _members(_part(file, "control"), MAX_CONTROL):
            name = member.name.removeprefix("./")
            if member.isdir():
                continue
            if not member.isreg() or "/" in name or not name or name in files:
                raise ValueError(f"the control member {name[:60]!r}")
            if len(files) >= MAX_CONTROL_FILES:
                raise ValueError("too many control files")
            files[name] = content()
        return Control(_fields(files.get("control", b"")), files)
    except _BROKEN as broken:
        raise VerifyFailed(f"not a readable .deb: {broken}", where=what) from None


def read_data(file: BinaryIO, what: str) -> Iterator[DebMember]:
    """The members of the data, in their order. Raises VerifyFailed naming ``what``."""
    try:
        for number, (member, content) in enumerate(_members(_part(file, "data"), MAX_DATA)):
            if number >= MAX_MEMBERS:
                raise ValueError("too many members")
            yield _member(member, content)
    except _BROKEN as broken:
        raise VerifyFailed(f"not a readable .deb: {broken}", where=what) from None


def _member(member: tarfile.TarInfo, content: Callable[[], bytes]) -> DebMember:
    kind = DebKind.SPECIAL
    if member.isreg():
        kind = DebKind.FILE
    elif member.isdir():
        kind = DebKind.DIRECTORY
    elif member.issym():
        kind = DebKind.LINK
    elif member.islnk():
        kind = DebKind.HARD_LINK
    return DebMember(
        path=_path(member.name),
        kind=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        link=_path(member.linkname) if kind is DebKind.HARD_LINK else member.linkname,
        content=content() if kind is DebKind.FILE else b"",
    )


def _path(name: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"the path {name[:100]!r}")
    return "/".join(parts)


def _fields(raw: bytes) -> dict[str, str]:
    """The one paragraph of a control file; continued lines are joined as they are."""
    found: dict[str, str] = {}
    last = ""
    for line in raw.decode().rstrip("\n").split("\n"):
        if line[:1] in (" ", "\t") and last:
            found[last] += "\n" + line
            continue
        field = _FIELD.fullmatch(line)
        if field is None or field[1] in found:
            raise ValueError("the control file")
        last = field[1]
        found[last] = field[2].strip()
    return found


def _members(part: BinaryIO, most: int) -> Iterator[tuple[tarfile.TarInfo, Callable[[], bytes]]]:
    """Members and how to take each one's content: the bytes of a control file, the hash of any other file."""
    whole = most == MAX_CONTROL
    bounded = cast(BinaryIO, Bounded(part, most))
    with StrictTar.open(fileobj=bounded, mode="r|", errorlevel=2) as archive:
        for member in archive:

            def content(member: tarfile.TarInfo = member) -> bytes:
                source = archive.extractfile(member)
                if source is None:
                    raise ValueError("a file without content")
                if whole:
                    return source.read()
                found = hashlib.sha256()
                while chunk := source.read(_CHUNK):
                    found.update(chunk)
                return found.digest()

            yield member, content
            archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep every header in memory
    while bounded.read(_CHUNK):  # to the end, where a compressed part is found to be whole
        pass


def _part(file: BinaryIO, wanted: str) -> BinaryIO:
    """``control`` or ``data``, decompressed. The three members of the archive are exactly those of deb(5)."""
    file.seek(0)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("not an ar archive")
    for expected in ("debian-binary", "control.tar", "data.tar"):
        header = _HEADER.fullmatch(file.read(60))
        if header is None:
            raise ValueError("a broken header")
        name, size = header[1].decode().removesuffix("/"), int(header[2])
        if name != expected and not (expected != "debian-binary" and name.startswith(f"{expected}.")):
            raise ValueError(f"the member {name!r} where {expected} should be")
        start = file.tell()
        if expected == "debian-binary" and file.read(min(size, 2)) != b"2.":
            raise ValueError("another format than 2")
        if expected == f"{wanted}.tar":
            return _decompressed(_Slice(file, start, size), name.removeprefix(expected))
        file.seek(start + size + size % 2)
    raise ValueError(f"no {wanted}")


def _decompressed(source: _Slice, suffix: str) -> BinaryIO:
    if suffix == "":
        return cast(BinaryIO, source)
    if suffix == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=source, mode="rb"))
    if suffix == ".xz":
        return cast(BinaryIO, _Xz(source))
    if suffix == ".zst":
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MEMORY)
        return cast(BinaryIO, decompressor.stream_reader(cast(IO[bytes], source), read_across_frames=True))
    raise ValueError(f"a part compressed as {suffix[:20]!r}")


class _Slice(io.RawIOBase):
    """A range of a file as a file, positioned by itself."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        super().__init__()
        self._file, self._at, self._end = file, start, start + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        self._file.seek(self._at)
        data = self._file.read(min(len(buffer), self._end - self._at))
        if not data and self._at < self._end:
            raise EOFError("cut short")
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _Xz(io.RawIOBase):
    """xz with a bound on its memory, which lzma.LZMAFile has not; of one stream: readers differ on more."""

    def __init__(self, source: _Slice) -> None:
        super().__init__()
        self._source = source
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        while not self._decompressor.eof:
            more = self._source.read(_CHUNK) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not more:
                raise EOFError("cut short")
            data = self._decompressor.decompress(more or b"", len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
        if self._decompressor.unused_data or self._source.read(1):
            raise ValueError("something follows its compressed data")
        return 0
