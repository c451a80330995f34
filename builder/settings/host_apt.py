"""apt sources for the resolver, the operator's or this machine's: which archives, whose keys sign them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.errors import UsageError

MAX_FILE: Final = 1 << 20
MAX_FILES: Final = 200
_LIST_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}\.(?:list|sources)", re.ASCII)
# deb822 (a field) or one line (an option in brackets); a value that is no path is a fingerprint or a key.
_SIGNED_BY: Final = re.compile(r"(?i)(signed-by(?::[ \t]*|=))(/[^\s,\]]+)")
# The resolver has the archive's own keys, under Debian's names for them.
_KNOWN: Final = re.compile(r"/usr/share/keyrings/debian-archive-[a-z-]+\.(?:gpg|pgp)", re.ASCII)


@dataclass(frozen=True, slots=True)
class AptSources:
    """Files for a folder of apt sources, and keys that they name as ``@KEY0@``, ``@KEY1@``, …"""

    files: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # an address may hold a login
    keys: tuple[bytes, ...] = ()


def read_host_sources(etc: Path = Path("/etc/apt")) -> AptSources:
    """What apt on this machine reads; nothing where there is no apt. UsageError names an unfit file."""
    paths = [etc / "sources.list"]
    folder = etc / "sources.list.d"
    if folder.is_dir():
        paths += sorted(path for path in folder.iterdir() if _LIST_NAME.fullmatch(path.name))
    texts = []
    for path in paths[:MAX_FILES]:
        if path.is_file():
            texts.append((path.name, _read(path)))
    return _with_keys(texts)


def given_sources(raw: bytes) -> AptSources:
    """The operator's own list, one line or deb822. UsageError names a key file that is unfit."""
    name = "given.sources" if re.search(rb"(?m)^Types:", raw) else "given.list"
    return _with_keys([(name, raw)])


def _with_keys(texts: list[tuple[str, bytes]]) -> AptSources:
    keys: dict[str, bytes] = {}
    files = tuple(
        (name, _SIGNED_BY.sub(lambda found: found[1] + _key(found[2], keys), raw.decode("utf-8", "replace")))
        for name, raw in texts
    )
    return AptSources(files, tuple(keys.values()))


def _key(path: str, keys: dict[str, bytes]) -> str:
    if _KNOWN.fullmatch(path):
        return path
    if path not in keys:
        keys[path] = _read(Path(path))
    return f"@KEY{list(keys).index(path)}@"


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
    except OSError as broken:
        raise UsageError(f"cannot be read: {broken.strerror}", where=str(path)) from None
    if len(raw) > MAX_FILE:
        raise UsageError(f"more than {MAX_FILE} bytes", where=str(path))
    return raw
