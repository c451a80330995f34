"""One pass over one layer's tar: every byte through the engine, every member through the path table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from images.credential_places import PathRule
from images.errors import VerifyFailed
from provenance.scan.bytescan import ByteScan
from provenance.scan.collect import Collector, TooMany
from provenance.scan.engine import EngineStopped, Finder
from provenance.scan.judge import Confirmed, judge
from provenance.scan.nested import FilesInTurn, Opener
from provenance.scan.places import PathTable
from provenance.scan.report import BlobCoverage, Place, PlaceKind
from provenance.scan.tarwalk import Member, MemberKind, TarWalker, Unreadable, link_target


@dataclass(frozen=True, slots=True)
class LinkedPath:
    """A link at a path of the table: what it points to must be looked at under the link's rules.

    A hard link's target must be found; a symbolic one may lead out of the image, to a mount.
    """

    target: str
    path: str
    rules: tuple[PathRule, ...]
    kind: MemberKind


class LayerPass:
    """Scans one tar. Results go to the collector; hard links that need a second look are in ``linked``."""

    def __init__(self, digest: str, finder: Finder, table: PathTable, collector: Collector) -> None:
        self._digest = digest
        self._finder = finder
        self._table = table
        self._collector = collector
        self._opener = Opener(digest, finder, table, collector)
        self._files = FilesInTurn()
        self._walker = TarWalker(self._on_member, self._files.take, self._on_text)
        self._scan = ByteScan(finder, self._on_found)
        self._members: list[Member] = []  # those that reach beyond what is judged
        self._texts: list[tuple[int, bytes]] = []
        self.total = 0
        self.linked: list[LinkedPath] = []

    @property
    def scanned(self) -> int:
        """Bytes that went through the engine and were judged."""
        return self._scan.scanned

    def run(self, chunks: Iterable[bytes]) -> None:
        """Read to the end. Whatever goes wrong is recorded as incomplete, never raised."""
        try:
            for chunk in chunks:
                self.total += len(chunk)
                view = memoryview(chunk)
                self._walker.feed(view)
                if self._scan.feed(view):
                    self._scan_texts()
                    self._forget(self._scan.border)
            self._scan.finish()
            self._scan_texts()
            self._walker.finish()
        except (Unreadable, EngineStopped, VerifyFailed, TooMany) as stopped:
            self._collector.incomplete(f"layer {self._digest}: {stopped}")
        members = self._walker.members
        self._collector.covered(BlobCoverage(self._digest, "layer", self.total, self.scanned, members))

    def _forget(self, border: int) -> None:
        self._members = [member for member in self._members if member.end > border or member.header >= border]

    def _on_found(self, offset: int, found: Confirmed) -> None:
        self._collector.found(found.rule, self._place(offset), found.value)

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
        self._files.begin(self._opener.reading(member.name, rules))
        return True
