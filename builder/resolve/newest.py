"""Ask what newer versions each npm pin of a configuration has, and whether the pinned one is still there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from builder.resolve.exchange import Resolver
from builder.resolve.facts import Facts, FactsRequest
from builder.resolve.failures import GONE, At, failure
from builder.resolve.job import Job, Listing, NewestRequest, Published, perform
from builder.resolve.release_age import AgeGate
from images.additions import Index
from images.config import ImageConfig, check_version
from images.lock import NODE_PACKAGES

NODE: Final = "node"
BASE: Final = "base"
MCP: Final = "mcp."  # before the name of a server
LATEST: Final = "latest"
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")


class Standing(StrEnum):
    """How a pin stands to what is there now."""

    CURRENT = "current"
    OUTDATED = "outdated"
    AHEAD = "ahead"  # newer than what its publisher calls the latest: never moved back unasked
    GONE = "gone"
    UNKNOWN = "unknown"  # nothing to compare with


@dataclass(frozen=True, slots=True)
class PinStanding:
    """One pin: ``name`` as ``lock --upgrade`` takes it, ``place`` in builder.toml, versions (or digests).

    ``newest`` is empty when nothing can be proposed. ``deprecated``: its publisher says so of the pinned one.
    ``note``: what else an operator should know.
    """

    name: str
    place: str
    pinned: str
    newest: str
    standing: Standing
    deprecated: bool = False
    note: str = ""

    @property
    def target(self) -> str:
        """Where an upgrade moves it: empty when it stays."""
        return self.newest if self.standing in (Standing.OUTDATED, Standing.GONE) else ""


def newest_versions(
    config: ImageConfig,
    resolver: Resolver,
    names: frozenset[str] | None = None,
    gate: AgeGate | None = None,
) -> tuple[PinStanding, ...]:
    """Ask for Node, every agent and MCP server, or for those of ``names`` only; one run of the container.

    The newest of an agent or MCP server is the dist-tag ``latest``; Node's the newest of the pinned major
    line that all declared platforms have. Deprecated versions and pre-releases are never proposed. A pin that
    is gone is an answer; a registry that cannot be asked raises NetworkFailed. With a ``gate`` nothing is
    proposed that is too young: the newest is then the newest below it that is old enough.
    """
    pins = tuple(pin for pin in _pins(config) if names is None or pin.name in names)
    questions = [NewestRequest(package, pin.range, pin.version) for pin in pins for package in pin.packages]
    if not questions:
        return ()
    asked = tuple(FactsRequest(one.name) for one in questions) if gate is not None else ()
    answer = perform(Job(newest=tuple(questions), facts=asked), resolver)
    answers = iter(answer.newest)
    facts = dict(zip(asked, answer.facts, strict=True))
    found = []
    for pin in pins:
        told = [next(answers) for _ in pin.packages]
        for package, one in zip(pin.packages, told, strict=True):
            for listing in (one.found, one.pinned):
                if listing.code and listing.code not in GONE:
                    raise failure(listing.code, At(pin.place, package, "newest"))
        stand = _stand(pin, [one.found for one in told], [one.pinned for one in told])
        if gate is not None and stand.target:
            stand = _old_enough(pin, stand, [facts[FactsRequest(name)] for name in pin.packages], gate)
        found.append(stand)
    return tuple(found)


def precedence(version: str) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]:
    """Sorts exact versions as Semantic Versioning 2.0.0 (11) does: a pre-release before its release."""
    parts = _RELEASE.fullmatch(version)
    if parts is None:
        raise ValueError(f"not an exact version: {version[:60]!r}")
    words = parts[4].split(".") if parts[4] else []
    return (
        int(parts[1]),
        int(parts[2]),
        int(parts[3]),
        not words,
        tuple((not word.isdigit(), int(word) if word.isdigit() else 0, word) for word in words),
    )


@dataclass(frozen=True, slots=True)
class _Pin:
    """One pin of the configuration, and the packages that must all have a version."""

    name: str
    place: str
    version: str
    packages: tuple[str, ...]
    range: str


def _pins(config: ImageConfig) -> Iterable[_Pin]:
    for agent in config.agents:
        yield _Pin(agent.name, f"agents.{agent.name}", agent.version, (agent.name.package,), LATEST)
    for server in config.mcp:
        if server.index is not Index.NPM:
            continue
        place = f"{MCP}{server.name}"
        yield _Pin(place, f"{place}.version", server.version, (server.package,), LATEST)
    packages = tuple(NODE_PACKAGES[platform] for platform in config.platforms)
    major = config.node.version.partition(".")[0]
    yield _Pin(NODE, "node.version", config.node.version, packages, major)


def _stand(pin: _Pin, found: list[Listing], pinned: list[Listing]) -> PinStanding:
    common = set.intersection(*(_usable(listing) for listing in found))
    newest = max(common, key=precedence, default="")
    if any(listing.code for listing in pinned):
        standing = Standing.GONE
    elif not newest:
        standing = Standing.UNKNOWN
    else:
        standing = _compare(pin.version, newest)
    deprecated = any(one.deprecated for listing in pinned for one in listing.versions)
    return PinStanding(pin.name, pin.place, pin.version, newest, standing, deprecated)


def _old_enough(pin: _Pin, stand: PinStanding, facts: list[Facts], gate: AgeGate) -> PinStanding:
    """The same pin, but moved no further than to what is old enough on every platform."""
    for package, known in zip(pin.packages, facts, strict=True):
        if known.code:
            raise failure(known.code, At(pin.place, package, "facts"))
    offered = set.intersection(
        *(_offered(pin, package, known, gate) for package, known in zip(pin.packages, facts, strict=True))
    )
    highest = precedence(stand.newest)
    lowest = precedence(pin.version) if stand.standing is Standing.OUTDATED else None
    below = [
        one for one in offered if precedence(one) <= highest and (lowest is None or precedence(one) > lowest)
    ]
    newest = max(below, key=precedence, default="")
    if newest == stand.newest:
        return stand
    problems = (
        gate.problem(f"{package}@{stand.newest}", release.published)
        for package, known in zip(pin.packages, facts, strict=True)
        if (release := known.release(stand.newest)) is not None
    )
    note = next(filter(None, problems), f"{stand.newest} is younger") + ": too young for min_release_age"
    if newest:
        return replace(stand, newest=newest, note=note)
    if stand.standing is Standing.GONE:
        return replace(stand, newest="", note=note)
    return replace(stand, newest=pin.version, standing=Standing.CURRENT, note=note)


def _offered(pin: _Pin, package: str, known: Facts, gate: AgeGate) -> set[str]:
    """What may be proposed of one package: of Node the pinned major line alone."""
    versions = tuple(Published(one.version, one.deprecated) for one in known.releases)
    usable = {
        one
        for one in _usable(Listing("", versions))
        if pin.range == LATEST or one.partition(".")[0] == pin.range
    }
    return {
        one.version
        for one in known.releases
        if one.version in usable and gate.problem(f"{package}@{one.version}", one.published) is None
    }


def _compare(pinned: str, newest: str) -> Standing:
    ours, theirs = precedence(pinned), precedence(newest)
    if ours == theirs:
        return Standing.CURRENT
    return Standing.OUTDATED if ours < theirs else Standing.AHEAD


def _usable(listing: Listing) -> set[str]:
    """What may be proposed: a registry's word is not believed to be a version before it was read as one."""
    return {
        one.version
        for one in listing.versions
        if not one.deprecated and _is_exact(one.version) and precedence(one.version)[3]
    }


def _is_exact(version: str) -> bool:
    try:
        check_version(version)
    except ValueError:
        return False
    return True
