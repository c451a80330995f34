"""Verification as commands use it: which image and expectation are meant, and what only builder can add."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from builder.building.base_check import read_base
from builder.building.image_check import check_image
from builder.building.scanning import scan_built
from builder.locking import Project, open_project, read_bounded, read_lock_file
from builder.state import State
from builder.storage.store import ContentStore
from builder.workshop import template_text
from images.digests import Digest
from images.errors import StateError, UsageError, VerifyFailed
from images.key import content_key
from images.lock import Lock
from images.lockfile import MAX_LOCK_BYTES, parse_lock
from images.oci import OciImage, Platform
from images.render import BuildContext, render
from provenance.audit.layertar import Entry
from provenance.audit.report import AuditReport
from provenance.audit.run import audit_image
from provenance.audit.toolchain import ToolchainGiven
from provenance.expectations import Expectation
from provenance.layout import Rehash, open_image
from provenance.ledger import open_ledger
from provenance.policy import Policy
from provenance.referrers import read_referrers
from provenance.scan.report import ScanReport
from provenance.verify import Purpose, VerificationReport, VerifyRequest, verify


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which image a command means, what it must be, and the project that names it (none for a digest).

    ``key``: the content key by which the ledger found it, when a project names it.
    """

    digest: Digest
    expectation: Expectation
    project: Project | None
    key: Digest | None = None

    @property
    def project_dir(self) -> Path | None:
        """The folder of builder.toml: no policy may lie in or under it."""
        return self.project.config_path.resolve().parent if self.project else None


def choose_image(
    state: State, words: str | None, lock: Path | None, platform: Platform, default: Path
) -> Chosen:
    """A digest, or a builder.toml (default: the one here) through its lock, its key and the ledger."""
    lock_raw = read_bounded(lock, MAX_LOCK_BYTES, hint="builder lock") if lock else None
    if words is not None and words.startswith("sha256:"):
        return Chosen(Digest(words), Expectation(lock=lock_raw), None)
    path = Path(words) if words is not None else default
    project = open_project(path / "builder.toml" if path.is_dir() else path)
    found, raw = read_lock_file(project.lock_path)
    if lock_raw is not None and lock_raw != raw:
        raise UsageError("--lock is another lock than the one beside builder.toml", where=str(lock))
    key = content_key(found, platform)
    with open_ledger(state.ledger) as ledger:
        entry = ledger.find(key, platform)
    if entry is None:
        raise UsageError(
            f"no image of this lock was built here (content key {key})",
            where=str(project.lock_path),
            hint="builder build",
        )
    return Chosen(entry.digest, Expectation(image_name=project.config.name, lock=raw), project, key)


# What the toolchain layer of a lock holds when it is made again; None when that cannot be done here.
ReplayLayer: TypeAlias = Callable[[Lock, OciImage, BuildContext], Mapping[str, Entry] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a verification needs besides the image: policy, purpose, clock, this machine's platform.

    ``replay``: makes a toolchain layer once more, for an audit; None: nobody here can. ``layout``: where the
    image lies, if it is not in the state yet.
    """

    state: State
    policy: Policy
    purpose: Purpose
    platform: Platform
    now: Callable[[], datetime]
    replay: ReplayLayer | None = None
    layout: Path | None = None

    @property
    def where(self) -> Path:
        """The layout that the image lies in."""
        return self.layout or self.state.layout


def verify_image(
    chosen: Chosen, what: Verification, *, rescan: bool, audit: bool = False
) -> VerificationReport:
    """All checks. ``rescan``: scan the local bytes again in a child. ``audit``: compare our layers with the
    lock's artifacts, as far as the store holds them.
    """
    plans = _Plans((what.where, what.state.layout))
    return verify(
        VerifyRequest(
            layout=what.where,
            digest=chosen.digest,
            platform=what.platform,
            policy=what.policy,
            expectation=chosen.expectation,
            now=what.now(),
            purpose=what.purpose,
            marks=what.state.marks,
            rescan=_rescan(chosen, ContentStore(what.state.store)) if rescan else None,
            audit=_audit(what, plans) if audit else None,
            compare_config=_compare_config(plans),
        )
    )


def _rescan(chosen: Chosen, store: ContentStore) -> Callable[[OciImage], ScanReport]:
    """Scan again as the build did. The lock only tells whose files are whose; another one clears nothing."""

    def scan(image: OciImage) -> ScanReport:
        locks = [chosen.expectation.lock] if chosen.expectation.lock else []
        locks += [attached.data for attached in read_referrers(image.layout, image.digest).locks]
        if not locks:
            raise VerifyFailed("no lock is attached to it", where=str(image.digest))
        lock = parse_lock(locks[0], error=VerifyFailed)
        return scan_built(image, lock, image.platform, store)

    return scan


@dataclass(slots=True)
class _Plans:
    """The base and the plan of an image's own lock: its generators run again, once for all checks."""

    layouts: tuple[Path, ...]
    _made: dict[Digest, tuple[OciImage, BuildContext]] = field(default_factory=dict)

    def of(self, image: OciImage, lock: Lock) -> tuple[OciImage, BuildContext]:
        """UsageError when this program is not the one that the lock was made with."""
        key = content_key(lock, image.platform)
        if key not in self._made:
            wanted = lock.base.image(image.platform).manifest
            base = self._base(wanted, image.platform)
            self._made[key] = base, render(lock, image.platform, template_text(), read_base(base))
        return self._made[key]

    def _base(self, wanted: Digest, platform: Platform) -> OciImage:
        """Its layers are read to their ends, and so hashed, for what the base holds."""
        *others, last = self.layouts
        for layout in others:
            with contextlib.suppress(VerifyFailed):
                return open_image(layout, wanted, platform, rehash=Rehash.LATER)
        return open_image(last, wanted, platform, rehash=Rehash.LATER)


def _compare_config(plans: _Plans) -> Callable[[OciImage, Lock], None]:
    """Hold the image's configuration against its lock's plan."""

    def compare(image: OciImage, lock: Lock) -> None:
        base, context = plans.of(image, lock)
        check_image(image, base, context)

    return compare


def _audit(what: Verification, plans: _Plans) -> Callable[[OciImage, Lock], AuditReport]:
    """Audit from the store alone: nothing is fetched, so a missing artifact is a StateError."""
    store = ContentStore(what.state.store)

    def audit(image: OciImage, lock: Lock) -> AuditReport:
        base, context = plans.of(image, lock)
        wanted = [item.artifact for item in context.artifacts]
        missing = [artifact.id for artifact in wanted if not store.holds(artifact.integrity)]
        if missing:
            raise StateError(
                f"{len(missing)} of {len(wanted)} artifacts are not in the store ({missing[0]})",
                hint="builder lock",
                reason="not-in-store",
            )
        return audit_image(
            image,
            lock.base.image(image.platform),
            context,
            lambda artifact: store.open(artifact.integrity, artifact.id),
            workers=os.cpu_count() or 1,
            toolchain=_toolchain(what, lock, base, context),
        )

    return audit


def _toolchain(
    what: Verification, lock: Lock, base: OciImage, context: BuildContext
) -> ToolchainGiven | None:
    if context.toolchain is None:
        return None
    replay = what.replay
    again = None if replay is None else lambda: replay(lock, base, context)
    return ToolchainGiven(read_base(base).debian, again)
