"""What a CLI remembers of a conversation: taken from HOME after a run, judged, put into the next one's."""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from backend.account import Account, agent_exec
from backend.engines.client import complaint
from images.config import AgentName
from images.errors import HostError, LaunchReason, LaunchRefused, StateError
from images.redaction import hide
from provenance.stricttar import StrictTar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backend.engines.protocol import Engine
    from images.credentials import Secret

# Below HOME, files and directories, and nothing else: no settings, no caches, no credential's place.
HISTORY_PATHS: Final = {
    AgentName.CLAUDE_CODE: (".claude/projects", ".claude/history.jsonl"),
    AgentName.OPENCODE: (
        ".local/share/opencode/opencode.db",
        ".local/share/opencode/opencode.db-wal",
        ".local/share/opencode/storage",
    ),
    AgentName.PI: (".pi/agent/sessions",),
}
MAX_HISTORY: Final = 64 << 20  # bytes of all its files
MAX_FILES: Final = 2000
_MAX_DEPTH: Final = 12
_BLOCK: Final = 512
_MAX_ARCHIVE: Final = MAX_HISTORY + (MAX_FILES * 8 + 64) * _BLOCK
_SECONDS: Final = 60.0
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_.@=+-]{1,200}")
_LATEST: Final = 1 << 33
# Of these a part can be hidden and the rest still be read; in any other file it would be damage.
_TEXTS: Final = (".jsonl", ".json", ".txt", ".md")
# $1 is HOME, the rest the paths. An agent may have put anything there: what comes is judged here, not there.
TAKE: Final = (
    'cd "$1" && shift || exit 1; for path in "$@"; do shift; [ -e "$path" ] && set -- "$@" "$path"; done;'
    ' [ $# -gt 0 ] || exit 0; tar -c -f - --format=ustar --sort=name --owner=0 --group=0 -- "$@" 2>/dev/null'
    f" | head -c {_MAX_ARCHIVE + 1}"
)
PUT: Final = 'umask 077; cd "$1" && exec tar -x -p -f -'


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """One file, by its path below HOME; ``modified``: seconds, by which a CLI finds the last one."""

    path: str
    content: bytes = field(repr=False)
    modified: int


@dataclass(frozen=True, slots=True)
class History:
    """What one agent remembers. Nothing yet, in a session's first run."""

    agent: AgentName
    files: tuple[HistoryFile, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(len(file.content) for file in self.files)


def take_history(engine: Engine, container: str, account: Account, agent: AgentName) -> History:
    """As the agent left it. StateError when it is larger than what is kept, or not made of plain files."""
    argv = ("sh", "-c", TAKE, "sh", account.home, *HISTORY_PATHS[agent])
    came = bytearray()

    def take(chunk: bytes) -> None:
        if len(came) <= _MAX_ARCHIVE:
            came.extend(chunk)

    outcome = engine.exec(container, agent_exec(account, argv), on_stdout=take, deadline=_SECONDS)
    if not outcome.ok:
        raise StateError(
            f"the session cannot be taken out: {complaint(outcome.stderr) or outcome.ending.value}",
            where=engine.product,
        )
    return read_history(agent, bytes(came))


def put_history(engine: Engine, container: str, account: Account, history: History) -> None:
    """Into HOME, before the agent starts; LaunchRefused when it is not taken there."""
    if not history.files:
        return
    plan = agent_exec(account, ("sh", "-c", PUT, "sh", account.home))
    outcome = engine.exec(container, plan, stdin=write_history(history), deadline=_SECONDS)
    if outcome.ok:
        return
    state = engine.inspect(container)
    if state is None or not state.running:
        raise HostError(
            "the container ended while the session was put in place",
            where=engine.product,
            hint="builder doctor",
            reason="container-lost",
        )
    raise LaunchRefused(
        LaunchReason.PROJECTION,
        f"the session's history is not in place: {complaint(outcome.stderr) or outcome.ending.value}",
        where="HOME",
        hint="builder doctor",
    )


def read_history(agent: AgentName, raw: bytes) -> History:
    """An archive of ours or of a container, strictly: plain files and directories at the closed paths."""
    if len(raw) > _MAX_ARCHIVE:
        raise StateError(f"a session of more than {MAX_HISTORY >> 20} MiB", where="the session's archive")
    if not raw:
        return History(agent)
    files: dict[str, HistoryFile] = {}
    room = MAX_HISTORY
    try:
        with StrictTar.open(fileobj=io.BytesIO(raw), mode="r|", errorlevel=2) as archive:
            for member in _members(archive):
                path = _path(agent, member)
                if member.isdir():
                    continue
                room -= member.size
                if room < 0 or path in files:
                    raise _unfit("too large" if room < 0 else "a file twice")
                opened = archive.extractfile(member)
                content = opened.read() if opened is not None else b""
                if len(content) != member.size:
                    raise _unfit("a file that ends too early")
                files[path] = HistoryFile(path, content, min(max(int(member.mtime), 0), _LATEST))
    except (tarfile.TarError, EOFError, ValueError, OverflowError):
        raise _unfit("not a tar archive") from None
    return History(agent, tuple(files[path] for path in sorted(files)))


def write_history(history: History) -> bytes:
    """As one archive, the same for the same history."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder in _folders(history):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o700
            archive.addfile(member)
        for file in history.files:
            member = tarfile.TarInfo(file.path)
            member.mode, member.size, member.mtime = 0o600, len(file.content), file.modified
            archive.addfile(member, io.BytesIO(file.content))
    return out.getvalue()


def without_credentials(history: History, secrets: tuple[Secret, ...]) -> tuple[History, tuple[str, ...]]:
    """The same without any of these values and anything of the shape of a credential; and the files that are
    left out for it, since they are no texts in which a part could be hidden."""
    kept, left_out = [], []
    for file in history.files:
        content = hide(file.content, secrets)
        if content == file.content:
            kept.append(file)
        elif file.path.endswith(_TEXTS):
            kept.append(replace(file, content=content))
        else:
            left_out.append(file.path)
    return History(history.agent, tuple(kept)), tuple(left_out)


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for number, member in enumerate(archive):
        if number >= 2 * MAX_FILES:
            raise _unfit(f"more than {2 * MAX_FILES} entries")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
            raise _unfit("something else than a file or a directory")
        yield member


def _path(agent: AgentName, member: tarfile.TarInfo) -> str:
    path = member.name.rstrip("/") if member.isdir() else member.name
    parts = path.split("/")
    plain = len(parts) <= _MAX_DEPTH and all(
        _SEGMENT.fullmatch(part) and part not in (".", "..") for part in parts
    )
    # A directory may also lie on the way to one of the places.
    places = HISTORY_PATHS[agent]
    within = any(path == place or path.startswith(f"{place}/") for place in places)
    above = member.isdir() and any(place.startswith(f"{path}/") for place in places)
    if not plain or not (within or above):
        raise _unfit("a path that no session has")
    return path


def _folders(history: History) -> list[str]:
    found: set[str] = set()
    for file in history.files:
        parts = file.path.split("/")[:-1]
        found |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    return sorted(found)


def _unfit(why: str) -> StateError:
    return StateError(f"the session is not kept: {why}", where="the session's archive")
