"""Names, versions and file names of Python packages: PEP 503, PEP 440 and the binary distribution format."""

from __future__ import annotations

import re
from typing import Final

PYPI_NAME: Final = r"^[a-z0-9]+(-[a-z0-9]+)*$"  # the normal form of PEP 503
MAX_PYPI_NAME: Final = 100
PYPI_REGISTRY: Final = "pypi"  # the alias of the index
WHEEL_FILE: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[A-Za-z0-9_.!+]+)(?:-[0-9][A-Za-z0-9_.]*)?"
    r"-[A-Za-z0-9_.]+-[A-Za-z0-9_.]+-[A-Za-z0-9_.]+\.whl",
    re.ASCII,
)
MAX_WHEEL_FILE: Final = 240
# What a command of a wheel starts: an entry point, a file of its own, or one that Python runs.
ENTRY_POINT: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
SCRIPT_FILE: Final = re.compile(r"(?:python )?bin/[A-Za-z0-9_@][A-Za-z0-9._@+-]{0,99}", re.ASCII)
PYTHON_VERSION: Final = re.compile(r"3\.(?:[89]|[1-9]\d)", re.ASCII)
GLIBC_VERSION: Final = re.compile(r"2\.(?:1[7-9]|[2-9]\d)", re.ASCII)

_NAME: Final = re.compile(PYPI_NAME, re.ASCII)
_SEPARATORS: Final = re.compile(r"[-_.]+")
_NOT_EXACT: Final = (
    (re.compile(r"://|\.git$|^git[@+]| @ ", re.I), "a URL or Git dependency"),
    (re.compile(r"^(file|link):|^[./~]+/|^/", re.I), "a file"),
    (re.compile(r"[\^~<>=*|,]"), "a range"),
    (re.compile(r"^[a-z][a-z0-9._-]*$", re.I), "a tag, which can move"),
)


def normal_name(text: str) -> str:
    """The normal form of PEP 503: ``Foo.Bar_baz`` is ``foo-bar-baz``."""
    return _SEPARATORS.sub("-", text).lower()


def check_pypi_name(text: str) -> str:
    """Return a package name in its normal form; ValueError for any other."""
    if len(text) <= MAX_PYPI_NAME and _NAME.fullmatch(text):
        return text
    normal = normal_name(text)
    other = f", such as {normal}" if len(text) <= MAX_PYPI_NAME and _NAME.fullmatch(normal) else ""
    raise ValueError(f"{text[:60]!r}: expected the normal name of a Python package{other}")


def check_pypi_version(text: str) -> str:
    """Return one exact version in the normal form of PEP 440; anything else is a ValueError saying what."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415  (only where there are packages)

    try:
        normal = str(Version(text)) if len(text) <= 100 and text.isascii() else ""
    except InvalidVersion:
        normal = ""
    if normal and normal == text:
        return text
    if normal:
        raise ValueError(f"{text[:60]!r} is not in its normal form; expected {normal}")
    kind = next((name for pattern, name in _NOT_EXACT if pattern.search(text)), "not a version")
    raise ValueError(f"{text[:60]!r} is {kind}; expected one exact version, such as 2026.10.24")


def newer(one: str, other: str) -> bool:
    """Whether ``one`` comes after ``other`` (PEP 440)."""
    from packaging.version import Version  # noqa: PLC0415

    return Version(one) > Version(other)


def is_release(version: str) -> bool:
    """Neither a pre-release nor a development release."""
    from packaging.version import Version  # noqa: PLC0415

    return not Version(version).is_prerelease


def check_wheel_file(filename: str, name: str, version: str) -> str:
    """Return the file name of a wheel if it says this name and version; ValueError otherwise."""
    found = WHEEL_FILE.fullmatch(filename)
    if not found or len(filename) > MAX_WHEEL_FILE:
        raise ValueError(f"{filename[:100]!r} is not the file name of a wheel")
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    try:
        same = Version(found["version"].replace("_", "-")) == Version(version)
    except InvalidVersion:
        same = False
    if normal_name(found["name"]) != name or not same:
        raise ValueError(f"{filename[:100]!r} is not a wheel of {name} {version}")
    return filename
