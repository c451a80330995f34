"""A Debian tree from exactly these packages: mmdebstrap on a private repository, as root or not."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

from builder.bootstrap.children import Host, last_words
from builder.bootstrap.lock import Deb
from images.errors import BuildFailed, HostError

# Debian keeps some programs out of an ordinary user's PATH.
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_DEBIAN_NAMES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class Mode(StrEnum):
    """How mmdebstrap becomes root inside the tree."""

    ROOT = "root"
    UNSHARE = "unshare"


def default_mode() -> Mode:
    """ROOT for root, who may have no subordinate ids; UNSHARE for everybody else."""
    return Mode.ROOT if os.geteuid() == 0 else Mode.UNSHARE


@contextmanager
def debian_tree(host: Host, pool: Path, debs: Sequence[Deb], epoch: int, mode: Mode) -> Iterator[Path]:
    """The tar of a tree made of ``debs`` (all in ``pool``) and nothing else; it is gone afterwards.

    Raises BuildFailed with mmdebstrap's last words.
    """
    _require_native(debs)
    host.work.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=_prefix(host), dir=host.work))
    try:
        folder.chmod(0o755)
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o1777)
        _repository(host, pool, debs, folder / "repository")
        yield _mmdebstrap(host, debs, folder, epoch, mode)
    finally:
        remove_tree(host, folder)


def left_trees(host: Host) -> tuple[Path, ...]:
    """The trees that a killed bootstrap with this cache left, if no other one runs."""
    found = sorted(host.work.glob(_prefix(host) + "*"))
    return tuple(
        path
        for path in found
        if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid()
    )


def _prefix(host: Host) -> str:
    """Names ours among those of other states in the same place."""
    return f"builder-bootstrap-{hashlib.sha256(os.fsencode(host.cache)).hexdigest()[:12]}-"


def remove_tree(host: Host, folder: Path) -> None:
    """Remove a tree, also one that is not ours inside."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        # mmdebstrap was killed, and what it left belongs to the subordinate ids.
        host.call("mmdebstrap", "--unshare-helper", "rm", "-rf", str(folder), extra={"PATH": _PATH})
        shutil.rmtree(folder, ignore_errors=True)


def _require_native(debs: Sequence[Deb]) -> None:
    """Maintainer scripts run while the tree is made, so it is made on its own architecture only."""
    machine = os.uname().machine
    foreign = {deb.architecture for deb in debs} - {"all", _DEBIAN_NAMES.get(machine, machine)}
    if foreign:
        raise HostError(
            f"the packages are for {', '.join(sorted(foreign))}, and this machine is {machine}",
            where="bootstrap.lock",
            hint="run it on such a machine, or take images from a registry",
        )


def _repository(host: Host, pool: Path, debs: Sequence[Deb], repository: Path) -> None:
    """A flat repository of public bytes, readable by everybody: mmdebstrap's apt runs under another id."""
    repository.mkdir()
    repository.chmod(0o755)
    for deb in debs:
        shutil.copyfile(pool / deb.file_name, repository / deb.file_name)
        (repository / deb.file_name).chmod(0o644)
    outcome = host.call("apt-ftparchive", "packages", ".", working_dir=repository)
    if not outcome.ok:
        raise BuildFailed(f"apt-ftparchive failed: {last_words(outcome)}", where="bootstrap")
    if outcome.stdout_truncated:
        raise BuildFailed("the package index is too large", where="bootstrap")
    (repository / "Packages").write_bytes(outcome.stdout)
    (repository / "Packages").chmod(0o644)


def _mmdebstrap(host: Host, debs: Sequence[Deb], folder: Path, epoch: int, mode: Mode) -> Path:
    tar = folder / "tree.tar"
    names = ",".join(sorted(deb.name for deb in debs))
    argv = (
        "mmdebstrap",
        f"--mode={mode}",
        "--variant=minbase",
        "--format=tar",
        f"--include={names}",
        '--aptopt=Acquire::Languages "none"',
        # The tree is thrown away when the machine goes down: nothing is gained by waiting for its disk.
        "--dpkgopt=force-unsafe-io",
        "",
        str(tar),
        f"deb [trusted=yes] copy:{folder / 'repository'} ./",
    )
    outcome = host.call(
        # Modes of files that maintainer scripts write follow the umask, which is the caller's business.
        "sh", "-c", 'umask 022 && exec "$@"', "sh", *argv,
        deadline=1800.0,
        grace=30.0,  # it unmounts and removes its tree when it is told to end
        extra={"SOURCE_DATE_EPOCH": str(epoch), "TMPDIR": str(folder / "tmp"), "PATH": _PATH},
    )  # fmt: skip
    if outcome.exit_code == 127:
        raise HostError("mmdebstrap is not installed", hint="tools/setup-machine")
    if not outcome.ok:
        raise BuildFailed(
            f"mmdebstrap --mode={mode} failed: {last_words(outcome)}",
            where="bootstrap",
            hint="tools/setup-machine --user $(id -un)" if mode is Mode.UNSHARE else "df -h /var/tmp",
        )
    return tar
