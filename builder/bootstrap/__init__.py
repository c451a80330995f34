"""Base, build container and resolver for machines without a registry: made here, used by digest."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from builder.bootstrap.children import Host
from builder.bootstrap.lock import LOCK_NAME, load_lock
from builder.bootstrap.making import (
    Bootstrapped,
    find_image,
    find_images,
    make_missing,
    new_job,
)
from builder.bootstrap.refresh import Refreshed, refresh
from builder.bootstrap.rootfs import Mode
from builder.bootstrap.sweeping import leftovers, remove_leftover
from builder.resources import resource
from builder.roles import Role
from images.digests import Digest
from images.errors import StateError
from provenance.layout_writing import locked

__all__ = [
    "LOCK_NAME",
    "Bootstrapped",
    "Host",
    "Mode",
    "Refreshed",
    "bootstrap",
    "bootstrapped_image",
    "bootstrapped_images",
    "lock_in_use",
    "relock",
]


def lock_in_use(copy: Path) -> Path:
    """The lock that counts: a refreshed ``copy`` made from the shipped lock, else the shipped one.

    A copy made from an older shipped lock is passed over.
    """
    shipped = resource("bootstrap") / LOCK_NAME
    if copy.exists() and load_lock(copy).refreshed_from == Digest.of(shipped.read_bytes()):
        return copy
    return shipped


def bootstrap(
    layout: Path,
    host: Host,
    *,
    lock_copy: Path,
    mode: Mode | None = None,
    roles: Collection[Role] = frozenset(Role),
) -> Bootstrapped:
    """The images of these roles in ``layout``, made from pins where they are missing.

    Raises PinError for a vanished pin or an unexpected result, NetworkFailed, BuildFailed, HostError.
    """
    lock = load_lock(lock_in_use(lock_copy))
    with _alone(host):
        return make_missing(new_job(layout, host, lock, resource("bootstrap"), mode), roles)


def bootstrapped_images(layout: Path, *, lock_copy: Path) -> Bootstrapped | None:
    """The three images when the layout names them all, not re-hashed; None: run ``builder bootstrap``."""
    return find_images(layout, load_lock(lock_in_use(lock_copy)))


def bootstrapped_image(layout: Path, role: Role, *, lock_copy: Path) -> Digest | None:
    """One of the three images, if the layout names it; not re-hashed."""
    return find_image(layout, load_lock(lock_in_use(lock_copy)), role)


def relock(
    layout: Path,
    host: Host,
    *,
    output: Path,
    mode: Mode | None = None,
    roles: Collection[Role] = frozenset(Role),
) -> Refreshed:
    """Resolve what these roles take of the shipped lock again into ``output``, and make their images."""
    shipped = resource("bootstrap") / LOCK_NAME
    job = new_job(layout, host, load_lock(shipped), resource("bootstrap"), mode)
    with _alone(host):
        return refresh(job, shipped, output, roles)


@contextmanager
def _alone(host: Host) -> Iterator[None]:
    """One bootstrap at a time in a cache; a second one waits, and then finds the work done."""
    try:
        host.cache.mkdir(parents=True, exist_ok=True)
        with locked(host.cache):
            for left in leftovers(host):
                remove_leftover(host, left)
            yield
    except OSError as broken:  # everything here is our own files: a full disk, a directory of somebody else
        where = broken.filename if isinstance(broken.filename, str) else str(host.cache)
        raise StateError(
            f"cannot be written: {broken.strerror or broken}",
            where=where,
            hint=f"df -h {host.cache} {host.work}",
        ) from None
