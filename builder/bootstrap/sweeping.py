"""What bootstrap leaves in its cache: half-made things of killed ones, and downloads that no pin names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from builder.bootstrap.children import Host
from builder.bootstrap.golang import programs_key
from builder.bootstrap.lock import BootstrapLock
from builder.bootstrap.making import STAGING_PREFIX
from builder.bootstrap.rootfs import left_trees, remove_tree
from builder.storage.removing import remove_tree as remove_filled

# Every directory that bootstrap makes things in before it gives them their name.
_HALF_MADE: Final = (f"{STAGING_PREFIX}*", "wheels/newest-*", "go/*/.new-*", "go-toolchain/.new-*")


def leftovers(host: Host) -> tuple[Path, ...]:
    """What killed bootstraps left half-made. Only while no other one runs with this cache."""
    found = [path for pattern in _HALF_MADE for path in sorted(host.cache.glob(pattern))]
    return (*left_trees(host), *found)


def unneeded(cache: Path, lock: BootstrapLock) -> tuple[Path, ...]:
    """Downloads and programs that this lock does not name: of older pins."""
    debs = {deb.file_name for deb in lock.debs}
    wheels = {wheel.sha256 for wheel in (lock.node, lock.uv, lock.go.wheel)}
    wanted = {
        "debs": debs,
        "wheels": wheels,
        "go": {programs_key(lock.go)},
        "go-toolchain": {lock.go.wheel.sha256},
    }
    return tuple(path for name, names in wanted.items() for path in _others(cache / name, names))


def remove_leftover(host: Host, path: Path) -> None:
    """Remove one of them, whatever modes an unpacked archive gave it."""
    if path.parent == host.work:
        remove_tree(host, path)
    elif path.is_dir() and not path.is_symlink():
        remove_filled(path)
    else:
        path.unlink(missing_ok=True)


def _others(folder: Path, names: set[str]) -> Iterator[Path]:
    for path in sorted(folder.glob("*")):
        if path.name not in names:
            yield path
