"""The toolchain layer: what locked packages explain, what a replay explains, and what nothing does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from images.basefacts import DebianFacts
from images.toolchain_plan import ToolchainPlan
from provenance.audit.compare import Findings, differences, owner_and_time, resolve
from provenance.audit.deb_index import DebIndex
from provenance.audit.layertar import Entry, Kind
from provenance.audit.report import DifferenceKind, Origin
from provenance.audit.wanted import Wanted, parents_of
from provenance.debs import DebKind, DebMember

# The same step, run again by somebody above: what its layer holds, by path. None: it could not be run.
Replay: TypeAlias = Callable[[], Mapping[str, Entry] | None]


@dataclass(frozen=True, slots=True)
class ToolchainGiven:
    """What the audit of the layer is given from above. ``debian``: what the base says of itself."""

    debian: DebianFacts | None = None
    replay: Replay | None = None


_KINDS: Final = {DebKind.FILE: Kind.FILE, DebKind.DIRECTORY: Kind.DIRECTORY, DebKind.LINK: Kind.LINK}
_ACCOUNTS: Final = ("etc/group", "etc/passwd")


def wanted_toolchain(
    plan: ToolchainPlan, debs: Iterable[DebIndex], base: DebianFacts | None
) -> dict[str, Wanted]:
    """Every entry that follows from packages, base and plan without running anything."""
    aliases = base.aliases if base is not None else {}
    directories = base.directories if base is not None else {}
    found: dict[str, Wanted] = {}
    for deb in debs:
        for member in deb.members:
            if (path := _real(member.path, aliases)) and path not in aliases:
                _place(path, member, deb.artifact.id, found, aliases)
        for record in deb.records:
            origin = Origin.ARTIFACT if record.member else Origin.GENERATED
            found[record.path] = Wanted(
                Kind.FILE, record.mode, 0, 0, "", record.content, origin, deb.artifact.id
            )
    for path, content in zip(_ACCOUNTS, (plan.accounts.group, plan.accounts.passwd), strict=True):
        digest = hashlib.sha256(content).digest()
        found[path] = Wanted(Kind.FILE, 0o644, 0, 0, "", digest, Origin.GENERATED, "the generator")
    for path in list(found):
        for parent in parents_of(path):
            found.setdefault(parent, _directory(0o755, 0, 0, "a directory"))
    # A directory that is there already is not changed by dpkg.
    for path, wanted in found.items():
        if wanted.kind is Kind.DIRECTORY and path in directories:
            found[path] = _directory(*directories[path], "the base")
    return found


def packaged_bytes(debs: Iterable[DebIndex]) -> frozenset[bytes]:
    """SHA-256 of every file of every package: what may lie where a package's file lies."""
    return frozenset(member.content for deb in debs for member in deb.members if member.content)


def _directory(mode: int, uid: int, gid: int, source: str) -> Wanted:
    return Wanted(Kind.DIRECTORY, mode, uid, gid, "", b"", Origin.DIRECTORY, source)


def _real(path: str, aliases: Mapping[str, str]) -> str:
    """Where a path of a package lies when the base's root has links: ``bin/sh`` -> ``usr/bin/sh``."""
    first, slash, rest = path.partition("/")
    return f"{aliases[first]}/{rest}" if slash and first in aliases else path


def _place(
    path: str, member: DebMember, source: str, found: dict[str, Wanted], aliases: Mapping[str, str]
) -> None:
    if member.kind is DebKind.HARD_LINK:
        first = found.get(_real(member.link, aliases))
        if first is not None:  # it is the same file under one more name
            found[path] = first
    elif member.kind is DebKind.DIRECTORY:
        found.setdefault(path, _directory(member.mode, member.uid, member.gid, source))
    elif member.kind in _KINDS:
        mode = 0o777 if member.kind is DebKind.LINK else member.mode
        found[path] = Wanted(
            _KINDS[member.kind],
            mode,
            member.uid,
            member.gid,
            member.link,
            member.content,
            Origin.ARTIFACT,
            source,
        )


@dataclass(frozen=True, slots=True)
class ToolchainComparison:
    """Each entry is a package's, or what the replay made, or a finding; and nothing of these is missing.

    ``packaged``: bytes of packages, by hash.
    """

    wanted: Mapping[str, Wanted]
    packaged: frozenset[bytes]
    replayed: Mapping[str, Entry] | None
    epoch: int
    findings: Findings

    def run(self, entries: Iterable[Entry]) -> None:
        """Take the entries of the layer one by one."""
        seen: dict[str, Entry] = {}
        for entry in entries:
            self.findings.entries += 1
            self.findings.bytes += entry.size
            if entry.path in seen:
                self.findings.differs(DifferenceKind.DUPLICATE, entry.path, "in this layer twice")
                continue
            seen[entry.path] = _resolve(entry, seen)
            self._judge(entry, seen[entry.path])
        for path, missing in self.wanted.items():
            # A script may take away or divert what its package brought: the replay shows that too.
            if path not in seen and (self.replayed is None or path in self.replayed):
                what = f"a {missing.kind.value} of {missing.source}"
                self.findings.differs(DifferenceKind.MISSING, path, what)
        for path, made in (self.replayed or {}).items():
            if path not in seen and path not in self.wanted:
                self.findings.differs(DifferenceKind.MISSING, path, f"a {made.kind.value} of the replay")

    def _judge(self, entry: Entry, resolved: Entry) -> None:
        wanted = self.wanted.get(entry.path)
        if wanted is None:
            kind, wrong = DifferenceKind.EXTRA, [f"a {entry.kind.value} that no package explains"]
        else:
            kind = DifferenceKind.CHANGED
            wrong = [*owner_and_time(entry, wanted, self.epoch), *differences(resolved, wanted)]
            if not wrong:
                self.findings.origins[wanted.origin] += 1
                return
        if entry.path.rpartition("/")[2].startswith(".wh."):
            kind, wrong = DifferenceKind.WHITEOUT, ["hides something below it"]
        if self._explained_by_replay(entry, resolved, wanted, wrong):
            return
        self.findings.differs(kind, entry.path, "; ".join(wrong))

    def _explained_by_replay(
        self, entry: Entry, resolved: Entry, wanted: Wanted | None, wrong: list[str]
    ) -> bool:
        """Whether the replay made just this entry; without a replay, whether only one could tell."""
        if entry.odd or entry.mtime != self.epoch:
            wrong += [problem for problem in entry.odd if problem not in wrong]
            return False
        if wanted is not None and self._forged(resolved, wanted):
            return False
        if self.replayed is None:
            other_bytes = wanted is not None and resolved.content != wanted.content
            if other_bytes and entry.path not in _ACCOUNTS:  # to which a package's script may add
                return False
            self.findings.unexplained(entry.path)
            return True
        again = self.replayed.get(entry.path)
        if again == resolved:
            self.findings.replayed(entry.path)
            return True
        wrong.append("no replay makes it" if again is None else "a replay makes another")
        return False

    def _forged(self, resolved: Entry, wanted: Wanted) -> bool:
        """A package's own file with bytes of no package. A replay in the same build container would make them
        again; a package that replaces or diverts another one's file brings bytes of its own.
        """
        return (
            wanted.origin is Origin.ARTIFACT
            and resolved.kind is wanted.kind is Kind.FILE
            and resolved.content != wanted.content
            and resolved.content not in self.packaged
        )


def by_path(entries: Iterable[Entry]) -> dict[str, Entry]:
    """The entries of a replayed layer, hard links resolved as the comparison resolves them."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found[entry.path] = _resolve(entry, found)
    return found


def _resolve(entry: Entry, seen: Mapping[str, Entry]) -> Entry:
    """As the other layers' are resolved, but that one with a mode of its own stays a hard link."""
    found = resolve(entry, seen)
    return found if found.mode == entry.mode else entry
