"""Compare the entries of one layer with what it must hold: each difference, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from provenance.audit.layertar import Entry, Kind
from provenance.audit.report import (
    MAX_LISTED,
    Difference,
    DifferenceKind,
    Origin,
    PlacedByScript,
    shown,
)
from provenance.audit.wanted import Wanted, WantedLayer

# What is wanted where only an install script may put a file: no content of its own.
_SCRIPTED: Final = Wanted(Kind.FILE, 0o755, 0, 0, "", b"", Origin.SCRIPT, "an install script")


@dataclass(slots=True)
class Findings:
    """What one layer's comparison has found so far."""

    layer: int
    entries: int = 0
    bytes: int = 0
    origins: Counter[Origin] = field(default_factory=Counter)
    scripts: list[PlacedByScript] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    replayed_paths: list[str] = field(default_factory=list)
    unexplained_paths: list[str] = field(default_factory=list)
    unexplained_count: int = 0

    def differs(self, kind: DifferenceKind, path: str, what: str) -> None:
        """Count one; list it while there is room."""
        self.difference_count += 1
        if len(self.differences) < MAX_LISTED:
            self.differences.append(Difference(kind, self.layer, shown(path), what))

    def replayed(self, path: str) -> None:
        """Count an entry that a replay made just so; list it while there is room."""
        self.origins[Origin.REPLAYED] += 1
        if len(self.replayed_paths) < MAX_LISTED:
            self.replayed_paths.append(shown(path))

    def unexplained(self, path: str) -> None:
        """Count an entry that only a replay could explain, where none was made."""
        self.unexplained_count += 1
        if len(self.unexplained_paths) < MAX_LISTED:
            self.unexplained_paths.append(shown(path))


def compare_layer(entries: Iterable[Entry], wanted: WantedLayer, epoch: int, findings: Findings) -> None:
    """Take the entries one by one. What is kept in memory is bounded by ``wanted``, not by the layer."""
    seen: dict[str, Entry] = {}
    for entry in entries:
        findings.entries += 1
        findings.bytes += entry.size
        if entry.path.rpartition("/")[2].startswith(".wh."):
            findings.differs(DifferenceKind.WHITEOUT, entry.path, "hides something below it")
        elif entry.path in seen:
            findings.differs(DifferenceKind.DUPLICATE, entry.path, "in this layer twice")
        elif entry.path not in wanted.entries and entry.path not in wanted.scripted:
            findings.differs(DifferenceKind.EXTRA, entry.path, f"a {entry.kind.value} that nothing explains")
        else:
            resolved = resolve(entry, seen)
            seen[entry.path] = resolved
            _compare(entry, resolved, wanted, epoch, findings)
    for path, missing in wanted.entries.items():
        if path not in seen:
            findings.differs(DifferenceKind.MISSING, path, f"a {missing.kind.value} of {missing.source}")


def resolve(entry: Entry, seen: Mapping[str, Entry]) -> Entry:
    """A hard link to a file before it in this layer is that file under one more name."""
    first = seen.get(entry.link) if entry.kind is Kind.HARD_LINK else None
    if first is None or first.kind is not Kind.FILE:
        return entry
    return replace(first, path=entry.path, mtime=entry.mtime, odd=entry.odd, uid=entry.uid, gid=entry.gid)


def _compare(entry: Entry, resolved: Entry, layer: WantedLayer, epoch: int, findings: Findings) -> None:
    wanted = layer.entries.get(entry.path, _SCRIPTED)
    wrong = list(owner_and_time(entry, wanted, epoch))
    if entry.kind is Kind.HARD_LINK:
        wrong += _hard_link(entry, resolved, layer)
    placed = _placed(resolved, wanted, layer)
    if placed is None:
        wrong += differences(resolved, wanted)
    elif resolved.mode != 0o755:
        wrong.append(f"mode {resolved.mode:04o}, not 0755")
    if wrong:
        findings.differs(DifferenceKind.CHANGED, entry.path, "; ".join(wrong))
    elif placed is not None:
        findings.scripts.append(placed)
        findings.origins[Origin.SCRIPT] += 1
    else:
        findings.origins[wanted.origin] += 1


def owner_and_time(entry: Entry, wanted: Wanted, epoch: int) -> Iterator[str]:
    """How an entry's owner, time and form differ from what they must be."""
    yield from entry.odd
    if (entry.uid, entry.gid) != (wanted.uid, wanted.gid):
        yield f"owner {entry.uid}:{entry.gid}, not {wanted.uid}:{wanted.gid}"
    if entry.mtime != epoch:
        yield f"time {entry.mtime}, not {epoch}"


def _hard_link(entry: Entry, resolved: Entry, layer: WantedLayer) -> Iterator[str]:
    """No artifact holds hard links; only an install script makes one, with one end where it may write."""
    if resolved is entry:
        yield f"a hard link to {shown(entry.link)!r}, which is no file before it in this layer"
    elif not {entry.path, entry.link} & set(layer.scripted):
        yield f"a hard link to {shown(entry.link)!r}, which no install script made"
    if entry.mode != resolved.mode:
        yield f"mode {entry.mode:04o} in a hard link to a file of mode {resolved.mode:04o}"


def _placed(entry: Entry, wanted: Wanted, layer: WantedLayer) -> PlacedByScript | None:
    """What an allowed install script put here instead of the package's own file."""
    script = layer.scripted.get(entry.path)
    source = layer.movable.get(entry.content) if entry.kind is Kind.FILE else None
    if script is None or source is None or entry.content == wanted.content:
        return None
    return PlacedByScript(entry.path, script, source.artifact, source.member)


def differences(entry: Entry, wanted: Wanted) -> Iterator[str]:
    """How an entry differs in kind, mode, target and content."""
    if entry.kind is not wanted.kind:
        yield f"a {entry.kind.value}, not a {wanted.kind.value} of {wanted.source}"
        return
    if entry.mode != wanted.mode:
        yield f"mode {entry.mode:04o}, not {wanted.mode:04o}"
    if entry.link != wanted.link:
        yield f"leads to {shown(entry.link)!r}, not to {wanted.link!r}"
    if entry.content != wanted.content:
        yield f"other bytes than those of {wanted.source}"
