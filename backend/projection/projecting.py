"""Put a projection's files and links into a started container: by an exec's standard input, read back."""

from __future__ import annotations

import io
import tarfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from backend.account import Account, agent_exec
from backend.engines.client import complaint
from images.errors import HostError, LaunchReason, LaunchRefused
from images.redaction import hide

if TYPE_CHECKING:
    from backend.engines.protocol import Engine
    from backend.projection.placing import Projection

PROJECT_SECONDS: Final = 30.0
_STAT: Final = 5  # fields of a line of stat
# $1 is HOME, the rest the paths to tell of. None of them is there yet: nothing is written over or through.
SCRIPT: Final = """
umask 077
cd "$1" && shift || exit 1
for path in "$@"; do
    [ ! -e "$path" ] && [ ! -L "$path" ] || { echo "$path is there already" >&2; exit 1; }
done
tar -x -k -m -p -f - && stat -c '%n|%F|%a|%u:%g|%s' -- "$@" || exit 1
for path in "$@"; do
    [ ! -L "$path" ] || { printf '%s|%s\\n' "$path" "$(readlink -- "$path")" && [ -d "$path/." ]; } || exit 1
done
"""


def project(engine: Engine, container: str, account: Account, projection: Projection) -> tuple[str, ...]:
    """Nothing of the agent runs yet. Returns the names of what is in place; where that is none, asks nothing.

    Raises LaunchRefused when the files are not exactly as planned, HostError when the engine's client failed.
    The values are in no argument, variable or file of the host: they go through one pipe.
    """
    if not projection.files() and not projection.links():
        return ()
    planned = _planned(projection, account)
    argv = ("sh", "-c", SCRIPT, "sh", account.home, *(row[0] for row in planned if len(row) == _STAT))
    outcome = engine.exec(
        container, agent_exec(account, argv), stdin=_tar(projection), deadline=PROJECT_SECONDS
    )
    if outcome.ok and _found(outcome.stdout) == planned:
        return projection.names
    said = hide(complaint(outcome.stderr) or outcome.ending.value, projection.secrets)
    state = engine.inspect(container)
    if state is None or not state.running:
        raise HostError(
            f"the container ended while the agent was set up: {said}",
            where=engine.product,
            hint="builder doctor",
            reason="container-lost",
        )
    raise LaunchRefused(
        LaunchReason.PROJECTION,
        "the agent's own files are not in place as planned: "
        + ("their owner, mode, size or target differs" if outcome.ok else said),
        where=", ".join(projection.names) or "HOME",
        hint="builder doctor",
    )


def _planned(projection: Projection, account: Account) -> list[tuple[str, ...]]:
    """What ``stat`` says of each directory, file and link, in the order asked: path, kind, mode, owner, size;
    then of each link its path and target."""
    ids = f"{account.uid}:{account.gid}"
    return [
        *((path, "directory", "700", ids, "") for path in _directories(projection)),
        *(
            (file.path, "regular file", "600", ids, str(len(file.content.reveal())))
            for file in projection.files()
        ),
        *(
            (link.path, "symbolic link", "777", ids, str(len(link.target.encode())))
            for link in projection.links()
        ),
        *((link.path, link.target) for link in projection.links()),
    ]


def _found(stdout: bytes) -> list[tuple[str, ...]]:
    """The same, as the container tells it; a directory's size is the kernel's affair."""
    rows = [line.split("|") for line in stdout.decode("utf-8", "replace").splitlines()]
    return [
        (*row[: _STAT - 1], "" if row[1] == "directory" else row[-1]) if len(row) == _STAT else tuple(row)
        for row in rows
    ]


def _tar(projection: Projection) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in _directories(projection):
            member = tarfile.TarInfo(path)
            member.type, member.mode = tarfile.DIRTYPE, 0o700
            tar.addfile(member)
        for file in projection.files():
            content = file.content.reveal()
            member = tarfile.TarInfo(file.path)
            member.mode, member.size = 0o600, len(content)
            tar.addfile(member, io.BytesIO(content))
        for link in projection.links():
            member = tarfile.TarInfo(link.path)
            member.type, member.mode, member.linkname = tarfile.SYMTYPE, 0o777, link.target
            tar.addfile(member)
    return out.getvalue()


def _directories(projection: Projection) -> list[str]:
    """Each directory after the one that it lies in."""
    own = [file.path for file in projection.files()] + [link.path for link in projection.links()]
    paths = map(PurePosixPath, own)
    return sorted({str(parent) for path in paths for parent in path.parents} - {"."})
