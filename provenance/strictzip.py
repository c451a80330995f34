"""Open a zip that all readers read alike: one directory, at its very end, of everything before it.

The build unpacks wheels with a reader of its own. Python's believes a second directory of the 64 bit form,
and skips what stands before the first; whatever readers could differ on is refused here.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from typing import BinaryIO, Final

MAX_MEMBERS: Final = 100_000
_END: Final = struct.Struct("<4sHHHHIIH")
_ENTRY: Final = struct.Struct("<4s4xHH8xIIHHHH6xI")
_LOCATOR_BYTES: Final = 20  # of the 64 bit form, before the end
_LOCATOR: Final = b"PK\x06\x07"
_LARGE: Final = 0xFFFFFFFF  # the number is in a record of the 64 bit form


def open_zip(file: BinaryIO) -> zipfile.ZipFile:
    """The zip in ``file`` (seekable, the caller's). Raises zipfile.BadZipFile saying what is odd."""
    listed = list(_entries(_directory(file)))
    archive = zipfile.ZipFile(file)
    found = [
        (member.orig_filename, member.flag_bits, member.compress_type, *_sizes(member))
        for member in archive.infolist()
    ]
    if found != listed:
        raise zipfile.BadZipFile("a zip of which readers find different members")
    return archive


def _sizes(member: zipfile.ZipInfo) -> tuple[int, int, int]:
    return member.compress_size, member.file_size, member.header_offset


def _directory(file: BinaryIO) -> tuple[bytes, int]:
    """The bytes of the directory, and how many entries it says that it has."""
    size = file.seek(0, 2)
    if size < _END.size:
        raise zipfile.BadZipFile("no zip")
    file.seek(max(0, size - _END.size - _LOCATOR_BYTES))
    before, end = (tail := file.read())[: -_END.size], tail[-_END.size :]
    mark, disk, first, here, total, length, start, comment = _END.unpack(end)
    if mark != b"PK\x05\x06" or comment or disk or first or here != total:
        raise zipfile.BadZipFile("no zip of one part that ends with its directory")
    if before.startswith(_LOCATOR) or _LARGE in (length, start) or total == 0xFFFF:
        raise zipfile.BadZipFile("a zip of the 64 bit form")
    if start + length + _END.size != size:
        raise zipfile.BadZipFile("a zip with something around it")
    if total > MAX_MEMBERS:
        raise zipfile.BadZipFile(f"more than {MAX_MEMBERS} members")
    file.seek(start)
    directory = file.read(length)
    file.seek(0)
    return directory, total


def _entries(given: tuple[bytes, int]) -> Iterator[tuple[str, int, int, int, int, int]]:
    """What each entry says: name, flags, method, both sizes, where its member begins."""
    directory, total = given
    at = 0
    for _ in range(total):
        if len(directory) - at < _ENTRY.size:
            raise zipfile.BadZipFile("a directory that is cut short")
        mark, flags, method, packed, size, names, extra, comment, disk, header = _ENTRY.unpack_from(
            directory, at
        )
        begin = at + _ENTRY.size
        at = begin + names + extra + comment
        if mark != b"PK\x01\x02" or disk or at > len(directory):
            raise zipfile.BadZipFile("a broken entry in its directory")
        if _LARGE in (packed, size, header):
            raise zipfile.BadZipFile("a member of the 64 bit form")
        name = directory[begin : begin + names].decode("utf-8" if flags & 0x800 else "cp437")
        yield name, flags, method, packed, size, header
    if at != len(directory):
        raise zipfile.BadZipFile("a directory with something behind its entries")
