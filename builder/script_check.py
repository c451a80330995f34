"""What runs in the build is what its own package says: the lock's install scripts against the tarballs."""

from __future__ import annotations

from builder.resolve.tarball import read_package
from builder.store import ContentStore
from images.errors import PinError
from images.lock import Lock


def require_own_scripts(lock: Lock, store: ContentStore) -> None:
    """Of each artifact whose scripts run: they are the ones in its tarball, in the store already.

    `builder lock` took them from there; a lock that somebody wrote otherwise would run something else under
    the name of a package that is allowed to. PinError names the artifact.
    """
    for artifact in lock.artifacts:
        if not artifact.scripts_run:
            continue
        with store.open(artifact.integrity, artifact.label) as file:
            facts = read_package(file, artifact.label)
        if facts.scripts != artifact.scripts:
            raise PinError(
                "its install scripts in the lock are not those in its tarball",
                where=artifact.label,
                hint="find out who edited the lock, then: builder lock",
                reason="integrity",
            )
