"""Read a lock's servers and tools from PyPI, its wheels and archives: the forms that only they have."""

from __future__ import annotations

import re
from typing import Final

from images.lock import ArtifactKind
from images.lock_additions import WHEEL_ID, ArchiveLock, PypiServerLock, ToolLock, WheelTree
from images.lock_place import (
    PARENT,
    Place,
    read_addition_name,
    read_arguments,
    read_platform,
    read_variables,
)
from images.pypi import (
    ENTRY_POINT,
    GLIBC_VERSION,
    PYTHON_VERSION,
    SCRIPT_FILE,
    check_pypi_name,
    check_pypi_version,
    check_wheel_file,
)

INDEX: Final = "pypi"
MAX_WHEELS: Final = 2000
_INDEX: Final = re.compile(INDEX)
# What the commands of these kinds may start; others start a file of their package.
COMMANDS: Final = {
    ArtifactKind.WHEEL: (
        re.compile(f"{ENTRY_POINT.pattern}|{SCRIPT_FILE.pattern}", re.ASCII),
        "an entry point such as module:main, or a file such as bin/tool",
    ),
}


def is_pypi(place: Place) -> bool:
    """Whether an MCP server says that it is from PyPI."""
    return isinstance(place.value, dict) and "index" in place.value


def read_pypi_server(name: str, place: Place) -> PypiServerLock:
    """An MCP server from PyPI."""
    found = place.fields("index", "package", "version", "wheels", "args", "env")
    found["index"].text(_INDEX, INDEX)
    return PypiServerLock(
        read_addition_name(name, place),
        _name(found["package"]),
        _version(found["version"]),
        _trees(found["wheels"]),
        args=read_arguments(found["args"]),
        env=read_variables(found["env"]),
    )


def read_tool(name: str, place: Place) -> ToolLock:
    """A tool from PyPI: its package is its name."""
    found = place.fields("version", "wheels")
    try:
        check_pypi_name(name)
    except ValueError:
        place.fail("the normal name of a Python package")
    return ToolLock(name, name, _version(found["version"]), _trees(found["wheels"]))


def read_archive(name: str, place: Place) -> ArchiveLock:
    """An archive: its artifact says the rest."""
    place.fields()
    return ArchiveLock(read_addition_name(name, place))


def read_wheel(found: dict[str, Place]) -> tuple[str, str, str]:
    """Name, version and file name of a wheel, which must agree."""
    name, version = _name(found["name"]), _version(found["version"])
    if "filename" not in found:
        found["name"].fail("a file name too, for a wheel")
    place = found["filename"]
    filename = place.value if isinstance(place.value, str) else ""
    try:
        return name, version, check_wheel_file(filename, name, version)
    except ValueError:
        place.fail(f"the file name of a wheel of {name} {version}")


def _trees(place: Place) -> tuple[WheelTree, ...]:
    trees = []
    for platform, item in place.map(16).items():
        found = item.fields("python", "glibc", "root", "packages")
        trees.append(
            WheelTree(
                platform=read_platform(item, platform),
                python=found["python"].text(PYTHON_VERSION, "a version such as 3.11"),
                glibc=found["glibc"].text(GLIBC_VERSION, "a version such as 2.36"),
                root=_wheel_id(found["root"]),
                wheels=tuple(_wheel_id(one) for one in found["packages"].list(MAX_WHEELS)),
            )
        )
    return tuple(trees)


def _wheel_id(place: Place) -> str:
    text = place.text(PARENT, "the id of a wheel")
    if not text.startswith(WHEEL_ID):
        place.fail("the id of a wheel")
    return text


def _name(place: Place) -> str:
    try:
        return check_pypi_name(place.value if isinstance(place.value, str) else "")
    except ValueError:
        place.fail("the normal name of a Python package")


def _version(place: Place) -> str:
    try:
        return check_pypi_version(place.value if isinstance(place.value, str) else "")
    except ValueError:
        place.fail("an exact version")
