"""From trees and tarballs to a lock's artifacts: parents, commands and scripts as the tarballs have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from builder.resolve.npm_tree import places
from builder.resolve.tarball import PackageFacts, read_package
from builder.storage.store import ContentStore
from images.digests import Integrity
from images.errors import PinError
from images.lock import NODE_PACKAGES, NODE_PARENT, AgentLock, Artifact, ArtifactKind, McpLock, Tree
from images.oci import Platform
from provenance.npm_signatures import Judged


@dataclass(frozen=True, slots=True)
class Source:
    """One tarball to have: what it is called and the hash it must have."""

    kind: ArtifactKind
    name: str
    version: str
    integrity: Integrity

    @property
    def id(self) -> str:
        """The id that its artifact will have in the lock."""
        return f"{self.kind}:{self.name}@{self.version}"

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What builder.toml asks for, resolved."""

    installed: tuple[AgentLock | McpLock, ...]
    platforms: tuple[Platform, ...]
    node_version: str
    install_scripts: tuple[str, ...]

    def node_id(self, platform: Platform) -> str:
        """The id of Node's artifact there."""
        return f"{ArtifactKind.NODE}:{NODE_PACKAGES[platform]}@{self.node_version}"


def compose(
    asked: Asked, sources: Mapping[str, Source], store: ContentStore, vouched: Mapping[str, Judged]
) -> tuple[Artifact, ...]:
    """The artifacts, sorted by id. Every tarball is read from the store, where it was checked.

    ``vouched``: by id, how each was authenticated. Raises PinError when a tarball is not the package that it
    was pinned as.
    """
    used: dict[str, set[Platform]] = {}
    parents: dict[str, set[str]] = {}
    for platform in asked.platforms:
        node = asked.node_id(platform)
        used.setdefault(node, set()).add(platform)
        parents.setdefault(node, set()).add(NODE_PARENT)
    for one in asked.installed:
        parents.setdefault(one.root, set()).add(one.place)
        for tree in one.trees:
            for entry in tree.entries:
                used.setdefault(entry.artifact, set()).add(tree.platform)
    facts = {name: _facts(sources[name], store) for name in used}
    for one in asked.installed:
        for tree in one.trees:
            _add_parents(tree, facts, parents)
    return tuple(
        _artifact(
            sources[name],
            facts[name],
            vouched[name],
            size=store.path_of(sources[name].integrity).stat().st_size,
            platforms=tuple(sorted(used[name], key=str)),
            parents=tuple(sorted(parents.get(name, ()))),
            allowed=sources[name].name in asked.install_scripts,
        )
        for name in sorted(used)
    )


def _facts(source: Source, store: ContentStore) -> PackageFacts:
    with store.open(source.integrity, source.label) as file:
        facts = read_package(file, source.label)
    if facts.name != source.name or facts.version.lstrip("v=") != source.version:
        raise PinError(
            f"{source.label}: its tarball says that it is {facts.name[:100]}@{facts.version[:100]}",
            hint="pin another version: the registry and the package disagree",
        )
    return facts


def _add_parents(tree: Tree, facts: Mapping[str, PackageFacts], parents: dict[str, set[str]]) -> None:
    """Who asks for whom, by Node's own rule: the nearest ``node_modules`` that has the name."""
    at = {entry.path: entry.artifact for entry in tree.entries}
    inside = {item.path for item in tree.bundled}
    for entry in tree.entries:
        for name in facts[entry.artifact].dependencies:
            for place in places(entry.path):
                path = f"{place}node_modules/{name}"
                if path in at and at[path] != entry.artifact:
                    parents.setdefault(at[path], set()).add(entry.artifact)
                if path in at or path in inside:
                    break


def _artifact(
    source: Source,
    facts: PackageFacts,
    judged: Judged,
    *,
    size: int,
    platforms: tuple[Platform, ...],
    parents: tuple[str, ...],
    allowed: bool,
) -> Artifact:
    return Artifact(
        kind=source.kind,
        name=source.name,
        version=source.version,
        integrity=source.integrity,
        size=size,
        platforms=platforms,
        parents=parents,
        bins=facts.bins,
        scripts=facts.scripts,
        scripts_run=allowed and bool(facts.scripts),
        authenticated=judged.authenticated,
        signer=judged.signer,
        signature=judged.signature,
        attestation=judged.attestation,
    )
