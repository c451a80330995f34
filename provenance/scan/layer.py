"""One pass over one layer's tar: every byte through the engine, every member through the path table."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from images.credential_places import Look, PathRule
from images.digests import Digest
from images.errors import VerifyFailed
from provenance.scan.collect import Collector, TooMany, shown_text
from provenance.scan.engine import EngineStopped, Finder
from provenance.scan.judge import LEFT_CONTEXT, RIGHT_CONTEXT, judge
from provenance.scan.lookinside import MAX_LOOK_INSIDE, look_inside
from provenance.scan.places import PathTable
from provenance.scan.report import BlobCoverage, NestedMember, Place, PlaceKind
from provenance.scan.sniff import SNIFF_BYTES, nested_format
from provenance.scan.tarwalk import Member, MemberKind, TarWalker, Unreadable, link_target

BLOCK_BYTES: Final = 4 << 20
MAX_CANDIDATES: Final = 1_000_000  # of one layer: more is an attack on the scanner, or no image of ours


@dataclass(frozen=True, slots=True)
class LinkedPath:
    """A link at a path of the table: what it points to must be looked at under the link's rules.

    A hard link's target must be found; a symbolic one may lead out of the image, to a mount.
    """

    target: str
    path: str
    rules: tuple[PathRule, ...]
    kind: MemberKind


@dataclass(slots=True)
class _Reading:
    """The member whose content is passing."""

    rules: tuple[PathRule, ...]
    content: bytearray = field(default_factory=bytearray)
    head: bytearray = field(default_factory=bytearray)
    sniffed: bool = False
    format: str = ""
    hash: hashlib._Hash | None = None


class LayerPass:
    """Scans one tar. Results go to the collector; hard links that need a second look are in ``linked``."""

    def __init__(self, digest: str, finder: Finder, table: PathTable, collector: Collector) -> None:
        self._digest = digest
        self._finder = finder
        self._table = table
        self._collector = collector
        self._walker = TarWalker(self._on_member, self._on_content, self._on_text)
        self._buffer = bytearray(BLOCK_BYTES + RIGHT_CONTEXT)
        self._filled = 0
        self._origin = 0  # stream offset of the buffer's first byte
        self._judged = 0  # buffer offset from which candidates are still to be judged
        self._members: list[Member] = []  # those that reach into the buffer
        self._texts: list[tuple[int, bytes]] = []
        self._reading: _Reading | None = None
        self._candidates = 0
        self.scanned = 0
        self.total = 0
        self.linked: list[LinkedPath] = []

    def run(self, chunks: Iterable[bytes]) -> None:
        """Read to the end. Whatever goes wrong is recorded as incomplete, never raised."""
        try:
            for chunk in chunks:
                self.total += len(chunk)
                view = memoryview(chunk)
                self._walker.feed(view)
                self._fill(view)
            self._scan(final=True)
            self._walker.finish()
        except (Unreadable, EngineStopped, VerifyFailed, TooMany) as stopped:
            self._collector.incomplete(f"layer {self._digest}: {stopped}")
        members = self._walker.members
        self._collector.covered(BlobCoverage(self._digest, "layer", self.total, self.scanned, members))

    def _fill(self, view: memoryview) -> None:
        while view:
            room = len(self._buffer) - self._filled
            part = view[:room]
            self._buffer[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            view = view[room:]
            if self._filled == len(self._buffer):
                self._scan(final=False)

    def _scan(self, *, final: bool) -> None:
        """Judge what starts before the right context; that is judged with the next block around it."""
        limit = self._filled if final else self._filled - RIGHT_CONTEXT
        with memoryview(self._buffer)[: self._filled] as view:
            for candidate in self._finder.find(view):
                if not self._judged <= candidate.at < limit:
                    continue
                self._candidates += 1
                if self._candidates > MAX_CANDIDATES:
                    raise EngineStopped(f"more than {MAX_CANDIDATES} candidates")
                found = judge(view, candidate)
                if found:
                    place = self._place(self._origin + candidate.at)
                    self._collector.found(found.rule, place, found.value)
        self._scan_texts()
        self.scanned += limit - self._judged
        keep = max(0, limit - LEFT_CONTEXT)
        self._buffer[: self._filled - keep] = self._buffer[keep : self._filled]
        self._origin += keep
        self._judged = limit - keep
        self._filled -= keep
        border = self._origin + self._judged
        self._members = [member for member in self._members if member.end > border or member.header >= border]

    def _scan_texts(self) -> None:
        """Names that no run of tar bytes holds in one piece."""
        if not self._texts:
            return
        joined = b"\n".join(text for _, text in self._texts)
        for candidate in self._finder.find(joined):
            found = judge(joined, candidate)
            if found:
                line = joined.count(b"\n", 0, candidate.at)
                header = self._texts[min(line, len(self._texts) - 1)][0]
                place = Place(PlaceKind.MEMBER_NAME, self._digest, "", header)
                self._collector.found(found.rule, place, found.value)
        self._texts.clear()

    def _place(self, offset: int) -> Place:
        index = bisect_right(self._members, offset, key=lambda member: member.header) - 1
        if index < 0:
            return Place(PlaceKind.HEADER, self._digest, "", offset)
        member = self._members[index]
        if member.start <= offset < member.end:
            return Place(PlaceKind.CONTENT, self._digest, member.name, offset - member.start)
        if offset < member.start:
            return Place(PlaceKind.HEADER, self._digest, member.name, offset)
        kind = PlaceKind.TAIL if self._walker.ended else PlaceKind.HEADER
        return Place(kind, self._digest, "", offset)

    def _on_text(self, header: int, text: bytes) -> None:
        self._texts.append((header, text))

    def _on_member(self, member: Member) -> bool:
        self._members.append(member)
        if member.kind is MemberKind.OTHER:
            return False
        rules = self._table.rules_for(member.name)
        if member.kind is not MemberKind.FILE:
            if rules:
                self.linked.append(LinkedPath(link_target(member), member.name, rules, member.kind))
            return False
        self._reading = _Reading(rules)
        return True

    def _on_content(self, member: Member, piece: memoryview, last: bool) -> None:
        reading = self._reading
        if reading is None:
            return
        if not reading.sniffed:
            if reading.head or (len(piece) < SNIFF_BYTES and not last):
                reading.head += piece
                piece = memoryview(bytes(reading.head))
            if len(piece) >= SNIFF_BYTES or last:
                reading.sniffed = True
                reading.format = nested_format(member.name, bytes(piece[:SNIFF_BYTES]))
                if reading.format:
                    reading.hash = hashlib.sha256()
        if not reading.sniffed:
            return
        if reading.hash is not None:
            reading.hash.update(piece)
        if reading.rules and len(reading.content) <= MAX_LOOK_INSIDE:
            reading.content += piece
        if last:
            self._finish_member(member, reading)

    def _finish_member(self, member: Member, reading: _Reading) -> None:
        self._reading = None
        if reading.hash is not None:
            digest = Digest.from_hex(reading.hash.hexdigest())
            path = shown_text(member.name)
            self._collector.nested(NestedMember(self._digest, path, reading.format, digest, member.size))
        if reading.rules:
            apply_rules(reading.rules, bytes(reading.content), self._digest, member.name, self._collector)


def apply_rules(
    rules: tuple[PathRule, ...], content: bytes, blob: str, path: str, collector: Collector
) -> None:
    """Look inside under every rule; content that is too large to be looked at leaves the scan incomplete."""
    for rule in rules:
        if len(content) > MAX_LOOK_INSIDE and rule.look is not Look.PRESENT:
            collector.incomplete(f"{path} in {blob}: more than {MAX_LOOK_INSIDE} bytes where {rule.id} looks")
            continue
        for value in look_inside(rule, content):
            collector.found(rule.id, Place(PlaceKind.MEMBER_PATH, blob, path), value)
