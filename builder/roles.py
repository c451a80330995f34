"""The three images that the program works with, by name: making them is heavy, naming them is not."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The three images."""

    BASE = "base"
    BUILD_CONTAINER = "build-container"
    RESOLVER = "resolver"
