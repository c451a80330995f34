"""Ask what newer versions each PyPI pin of a configuration has, and whether the pinned one is still there."""

from __future__ import annotations

from collections.abc import Mapping

from builder.resolve.exchange import Resolver
from builder.resolve.failures import GONE, At
from builder.resolve.job import Listing
from builder.resolve.newest import PinStanding, Standing
from builder.resolve.pypi_job import PypiJob, PypiNewest, Target, perform_pypi, pypi_failure
from builder.resolve.pypi_making import PypiPin, pins_of
from builder.resolve.python import Python
from builder.resolve.release_age import AgeGate
from images.config import ImageConfig
from images.oci import Platform
from images.pypi import check_pypi_version, is_release, newer

_NOT_THERE = GONE | {"ENOWHEEL"}


def pypi_pins(config: ImageConfig) -> dict[str, tuple[str, str]]:
    """Name, as ``lock --upgrade`` takes it -> place of its version in builder.toml, and the version."""
    return {pin.place: (pin.version_place, pin.version) for pin in pins_of(config)}


def newest_of_pypi(
    config: ImageConfig,
    pythons: Mapping[Platform, Python],
    resolver: Resolver,
    names: frozenset[str],
    gate: AgeGate | None = None,
) -> tuple[PinStanding, ...]:
    """For the pins of ``names``: the newest release that has a wheel on every declared platform.

    ``pythons``: of the image, by platform; where one is not known, nothing can be said. A pin that is gone
    is an answer; an index that cannot be asked raises NetworkFailed.
    """
    pins = tuple(pin for pin in pins_of(config) if pin.place in names)
    if not set(config.platforms) <= set(pythons):
        note = "the image's python is not known before it is locked"
        return tuple(
            PinStanding(pin.place, pin.version_place, pin.version, "", Standing.UNKNOWN, note=note)
            for pin in pins
        )
    questions = [
        PypiNewest(pin.package, pin.version, Target(pythons[platform], platform))
        for pin in pins
        for platform in config.platforms
    ]
    if not questions:
        return ()
    answers = iter(perform_pypi(PypiJob(newest=tuple(questions), gate=gate), resolver).newest)
    found = []
    for pin in pins:
        told = [next(answers) for _ in config.platforms]
        for listing in (listing for one in told for listing in (one.found, one.pinned)):
            if listing.code and listing.code not in _NOT_THERE:
                raise pypi_failure(listing.code, At(pin.version_place, pin.package, "newest", alias="pypi"))
        found.append(_stand(pin, [one.found for one in told], [one.pinned for one in told]))
    return tuple(found)


def _stand(pin: PypiPin, found: list[Listing], pinned: list[Listing]) -> PinStanding:
    newest = _lowest(found)
    if any(listing.code for listing in pinned):
        standing = Standing.GONE
    elif not newest:
        standing = Standing.UNKNOWN
    elif newest == pin.version:
        standing = Standing.CURRENT
    else:
        standing = Standing.OUTDATED if newer(newest, pin.version) else Standing.AHEAD
    yanked = any(one.deprecated for listing in pinned for one in listing.versions)
    note = "its publisher has yanked it" if yanked else ""
    return PinStanding(pin.place, pin.version_place, pin.version, newest, standing, yanked, note)


def _lowest(found: list[Listing]) -> str:
    """The newest that all platforms have; a word of the index is no version before it was read as one."""
    lowest = ""
    for listing in found:
        usable = [one.version for one in listing.versions if _is_release(one.version)]
        if not usable:
            return ""
        if not lowest or newer(lowest, usable[0]):
            lowest = usable[0]
    return lowest


def _is_release(version: str) -> bool:
    try:
        return is_release(check_pypi_version(version))
    except ValueError:
        return False
