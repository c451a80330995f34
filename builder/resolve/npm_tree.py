"""From npm's package-lock.json to one platform's tree: foreign packages dropped, missing ones found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from builder.resolve.npm_platform import Declared, NpmPlatform, accepts, names_another_libc
from images.config import check_version
from images.digests import Integrity
from images.errors import PinError, UsageError
from images.lock_reader import NPM_NAME, TREE_PATH
from images.strictjson import JsonValue, is_number, read_object

MAX_LOCK_BYTES: Final = 32 * 1024 * 1024
MAX_PACKAGES: Final = 20_000
HINT: Final = "pin another version in builder.toml, then: builder lock"


@dataclass(frozen=True, slots=True)
class NpmEntry:
    """One package in npm's lock. ``integrity`` is None for one that travels in another's tarball."""

    path: str
    name: str
    version: str
    integrity: Integrity | None
    declared: Declared
    optional: bool
    bundled: bool
    needs: tuple[str, ...]  # dependencies: names
    wants: tuple[tuple[str, str], ...]  # optional dependencies: name, range
    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """An optional dependency that npm left out of its lock, and who asked for it."""

    name: str
    range: str
    parent: str  # name@version


@dataclass(frozen=True, slots=True)
class NpmTree:
    """What one platform needs: packages with a tarball, packages inside tarballs, and what is not there."""

    packages: tuple[NpmEntry, ...]
    bundled: tuple[NpmEntry, ...]
    missing: tuple[Missing, ...] = field(default=())


def read_npm_lock(raw: bytes, what: str) -> dict[str, NpmEntry]:
    """npm's lock, strictly: path in the tree -> entry; the root has the path ''.

    Raises PinError for an entry that is a link, is not from the registry, or has no usable integrity.
    """
    document = read_object(raw, f"package-lock.json of {what}", max_bytes=MAX_LOCK_BYTES, error=PinError)
    packages = document.get("packages")
    known = is_number(document.get("lockfileVersion"), 3)
    if not known or not isinstance(packages, dict) or len(packages) > MAX_PACKAGES:
        raise PinError("npm wrote a lock of an unknown form", where=what, hint=HINT)
    return {path: _entry(path, value, what) for path, value in packages.items()}


def prune(entries: dict[str, NpmEntry], platform: NpmPlatform, what: str) -> NpmTree:
    """Walk from the root as Node resolves names; keep what this platform uses.

    Raises PinError naming a package that must be there and is not, or is for another platform.
    """
    if "" not in entries:
        raise PinError("npm wrote a lock without a root", where=what, hint=HINT)
    kept: dict[str, NpmEntry] = {}
    missing: set[tuple[str, str, str]] = set()
    waiting = [entries[""]]
    while waiting:
        parent = waiting.pop()
        label = f"{parent.name}@{parent.version}" if parent.path else what
        for name, wanted_range, optional in _dependencies(parent):
            found = _lookup(entries, parent.path, name)
            if found is None:
                if optional:
                    missing.add((name, wanted_range, label))
                elif name not in parent.peers:  # peers may be left to the operator: npm reports those itself
                    raise PinError(f"{label} needs {name}, which npm did not resolve", where=what, hint=HINT)
                continue
            if not _belongs(found, platform):
                if optional or found.optional:
                    continue
                raise PinError(
                    f"{found.name}@{found.version} does not support {platform.os} {platform.cpu}"
                    f" {platform.libc}, and {label} needs it",
                    where=what,
                    hint="pin a version that does, or take the platform out of image.platforms",
                )
            if found.path not in kept:
                kept[found.path] = found
                waiting.append(found)
    ordered = [kept[path] for path in sorted(kept)]
    return NpmTree(
        packages=tuple(entry for entry in ordered if not entry.bundled),
        bundled=tuple(entry for entry in ordered if entry.bundled),
        missing=tuple(Missing(*item) for item in sorted(missing)),
    )


def _dependencies(entry: NpmEntry) -> Iterator[tuple[str, str, bool]]:
    optional = {name for name, _ in entry.wants}
    for name, wanted_range in entry.wants:
        yield name, wanted_range, True
    for name in (*entry.needs, *entry.peers):
        if name not in optional:
            yield name, "", False


def _lookup(entries: dict[str, NpmEntry], path: str, name: str) -> NpmEntry | None:
    """As Node does: below the package itself, then below each package around it, then at the top."""
    for place in places(path):
        found = entries.get(f"{place}node_modules/{name}")
        if found is not None:
            return found
    return None


def places(path: str) -> Iterator[str]:
    """The prefixes under which a package at ``path`` looks for ``node_modules/NAME``, nearest first."""
    while path:
        yield f"{path}/"
        path = path.rpartition("/node_modules/")[0]
    yield ""


def _belongs(entry: NpmEntry, platform: NpmPlatform) -> bool:
    if not accepts(entry.declared, platform):
        return False
    return not (entry.optional and not entry.declared.libc and names_another_libc(entry.name, platform))


def _entry(path: str, value: JsonValue, what: str) -> NpmEntry:
    if not isinstance(value, dict) or (path and not TREE_PATH.fullmatch(path)):
        raise PinError(f"npm's lock has an entry {path[:120]!r} that is no package", where=what, hint=HINT)
    name = value.get("name") if path else "root"
    name = name if isinstance(name, str) else path.rpartition("node_modules/")[2]
    if value.get("link") or "resolved" in value:
        raise PinError(
            f"{name[:120]} does not come from the registry: a link, file, Git or URL dependency",
            where=what,
            hint="pin a version whose dependencies are all published",
        )
    bundled = value.get("inBundle") is True
    return NpmEntry(
        path=path,
        name=_name(name, what),
        version=_version(value.get("version"), name, what) if path else "0.0.0",
        integrity=None if bundled or not path else _integrity(value.get("integrity"), name, what),
        declared=Declared(_texts(value, "os"), _texts(value, "cpu"), _texts(value, "libc")),
        optional=value.get("optional") is True,
        bundled=bundled,
        needs=tuple(name for name, _ in _map(value, "dependencies")),
        wants=_map(value, "optionalDependencies"),
        peers=tuple(name for name, _ in _map(value, "peerDependencies")),
    )


def _name(name: str, what: str) -> str:
    if not NPM_NAME.fullmatch(name):
        raise PinError(f"{name[:120]!r} is not the name of an npm package", where=what, hint=HINT)
    return name


def _version(value: JsonValue, name: str, what: str) -> str:
    try:
        return check_version(value if isinstance(value, str) else "")
    except ValueError:
        raise PinError(f"{name[:120]} has no exact version in npm's lock", where=what, hint=HINT) from None


def _integrity(value: JsonValue, name: str, what: str) -> Integrity:
    """The strongest of the hashes that npm gives, which are separated by spaces; SHA-1 alone does not do."""
    hashes = value.split() if isinstance(value, str) else []
    for algorithm in ("sha512-", "sha256-"):
        for text in hashes:
            if text.startswith(algorithm):
                try:
                    return Integrity.from_sri(text)
                except UsageError:
                    break
    raise PinError(f"the registry gives no SHA-512 or SHA-256 for {name[:120]}", where=what, hint=HINT)


def _map(value: dict[str, JsonValue], key: str) -> tuple[tuple[str, str], ...]:
    found = value.get(key)
    if not isinstance(found, dict):
        return ()
    return tuple(sorted((name, text) for name, text in found.items() if isinstance(text, str)))


def _texts(value: dict[str, JsonValue], key: str) -> tuple[str, ...]:
    found = value.get(key)
    if isinstance(found, str):
        return (found,)
    return tuple(item for item in found if isinstance(item, str)) if isinstance(found, list) else ()
