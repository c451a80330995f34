"""Scans of images and archives in a child of our own runner: no keys, no network, nothing inherited."""

from __future__ import annotations

import secrets
from pathlib import Path

from backend.runner import Command, Ending, run
from builder.storage.store import ContentStore
from images.credentials import Secret
from images.digests import Digest
from images.lock import Lock
from images.oci import OciImage, Platform
from provenance.scan.allow import PackageTree
from provenance.scan.answering import answer
from provenance.scan.memory import LayerMemory
from provenance.scan.report import ScanReport
from provenance.scan.run import ChildResult, scan_archive, scan_image

DEADLINE = 900.0  # seconds; the full image takes a few
_MOST_OUTPUT = 64 * 1024 * 1024


def scan_built(
    image: OciImage,
    lock: Lock,
    platform: Platform,
    store: ContentStore,
    *,
    memory: LayerMemory | None = None,
    known: tuple[Secret, ...] = (),
) -> ScanReport:
    """Scan an image whose lock is known, and say what the base or a locked artifact answers for.

    ``memory``: for a build alone. Who looks a second time (verification, a rebuild) reads every byte again.
    ``known``: values of this host's own logins.
    """
    packages = package_trees(lock, platform)
    report = scan_image(
        image, key=_fresh_key(), run_child=run_child, packages=packages, memory=memory, known=known
    )
    return answer(report, image, lock, lambda artifact: store.open(artifact.integrity, artifact.id))


def scan_path(path: Path, digest: Digest | None = None, known: tuple[Secret, ...] = ()) -> ScanReport:
    """Scan any OCI layout or saved archive, whole, or one image of a layout; for ``known`` values too."""
    return scan_archive(path, key=_fresh_key(), run_child=run_child, digest=digest, known=known)


def package_trees(lock: Lock, platform: Platform) -> tuple[PackageTree, ...]:
    """Which directory of the image holds which package, as the lock says."""
    by_id = lock.by_id()
    return tuple(
        PackageTree(f"{one.directory.lstrip('/')}/{entry.path}", artifact.name, artifact.version)
        for one in lock.installed
        for entry in one.tree(platform).entries
        for artifact in (by_id[entry.artifact],)
    )


def run_child(argv: tuple[str, ...], request: bytes) -> ChildResult:
    """Start the scanner: request on standard input, report on standard output, an empty environment."""
    outcome = run(
        Command(
            argv=argv,
            # HOME, or Python asks the name service for it over a local socket.
            environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/"},
            deadline=DEADLINE,
            stdin=request,
            capture=_MOST_OUTPUT,
        )
    )
    if outcome.ending is not Ending.EXITED:
        return ChildResult(exit_code=None, stdout=b"", detail=f"{outcome.ending} {outcome.detail}".strip())
    if outcome.stdout_truncated:
        return ChildResult(exit_code=None, stdout=b"", detail="its report was too long")
    return ChildResult(exit_code=outcome.exit_code, stdout=outcome.stdout, stderr=outcome.stderr)


def _fresh_key() -> Secret:
    """The key of the short hashes: of this run alone, and kept nowhere."""
    return Secret(secrets.token_bytes(32))
