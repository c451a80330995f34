"""Make the three images from a lock, or find them made already."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builder.bootstrap import contents
from builder.bootstrap.assemble import Made, check_expected, make_image, publish
from builder.bootstrap.children import Host
from builder.bootstrap.debian import apt_for, fetch_debs
from builder.bootstrap.golang import build_programs
from builder.bootstrap.lock import BootstrapLock
from builder.bootstrap.rootfs import Mode, debian_tree, default_mode
from builder.bootstrap.tree import read_tree
from builder.bootstrap.wheels import fetch_wheel
from builder.roles import Role
from images.digests import Digest
from images.errors import VerifyFailed
from provenance.layout import list_images, open_image
from provenance.layout_writing import init_layout

STAGING_PREFIX: Final = "image-"  # of directories in the cache that live as long as the making of an image


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrapped:
    """The platform manifest digests of the three images, and the path of the init inside the base."""

    base: Digest
    build_container: Digest
    resolver: Digest
    init: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that making needs: ``modules`` is the folder of go.mod and go.sum."""

    layout: Path
    host: Host
    lock: BootstrapLock
    modules: Path
    mode: Mode


def find_images(layout: Path, lock: BootstrapLock) -> Bootstrapped | None:
    """The three images when the layout names them all, else None. Whoever opens one re-hashes it."""
    return bootstrapped(lock) if all(find_image(layout, lock, role) for role in Role) else None


def find_image(layout: Path, lock: BootstrapLock, role: Role) -> Digest | None:
    """One image when the layout names it, else None."""
    digest = lock.pins(role).manifest
    if not (layout / "oci-layout").exists():
        return None
    return digest if any(image.digest == digest for image in list_images(layout)) else None


def bootstrapped(lock: BootstrapLock) -> Bootstrapped:
    """What the lock says will come out."""
    return Bootstrapped(
        base=lock.pins(Role.BASE).manifest,
        build_container=lock.pins(Role.BUILD_CONTAINER).manifest,
        resolver=lock.pins(Role.RESOLVER).manifest,
        init=lock.init,
    )


def make_missing(job: Job, roles: Collection[Role] = frozenset(Role)) -> Bootstrapped:
    """Make what the layout lacks of these roles, and nothing else: a resolver alone compiles nothing.

    Every result is checked against the lock before it is stored.
    """
    init_layout(job.layout)
    for role in (role for role in Role if role in roles):
        if _is_there(job.layout, job.lock, role):
            job.host.progress(f"{role}: there already")
            continue
        with made(job, role) as (image, plan):
            check_expected(image, job.lock.pins(role), plan, job.host.cache / "differences")
            publish(image, job.layout)
            job.host.progress(f"{role}: {image.pins.manifest}")
    return bootstrapped(job.lock)


@contextmanager
def made(job: Job, role: Role) -> Iterator[tuple[Made, contents.Plan]]:
    """One image, made from the lock's pins, in a temporary place that is gone afterwards."""
    job.host.progress(f"{role}: making it")
    debs = job.lock.debs_of(role)
    job.host.cache.mkdir(parents=True, exist_ok=True)
    pool = fetch_debs(apt_for(job.host, job.lock.platform.architecture), debs)
    with (
        tempfile.TemporaryDirectory(prefix=STAGING_PREFIX, dir=job.host.cache) as staging,
        debian_tree(job.host, pool, debs, job.lock.epoch, job.mode) as tar,
    ):
        plan = _plan(job, role, tar)
        yield make_image(role, plan, job.lock.pins(role).asked, job.lock, Path(staging)), plan


def _plan(job: Job, role: Role, tar: Path) -> contents.Plan:
    debian = read_tree(tar, job.lock.epoch)
    if role is Role.BASE:
        return contents.base(debian, job.lock.init)
    if role is Role.RESOLVER:
        return contents.resolver(
            debian, fetch_wheel(job.host, job.lock.node), fetch_wheel(job.host, job.lock.uv)
        )
    return contents.build_container(debian, build_programs(job.host, job.lock.go, job.modules))


def _is_there(layout: Path, lock: BootstrapLock, role: Role) -> bool:
    digest = find_image(layout, lock, role)
    if digest is None:
        return False
    try:
        open_image(layout, digest)
    except VerifyFailed:
        return False  # a damaged copy is made again: the blobs are replaced under the same names
    return True


def new_job(layout: Path, host: Host, lock: BootstrapLock, modules: Path, mode: Mode | None) -> Job:
    """A job with the mode that fits the user, unless one is asked for."""
    return Job(layout=layout, host=host, lock=lock, modules=modules, mode=mode or default_mode())
