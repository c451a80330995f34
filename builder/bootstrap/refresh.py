"""Resolve a bootstrap.lock again, into a copy that can be reviewed as a diff."""

from __future__ import annotations

import difflib
import hashlib
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from builder.bootstrap.assemble import publish
from builder.bootstrap.children import Host, last_words
from builder.bootstrap.debian import apt_for, merge
from builder.bootstrap.lock import BootstrapLock, Deb, ImagePins, Wheel, render_lock
from builder.bootstrap.making import Job, made
from builder.bootstrap.wheels import fetch_wheel, pip
from builder.roles import Role
from images.digests import Digest
from images.errors import NetworkFailed, NetworkReason, PinError
from provenance.layout_writing import init_layout
from provenance.writing import replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """A lock that was resolved again; ``difference`` is a unified diff, empty when nothing changed.

    The difference of a copy also lies beside it, in a file named ``bootstrap.lock.diff``.
    """

    lock: BootstrapLock
    path: Path
    difference: str


def refresh(job: Job, original: Path, output: Path, roles: Collection[Role] = frozenset(Role)) -> Refreshed:
    """Resolve all pins of these roles anew, make their images, write the copy with the digests to ``output``.

    Debian packages move to what the sources offer today; wheels move only when the pinned one is gone; Go
    modules stay, and so do the pins of the other roles. ``original`` is the lock that ``output`` stands in
    for; both the same: it is replaced.
    """
    init_layout(job.layout)
    before = original.read_bytes()
    in_place = output.resolve() == original.resolve()
    lock = replace(
        job.lock,
        refreshed_from="" if in_place else str(Digest.of(before)),
        debs=_resolve(job, roles),
        node=_living(job.host, job.lock.node),
        uv=_living(job.host, job.lock.uv),
    )
    pins: list[tuple[Role, ImagePins]] = []
    for role in Role:
        if role not in roles:
            pins.append((role, lock.pins(role)))
            continue
        with made(replace(job, lock=lock), role) as (image, _):
            publish(image, job.layout)
            pins.append((role, image.pins))
            job.host.progress(f"{role}: {image.pins.manifest}")
    lock = replace(lock, images=tuple(pins))
    written = render_lock(lock)
    output.parent.mkdir(parents=True, exist_ok=True)
    replace_file(output, written)
    difference = _difference(before, written, output)
    review = "git diff" if in_place else str(output.with_name(output.name + ".diff"))
    if not in_place:
        replace_file(Path(review), difference.encode())
    job.host.progress(f"{output.name}: {_summary(job.lock, lock)}; to review it: {review}")
    return Refreshed(lock=lock, path=output, difference=difference)


def _resolve(job: Job, roles: Collection[Role]) -> tuple[Deb, ...]:
    apt = apt_for(job.host, job.lock.platform.architecture)
    job.host.progress("resolving Debian packages")
    trouble = apt.update()
    try:
        return merge(
            [
                (role, apt.resolve(job.lock.pins(role).asked) if role in roles else job.lock.debs_of(role))
                for role in Role
            ]
        )
    except PinError:
        if trouble:
            raise NetworkFailed(
                NetworkReason.UNREACHABLE, f"apt cannot read the package lists: {trouble}"
            ) from None
        raise


def _living(host: Host, wheel: Wheel) -> Wheel:
    """The wheel itself while it is offered, else the newest of its name; then trusted on first use."""
    try:
        fetch_wheel(host, wheel)
    except PinError:
        return _newest(host, wheel.name)
    return wheel


def _newest(host: Host, name: str) -> Wheel:
    wheels = host.cache / "wheels"
    with tempfile.TemporaryDirectory(prefix="newest-", dir=wheels) as folder:
        outcome = host.call(
            *pip(host), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder, name
        )  # fmt: skip
        found = sorted(Path(folder).glob("*.whl"))
        if not outcome.ok or len(found) != 1:
            raise PinError(f"pip finds no wheel of {name}: {last_words(outcome)}")
        wheel = Wheel(name, found[0].name.split("-")[1], hashlib.sha256(found[0].read_bytes()).hexdigest())
        kept = wheels / wheel.sha256 / found[0].name
        kept.parent.mkdir(exist_ok=True)
        found[0].replace(kept)
    return wheel


def _summary(before: BootstrapLock, after: BootstrapLock) -> str:
    """How many pins moved, for people."""
    old, new = ({*lock.debs, lock.node, lock.uv} for lock in (before, after))
    return f"{len(old - new)} pins gone, {len(new - old)} new"


def _difference(original: bytes, written: bytes, output: Path) -> str:
    lines = difflib.unified_diff(
        original.decode().splitlines(keepends=True),
        written.decode().splitlines(keepends=True),
        "bootstrap.lock",
        str(output),
        n=0,
    )
    return "".join(lines)
