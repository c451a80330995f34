"""The Debian toolchain as values: the packages asked for, and how dpkg brings them onto the base."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from images.oci import Platform

# Debian Policy 5.6.1, 5.6.7, 5.6.12: names of packages and architectures, and versions.
DEBIAN_NAME: Final = r"^[a-z0-9][a-z0-9+.-]{1,99}$"
MAX_DEBIAN: Final = 200  # packages asked for by name
ARCHITECTURES: Final = {Platform("linux", "amd64"): "amd64", Platform("linux", "arm64"): "arm64"}
DEB_NAME: Final = re.compile(r"[a-z0-9][a-z0-9+.-]{1,99}:(?:all|amd64|arm64)", re.ASCII)
DEB_VERSION: Final = re.compile(r"(?:[0-9]{1,9}:)?[0-9][0-9A-Za-z.+~-]{0,119}", re.ASCII)
SUITE: Final = re.compile(r"[a-z][a-z0-9.-]{0,59}", re.ASCII)
DEBIAN_REGISTRY: Final = "debian"
TOOLCHAIN_PARENT: Final = "toolchain.debian"  # the place in builder.toml, and so the parent, of what it names


class DpkgAction(StrEnum):
    """What dpkg does to a list of packages."""

    UNPACK = "unpack"
    CONFIGURE = "configure"


@dataclass(frozen=True, slots=True)
class DpkgStep:
    """One call of dpkg: ids of artifacts, in apt's order."""

    action: DpkgAction
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DebianTree:
    """What one platform's base gains. ``in_base``: packages asked for that the base has already, sorted."""

    platform: Platform
    in_base: tuple[str, ...]
    steps: tuple[DpkgStep, ...]

    @property
    def unpacked(self) -> tuple[str, ...]:
        """Ids of all packages that are unpacked, in order."""
        return tuple(
            name for step in self.steps if step.action is DpkgAction.UNPACK for name in step.packages
        )


@dataclass(frozen=True, slots=True)
class ToolchainLock:
    """``[toolchain] debian``, resolved: ``asked`` as builder.toml names them, sorted; a tree per platform.

    ``suite``: the base's own, which the packages are of.
    """

    suite: str
    asked: tuple[str, ...]
    trees: tuple[DebianTree, ...]

    def tree(self, platform: Platform) -> DebianTree:
        """The tree of a declared platform (the parser holds that there is one)."""
        return next(tree for tree in self.trees if tree.platform == platform)


def split_name(name: str) -> tuple[str, str]:
    """Package and architecture of an artifact's name, ``make:amd64``."""
    package, _, architecture = name.rpartition(":")
    return package, architecture
