"""Small valid configurations and locks for tests: two agents, one nested package, one script that runs."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from images.attestation import Attestation
from images.config import AgentName, UserAccount
from images.digests import Digest, Integrity
from images.lock import (
    NODE_PACKAGES,
    AgentLock,
    Artifact,
    ArtifactKind,
    Authentication,
    BaseImage,
    BaseLock,
    InstallScript,
    Lock,
    McpLock,
    Recipe,
    ScriptEvent,
    SkillFile,
    SkillLock,
    ToolImages,
    Tree,
    TreeEntry,
)
from images.lock_additions import ArchiveLock, PypiServerLock, ToolLock, WheelTree
from images.oci import MEDIA_LAYER_ZSTD, Descriptor, Platform
from images.pypi import normal_name
from images.skills import pack_skill
from images.toolchain import DebianTree, DpkgAction, DpkgStep, ToolchainLock

AMD64 = Platform("linux", "amd64")
ARM64 = Platform("linux", "arm64")
BASE_DIGEST = Digest.of(b"base manifest")

KEY_ID = "SHA256:" + "A" * 43  # of no key
SIGNATURE = "MEUC" + "A" * 92  # of nothing
PUBLISHER = "https://forge.example/team/quick/.ci/release.yml@refs/tags/v0.9"
ATTESTATION = Attestation(PUBLISHER, "https://token.ci.example", bundle="e30K")  # of nothing

BUILDER_TOML = f"""\
schema = 1

[image]
name = "team/agents"
base = "debian-minimal@{BASE_DIGEST}"
platforms = ["linux/amd64"]
user = {{ name = "agent", uid = 1000, gid = 1000 }}

[agents]
claude-code = "2.1.328"
pi = "0.73.1"

[node]
version = "22.23.5"
install-scripts = ["@anthropic-ai/claude-code"]

[run]
agent = "claude-code"
allow = []
limits = {{ cpus = 2, memory = "4GiB", pids = 512, deadline = "2h" }}
"""


def integrity(seed: str) -> Integrity:
    """A sha512 that belongs to nothing."""
    return Integrity("sha512", hashlib.sha512(seed.encode()).hexdigest())


def npm(
    name: str,
    version: str,
    *parents: str,
    bins: tuple[tuple[str, str], ...] = (),
    scripts: tuple[InstallScript, ...] = (),
    scripts_run: bool = False,
    platforms: tuple[Platform, ...] = (AMD64,),
) -> Artifact:
    """One npm artifact."""
    return Artifact(
        kind=ArtifactKind.NPM,
        name=name,
        version=version,
        integrity=integrity(f"{name}@{version}"),
        size=1000,
        platforms=platforms,
        parents=tuple(sorted(parents)),
        bins=bins,
        scripts=scripts,
        scripts_run=scripts_run,
    )


def node(platform: Platform = AMD64, version: str = "22.23.5") -> Artifact:
    """Node's artifact for a platform."""
    name = NODE_PACKAGES[platform]
    return Artifact(
        kind=ArtifactKind.NODE,
        name=name,
        version=version,
        integrity=integrity(f"{name}@{version}"),
        size=5000,
        platforms=(platform,),
        parents=("node",),
    )


def base_image(platform: Platform = AMD64, manifest: Digest = BASE_DIGEST) -> BaseImage:
    """A base of one layer."""
    return BaseImage(
        platform=platform,
        manifest=manifest,
        config=Digest.of(b"base config"),
        layers=(Descriptor(MEDIA_LAYER_ZSTD, Digest.of(b"base layer"), 10),),
        diff_ids=(Digest.of(b"base layer, unpacked"),),
    )


def make_lock() -> Lock:
    """A lock of the configuration above that holds every law."""
    claude = "npm:@anthropic-ai/claude-code@2.1.328"
    pi = "npm:@mariozechner/pi-coding-agent@0.73.1"
    chalk = "npm:chalk@5.6.2"
    artifacts = (
        node(),
        npm(
            "@anthropic-ai/claude-code",
            "2.1.328",
            "agents.claude-code",
            bins=(("claude", "bin/claude.exe"),),
            scripts=(InstallScript(ScriptEvent.POSTINSTALL, "node install.cjs"),),
            scripts_run=True,
        ),
        npm("@anthropic-ai/claude-code-linux-x64", "2.1.328", claude),
        npm("@mariozechner/pi-coding-agent", "0.73.1", "agents.pi", bins=(("pi", "dist/cli.js"),)),
        npm("chalk", "5.6.2", pi),
        npm("ansi", "1.0.0", chalk),
        npm("protobufjs", "7.6.6", pi, scripts=(InstallScript(ScriptEvent.POSTINSTALL, "node x"),)),
    )
    return Lock(
        config=Digest.of(b"config"),
        recipe=Recipe(template=Digest.of(b"template"), renderer=1, buildkit="v0.34.2"),
        tools=ToolImages(Digest.of(b"resolver"), Digest.of(b"build container")),
        user=UserAccount("agent", 1000, 1000),
        platforms=(AMD64,),
        base=BaseLock("debian-minimal", "", True, BASE_DIGEST, None, (base_image(),)),
        node_version="22.23.5",
        install_scripts=("@anthropic-ai/claude-code",),
        agents=(
            AgentLock(
                AgentName.CLAUDE_CODE,
                "@anthropic-ai/claude-code",
                "2.1.328",
                (
                    Tree(
                        AMD64,
                        (
                            TreeEntry("node_modules/@anthropic-ai/claude-code", claude),
                            TreeEntry(
                                "node_modules/@anthropic-ai/claude-code-linux-x64",
                                "npm:@anthropic-ai/claude-code-linux-x64@2.1.328",
                            ),
                        ),
                    ),
                ),
            ),
            AgentLock(
                AgentName.PI,
                "@mariozechner/pi-coding-agent",
                "0.73.1",
                (
                    Tree(
                        AMD64,
                        (
                            TreeEntry("node_modules/@mariozechner/pi-coding-agent", pi),
                            TreeEntry("node_modules/chalk", chalk),
                            TreeEntry("node_modules/chalk/node_modules/ansi", "npm:ansi@1.0.0"),
                            TreeEntry("node_modules/protobufjs", "npm:protobufjs@7.6.6"),
                        ),
                    ),
                ),
            ),
        ),
        artifacts=tuple(sorted(artifacts, key=lambda artifact: artifact.id)),
    )


SKILL_FILES = (
    (SkillFile("SKILL.md", False, 9, Digest.of(b"# Review\n")), b"# Review\n"),
    (SkillFile("bin/look.sh", True, 10, Digest.of(b"#!/bin/sh\n")), b"#!/bin/sh\n"),
)


def skill_integrity() -> Integrity:
    """Of the archive of the Skill below."""
    return Integrity("sha256", hashlib.sha256(pack_skill(SKILL_FILES)).hexdigest())


def make_full_lock() -> Lock:
    """The lock above with one MCP server and one Skill; chalk is shared with an agent, and signed."""
    lock = make_lock()
    server = npm("@example/server-files", "1.2.3", "mcp.files", bins=(("server-files", "dist/index.js"),))
    chalk = replace(
        lock.artifact("npm:chalk@5.6.2"),
        parents=tuple(sorted((server.id, *lock.artifact("npm:chalk@5.6.2").parents))),
        authenticated=Authentication.NPM_SIGNATURE,
        signer=KEY_ID,
        signature=SIGNATURE,
    )
    skill = Artifact(
        kind=ArtifactKind.SKILL,
        name="review",
        version="",
        integrity=skill_integrity(),
        size=len(pack_skill(SKILL_FILES)),
        platforms=(AMD64,),
        parents=("skills.review",),
        registry="local",
        authenticated=Authentication.LOCAL,
    )
    others = (artifact for artifact in lock.artifacts if artifact.id != chalk.id)
    entries = (
        TreeEntry("node_modules/@example/server-files", server.id),
        TreeEntry("node_modules/ansi", "npm:ansi@1.0.0"),
        TreeEntry("node_modules/chalk", chalk.id),
    )
    return replace(
        lock,
        artifacts=tuple(sorted((*others, chalk, server, skill), key=lambda artifact: artifact.id)),
        mcp=(
            McpLock(
                "files",
                "@example/server-files",
                "1.2.3",
                (Tree(AMD64, entries),),
                args=("/workspace", "it's"),
                env=("FILES_TOKEN",),
            ),
        ),
        skills=(SkillLock("review", tuple(file for file, _ in SKILL_FILES)),),
    )


SIGNER = "4D64FEC119C2029067D6E791F8D2585B8783D481"


def deb(name: str, version: str, *parents: str, platforms: tuple[Platform, ...] = (AMD64,)) -> Artifact:
    """One Debian package; ``name`` with its architecture."""
    return Artifact(
        kind=ArtifactKind.DEB,
        name=name,
        version=version,
        integrity=Integrity("sha256", hashlib.sha256(f"{name}@{version}".encode()).hexdigest()),
        size=2000,
        platforms=platforms,
        parents=tuple(sorted(parents)),
        registry="debian",
        authenticated=Authentication.DEBIAN_SIGNED,
        signer=SIGNER,
    )


def with_toolchain(lock: Lock, *debs: Artifact, in_base: tuple[str, ...] = ("git",)) -> Lock:
    """The lock with a toolchain: packages of ``debs`` that the toolchain asks for, and what the base has."""
    debs = debs or (
        deb("libguile-3.0-1:amd64", "3.0.8-2", "deb:make:amd64@4.3-4.1"),
        deb("make:amd64", "4.3-4.1", "toolchain.debian"),
    )
    ids = tuple(one.id for one in debs)
    asked = {one.name.partition(":")[0] for one in debs if "toolchain.debian" in one.parents}
    steps = (DpkgStep(DpkgAction.UNPACK, ids), DpkgStep(DpkgAction.CONFIGURE, ids))
    return replace(
        lock,
        artifacts=tuple(sorted((*lock.artifacts, *debs), key=lambda artifact: artifact.id)),
        toolchain=ToolchainLock(
            suite="bookworm",
            asked=tuple(sorted({*asked, *in_base})),
            trees=(DebianTree(AMD64, in_base, steps),),
        ),
    )


def wheel(
    filename: str,
    *parents: str,
    bins: tuple[tuple[str, str], ...] = (),
    platforms: tuple[Platform, ...] = (AMD64,),
) -> Artifact:
    """One wheel, by its file name."""
    name, version = filename.split("-")[:2]
    return Artifact(
        kind=ArtifactKind.WHEEL,
        name=normal_name(name),
        version=version,
        integrity=Integrity("sha256", hashlib.sha256(filename.encode()).hexdigest()),
        size=2000,
        platforms=platforms,
        parents=tuple(sorted(parents)),
        bins=bins,
        registry="pypi",
        filename=filename,
    )


def make_added_lock() -> Lock:
    """The full lock with an MCP server and a tool from PyPI, which share a wheel, and with an archive."""
    lock = make_full_lock()
    server = wheel(
        "mcp_server_look-2026.10.24-py3-none-any.whl",
        "mcp.look",
        bins=(("mcp-server-look", "mcp_server_look:main"),),
    )
    tool = wheel(
        "quick-0.9-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "toolchain.pypi.quick",
        bins=(
            ("quick", "bin/quick"),
            ("quick-show", "quick.show:Main.run"),
            ("quick.sh", "python bin/quick.sh"),
        ),
    )
    tool = replace(
        tool, authenticated=Authentication.PYPI_ATTESTED, signer=PUBLISHER, attestation=ATTESTATION
    )
    shared = wheel("Anyio-4.16.0-py3-none-any.whl", server.id, tool.id)
    shared = replace(shared, attestation=replace(ATTESTATION, bundle=""))  # of a publisher nobody expected
    archive = Artifact(
        kind=ArtifactKind.ARCHIVE,
        name="kit",
        version="",
        integrity=Integrity("sha256", hashlib.sha256(b"kit").hexdigest()),
        size=3000,
        platforms=(AMD64,),
        parents=("archives.kit",),
        bins=(("kit", "kit-1.2/bin/kit"),),
        registry="local",
        authenticated=Authentication.LOCAL,
    )

    def tree(root: Artifact) -> tuple[WheelTree, ...]:
        return (WheelTree(AMD64, "3.11", "2.36", root.id, tuple(sorted((root.id, shared.id)))),)

    return replace(
        lock,
        artifacts=tuple(
            sorted((*lock.artifacts, server, tool, shared, archive), key=lambda artifact: artifact.id)
        ),
        pypi_mcp=(
            PypiServerLock(
                "look",
                "mcp-server-look",
                "2026.10.24",
                tree(server),
                args=("--quiet", "it's"),
                env=("LOOK_AT",),
            ),
        ),
        pypi_tools=(ToolLock("quick", "quick", "0.9", tree(tool)),),
        archives=(ArchiveLock("kit"),),
    )
