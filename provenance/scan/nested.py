"""What lies inside of a file: told by its first bytes, opened within bounds, scanned like everything else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from images.credential_places import PathRule
from images.digests import Digest
from provenance.scan.bytescan import ByteScan
from provenance.scan.collect import INSIDE, Collector
from provenance.scan.engine import Finder
from provenance.scan.judge import Confirmed
from provenance.scan.lookinside import MAX_LOOK_INSIDE, apply_rules
from provenance.scan.places import PathTable
from provenance.scan.report import OpaqueMember, Place, PlaceKind
from provenance.scan.sniff import SNIFF_BYTES, ends_as_zip, nested_format
from provenance.scan.tarwalk import Member, MemberKind, TarWalker, Unreadable, clean_name
from provenance.scan.unpack import MAX_PACKED, OPENED, NotOpened, Part, unpack

MAX_DEPTH: Final = 6  # a .deb, its data, the tar in that, a manual page in that, and two more
MAX_OPENED_BYTES: Final = 16 << 30  # of one layer
MAX_OPENED: Final = 500_000
_END_BYTES: Final = 22  # of a zip without a comment


@dataclass(slots=True)
class Budget:
    """How much may still be opened in one layer."""

    bytes: int = MAX_OPENED_BYTES
    files: int = MAX_OPENED

    def spend(self, size: int) -> None:
        """Raises NotOpened when there is no more."""
        self.bytes -= size
        if self.bytes < 0:
            raise NotOpened(f"more than {MAX_OPENED_BYTES} bytes were opened in this layer")

    def open(self) -> None:
        """One more file. Raises NotOpened when there were too many."""
        self.files -= 1
        if self.files < 0:
            raise NotOpened(f"more than {MAX_OPENED} files were opened in this layer")


@dataclass(slots=True)
class Opener:
    """Opens files of one layer, in its thread."""

    blob: str
    finder: Finder
    table: PathTable
    collector: Collector
    budget: Budget = field(default_factory=Budget)

    def reading(self, path: str, rules: tuple[PathRule, ...]) -> FileReading:
        """A file of the layer, about to pass."""
        return FileReading(self, path, rules, 0, None)

    def opaque(self, reading: FileReading, digest: Digest, size: int, why: str) -> None:
        """A file that was not opened, or not to its end."""
        self.collector.opaque(
            OpaqueMember(
                layer=self.blob,
                path=self.collector.shown(reading.path),
                format=reading.format,
                digest=digest,
                size=size,
                reason=why,
                file=reading.outermost or digest,
            ),
            "" if reading.hashed else reading.path,
        )


class FileReading:
    """One file's content as it passes; kept only as far as something looks inside.

    ``depth``: how many archives it lies in. ``outermost``: hash of the layer's own file that it lies in.
    """

    def __init__(
        self,
        opener: Opener,
        path: str,
        rules: tuple[PathRule, ...],
        depth: int,
        outermost: Digest | None,
    ) -> None:
        self.path = path
        self.depth = depth
        self.outermost = outermost
        self.format = ""
        self._opener = opener
        self._rules = rules
        self._kept = bytearray()
        self._most = MAX_LOOK_INSIDE + 1 if rules else 0
        self._head = b""
        self._tail = b""
        self._sniffed = False
        self._size = 0
        self._hash: hashlib._Hash | None = None
        self._tar: _InnerTar | None = None
        self._broken = ""

    @property
    def hashed(self) -> bool:
        """Of the layer's own files only those that begin like an archive: a hash costs more than the scan."""
        return self._hash is not None

    def feed(self, piece: memoryview) -> None:
        """The next bytes."""
        if not self._sniffed:
            if self._head or len(piece) < SNIFF_BYTES:
                self._head += bytes(piece)
                piece = memoryview(self._head)
            if len(piece) < SNIFF_BYTES:
                return
            self._sniff(piece)
        self._take(piece)

    def name_stored(self, format: str) -> None:
        """It cannot be read: all that is known is its packed bytes, and who holds them."""
        self.format, self._hash = format, hashlib.sha256()

    def finish(self) -> None:
        """It has passed: open it, and look inside under its rules."""
        if not self._sniffed:
            whole = memoryview(self._head)
            self._sniff(whole)
            self._take(whole)
        if not self.format and ends_as_zip(self._tail):
            self.format = "zip"
            self._broken = "other content stands before it"
        if self.format:
            self._open()
        if self._rules:
            content = bytes(self._kept[: MAX_LOOK_INSIDE + 1])
            apply_rules(self._rules, content, self._opener.blob, self.path, self._opener.collector)

    def _sniff(self, start: memoryview) -> None:
        self._sniffed = True
        self.format = nested_format(self.path.rpartition(INSIDE)[2], bytes(start[:SNIFF_BYTES]))
        if self.format or self.depth:
            self._hash = hashlib.sha256()
        if self.format:
            if self.format in OPENED:
                self._most = MAX_PACKED + 1
            elif self.format == "tar":
                self._tar = _InnerTar(self._opener, self)

    def _take(self, piece: memoryview) -> None:
        self._size += len(piece)
        if self._hash is not None:
            self._hash.update(piece)
        if len(piece) >= _END_BYTES:
            self._tail = bytes(piece[-_END_BYTES:])
        elif piece:
            self._tail = (self._tail + bytes(piece))[-_END_BYTES:]
        if len(self._kept) < self._most:
            self._kept += piece[: self._most - len(self._kept)]
        if self._tar is not None and not self._broken:
            self._broken = self._tar.feed(piece)

    def _open(self) -> None:
        digest = Digest.from_hex((self._hash or hashlib.sha256()).hexdigest())
        try:
            self._check()
            if self._tar is not None:
                self._tar.finish()
            else:
                self._open_parts(digest)
        except NotOpened as why:
            self._opener.opaque(self, digest, self._size, str(why))
        else:
            self._opener.collector.opened(self._opener.blob, 1, 0)

    def _check(self) -> None:
        if self._broken:
            raise NotOpened(self._broken)
        if self.depth >= MAX_DEPTH:
            raise NotOpened(f"deeper than {MAX_DEPTH} archives")
        self._opener.budget.open()

    def _open_parts(self, digest: Digest) -> None:
        for part in unpack(self.format, bytes(self._kept)):
            name = clean_name(part.name)
            inside = FileReading(
                self._opener,
                f"{self.path}{INSIDE}{name}",
                self._opener.table.rules_for(name) if name else (),
                self.depth + 1,
                self.outermost or digest,
            )
            if part.why_not:
                inside.name_stored(self.format)
                packed = part.stored
                self._opener.opaque(inside, Digest.of(packed), len(packed), part.why_not)
            else:
                self._scan_part(part, inside)

    def _scan_part(self, part: Part, inside: FileReading) -> None:
        opener = self._opener

        def on_found(offset: int, found: Confirmed) -> None:
            place = Place(PlaceKind.CONTENT, opener.blob, inside.path, offset)
            opener.collector.found(found.rule, place, found.value)

        scan = ByteScan(opener.finder, on_found)
        first = next(part.chunks, b"")
        second = next(part.chunks, b"") if first else b""
        if not second:  # most are small, and scanned where they are
            self._pass(first, inside)
            scan.whole(memoryview(first))
        else:
            for chunk in (first, second):
                self._pass(chunk, inside)
                scan.feed(memoryview(chunk))
            for chunk in part.chunks:
                self._pass(chunk, inside)
                scan.feed(memoryview(chunk))
            scan.finish()
        opener.collector.opened(opener.blob, 0, scan.scanned)
        self._scan_name(part.name)
        inside.finish()

    def _pass(self, chunk: bytes, inside: FileReading) -> None:
        self._opener.budget.spend(len(chunk))
        inside.feed(memoryview(chunk))

    def _scan_name(self, name: str) -> None:
        """The name is in the archive's own bytes too, but for those that are compressed themselves."""
        opener = self._opener
        raw = name.encode("utf-8", "surrogateescape")

        def on_found(_offset: int, found: Confirmed) -> None:
            place = Place(PlaceKind.MEMBER_NAME, opener.blob, self.path)
            opener.collector.found(found.rule, place, found.value)

        if raw:
            ByteScan(opener.finder, on_found).whole(memoryview(raw))


class FilesInTurn:
    """The files of one tar that are looked into: of each the content, piece by piece, until its last."""

    def __init__(self) -> None:
        self._reading: FileReading | None = None

    def begin(self, reading: FileReading) -> None:
        """What comes now is this file's."""
        self._reading = reading

    def take(self, _member: Member, piece: memoryview, last: bool) -> None:
        """The next piece, as a TarWalker gives it."""
        if self._reading is None:
            return
        self._reading.feed(piece)
        if last:
            self._reading.finish()
            self._reading = None


class _InnerTar:
    """A tar inside of something: its bytes are scanned as they pass; here its members are looked at."""

    def __init__(self, opener: Opener, around: FileReading) -> None:
        self._opener = opener
        self._around = around
        self._files = FilesInTurn()
        self._walker = TarWalker(self._on_member, self._files.take, lambda _header, _text: None)

    def feed(self, piece: memoryview) -> str:
        """The next bytes; why it cannot be read further, if so."""
        try:
            self._walker.feed(piece)
        except Unreadable as broken:
            return f"corrupt tar: {broken}"
        return ""

    def finish(self) -> None:
        """Raises NotOpened when it is cut short."""
        try:
            self._walker.finish()
        except Unreadable as broken:
            raise NotOpened(f"corrupt tar: {broken}") from None

    def _on_member(self, member: Member) -> bool:
        if member.kind is not MemberKind.FILE:
            return False
        around = self._around
        reading = FileReading(
            self._opener,
            f"{around.path.removesuffix(INSIDE)}{INSIDE}{member.name}",
            self._opener.table.rules_for(member.name),
            around.depth + 1,
            around.outermost,
        )
        self._files.begin(reading)
        return True
