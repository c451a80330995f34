"""The wheels of a lock: resolve what is new, keep what is pinned, fetch what the store lacks, compose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from builder.resolve.exchange import Resolver
from builder.resolve.newest import MCP
from builder.resolve.pypi_job import PypiFetch, PypiJob, PypiRoot, Target, perform_pypi
from builder.resolve.pypi_tree import HINT, WheelChoice, read_pylock
from builder.resolve.python import Python
from builder.resolve.release_age import AgeGate, require_old_enough
from builder.resolve.wheel import WheelFacts, read_wheel
from builder.resolve.wheel_vouching import WheelTrust, fetch_and_vouch_wheels, kept_wheel, lacking_wheels
from builder.storage.store import ContentStore
from images.additions import Index
from images.config import ImageConfig
from images.errors import PinError
from images.lock import Artifact, ArtifactKind, Lock
from images.lock_additions import WHEEL_ID, PypiServerLock, ToolLock, WheelTree
from images.oci import Platform
from images.pypi import PYPI_REGISTRY
from images.wheels import site_packages, wheel_place
from provenance.npm_signatures import Judged

TOOL = "toolchain.pypi."  # before the name of a tool

PythonFor = Callable[[str, Platform], Python]


@dataclass(frozen=True, slots=True)
class PypiPart:
    """What the lock says of Python packages."""

    servers: tuple[PypiServerLock, ...] = ()
    tools: tuple[ToolLock, ...] = ()
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What a configuration does not say itself.

    ``python_for``: the Python of the image on a platform, asked for by a place in builder.toml; it is asked
    only where something needs it. What has the same pin and Python as in ``previous`` keeps its wheels, but
    for the names in ``renew``. ``gate``: how old a release must be that is not pinned yet.
    ``trust``: whom to expect as publishers.
    """

    python_for: PythonFor
    previous: Lock | None = None
    renew: frozenset[str] = frozenset()
    gate: AgeGate | None = None
    trust: WheelTrust = field(default_factory=WheelTrust)


@dataclass(frozen=True, slots=True)
class PypiPin:
    """What a ``place`` in builder.toml asks for, named so by ``lock --upgrade`` too.

    ``version_place``: where its version is written.
    """

    place: str
    package: str
    version: str
    version_place: str


@dataclass(slots=True)
class _Found:
    """What is pinned so far: of each pin and platform its Python and wheels; what the lock says of those."""

    targets: dict[tuple[str, Platform], Target] = field(default_factory=dict)
    wheels: dict[tuple[str, Platform], tuple[WheelChoice, ...]] = field(default_factory=dict)
    words: dict[WheelChoice, Judged] = field(default_factory=dict)

    def fetches(self) -> Iterator[PypiFetch]:
        for key, wheels in self.wheels.items():
            yield from (PypiFetch(wheel, self.targets[key]) for wheel in wheels)


def make_pypi(config: ImageConfig, known: Known, resolver: Resolver) -> PypiPart:
    """Servers and tools from PyPI, their wheels in the store afterwards.

    Raises PinError naming what cannot be had, UsageError when the image has no Python.
    """
    pins = tuple(pins_of(config))
    if not pins:
        return PypiPart()
    found = _Found()
    new = []
    for pin in pins:
        for platform in config.platforms:
            target = Target(known.python_for(pin.place, platform), platform)
            found.targets[pin.place, platform] = target
            kept = None if pin.place in known.renew else _kept(pin, target, known.previous)
            if kept is None:
                new.append((pin, target))
            else:
                found.wheels[pin.place, platform] = tuple(_choice(one) for one in kept)
                found.words |= {
                    _choice(one): word for one in kept if (word := kept_wheel(one, known.trust)) is not None
                }
    _resolve(new, known.gate, resolver, found)
    try:
        vouched = fetch_and_vouch_wheels(found.fetches(), found.words, known.trust, resolver)
    except PinError as broken:
        raise _named(broken, _owner(broken, pins, found)) from None
    return _compose(config, pins, found, vouched, resolver.store)


def fetch_wheels(wanted: Iterable[PypiFetch], resolver: Resolver) -> int:
    """Bring the wheels that the store lacks; returns how many."""
    lacking = lacking_wheels(wanted, resolver)
    if lacking:
        perform_pypi(PypiJob(fetch=lacking), resolver)
    return len(lacking)


def locked_wheels(lock: Lock) -> Iterator[PypiFetch]:
    """Every wheel of a lock, with the Python and platform that it is for."""
    known = lock.by_id()
    for one in lock.pypi_installed:
        for tree in one.trees:
            target = Target(Python(tree.python, tree.glibc), tree.platform)
            yield from (PypiFetch(_choice(known[wheel]), target) for wheel in tree.wheels)


def pins_of(config: ImageConfig) -> Iterator[PypiPin]:
    """Every pin of a configuration that PyPI has: servers, then tools."""
    for server in config.mcp:
        if server.index is Index.PYPI:
            place = f"{MCP}{server.name}"
            yield PypiPin(place, server.package, server.version, f"{place}.version")
    for tool in config.tools:
        place = f"{TOOL}{tool.name}"
        yield PypiPin(place, tool.name, tool.version, place)


def _choice(artifact: Artifact) -> WheelChoice:
    return WheelChoice(artifact.name, artifact.version, artifact.filename, artifact.integrity)


def _kept(pin: PypiPin, target: Target, previous: Lock | None) -> tuple[Artifact, ...] | None:
    """The wheels of a pin as the previous lock has them; None when it has not, or for another Python."""
    if previous is None or target.platform not in previous.platforms:
        return None
    one = next((one for one in previous.pypi_installed if one.place == pin.place), None)
    if one is None or (one.package, one.version) != (pin.package, pin.version):
        return None
    tree = one.tree(target.platform)
    if (tree.python, tree.glibc) != (target.python.version, target.python.glibc):
        return None
    known = previous.by_id()
    return tuple(known[wheel] for wheel in tree.wheels)


def _resolve(
    new: list[tuple[PypiPin, Target]], gate: AgeGate | None, resolver: Resolver, found: _Found
) -> None:
    if not new:
        return
    roots = tuple(
        PypiRoot(f"{pin.place} = {pin.version} on {target.platform}", pin.package, pin.version, target)
        for pin, target in new
    )
    try:
        answer = perform_pypi(PypiJob(resolve=roots, gate=gate), resolver)
    except PinError as broken:
        asked = next((pin for pin, _ in new if broken.where.startswith(f"{pin.place} ")), None)
        raise _named(broken, asked) from None
    for (pin, target), root, raw, yanked in zip(new, roots, answer.locks, answer.yanked, strict=True):
        if f"{pin.package}=={pin.version}" in yanked:
            gone = PinError(f"{pin.package} {pin.version} is yanked", where=root.label, reason="not-found")
            raise _named(gone, pin)
        released = read_pylock(raw, root.label, target.python, target.platform)
        if gate is not None:
            require_old_enough(gate, [(one.label, when) for one, when in released], where=root.label)
        wheels = tuple(one for one, _ in released)
        if not any((wheel.name, wheel.version) == (pin.package, pin.version) for wheel in wheels):
            raise PinError("uv resolved another version than the exact one", where=root.label, hint=HINT)
        found.wheels[pin.place, target.platform] = wheels


def _named(broken: PinError, pin: PypiPin | None) -> PinError:
    """Say which pin it is; one that is gone can be moved by the command that the hint then names."""
    if pin is not None:
        broken.pin = pin.place
        if broken.reason == "not-found" and "has no wheel" not in broken.what:
            broken.hint = f"move it to the newest: builder lock --upgrade {pin.place}"
    return broken


def _owner(broken: PinError, pins: tuple[PypiPin, ...], found: _Found) -> PypiPin | None:
    """Whose directory needs the wheel that cannot be had; wheels that are chosen again may do without it."""
    for (place, _), wheels in found.wheels.items():
        for wheel in wheels:
            if broken.where == wheel.filename or f"{wheel.name}=={wheel.version} " in f"{broken.what} ":
                return next(pin for pin in pins if pin.place == place)
    return None


def _compose(
    config: ImageConfig,
    pins: tuple[PypiPin, ...],
    found: _Found,
    vouched: Mapping[WheelChoice, Judged],
    store: ContentStore,
) -> PypiPart:
    """From the wheels in the store, each read whole: trees, and artifacts with their parents."""
    unique = {wheel for wheels in found.wheels.values() for wheel in wheels}
    facts = {wheel: _facts(wheel, store) for wheel in sorted(unique)}
    trees: dict[str, tuple[WheelTree, ...]] = {}
    for pin in pins:
        for platform in config.platforms:
            wheels = found.wheels[pin.place, platform]
            python = found.targets[pin.place, platform].python.version
            check_places({wheel.filename: facts[wheel] for wheel in wheels}, python, pin.place)
        trees[pin.place] = tuple(_tree(pin, platform, found) for platform in config.platforms)
    servers = (
        PypiServerLock(
            pin.name, pin.package, pin.version, trees[f"{MCP}{pin.name}"], args=pin.args, env=pin.env
        )
        for pin in config.mcp
        if pin.index is Index.PYPI
    )
    tools = (
        ToolLock(tool.name, tool.name, tool.version, trees[f"{TOOL}{tool.name}"]) for tool in config.tools
    )
    return PypiPart(tuple(servers), tuple(tools), tuple(_artifacts(pins, found, facts, vouched, store)))


def _tree(pin: PypiPin, platform: Platform, found: _Found) -> WheelTree:
    wheels, python = found.wheels[pin.place, platform], found.targets[pin.place, platform].python
    root = next(wheel for wheel in wheels if wheel.name == pin.package)
    ids = tuple(sorted(_id(wheel) for wheel in wheels))
    return WheelTree(platform, python.version, python.glibc, _id(root), ids)


def _artifacts(
    pins: tuple[PypiPin, ...],
    found: _Found,
    facts: Mapping[WheelChoice, WheelFacts],
    vouched: Mapping[WheelChoice, Judged],
    store: ContentStore,
) -> Iterator[Artifact]:
    """Parents by what each wheel requires, markers aside: who else is in its directory."""
    used: dict[WheelChoice, set[Platform]] = {}
    parents: dict[WheelChoice, set[str]] = {}
    packages = {pin.place: pin.package for pin in pins}
    for (place, platform), wheels in found.wheels.items():
        for wheel in wheels:
            used.setdefault(wheel, set()).add(platform)
            asking = {_id(other) for other in wheels if wheel.name in facts[other].requires}
            parents.setdefault(wheel, set()).update(asking)
            if wheel.name == packages[place]:
                parents[wheel].add(place)
    for wheel, platforms in used.items():
        yield Artifact(
            kind=ArtifactKind.WHEEL,
            name=wheel.name,
            version=wheel.version,
            integrity=wheel.integrity,
            size=store.path_of(wheel.integrity).stat().st_size,
            platforms=tuple(sorted(platforms, key=str)),
            parents=tuple(sorted(parents[wheel])),
            bins=facts[wheel].commands,
            registry=PYPI_REGISTRY,
            authenticated=vouched[wheel].authenticated,
            signer=vouched[wheel].signer,
            attestation=vouched[wheel].attestation,
            filename=wheel.filename,
        )


def _id(wheel: WheelChoice) -> str:
    return f"{WHEEL_ID}{wheel.filename}"


def _facts(wheel: WheelChoice, store: ContentStore) -> WheelFacts:
    with store.open(wheel.integrity, wheel.label) as file:
        facts = read_wheel(file, wheel.filename)
    if (facts.name, facts.version) != (wheel.name, wheel.version):
        raise PinError(
            f"{wheel.filename}: its METADATA says that it is {facts.name[:100]} {facts.version[:100]}",
            hint="pin another version: the index and the package disagree",
        )
    return facts


def check_places(tree: Mapping[str, WheelFacts], python: str, place: str) -> None:
    """Two wheels (by file name) of one directory must not have different files at one path. PinError."""
    site = site_packages(python)
    seen: dict[str, tuple[str, bytes, bool]] = {}
    above: dict[str, str] = {}
    for wheel, facts in tree.items():
        for path, file in facts.files.items():
            placed = wheel_place(path, site, facts.name)
            if placed is None:
                continue
            here, command = placed
            executable = file.executable or command
            other, content, mode = seen.setdefault(here, (wheel, file.content, executable))
            if (content, mode) != (file.content, executable):
                raise PinError(
                    f"{other} and {wheel} have different files at {here[:200]}",
                    where=place,
                    hint="pin versions that do not: pip would let the last one win",
                )
            above |= dict.fromkeys(_parents(here), wheel)
    if both := sorted(set(above) & set(seen)):
        raise PinError(
            f"{both[0][:200]} is a file of {seen[both[0]][0]} and a directory of {above[both[0]]}",
            where=place,
            hint=HINT,
        )


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
