"""The toolchain of a lock, from parsed JSON: closed keys, bounded lists, known actions."""

from __future__ import annotations

import re
from typing import Final

from images.lock_place import Place, read_platform
from images.toolchain import DEBIAN_NAME, MAX_DEBIAN, SUITE, DebianTree, DpkgAction, DpkgStep, ToolchainLock

MAX_PACKAGES: Final = 5000
MAX_STEPS: Final = 1000
_NAME: Final = re.compile(DEBIAN_NAME, re.ASCII)
_ID: Final = re.compile(r"deb:[\x21-\x7e]{1,400}")


def read_toolchain(place: Place) -> ToolchainLock:
    """Under ``debian``: suite, asked, and for each platform ``in_base`` and ``steps``."""
    found = place.fields("debian")["debian"].fields("suite", "asked", "trees")
    return ToolchainLock(
        suite=found["suite"].text(SUITE, "the name of a suite"),
        asked=_names(found["asked"]),
        trees=tuple(_tree(name, item) for name, item in found["trees"].map(16).items()),
    )


def _names(place: Place) -> tuple[str, ...]:
    return tuple(item.text(_NAME, "the name of a Debian package") for item in place.list(MAX_DEBIAN))


def _tree(platform: str, place: Place) -> DebianTree:
    found = place.fields("in_base", "steps")
    return DebianTree(
        read_platform(place, platform),
        _names(found["in_base"]),
        tuple(map(_step, found["steps"].list(MAX_STEPS))),
    )


def _step(place: Place) -> DpkgStep:
    items = list(place.map(1).items())
    if len(items) != 1 or items[0][0] not in set(DpkgAction):
        place.fail("one of " + ", ".join(DpkgAction))
    action, packages = items[0]
    ids = (item.text(_ID, "the id of a Debian package") for item in packages.list(MAX_PACKAGES))
    return DpkgStep(DpkgAction(action), tuple(ids))
