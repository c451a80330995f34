"""Base, build container and resolver for machines without a registry: made here, used by digest."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builder.bootstrap.children import Host
from builder.bootstrap.lock import LOCK_NAME, load_lock
from builder.bootstrap.making import STAGING_PREFIX, Bootstrapped, find_images, make_missing, new_job
from builder.bootstrap.refresh import Refreshed, refresh
from builder.bootstrap.rootfs import Mode, sweep
from builder.resources import resource
from images.digests import Digest
from provenance.layout_writing import locked

__all__ = [
    "Bootstrapped",
    "Host",
    "Mode",
    "Refreshed",
    "bootstrap",
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


def bootstrap(layout: Path, host: Host, *, lock_copy: Path, mode: Mode | None = None) -> Bootstrapped:
    """The three images in ``layout``, made from pins if they are missing; no work when they are there.

    Raises PinError for a vanished pin or an unexpected result, NetworkFailed, BuildFailed, HostError.
    """
    lock = load_lock(lock_in_use(lock_copy))
    with _alone(host):
        return make_missing(new_job(layout, host, lock, resource("bootstrap"), mode))


def bootstrapped_images(layout: Path, *, lock_copy: Path) -> Bootstrapped | None:
    """The three images when the layout names them all, not re-hashed; None: run ``builder bootstrap``."""
    return find_images(layout, load_lock(lock_in_use(lock_copy)))


def relock(layout: Path, host: Host, *, output: Path, mode: Mode | None = None) -> Refreshed:
    """Resolve the shipped lock again into ``output``, and make the images that come of it."""
    shipped = resource("bootstrap") / LOCK_NAME
    job = new_job(layout, host, load_lock(shipped), resource("bootstrap"), mode)
    with _alone(host):
        return refresh(job, shipped, output)


@contextmanager
def _alone(host: Host) -> Iterator[None]:
    """One bootstrap at a time in a cache; a second one waits, and then finds the work done."""
    host.cache.mkdir(parents=True, exist_ok=True)
    with locked(host.cache):
        sweep(host)
        for left in host.cache.glob(f"{STAGING_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
