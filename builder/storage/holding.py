"""What a state must keep: every image that something holds, why, and all that these images and locks name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from backend.journal import Journal
from builder.bootstrap import LOCK_NAME, lock_in_use
from builder.bootstrap.lock import load_lock
from builder.roles import Role
from builder.state import State
from builder.storage.references import Kind, Reference, mentioned_in, read_references
from builder.workshop import Workshop, given_image
from images.digests import Digest
from images.errors import StateError, VerifyFailed
from images.lockfile import MAX_LOCK_BYTES
from images.oci import Index, Manifest
from provenance.bundles import BUNDLE_TYPE, MAX_BUNDLE_BYTES
from provenance.layout import blob_path, is_image, read_blob, read_index, read_manifest_or_index
from provenance.ledger import LedgerEntry, entry_of_bundle, open_ledger
from provenance.referrers import LOCK_TYPE

# How long a file stays that was added by hand and that no lock names.
ADDED_FOR: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What may go although it is proved: all but the newest ``keep`` of a name, what was built before
    ``older_than`` ago; with both, what is neither among the newest nor young. None: nothing.
    """

    now: datetime
    keep: int | None = None
    older_than: timedelta | None = None

    def spares(self, rank: int, built: datetime) -> bool:
        """Whether an image stays that is the ``rank``-th newest of its name (0 is the newest)."""
        among = self.keep is not None and rank < self.keep
        young = self.older_than is not None and self.now - built <= self.older_than
        return (self.keep is None and self.older_than is None) or among or young


@dataclass(slots=True)
class Holdings:
    """What is held and what is not. ``held``: digest of a manifest -> why. ``named``: all that locks name."""

    held: dict[Digest, str] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    loose: dict[Digest, str] = field(default_factory=dict)
    alive: list[Reference] = field(default_factory=list)
    dead: list[tuple[Reference, str]] = field(default_factory=list)
    blobs: set[Digest] = field(default_factory=set)
    needs: dict[Digest, frozenset[Digest]] = field(default_factory=dict)
    about: dict[Digest, Digest] = field(default_factory=dict)
    past: dict[Digest, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Layout:
    """The layout's index, read once: every manifest by digest, and what refers to what."""

    path: Path
    found: dict[Digest, Manifest | Index] = field(default_factory=dict)
    missing: set[Digest] = field(default_factory=set)
    referrers: dict[Digest, list[Manifest]] = field(default_factory=dict)

    def images(self) -> Iterable[Manifest]:
        return (one for one in self.found.values() if isinstance(one, Manifest) and is_image(one))

    def attached(self, image: Digest, artifact_type: str, limit: int) -> Iterable[bytes]:
        for one in self.referrers.get(image, ()):
            if one.artifact_type == artifact_type and len(one.layers) == 1:
                yield read_blob(self.path, one.layers[0], limit)


def survey(workshop: Workshop, wish: Wish) -> Holdings:
    """Everything that the state holds. StateError when something cannot be read: then nobody can say."""
    state = workshop.state
    holdings = Holdings()
    try:
        layout = _read_layout(state.layout)
        _references(state, wish, holdings)
        reasons = dict(_reasons(workshop, layout, wish, holdings))
        _follow(layout, reasons, holdings)
        _sort(layout, holdings)
    except VerifyFailed as broken:
        raise StateError(
            f"nothing is removed while the layout is damaged: {broken.what}",
            where=broken.where,
            hint="remove the damaged file, then: builder gc",
        ) from None
    return holdings


def _read_layout(path: Path) -> _Layout:
    layout = _Layout(path)
    for entry in read_index(path).manifests:
        try:
            document = read_manifest_or_index(path, entry.digest)
        except VerifyFailed as broken:
            if broken.reason != "not-found":
                raise
            layout.missing.add(entry.digest)
            continue
        layout.found[entry.digest] = document
        if isinstance(document, Manifest) and document.subject is not None:
            layout.referrers.setdefault(document.subject.digest, []).append(document)
    return layout


def _references(state: State, wish: Wish, holdings: Holdings) -> None:
    for one in read_references(state):
        age = wish.now - one.since
        why = ""
        if one.dead:
            why = "the lock of this project is not there any more"
        elif one.kind is Kind.ADDED and age > ADDED_FOR:
            why = f"added {age.days} days ago"
        elif one.kind is Kind.IMPORTED and wish.older_than is not None and age > wish.older_than:
            why = f"imported {age.days} days ago"
        if why:
            holdings.dead.append((one, why))
        else:
            holdings.alive.append(one)
            holdings.named |= one.mentioned


def _reasons(
    workshop: Workshop, layout: _Layout, wish: Wish, holdings: Holdings
) -> Iterable[tuple[Digest, str]]:
    """Images that something outside of the layout holds, and those that are proved."""
    state = workshop.state
    pins = load_lock(lock_in_use(state.bootstrap / LOCK_NAME))
    for role in Role:
        given = given_image(workshop.settings, role)
        digest = given.digest if given else pins.pins(role).manifest
        yield digest, f"the {role.replace('-', ' ')} in use"
    if state.journal.exists():
        with Journal.open(state.journal, state.id) as journal:
            for launch in journal.entries():
                if not launch.final:
                    yield launch.intent.image_digest, f"launch {launch.intent.launch_id} is not at its end"
    with open_ledger(state.ledger) as ledger:
        entries = {entry.digest: entry for entry in ledger.entries()}
    locks = {one.lock: one.what for one in holdings.alive}
    for digest, entry in entries.items():
        if entry.lock in locks:
            yield digest, f"built from {locks[entry.lock]}"
    yield from _proved(layout, entries, wish, holdings)


def _proved(
    layout: _Layout, entries: Mapping[Digest, LedgerEntry], wish: Wish, holdings: Holdings
) -> Iterable[tuple[Digest, str]]:
    """Images with provenance, as far as the wish spares them: newest first within each name."""
    names: dict[str, list[tuple[datetime, Digest]]] = {}
    for image in layout.images():
        entry = entries.get(image.digest) or next(
            (
                found
                for raw in layout.attached(image.digest, BUNDLE_TYPE, MAX_BUNDLE_BYTES)
                if (found := entry_of_bundle(raw, image.digest)) is not None
            ),
            None,
        )
        if entry is not None:
            names.setdefault(entry.image_name, []).append((_moment(entry.built), image.digest))
    for name, images in names.items():
        for rank, (built, digest) in enumerate(sorted(images, reverse=True)):
            if wish.spares(rank, built):
                yield digest, f"{name}, built {built:%Y-%m-%d}, has evidence"
            else:
                holdings.past[digest] = f"{name}, built {built:%Y-%m-%d}, number {rank + 1} of its name"


def _moment(text: str) -> datetime:
    """When it was built; by a builder's own clock, so that a wrong one only keeps too much."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _follow(layout: _Layout, reasons: Mapping[Digest, str], holdings: Holdings) -> None:
    """From held images to the locks attached to them, to the images that these name, until no more come."""
    waiting = [(digest, why) for digest, why in reasons.items() if digest in layout.found]
    waiting += [(digest, "named by a lock") for digest in _named(layout, holdings.named)]
    while waiting:
        digest, why = waiting.pop()
        if digest in holdings.held:
            continue
        holdings.held[digest] = why
        document = layout.found[digest]
        if isinstance(document, Index):
            children = (entry.digest for entry in document.manifests if entry.digest in layout.found)
            waiting += [(child, f"in the index {digest}") for child in children]
            continue
        for raw in layout.attached(digest, LOCK_TYPE, MAX_LOCK_BYTES):
            named = mentioned_in(raw)
            holdings.named |= named
            waiting += [(other, f"named by the lock of {digest}") for other in _named(layout, named)]


def _named(layout: _Layout, named: Iterable[str]) -> Iterable[Digest]:
    return (digest for digest in layout.found if digest in named)


def _sort(layout: _Layout, holdings: Holdings) -> None:
    """Every entry of the index is held or loose; the blobs of what is held are held."""
    subjects = set(holdings.held)
    for digest, document in layout.found.items():
        holdings.needs[digest] = _blobs_of(layout, document)
        if isinstance(document, Manifest) and document.subject is not None:
            holdings.about[digest] = document.subject.digest
        why = _loose(document, digest, subjects, layout)
        if why:
            holdings.loose[digest] = holdings.past.get(digest, why)
            continue
        if digest not in holdings.held:
            holdings.held[digest] = "evidence of one that is held" if _is_about(document) else "not an image"
        holdings.blobs |= {digest, *holdings.needs[digest]}
    for digest in layout.missing:
        holdings.loose[digest] = "its manifest is not in the layout"


def _loose(document: Manifest | Index, digest: Digest, held: set[Digest], layout: _Layout) -> str:
    """Why an entry may go; empty when it stays. What is no image, and about nothing, is somebody else's."""
    if digest in held:
        return ""
    if isinstance(document, Index):
        return "no lock, no setting and no launch needs it"
    if document.subject is not None:
        about = document.subject.digest
        known = about in layout.found or about in layout.missing
        return f"it is about {about}, which goes too" if known and about not in held else ""
    return "no evidence, lock, setting or launch needs it" if is_image(document) else ""


def _is_about(document: Manifest | Index) -> bool:
    return isinstance(document, Manifest) and document.subject is not None


def _blobs_of(layout: _Layout, document: Manifest | Index) -> frozenset[Digest]:
    """All that a manifest names; for an index, also the images that only it names, where they are here."""
    if isinstance(document, Manifest):
        return frozenset({document.config.digest, *(layer.digest for layer in document.layers)})
    found: set[Digest] = set()
    for entry in document.manifests:
        if entry.digest in layout.found or not blob_path(layout.path, entry.digest).exists():
            continue
        below = read_manifest_or_index(layout.path, entry.digest)
        found.add(entry.digest)
        if isinstance(below, Manifest):
            found |= _blobs_of(layout, below)
    return frozenset(found)
