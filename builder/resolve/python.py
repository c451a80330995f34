"""Which Python the image has, and for which C library wheels may be: from the Debian packages in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from builder.building.base_check import read_base
from images.errors import UsageError
from images.lock import Artifact, BaseLock
from images.oci import Platform
from images.pypi import GLIBC_VERSION, PYTHON_VERSION
from provenance.layout import open_image

_UPSTREAM: Final = re.compile(r"(?:\d+:)?(\d+\.\d+)")
# Those that uv knows; wheels for an older one are for a newer one too.
_UV_GLIBC: Final = (17, 28, *range(31, 41))
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True)
class Python:
    """The image's python3, as 3.11, and its glibc, as 2.36."""

    version: str
    glibc: str

    def uv_platform(self, platform: Platform) -> str:
        """What uv calls this platform: with the newest C library that it knows and the image has."""
        minor = int(self.glibc.partition(".")[2])
        known = max((one for one in _UV_GLIBC if one <= minor), default=_UV_GLIBC[0])
        return f"{machine(platform)}-manylinux_2_{known}"


def machine(platform: Platform) -> str:
    """What Python calls the processors of a platform."""
    return _MACHINES[platform.architecture]


def python_of(packages: Mapping[str, str], place: str) -> Python:
    """The Python of an image with these Debian packages: name -> version.

    ``place``: what in builder.toml needs it. Raises UsageError when there is none, or none that can serve.
    """
    found = _UPSTREAM.match(packages.get("python3", ""))
    if found is None:
        raise UsageError(
            f"{place} needs python3, and neither the base nor the toolchain has it",
            where="builder.toml",
            hint='add to builder.toml: [toolchain] debian = ["python3"]',
        )
    glibc = _UPSTREAM.match(packages.get("libc6", ""))
    if glibc is None or not GLIBC_VERSION.fullmatch(glibc[1]) or not PYTHON_VERSION.fullmatch(found[1]):
        raise UsageError(
            f"{place} needs a python3 from 3.8 and a libc6 from 2.17 on; there are {found[1]} and "
            f"{glibc[1] if glibc else 'none'}",
            where="image.base",
            hint="choose a newer base",
        )
    return Python(found[1], glibc[1])


@dataclass(slots=True)
class PythonFinder:
    """The Python of an image that is being locked; each base is read once, and only when it is asked for."""

    layout: Path
    base: BaseLock
    toolchain: tuple[Artifact, ...] = ()
    _known: dict[Platform, dict[str, str]] = field(default_factory=dict)

    def find(self, place: str, platform: Platform) -> Python:
        """For what ``place`` in builder.toml names. Raises UsageError when there is none."""
        if platform not in self._known:
            facts = read_base(open_image(self.layout, self.base.image(platform).manifest, platform))
            status = facts.debian.status if facts.debian is not None else b""
            packages = installed_packages(status.decode("utf-8", "replace"))
            for deb in self.toolchain:
                if platform in deb.platforms:
                    packages[deb.name.partition(":")[0]] = deb.version
            self._known[platform] = packages
        return python_of(self._known[platform], place)


def installed_packages(status: str) -> dict[str, str]:
    """Name -> version of what a dpkg status file says is installed."""
    found = {}
    for paragraph in re.split(r"\n{2,}", status):
        fields = dict(re.findall(r"^(Package|Status|Version): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed") and "Package" in fields:
            found[fields["Package"]] = fields.get("Version", "")
    return found
