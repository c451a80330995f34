"""Walk the members of a tar stream that arrives in pieces, in bounded memory, and admit every doubt."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

BLOCK: Final = 512
MAX_EXTENDED: Final = 1 << 20  # a PAX record or a long name
MAX_MEMBERS: Final = 4_000_000
_ZEROS: Final = bytes(BLOCK)
_ORNAMENT: Final = re.compile(r"^/|/$|(?:^|/)\.{0,2}(?:/|$)")
_NO_CONTENT: Final = frozenset(b"123456")  # links, devices, directories, pipes


class MemberKind(StrEnum):
    """What a member is, as far as credentials care."""

    FILE = "file"
    HARD_LINK = "hard-link"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Member:
    """One member: ``name`` as :func:`clean_name` gives it, ``link`` as written, ``start`` its content's."""

    name: str
    link: str
    kind: MemberKind
    header: int
    start: int
    size: int

    @property
    def end(self) -> int:
        """Offset after its last byte of content."""
        return self.start + self.size


class Unreadable(Exception):
    """The stream is no tar that everybody reads alike; the scan of it is incomplete."""


OnMember = Callable[[Member], bool]
OnContent = Callable[[Member, memoryview, bool], None]
OnText = Callable[[int, bytes], None]


@dataclass(slots=True)
class _Extended:
    """What PAX and GNU headers say about the next member."""

    name: bytes | None = None
    link: bytes | None = None
    size: int | None = None


class TarWalker:
    """Fed with all bytes in order; calls back for members, wanted content and texts that lie in two fields.

    ``on_member`` returns whether the content is wanted; then ``on_content`` gets it in pieces, the last one
    with True. ``on_text`` gets what is contiguous in no byte of the stream: names joined from two fields.
    """

    def __init__(self, on_member: OnMember, on_content: OnContent, on_text: OnText) -> None:
        self._on_member = on_member
        self._on_content = on_content
        self._on_text = on_text
        self._position = 0  # stream offset of the next byte fed
        self._next = 0  # stream offset of the next header
        self._partial = b""  # a header cut by the end of a piece
        self._wanted: Member | None = None
        self._extension: tuple[int, int, int, bytearray] | None = None  # type, start, size, bytes so far
        self._extended = _Extended()
        self._zero_blocks = 0
        self.ended = False
        self.members = 0

    def feed(self, piece: memoryview) -> None:
        """The next bytes. Raises Unreadable."""
        base = self._position
        end = base + len(piece)
        if self._wanted is not None:
            self._pass_on(self._wanted, piece, base)
        if self._extension is not None:
            self._extend(piece, base)
        while self._next < end:
            at = self._next - base
            if at < 0:
                header = self._partial + bytes(piece[: BLOCK - len(self._partial)])
            else:
                header = bytes(piece[at : at + BLOCK])
            if len(header) < BLOCK:
                self._partial = header
                break
            self._partial = b""
            here = self._next
            self._next += BLOCK
            self._header(header, here)
            if self._wanted is not None:
                self._pass_on(self._wanted, piece, base)
            if self._extension is not None:
                self._extend(piece, base)
        self._position = end

    def finish(self) -> None:
        """No more bytes. Raises Unreadable when a member is cut short."""
        if self._partial and self._partial.strip(b"\0") and not self.ended:
            raise Unreadable("the tar ends inside a header")
        if self._next > self._position and not self.ended:
            raise Unreadable("the tar ends inside a member")
        if not self.ended and self.members == 0 and self._position == 0:
            raise Unreadable("the tar is empty")
        if self._extended != _Extended():
            raise Unreadable("an extended header without its member")

    def _header(self, header: bytes, here: int) -> None:
        if header == _ZEROS:
            self._zero_blocks += 1
            self.ended = self.ended or self._zero_blocks >= 2
            return
        if self._zero_blocks and not self.ended:
            raise Unreadable(f"a single zero block before the header at offset {here}: readers differ on it")
        if not _checksum_holds(header):
            if self.ended:
                return  # a tail that is no tar; its bytes are scanned like all others
            raise Unreadable(f"no tar header at offset {here}")
        self._member(header, here)

    def _member(self, header: bytes, here: int) -> None:
        kind = header[156]
        size = _number(header[124:136])
        content = here + BLOCK
        if kind in b"xgLK":
            if size > MAX_EXTENDED:
                raise Unreadable(f"an extended header of {size} bytes at offset {here}")
            self._extension = (kind, content, size, bytearray())
            self._next = content + _padded(size)
            return
        if kind == ord("S"):
            raise Unreadable(f"a sparse member at offset {here}")
        if kind not in b"\x0001234567" and not (ord("A") <= kind <= ord("Z")):
            raise Unreadable(f"a member of unknown type {kind} at offset {here}")
        extended, self._extended = self._extended, _Extended()
        if extended.size is not None:
            size = extended.size
        if kind in _NO_CONTENT and size:
            raise Unreadable(f"a link or directory with content at offset {here}: readers differ on it")
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise Unreadable(f"more than {MAX_MEMBERS} members")
        name = extended.name if extended.name is not None else self._joined_name(header, here)
        link = extended.link if extended.link is not None else _field(header[157:257])
        member = Member(
            clean_name(name.decode("utf-8", "surrogateescape")),
            link.decode("utf-8", "surrogateescape"),
            _KINDS.get(kind, MemberKind.FILE if size or kind in b"\x0007" else MemberKind.OTHER),
            here,
            content,
            size,
        )
        self._next = content + _padded(size)
        if self._on_member(member):
            self._wanted = member
            if not size:
                self._wanted = None
                self._on_content(member, memoryview(b""), True)

    def _joined_name(self, header: bytes, here: int) -> bytes:
        name = _field(header[:100])
        if header[257:263] != b"ustar\0":
            return name
        prefix = _field(header[345:500])
        if not prefix:
            return name
        joined = prefix + b"/" + name
        self._on_text(here, joined)
        return joined

    def _pass_on(self, member: Member, piece: memoryview, base: int) -> None:
        end = base + len(piece)
        first = max(member.start, base)
        last = min(member.end, end)
        if last > first or (last == member.end and first <= last):
            done = last == member.end
            self._on_content(member, piece[first - base : last - base], done)
            if done:
                self._wanted = None

    def _extend(self, piece: memoryview, base: int) -> None:
        assert self._extension is not None  # noqa: S101  (the caller has asked)
        kind, start, size, data = self._extension
        first = max(start + len(data), base)
        last = min(start + size, base + len(piece))
        if last > first:
            data += piece[first - base : last - base]
        if len(data) < size:
            return
        self._extension = None
        if kind == ord("L"):
            self._name_once("name", bytes(data).rstrip(b"\0"), start)
        elif kind == ord("K"):
            self._name_once("link", bytes(data).rstrip(b"\0"), start)
        else:
            self._records(bytes(data), kind == ord("g"), start)

    def _records(self, data: bytes, is_global: bool, start: int) -> None:
        position = 0
        while position < len(data):
            space = data.find(b" ", position, position + 20)
            digits = data[position:space]
            if space < 0 or not digits.isdigit():
                raise Unreadable(f"a broken PAX record at offset {start + position}")
            end = position + int(digits)
            key, equals, value = data[space + 1 : end - 1].partition(b"=")
            if end > len(data) or end <= space + 1 or data[end - 1 : end] != b"\n" or not equals:
                raise Unreadable(f"a broken PAX record at offset {start + position}")
            self._record(key, value, is_global, start)
            position = end

    def _record(self, key: bytes, value: bytes, is_global: bool, start: int) -> None:
        if key not in (b"path", b"linkpath", b"size") and not key.startswith(b"GNU.sparse."):
            return
        if is_global or key.startswith(b"GNU.sparse."):
            raise Unreadable(
                f"a sparse member or a global {key[:40]!r} at offset {start}: readers differ on it"
            )
        if key == b"path":
            self._name_once("name", value, start)
        elif key == b"linkpath":
            self._name_once("link", value, start)
        elif not value.isdigit() or len(value) > 18:
            raise Unreadable(f"a PAX size that is no number at offset {start}")
        else:
            self._extended.size = int(value)

    def _name_once(self, which: str, value: bytes, start: int) -> None:
        """Readers differ on which of two extended names counts, and on what follows a NUL."""
        if b"\0" in value or getattr(self._extended, which) not in (None, value):
            raise Unreadable(
                f"two names for one member, or a NUL in one, at offset {start}: readers differ on it"
            )
        setattr(self._extended, which, value)


_KINDS: Final = {ord("1"): MemberKind.HARD_LINK, ord("2"): MemberKind.SYMLINK, ord("5"): MemberKind.OTHER}


def clean_name(name: str) -> str:
    """``./a//x/../b/`` as ``a/b``, the way that extractors join it below their root."""
    if not _ORNAMENT.search(name):
        return name
    parts: list[str] = []
    for part in name.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def link_target(member: Member) -> str:
    """Where a link leads: a hard link from the root, a symbolic one from its directory unless absolute."""
    if member.kind is MemberKind.SYMLINK and not member.link.startswith("/"):
        return clean_name(f"{member.name.rpartition('/')[0]}/{member.link}")
    return clean_name(member.link)


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _field(raw: bytes) -> bytes:
    end = raw.find(b"\0")
    return raw if end < 0 else raw[:end]


def _number(raw: bytes) -> int:
    if raw[0] == 0x80:
        return int.from_bytes(raw[1:], "big")
    digits = raw.strip(b" \0")
    if raw[0] & 0x80 or digits.translate(None, b"01234567"):
        raise Unreadable("a size that is no number")
    return int(digits or b"0", 8)


def _checksum_holds(header: bytes) -> bool:
    try:
        stored = _number(header[148:156])
    except Unreadable:
        return False
    unsigned = sum(header) - sum(header[148:156]) + 8 * 32
    if stored == unsigned:
        return True
    signed = unsigned - 256 * sum(byte > 127 for byte in header[:148] + header[156:])
    return stored == signed
