"""What a package's own tarball says: its dependencies, commands and install scripts. Nothing is unpacked."""

from __future__ import annotations

import json
import posixpath
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from isal import igzip
from isal.igzip_lib import IsalError

from images.errors import PinError
from images.lock import InstallScript, ScriptEvent
from images.lock_place import COMMAND_NAME
from images.lock_reader import BIN_FILE, MAX_COMMAND, NPM_NAME
from images.strictjson import JsonValue, read_object
from provenance.stricttar import Bounded, StrictTar

MAX_MANIFEST_BYTES: Final = 4 * 1024 * 1024
MAX_UNPACKED: Final = 8 << 30
MAX_MEMBERS: Final = 100_000


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """Read from package.json in the tarball that the lock pins, not from what a registry says about it."""

    name: str
    version: str
    dependencies: tuple[str, ...]  # of every kind that may be in the tree: names
    bins: tuple[tuple[str, str], ...]
    scripts: tuple[InstallScript, ...]


@contextmanager
def _opened(file: BinaryIO, what: str) -> Iterator[StrictTar]:
    """The tar inside, bounded; PinError for whatever is damaged while it is read."""
    too_large = _odd(what, f"unpacks to more than {MAX_UNPACKED} bytes")
    try:
        with igzip.open(file, "rb") as plain:  # type: ignore[no-untyped-call]
            stream = cast(BinaryIO, Bounded(plain, MAX_UNPACKED, too_large))
            with StrictTar.open(fileobj=stream, mode="r|", errorlevel=2) as archive:
                yield archive
    except (tarfile.TarError, EOFError, OSError, IsalError, ValueError) as broken:  # type: ignore[misc]  # untyped
        raise _odd(what, f"its tarball is damaged ({type(broken).__name__})") from None


def read_package(file: BinaryIO, what: str) -> PackageFacts:
    """Read a whole npm tarball (gzip, one top directory, files and directories only).

    Raises PinError naming ``what`` for any other shape.
    """
    manifest: bytes | None = None
    gyp = False
    with _opened(file, what) as archive:
        for inner, member in _members(archive, what):
            gyp = gyp or inner == "binding.gyp"
            if inner == "package.json":
                if manifest is not None:
                    raise _odd(what, "its tarball has two package.json")
                manifest = _content(archive, member, what)
    if manifest is None:
        raise _odd(what, "its tarball has no package.json")
    return _facts(read_manifest(manifest, what), gyp, what)


MAX_LICENCE: Final = 200


def declared_licence(file: BinaryIO, what: str) -> str:
    """What package.json says its licence is, on one line; empty when it says none. Read as far as needed."""
    with _opened(file, what) as archive:
        for inner, member in _members(archive, what):
            if inner == "package.json":
                return _licence(read_manifest(_content(archive, member, what), what))
    return ""


def _licence(document: dict[str, JsonValue]) -> str:
    """The field, in each form that it had in the course of time."""
    value = document.get("license", document.get("licenses"))
    listed = value if isinstance(value, list) else [value]
    words = [one.get("type") if isinstance(one, dict) else one for one in listed]
    said = " OR ".join(word.strip() for word in words if isinstance(word, str) and word.strip())
    return "".join(char if char.isprintable() else " " for char in said)[:MAX_LICENCE]


def _odd(what: str, why: str) -> PinError:
    return PinError(f"{what}: {why}", hint="pin another version in builder.toml, then: builder lock")


def _members(archive: tarfile.TarFile, what: str) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Path below the one top directory, and member; anything odd is refused."""
    for number, member in enumerate(archive):
        parts = member.name.split("/")
        if number > MAX_MEMBERS or not (member.isreg() or member.isdir()):
            raise _odd(what, f"its tarball holds something that is no file: {member.name[:120]!r}")
        if ".." in parts or member.name.startswith("/") or "\0" in member.name:
            raise _odd(what, f"its tarball holds a path that leaves it: {member.name[:120]!r}")
        yield "/".join(part for part in parts if part != ".").partition("/")[2], member


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, what: str) -> bytes:
    content = archive.extractfile(member)
    if content is None or member.size > MAX_MANIFEST_BYTES:
        raise _odd(what, f"its package.json is no file of at most {MAX_MANIFEST_BYTES} bytes")
    return content.read(MAX_MANIFEST_BYTES)


def read_manifest(raw: bytes, what: str) -> dict[str, JsonValue]:
    """A package.json. Published ones may have a byte order mark or a key twice; npm takes the last."""
    text = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        # A first pass settles duplicate keys as npm does; the strict reader then holds the other bounds.
        text = json.dumps(json.loads(text)).encode()
    except (ValueError, RecursionError):
        raise _odd(what, "its package.json is not JSON") from None
    return read_object(text, f"package.json of {what}", max_bytes=2 * MAX_MANIFEST_BYTES, error=PinError)


def _facts(document: dict[str, JsonValue], gyp: bool, what: str) -> PackageFacts:
    name, version = document.get("name"), document.get("version")
    names: set[str] = set()
    for key in ("dependencies", "optionalDependencies", "peerDependencies"):
        names.update(key for key, _ in _text_map(document.get(key)))
    return PackageFacts(
        name=name if isinstance(name, str) else "",
        version=version if isinstance(version, str) else "",
        dependencies=tuple(sorted(name for name in names if NPM_NAME.fullmatch(name))),
        bins=_bins(document),
        scripts=_scripts(document, gyp, what),
    )


def _bins(document: dict[str, JsonValue]) -> tuple[tuple[str, str], ...]:
    value, name = document.get("bin"), document.get("name")
    if isinstance(value, str):
        value = {str(name).rpartition("/")[2]: value}
    found = {}
    for command, file in _text_map(value):
        plain = command.rpartition("/")[2]
        inner = posixpath.normpath(file.replace("\\", "/")).lstrip("/")
        # npm drops what is not a plain name or leaves the package; so do we.
        if COMMAND_NAME.fullmatch(plain) and BIN_FILE.fullmatch(inner):
            found[plain] = inner
    return tuple(sorted(found.items()))


def _scripts(document: dict[str, JsonValue], gyp: bool, what: str) -> tuple[InstallScript, ...]:
    texts = dict(_text_map(document.get("scripts")))
    commands = {event: texts[event].strip() for event in ScriptEvent if texts.get(event, "").strip()}
    if gyp and document.get("gypfile") is not False and not {"install", "preinstall"} & set(commands):
        commands[ScriptEvent.INSTALL] = "node-gyp rebuild"  # what npm runs although nobody wrote it
    for command in commands.values():
        if len(command) > MAX_COMMAND or not command.isprintable():
            raise _odd(what, f"an install script that is no single line of {MAX_COMMAND} characters")
    return tuple(InstallScript(event, commands[event]) for event in sorted(commands))


def _text_map(value: JsonValue) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        return ()
    return tuple((key, item) for key, item in value.items() if isinstance(item, str))
