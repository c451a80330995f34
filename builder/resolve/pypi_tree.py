"""From uv's pylock.toml to one wheel for each package: the one that this Python takes before all others."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from builder.resolve.python import Python, machine
from images.digests import Integrity
from images.errors import PinError, UsageError
from images.oci import Platform
from images.pypi import check_pypi_name, check_pypi_version, check_wheel_file
from images.tomlfile import parse_toml

MAX_PYLOCK: Final = 16 << 20
MAX_PACKAGES: Final = 2000
HINT: Final = "pin another version in builder.toml, then: builder lock"
_OLD_NAMES: Final = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_OLDEST: Final = {"x86_64": 5, "aarch64": 17}


@dataclass(frozen=True, slots=True, order=True)
class WheelChoice:
    """One wheel, pinned by its hash."""

    name: str
    version: str
    filename: str
    integrity: Integrity

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.name}@{self.version}"


def read_pylock(
    raw: bytes, what: str, python: Python, platform: Platform
) -> tuple[tuple[WheelChoice, str], ...]:
    """The wheels of uv's answer, one for each package, sorted; each with when the index says it came.

    Raises PinError for an answer of another form, and naming the package that has no wheel for the platform.
    """
    try:
        document: dict[str, Any] = parse_toml(raw.decode(), what, most=MAX_PYLOCK)
        known = document["lock-version"] == "1.0" and len(document["packages"]) <= MAX_PACKAGES
        order = _order(python, platform)
        packages = document["packages"] if known else [{}]
        found = [_choose(package, order, what, platform) for package in packages]
    except (KeyError, TypeError, AttributeError, ValueError, UsageError):
        raise PinError("uv wrote a lock of an unknown form", where=what, hint=HINT) from None
    names = [choice.name for choice, _ in found]
    if len(set(names)) != len(names):
        raise PinError("uv chose two versions of one package", where=what, hint=HINT)
    return tuple(sorted(found))


def _choose(
    package: dict[str, object], order: dict[str, int], what: str, platform: Platform
) -> tuple[WheelChoice, str]:
    name, version = check_pypi_name(str(package["name"])), check_pypi_version(str(package["version"]))
    wheels = package.get("wheels", [])
    fitting = []
    for wheel in wheels if isinstance(wheels, list) else []:
        filename = urllib.parse.unquote(urllib.parse.urlsplit(str(wheel["url"])).path.rpartition("/")[2])
        check_wheel_file(filename, name, version)
        if (rank := _rank(filename, order)) is not None:
            when = wheel.get("upload-time")
            published = when.isoformat() if isinstance(when, datetime) else ""
            fitting.append((rank, filename, str(wheel["hashes"]["sha256"]), published))
    if not fitting:
        raise no_wheel(f"{name}=={version}", what, str(platform))
    _, filename, sha256, published = min(fitting)
    return WheelChoice(name, version, filename, Integrity.parse(f"sha256:{sha256}")), published


def no_wheel(spec: str, what: str, platform: str) -> PinError:
    """A package that has no wheel which the image's Python takes: it is never built from source."""
    return PinError(
        f"{spec} has no wheel for the image's python on {platform}",
        where=what,
        hint="pin a version that has one, or take the platform out of image.platforms",
        reason="not-found",
    )


def _rank(filename: str, order: dict[str, int]) -> tuple[int, int] | None:
    """How much this Python likes the wheel: its best tag first, then the highest build number."""
    from packaging.utils import parse_wheel_filename  # noqa: PLC0415  (only where there are wheels)

    _, _, build, tags = parse_wheel_filename(filename)
    ranks = [order[str(tag)] for tag in tags if str(tag) in order]
    return (min(ranks), -(build[0] if build else 0)) if ranks else None


def _order(python: Python, platform: Platform) -> dict[str, int]:
    """Every tag that this Python takes, the best first: as pip has them."""
    from packaging.tags import compatible_tags, cpython_tags  # noqa: PLC0415

    major, minor = (int(part) for part in python.version.split("."))
    platforms = list(_platform_tags(machine(platform), int(python.glibc.partition(".")[2])))
    tags = [
        *cpython_tags((major, minor), platforms=platforms),
        *compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=platforms),
    ]
    found: dict[str, int] = {}
    for rank, tag in enumerate(tags):
        found.setdefault(str(tag), rank)
    return found


def _platform_tags(processor: str, glibc: int) -> list[str]:
    found = []
    for minor in range(glibc, _OLDEST[processor] - 1, -1):
        found.append(f"manylinux_2_{minor}_{processor}")
        if minor in _OLD_NAMES:
            found.append(f"{_OLD_NAMES[minor]}_{processor}")
    return [*found, f"linux_{processor}"]
