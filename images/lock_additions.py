"""What a lock says of wheels and archives: a server or tool with its wheels on each platform, an archive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from images.oci import Platform
from images.pypi import normal_name
from images.rooms import InRoom

WHEEL_ID: Final = "wheel:"
ARCHIVE_ID: Final = "archive:"
LOCAL_REGISTRY: Final = "local"  # the alias of what the operator brought himself


@dataclass(frozen=True, slots=True)
class WheelTree:
    """The wheels of one server or tool on one platform: ids, sorted; ``root``: the package's own.

    ``python``: the image's own, as 3.11; ``glibc``: the newest that they may ask for, as 2.36.
    """

    platform: Platform
    python: str
    glibc: str
    root: str
    wheels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PypiInstalled(InRoom):
    """One thing that uv resolved: a package and its wheels on each platform."""

    name: str
    package: str
    version: str
    trees: tuple[WheelTree, ...]

    def tree(self, platform: Platform) -> WheelTree:
        """The wheels of a declared platform (the parser holds that there are some)."""
        return next(tree for tree in self.trees if tree.platform == platform)


@dataclass(frozen=True, slots=True)
class PypiServerLock(PypiInstalled):
    """One MCP server, in ``/opt/mcp/<name>``: ``args`` follow its command, ``env`` names what it reads."""

    SECTION = "mcp"
    ROOM = "mcp"
    STAGE = "mcp-"

    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    def entry(self, bins: tuple[tuple[str, str], ...]) -> str | None:
        """What is started, of the commands of its root: the only one, else the one of the package's name."""
        commands = dict(bins)
        if len(commands) == 1:
            return next(iter(commands.values()))
        named = {normal_name(name): start for name, start in bins}
        return named.get(self.package)


@dataclass(frozen=True, slots=True)
class ToolLock(PypiInstalled):
    """One tool, in ``/opt/tools/<name>``; its commands are on the PATH."""

    SECTION = "toolchain.pypi"
    ROOM = "tools"
    STAGE = "tool-"


@dataclass(frozen=True, slots=True)
class ArchiveLock(InRoom):
    """One archive of the operator's own, in ``/opt/archives/<name>``; its commands are on the PATH."""

    SECTION = "archives"
    ROOM = "archives"
    STAGE = "archive-"

    name: str

    @property
    def artifact(self) -> str:
        """The id of its artifact."""
        return f"{ARCHIVE_ID}{self.name}"
