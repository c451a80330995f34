"""Make a lock: resolve what is new, keep what is pinned already, fetch what the store lacks, compose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from builder.building.base_check import read_base
from builder.resolve.archive import lock_archives
from builder.resolve.base_image import lock_base
from builder.resolve.composing import Asked, Source, compose
from builder.resolve.debian import TOOLCHAIN, Debian, fetch_debian, keep_debian, resolve_debian
from builder.resolve.exchange import Resolver
from builder.resolve.failures import GONE, At, failure
from builder.resolve.job import Job, RootRequest, View, ViewRequest, perform
from builder.resolve.newest import BASE, MCP, NODE
from builder.resolve.npm_platform import accepts, names_another_platform, npm_platform
from builder.resolve.npm_tree import HINT, Missing, NpmTree, prune, read_npm_lock
from builder.resolve.pypi_making import Known, fetch_wheels, locked_wheels, make_pypi
from builder.resolve.python import PythonFinder
from builder.resolve.release_age import AgeGate
from builder.resolve.vouching import Trust, fetch_and_vouch, kept_word, lacking, require_old_roots
from builder.resolve.wheel_vouching import WheelTrust
from builder.skills import ReadSkill
from images.additions import Index
from images.config import ImageConfig
from images.errors import PinError, UsageError
from images.lock import (
    NODE_PACKAGES,
    AgentLock,
    Artifact,
    ArtifactKind,
    BaseLock,
    Bundled,
    Lock,
    McpLock,
    Recipe,
    ToolImages,
    Tree,
    TreeEntry,
    config_digest,
)
from images.lock_laws import allowed_without_script, broken_law
from images.lock_reader import NPM_NAME
from images.oci import Platform
from provenance.layout import blob_path, open_image
from provenance.npm_signatures import Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """What a lock is made of besides the configuration; ``previous`` stays pinned where nothing changed.

    ``renew``: names (of agents, ``mcp.NAME``, ``node``) that are resolved again although their pin is the
    same. ``skills``: as read from beside builder.toml, and in the store already. ``trust``: in what is new.
    """

    recipe: Recipe
    tools: ToolImages
    layout: Path
    previous: Lock | None = None
    renew: frozenset[str] = frozenset()
    skills: tuple[ReadSkill, ...] = ()
    trust: Trust = field(default_factory=Trust)


@dataclass(frozen=True, slots=True)
class _Root:
    """Something to be resolved on one platform: what ``place`` in builder.toml names.

    ``name``: as ``builder lock --upgrade`` takes it.
    """

    place: str
    name: str
    package: str
    version: str
    platform: Platform

    @property
    def is_node(self) -> bool:
        return self.name == NODE

    @property
    def label(self) -> str:
        return f"{self.place} = {self.version} ({self.package}) on {self.platform}"


@dataclass(slots=True)
class _Pinned:
    """What is pinned so far."""

    trees: dict[tuple[str, Platform], Tree] = field(default_factory=dict)  # by name of the root
    sources: dict[str, Source] = field(default_factory=dict)
    known: dict[str, Judged] = field(default_factory=dict)  # by id: what the previous lock says of it

    def on_all(self, name: str, platforms: tuple[Platform, ...]) -> tuple[Tree, ...]:
        return tuple(self.trees[name, platform] for platform in platforms)

    def add(self, source: Source) -> None:
        known = self.sources.setdefault(source.id, source)
        if known.integrity != source.integrity:
            raise PinError(
                f"{source.label}: the registry gave two different hashes for it",
                hint="find out who changed it, then: builder lock",
                reason="integrity",
            )


def make_lock(config: ImageConfig, request: LockRequest, resolver: Resolver) -> Lock:
    """The lock of a configuration; everything that it names is in the store afterwards.

    What has the same pin as before keeps its tree from the previous lock: a lock made again resolves
    nothing again. Raises PinError naming what cannot be had and the ways on, NetworkFailed, HostError,
    StateError.
    """
    base = _base(config, request, resolver)
    pinned = _Pinned()
    new = tuple(
        root for root in _roots(config) if root.name in request.renew or not _keep(root, request, pinned)
    )
    _resolve(new, request.trust, resolver, pinned)
    try:
        vouched = fetch_and_vouch(pinned.sources.values(), pinned.known, request.trust, resolver)
    except PinError as broken:
        raise _named(broken, _user_of(broken.where, pinned)) from None
    debian = _debian(config, base, request, resolver)
    agents, mcp = _agents(config, pinned), _servers(config, pinned)
    python_for = PythonFinder(request.layout, base, debian.artifacts if debian is not None else ())
    trust = WheelTrust(publishers=request.trust.publishers, on_note=request.trust.on_note)
    known = Known(python_for.find, request.previous, request.renew, request.trust.gate, trust)
    pypi = make_pypi(config, known, resolver)
    archives, local = lock_archives(config.archives, resolver.store, config.platforms)
    asked = Asked(
        installed=(*agents, *mcp),
        platforms=config.platforms,
        node_version=config.node.version,
        install_scripts=config.node.install_scripts,
    )
    return _checked(
        Lock(
            config=config_digest(config),
            recipe=request.recipe,
            tools=request.tools,
            user=config.user,
            platforms=config.platforms,
            base=base,
            node_version=config.node.version,
            install_scripts=config.node.install_scripts,
            agents=agents,
            artifacts=_sorted(
                compose(asked, pinned.sources, resolver.store, vouched),
                pypi.artifacts,
                local,
                debian.artifacts if debian is not None else (),
                tuple(skill.artifact(config.platforms) for skill in request.skills),
            ),
            mcp=mcp,
            skills=tuple(skill.lock for skill in request.skills),
            toolchain=debian.lock if debian is not None else None,
            pypi_mcp=pypi.servers,
            pypi_tools=pypi.tools,
            archives=archives,
        )
    )


def _agents(config: ImageConfig, pinned: _Pinned) -> tuple[AgentLock, ...]:
    return tuple(
        AgentLock(pin.name, pin.name.package, pin.version, pinned.on_all(pin.name, config.platforms))
        for pin in config.agents
    )


def _servers(config: ImageConfig, pinned: _Pinned) -> tuple[McpLock, ...]:
    return tuple(
        McpLock(
            pin.name,
            pin.package,
            pin.version,
            pinned.on_all(f"{MCP}{pin.name}", config.platforms),
            args=pin.args,
            env=pin.env,
        )
        for pin in config.mcp
        if pin.index is Index.NPM
    )


def _sorted(*parts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    return tuple(sorted((artifact for part in parts for artifact in part), key=lambda one: one.id))


def _debian(config: ImageConfig, base: BaseLock, request: LockRequest, resolver: Resolver) -> Debian | None:
    """The toolchain, as the previous lock has it where the same is asked of the same base."""
    if not config.debian:
        return None
    kept = None if TOOLCHAIN in request.renew else keep_debian(config.debian, base, request.previous)
    if kept is not None:
        fetch_debian(kept.artifacts, kept.lock.suite, resolver)
        return kept
    images = (open_image(request.layout, image.manifest, image.platform) for image in base.images)
    return resolve_debian(config.debian, {one.platform: read_base(one).debian for one in images}, resolver)


def fetch(lock: Lock, resolver: Resolver) -> int:
    """Bring what a lock names and the store lacks (or holds damaged); returns how many artifacts came.

    Never resolves anything: a pin that is gone is a PinError naming it. No registry has Skills or archives.
    """
    sources = (
        Source(artifact.kind, artifact.name, artifact.version, artifact.integrity)
        for artifact in lock.artifacts
        if artifact.kind in (ArtifactKind.NPM, ArtifactKind.NODE)
    )
    debs = [artifact for artifact in lock.artifacts if artifact.kind is ArtifactKind.DEB]
    suite = lock.toolchain.suite if lock.toolchain is not None else ""
    came = fetch_debian(debs, suite, resolver) + fetch_sources(sources, resolver)
    return came + fetch_wheels(locked_wheels(lock), resolver)


def fetch_sources(sources: Iterable[Source], resolver: Resolver) -> int:
    """Bring the tarballs that the store lacks; returns how many."""
    wanted = lacking(sources, resolver)
    if wanted:
        perform(Job(fetch=wanted), resolver)
    return len(wanted)


def _base(config: ImageConfig, request: LockRequest, resolver: Resolver) -> BaseLock:
    try:
        return lock_base(config.base, config.platforms, request.layout, resolver)
    except PinError as broken:
        broken.pin = BASE
        if config.base.digest is not None and not blob_path(request.layout, config.base.digest).exists():
            broken.reason = "not-found"
        raise


def _roots(config: ImageConfig) -> tuple[_Root, ...]:
    return tuple(
        root
        for platform in config.platforms
        for root in (
            _Root("node.version", NODE, NODE_PACKAGES[platform], config.node.version, platform),
            *(
                _Root(f"agents.{pin.name}", pin.name, pin.name.package, pin.version, platform)
                for pin in config.agents
            ),
            *(
                _Root(f"{MCP}{pin.name}", f"{MCP}{pin.name}", pin.package, pin.version, platform)
                for pin in config.mcp
                if pin.index is Index.NPM
            ),
        )
    )


def _keep(root: _Root, request: LockRequest, pinned: _Pinned) -> bool:
    """Take a root as the previous lock has it; False when that has it not, or at another version."""
    previous = request.previous
    if previous is None or root.platform not in previous.platforms:
        return False
    if root.is_node:
        if previous.node_version != root.version:
            return False
        kept = [previous.node_id(root.platform)]
    else:
        found = next((one for one in previous.installed if one.place == root.place), None)
        if found is None or (found.package, found.version) != (root.package, root.version):
            return False
        tree = found.tree(root.platform)
        pinned.trees[root.name, root.platform] = tree
        kept = [entry.artifact for entry in tree.entries]
    for name in kept:
        artifact = previous.artifact(name)
        pinned.add(Source(artifact.kind, artifact.name, artifact.version, artifact.integrity))
        if (word := kept_word(artifact, request.trust)) is not None:
            pinned.known[artifact.id] = word
    return True


def _resolve(roots: tuple[_Root, ...], trust: Trust, resolver: Resolver, pinned: _Pinned) -> None:
    if not roots:
        return
    if trust.gate is not None:
        require_old_roots(((root.package, root.version) for root in roots), trust.gate, resolver)
    questions = tuple(
        RootRequest(root.label, root.package, root.version, npm_platform(root.platform), *_aged(trust.gate))
        for root in roots
    )
    try:
        answer = perform(Job(resolve=questions), resolver)
    except PinError as broken:
        name = next((root.name for root in roots if root.label == broken.where), "")
        if trust.gate is not None and broken.reason == "not-found":
            broken.what += ", or only in versions that are younger than min_release_age"
        raise _named(broken, name) from None
    trees = [
        prune(read_npm_lock(raw, root.label), npm_platform(root.platform), root.label)
        for root, raw in zip(roots, answer.locks, strict=True)
    ]
    for root, tree in zip(roots, trees, strict=True):
        _check_missing(root, tree.missing, resolver)
        _take(root, tree, pinned)


def _aged(gate: AgeGate | None) -> tuple[str, tuple[str, ...]]:
    """For npm, which excepts packages and not versions: what it then takes that is too young is refused."""
    if gate is None:
        return "", ()
    return gate.cutoff.isoformat(), gate.excepted_names


def _named(broken: PinError, pin: str) -> PinError:
    """Say which pin it is; one that is gone can be moved by the command that the hint then names."""
    broken.pin = pin
    if pin and broken.reason == "not-found":
        broken.hint = f"move it to the newest: builder lock --upgrade {pin}"
    return broken


def _user_of(label: str, pinned: _Pinned) -> str:
    """Whose tree holds the package of this label; a tree that is resolved again may do without it."""
    found = next((source for source in pinned.sources.values() if source.label == label), None)
    if found is None:
        return ""
    if found.kind is ArtifactKind.NODE:
        return NODE
    trees = pinned.trees.items()
    return next((name for (name, _), tree in trees if tree.holds(found.id)), "")


def _take(root: _Root, tree: NpmTree, pinned: _Pinned) -> None:
    """Add one resolved root to what is pinned."""
    kind = ArtifactKind.NODE if root.is_node else ArtifactKind.NPM
    if root.is_node and (len(tree.packages) != 1 or tree.bundled):
        raise PinError("is not the one package that it should be", where=root.label, hint=HINT)
    entries = []
    for entry in tree.packages:
        if entry.integrity is None:  # the reader gives one to every package with a tarball of its own
            raise PinError(f"{entry.name}@{entry.version} has no integrity", where=root.label, hint=HINT)
        source = Source(kind, entry.name, entry.version, entry.integrity)
        pinned.add(source)
        entries.append(TreeEntry(entry.path, source.id))
    expected = f"{kind}:{root.package}@{root.version}"
    if TreeEntry(f"node_modules/{root.package}", expected) not in entries:
        raise PinError("npm resolved another version than the exact one", where=root.label, hint=HINT)
    if not root.is_node:
        bundled = tuple(Bundled(entry.path, entry.version) for entry in tree.bundled)
        pinned.trees[root.name, root.platform] = Tree(root.platform, tuple(sorted(entries)), bundled)


def _check_missing(root: _Root, missing: tuple[Missing, ...], resolver: Resolver) -> None:
    """npm leaves out optional packages without a word: one for this platform must not be among them."""
    platform = npm_platform(root.platform)
    doubtful = [item for item in missing if not names_another_platform(item.name, platform)]
    for item in doubtful:
        if not NPM_NAME.fullmatch(item.name) or any(char in item.range for char in ":/"):
            what = f"{item.parent} asks for {item.name[:100]} outside of the registry"
            raise PinError(what, where=root.label, hint=HINT)
    if not doubtful:
        return
    answer = perform(Job(view=tuple(ViewRequest(item.name, item.range) for item in doubtful)), resolver)
    for item, view in zip(doubtful, answer.views, strict=True):
        _judge_missing(root, item, view)


def _judge_missing(root: _Root, item: Missing, view: View) -> None:
    wanted = f"{item.name}@{item.range}"
    if view.code in GONE:
        raise PinError(
            f"{wanted}, which {item.parent} needs on {root.platform}, is not in the registry",
            where=root.label,
            hint=f"pin a version of {root.package} that has its package for {root.platform}, or mirror it",
            reason="not-found",
            pin=root.name,
        )
    if view.code:
        raise failure(view.code, At(root.label, wanted, "view"))
    if accepts(view.declared, npm_platform(root.platform)):
        raise PinError(
            f"npm left out {wanted}, which {item.parent} needs on {root.platform}",
            where=root.label,
            hint="it is in the registry; try again: builder lock",
        )


def _checked(lock: Lock) -> Lock:
    without = allowed_without_script(lock)
    if without:
        raise UsageError(
            f"node.install-scripts: {without[0]} is not in the image, or has no install script",
            where="builder.toml",
            hint=f"take {without[0]} out of install-scripts",
        )
    if (problem := broken_law(lock)) is not None:
        raise PinError(f"what npm resolved makes no whole lock: {problem}", hint="pin another version")
    return lock
