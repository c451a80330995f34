"""The one import: a candidate's objects become ours only after every check, under a quarantine reference."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from backend.commands import Outcome
from backend.workspace.export_frame import Frame, read_frame
from backend.workspace.export_manifest import ExportManifest, read_manifest
from backend.workspace.git import Git, Incoming, Repository, explain
from backend.workspace.refusals import CandidateReason, CandidateRefused
from backend.workspace.trees import Commit, Listing, Mode, Source, TreeLimits, list_tree
from backend.workspace.unseen import UnseenReport
from images.errors import StateError, UsageError
from provenance.writing import state_errors

QUARANTINE: Final = "refs/agent-image-builder/quarantine/"
_RUN: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}(\.[1-9][0-9]{0,6})?")
_KINDS: Final = frozenset({"commit", "tree", "blob"})
_LINE_BYTES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLimits:
    """Most bytes of the pack, objects in it, bytes of one and of all of them unpacked, and of the tree."""

    pack_bytes: int = 256 * 1024 * 1024
    objects: int = 200_000
    object_bytes: int = 128 * 1024 * 1024
    unpacked_bytes: int = 4 * 1024 * 1024 * 1024
    tree: TreeLimits = field(default_factory=TreeLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCommit:
    """Permit: an agent's commit, checked, with its objects in our repository. Constructed only here.

    ``reference``: the quarantine reference that holds it; nothing else points at it.
    ``moved_submodules``: submodules of another commit than in the base; those commits were not exported.
    """

    repository: Repository
    commit: Commit
    base: str
    reference: str
    objects: int
    branch: str
    unseen: UnseenReport
    moved_submodules: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingNew:
    """The agent made no commit. Not a failure; what it left uncommitted is in ``unseen``."""

    base: str
    unseen: UnseenReport


def import_export(
    git: Git, repository: Repository, file: Path, *, base: str, run: str, limits: ExportLimits | None = None
) -> ImportedCommit | NothingNew:
    """Take the export in ``file`` (ours, private) of a workspace that started from ``base``.

    ``run``: a run id, or RUN.STEP; its quarantine reference must not exist yet. When this raises
    (CandidateRefused, StateError), the repository has no new object and no new reference.
    """
    if not _RUN.fullmatch(run):
        raise UsageError(f"not a run id: {run[:60]!r}", hint="RUN or RUN.STEP")
    bounds = limits or ExportLimits()
    with state_errors(file):
        frame = read_frame(file, bounds.pack_bytes)
    manifest = read_manifest(frame.manifest, repository.form)
    _check_claims(frame, manifest, base, bounds)
    if manifest.commit == base:
        return NothingNew(base=base, unseen=manifest.unseen)
    reference = QUARANTINE + run
    if git.has(repository, reference).ok:
        raise _taken(reference)
    with _incoming(repository) as incoming:
        candidate = _Candidate(git, incoming, manifest, bounds)
        commit, moved = candidate.check(frame)
        _take(git, incoming, reference, commit.name)
    return ImportedCommit(
        repository=repository,
        commit=commit,
        base=base,
        reference=reference,
        objects=frame.objects,
        branch=manifest.branch or "",
        unseen=manifest.unseen,
        moved_submodules=moved,
    )


def _check_claims(frame: Frame, manifest: ExportManifest, base: str, limits: ExportLimits) -> None:
    """What the manifest says of the pack is so, before git sees a byte of it."""
    pack = manifest.pack
    if manifest.base != base:
        _refuse(CandidateReason.MANIFEST, f"for base {manifest.base}, but the workspace started from {base}")
    if (pack.size, pack.sha256) != (frame.pack_size, frame.pack_sha256):
        _refuse(CandidateReason.MANIFEST, "the pack is not the one that the manifest describes")
    if pack.objects != frame.objects:
        _refuse(CandidateReason.MANIFEST, f"{pack.objects} objects, but the pack has {frame.objects}")
    if frame.objects > limits.objects:
        _refuse(CandidateReason.TOO_LARGE, f"{frame.objects} objects; at most {limits.objects} are taken")
    if (manifest.commit == base) != (frame.pack_size == 0):
        _refuse(CandidateReason.MANIFEST, "a pack without a new commit, or a new commit without a pack")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The objects of one export, apart from ours until all of :meth:`check` has passed."""

    git: Git
    incoming: Incoming
    manifest: ExportManifest
    limits: ExportLimits

    def check(self, frame: Frame) -> tuple[Commit, tuple[bytes, ...]]:
        """The commit, and the submodules that it moved. In this order: each check trusts the one before."""
        repository, base, tip = self.incoming.repository, self.manifest.base, self.manifest.commit
        # 1. The base is here: without it nothing below can be answered.
        known = self.git.kinds(repository, (base,))
        if not known.ok or known.stdout.split()[1:2] != [b"commit"]:
            _refuse(CandidateReason.PREREQUISITES, f"base {base} is not in this repository")
        # 2. Every object is sound, and all that it names is here; under limits of memory, time and size.
        outcome = self.git.index_pack(self.incoming, frame.pack(), self.limits.pack_bytes)
        if not outcome.ok:
            _refuse(_pack_reason(outcome), f"git refuses the pack: {explain(outcome)}")
        stored = [file.stat().st_size for file in (self.incoming.objects / "pack").glob("*.pack")]
        if stored != [frame.pack_size]:  # git stops reading where the pack ends
            _refuse(CandidateReason.PACK, "something follows the pack")
        # 3. Only commits, trees and blobs, as many as were announced, each of a bounded size.
        own = self._own_objects(frame.objects)
        # 4. The tip is one of them, and is what the manifest says.
        if own.get(tip) != "commit":
            _refuse(CandidateReason.OBJECT_KIND, f"the pack has no commit {tip}")
        source = Source.of(self.git, self.incoming)
        # 5. Every name and mode of its tree is one that we would write.
        listing = list_tree(source, tip, self.limits.tree)
        if list(listing.commit.parents) != self.manifest.parents:
            _refuse(CandidateReason.MANIFEST, f"other parents than commit {tip} has")
        # 6. It descends from the base.
        outcome = self.git.is_ancestor(self.incoming, base, tip)
        if not outcome.ok:
            reason = (
                CandidateReason.NOT_DESCENDED if outcome.exit_code == 1 else CandidateReason.PREREQUISITES
            )
            _refuse(reason, f"commit {tip} does not descend from {base}: {explain(outcome)}")
        # 7. It is connected, and the pack has nothing that it does not reach.
        self._check_reach(own, tip, base)
        return listing.commit, _moved(list_tree(source, base, self.limits.tree), listing)

    def _own_objects(self, announced: int) -> dict[str, str]:
        found: dict[str, str] = {}
        left = self.limits.unpacked_bytes

        def one(line: str) -> None:
            nonlocal left
            name, kind, size = line.split(" ")
            if kind not in _KINDS:
                _refuse(CandidateReason.OBJECT_KIND, f"the pack has a {kind}: {name}")
            left -= int(size)
            if int(size) > self.limits.object_bytes or left < 0:
                _refuse(
                    CandidateReason.TOO_LARGE, f"unpacked it is too large: {kind} {name} has {size} bytes"
                )
            found[name] = kind

        outcome = self.git.own_objects(self.incoming, _by_line(one))
        if not outcome.ok:
            _refuse(CandidateReason.PACK, f"git cannot list the pack: {explain(outcome)}")
        if len(found) != announced:
            _refuse(CandidateReason.PACK, f"{len(found)} different objects, where {announced} were announced")
        return found

    def _check_reach(self, own: dict[str, str], tip: str, base: str) -> None:
        reached: set[str] = set()
        outcome = self.git.reached(self.incoming, tip, base, _by_line(reached.add))
        if not outcome.ok:
            _refuse(CandidateReason.PREREQUISITES, f"not connected to its base: {explain(outcome)}")
        # An object that we have already may come again: a pack repeats what an older commit had.
        beyond = sorted(own.keys() - reached)
        known = self.git.kinds(self.incoming.repository, beyond)
        missing = [line for line in known.stdout.splitlines() if line.endswith(b" missing")]
        if not known.ok or missing:
            name = missing[0].split()[0].decode() if missing else beyond[0]
            _refuse(
                CandidateReason.UNREACHABLE,
                f"{len(missing)} objects that commit {tip} does not reach: {name}",
            )


@contextlib.contextmanager
def _incoming(repository: Repository) -> Iterator[Incoming]:
    place = repository.path / f"incoming-{secrets.token_hex(8)}"
    with state_errors(place):
        (place / "pack").mkdir(parents=True, mode=0o700)
        try:
            yield Incoming(repository=repository, objects=place)
        finally:
            shutil.rmtree(place)


def _by_line(one: Callable[[str], None]) -> Callable[[bytes], None]:
    """Takes chunks and gives whole lines of bounded length to ``one``."""
    rest = bytearray()

    def take(chunk: bytes) -> None:
        rest.extend(chunk)
        *whole, last = bytes(rest).split(b"\n")
        rest[:] = last
        if len(last) > _LINE_BYTES:
            _refuse(CandidateReason.PACK, "git answers with a line without end")
        for line in whole:
            one(line.decode("ascii", "replace"))

    return take


def _take(git: Git, incoming: Incoming, reference: str, tip: str) -> None:
    """The pack becomes the repository's; its index last, since that is what git looks for."""
    target = incoming.repository.path / "objects/pack"
    with state_errors(target):
        target.mkdir(exist_ok=True)
        packs = sorted(
            (incoming.objects / "pack").iterdir(), key=lambda file: (file.suffix == ".idx", file.name)
        )
        for file in packs:
            if not (target / file.name).exists():
                file.rename(target / file.name)
        handle = os.open(target, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    outcome = git.point(incoming.repository, reference, tip)
    if not outcome.ok:
        if git.has(incoming.repository, reference).ok:  # somebody was faster
            raise _taken(reference)
        raise StateError(f"cannot be made: {explain(outcome)}", where=reference)


def _moved(before: Listing, after: Listing) -> tuple[bytes, ...]:
    old = {(entry.path, entry.name) for entry in before.of(Mode.SUBMODULE)}
    return tuple(e.path for e in after.of(Mode.SUBMODULE) if (e.path, e.name) not in old)


def _pack_reason(outcome: Outcome) -> CandidateReason:
    """A label only: whatever git says, the pack is refused."""
    lacks = (
        b"unresolved delta",
        b"did not receive expected object",
        b"Failed to traverse",
        b"object of unexpected",
    )
    if any(words in outcome.stderr for words in lacks):
        return CandidateReason.PREREQUISITES
    if (
        b"exceeds maximum" in outcome.stderr
        or b"Out of memory" in outcome.stderr
        or (outcome.exit_code or 0) < 0
    ):
        return CandidateReason.TOO_LARGE
    return CandidateReason.PACK


def _taken(reference: str) -> CandidateRefused:
    return CandidateRefused(CandidateReason.TAKEN, "this run has a candidate already", where=reference)


def _refuse(reason: CandidateReason, what: str) -> NoReturn:
    raise CandidateRefused(reason, what, where="export")
