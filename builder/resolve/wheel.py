"""What a wheel says of itself: name, dependencies, commands, and each of its files. Nothing is unpacked."""

from __future__ import annotations

import configparser
import hashlib
import re
import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final

from images.errors import PinError
from images.lock_place import COMMAND_NAME
from images.pypi import ENTRY_POINT, SCRIPT_FILE, check_pypi_version, normal_name
from images.skills import collision
from images.wheels import DATA, DIST_INFO, GENERATED, site_packages, wheel_place
from provenance.strictzip import MAX_MEMBERS, open_zip

MAX_UNPACKED: Final = 8 << 30
MAX_MEMBER: Final = 2 << 30
MAX_METADATA: Final = 16 << 20
MAX_PATH: Final = 400  # characters
_CHUNK: Final = 1 << 20
_ENCRYPTED: Final = 0x2041  # flags: encrypted, strongly encrypted, with a masked header
_UTF8: Final = 0x800
_PYTHON_LINE: Final = b"#!python"
MAX_LICENCE: Final = 200  # characters
HINT: Final = "pin another version in builder.toml, then: builder lock"


@dataclass(frozen=True, slots=True)
class WheelFile:
    """One file: SHA-256 of its bytes, and whether anybody may execute it."""

    content: bytes
    executable: bool


@dataclass(frozen=True, slots=True)
class WheelFacts:
    """Read from the wheel that the lock pins, not from what an index says about it.

    ``requires``: names, markers aside. ``commands``: as the lock has the bins of a wheel. ``files``: by path
    in the wheel. ``licence``: in its own words, one line; empty where it says none.
    """

    name: str
    version: str
    requires: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    files: Mapping[str, WheelFile]
    licence: str = ""


def read_wheel(file: BinaryIO, what: str) -> WheelFacts:
    """Read a whole wheel, checking each member. Raises PinError naming ``what`` for whatever is odd."""
    try:
        archive = open_zip(file)
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as broken:
        raise _odd(what, f"its zip is odd: {broken}") from None
    try:
        with archive:
            members = _members(archive, what)
            files, kept = _read_files(archive, members, what)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as broken:
        raise _odd(what, f"its zip is damaged ({type(broken).__name__})") from None
    info = _dist_info(files, what)
    name, version, requires, licence = _metadata(kept.get(f"{info}/METADATA"), what)
    if f"{info}/WHEEL" not in files or f"{info}/RECORD" not in files:
        raise _odd(what, "has no WHEEL or no RECORD")
    _check_places(files, info, name, what)
    return WheelFacts(
        name=name,
        version=version,
        requires=requires,
        commands=_commands(kept.get(f"{info}/entry_points.txt", b""), kept, info, what),
        files=files,
        licence=licence,
    )


def _odd(what: str, why: str) -> PinError:
    return PinError(f"{what}: {why}", hint=HINT, reason="integrity")


def _members(archive: zipfile.ZipFile, what: str) -> list[zipfile.ZipInfo]:
    members = archive.infolist()
    if len(members) > MAX_MEMBERS or sum(member.file_size for member in members) > MAX_UNPACKED:
        raise _odd(what, f"holds more than {MAX_MEMBERS} files or {MAX_UNPACKED} bytes")
    for member in members:
        if (problem := _member_problem(member)) is not None:
            raise _odd(what, f"holds {member.filename[:120]!r}, which {problem}")
    names = [member.filename for member in members]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _odd(what, f"holds {twice[:120]!r} twice")
    files = [name for name in names if not name.endswith("/")]
    if (pair := collision(files)) is not None:
        raise _odd(what, f"{pair[0][:120]!r} and {pair[1][:120]!r} differ in letter case alone")
    above = {name[: at.start()] for name in files for at in re.finditer("/", name)}
    if both := above & set(files):
        raise _odd(what, f"{min(both)[:120]!r} is a file and a directory")
    return [member for member in members if not member.is_dir()]


def _member_problem(member: zipfile.ZipInfo) -> str | None:
    """What is wrong with a member by its entry in the directory; None when nothing is."""
    name, kind = member.filename, stat.S_IFMT(member.external_attr >> 16)
    folder = name.endswith("/")
    problems = (
        (
            member.orig_filename != name or not (name.isascii() or member.flag_bits & _UTF8),
            "has a name that is not UTF-8",
        ),
        (
            not name.isprintable() or "\\" in name or len(name) > MAX_PATH,
            f"has a name that is not plain text of at most {MAX_PATH} characters",
        ),
        (
            any(part in ("", ".", "..") for part in name.removesuffix("/").split("/")),
            "is a path that leaves it",
        ),
        (
            kind not in (0, stat.S_IFDIR if folder else stat.S_IFREG),
            "is a link or something else that is no file",
        ),
        (member.flag_bits & _ENCRYPTED, "is encrypted"),
        (
            member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED),
            "is compressed in a way that is not read here",
        ),
        (
            member.file_size > MAX_MEMBER or (folder and member.file_size),
            f"is larger than {MAX_MEMBER} bytes, or a directory with content",
        ),
    )
    return next((problem for wrong, problem in problems if wrong), None)


def _read_files(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], what: str
) -> tuple[dict[str, WheelFile], dict[str, bytes]]:
    """Every file hashed, its checksum compared; of metadata the bytes too, of scripts their beginning."""
    files: dict[str, WheelFile] = {}
    kept: dict[str, bytes] = {}
    for member in members:
        name, found = member.filename, hashlib.sha256()
        metadata, start = name.partition("/")[0].endswith(DIST_INFO), b""
        if metadata and name.endswith(("/METADATA", "/entry_points.txt")) and member.file_size > MAX_METADATA:
            raise _odd(what, f"{name[:120]!r} is larger than {MAX_METADATA} bytes")
        size = 0
        with archive.open(member) as content:
            while chunk := content.read(_CHUNK):
                found.update(chunk)
                size += len(chunk)
                if metadata and size <= MAX_METADATA:
                    start += chunk
                elif not start:
                    start = chunk[: len(_PYTHON_LINE)]
        if size != member.file_size:
            raise _odd(what, f"{name[:120]!r} has another size than it says")
        files[name] = WheelFile(found.digest(), bool(member.external_attr >> 16 & 0o111))
        kept[name] = start
    return files, kept


def _dist_info(files: Mapping[str, WheelFile], what: str) -> str:
    found = {name.partition("/")[0] for name in files if name.partition("/")[0].endswith(DIST_INFO)}
    if len(found) != 1:
        raise _odd(what, f"has {len(found)} directories of metadata, expected one")
    return found.pop()


def _metadata(raw: bytes | None, what: str) -> tuple[str, str, tuple[str, ...], str]:
    from packaging.metadata import parse_email  # noqa: PLC0415  (only where there are wheels)
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415

    if raw is None:
        raise _odd(what, "has no METADATA")
    found, _ = parse_email(raw)
    name, version = normal_name(found.get("name", "")), found.get("version", "")
    requires: set[str] = set()
    for text in found.get("requires_dist", []):
        try:
            requires.add(normal_name(Requirement(text).name))
        except InvalidRequirement:
            continue  # uv resolved without it
    licence = found.get("license_expression") or found.get("license") or ""
    if not licence.isprintable() or len(licence) > MAX_LICENCE:
        licence = ""  # a whole text stands there
    return name, _normal_version(version), tuple(sorted(requires - {name})), licence.strip()


def _normal_version(text: str) -> str:
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    try:
        return check_pypi_version(str(Version(text)))
    except (InvalidVersion, ValueError):
        return ""


def _check_places(files: Mapping[str, WheelFile], info: str, name: str, what: str) -> None:
    """Each file has one place that is not taken; only the package's own data directory is one."""
    data = info.removesuffix(DIST_INFO) + DATA
    seen: dict[str, str] = {}
    for path in files:
        top = path.partition("/")[0]
        if top.endswith(DATA) and top not in (data, path):
            raise _odd(what, f"{path[:120]!r} is data of another package")
        try:
            placed = wheel_place(path, site_packages("3.0"), name)
        except ValueError as wrong:
            raise _odd(what, str(wrong)) from None
        if placed is None:
            continue
        place, _ = placed
        if place in GENERATED or place.startswith("bin/python"):
            raise _odd(what, f"{path[:120]!r} would take the place of what is generated")
        if seen.setdefault(place, path) != path:
            raise _odd(what, f"{path[:120]!r} and {seen[place][:120]!r} have the same place")


def _commands(raw: bytes, kept: Mapping[str, bytes], info: str, what: str) -> tuple[tuple[str, str], ...]:
    """Console scripts, and files under scripts; what is not plain is no command."""
    found: dict[str, str] = {}
    scripts = f"{info.removesuffix(DIST_INFO)}{DATA}/scripts/"
    for path, start in kept.items():
        if path.startswith(scripts):
            file = f"bin/{path.removeprefix(scripts)}"
            found[path.removeprefix(scripts)] = f"python {file}" if start == _PYTHON_LINE else file
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    try:
        parser.read_string(raw.decode())
    except (configparser.Error, UnicodeDecodeError):
        raise _odd(what, "its entry_points.txt cannot be read") from None
    for name, value in parser.items("console_scripts") if parser.has_section("console_scripts") else ():
        found[name] = re.sub(r"\s+|\[.*", "", value)
    return tuple(
        sorted(
            (name, start)
            for name, start in found.items()
            if COMMAND_NAME.fullmatch(name) and (ENTRY_POINT.fullmatch(start) or SCRIPT_FILE.fullmatch(start))
        )
    )
