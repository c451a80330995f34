"""builder.toml: what the operator asks for, parsed strictly into values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from images.additions import ArchivePin, Index, McpPin, SkillPin, ToolPin
from images.digests import Digest
from images.errors import UsageError
from images.oci import Platform

if TYPE_CHECKING:
    from images.config_model import BuilderToml

SCHEMA: Final = 1
WATCH_UID: Final = 997  # neither root nor the agent: PID 1's own
MAX_UID: Final = 60000  # fits into every nested id range of a rootless engine
TAKEN_NAMES: Final = ("root", "watch", "nobody")  # inside every image


class AgentName(StrEnum):
    """The coding agents that this product knows how to install and start."""

    CLAUDE_CODE = "claude-code"
    OPENCODE = "opencode"
    PI = "pi"

    @property
    def package(self) -> str:
        """Its npm package."""
        return _PACKAGES[self]

    @property
    def command(self) -> str:
        """The name of its launcher on the PATH, which is also the name of its npm bin."""
        return _COMMANDS[self]


_PACKAGES: Final = {
    AgentName.CLAUDE_CODE: "@anthropic-ai/claude-code",
    AgentName.OPENCODE: "opencode-ai",
    AgentName.PI: "@mariozechner/pi-coding-agent",
}
_COMMANDS: Final = {AgentName.CLAUDE_CODE: "claude", AgentName.OPENCODE: "opencode", AgentName.PI: "pi"}


@dataclass(frozen=True, slots=True, order=True)
class AgentPin:
    """One agent at one exact version."""

    name: AgentName
    version: str


@dataclass(frozen=True, slots=True)
class BaseReference:
    """The base image as written: a name for people, and the digest that pins it, or a tag that does not."""

    name: str
    digest: Digest | None
    tag: str = ""

    @property
    def pinned(self) -> bool:
        """Only a digest pins; a tag can move."""
        return self.digest is not None

    @property
    def registry(self) -> tuple[str, str] | None:
        """Registry and repository; None when the name's first part is no host (it has no dot and no port)."""
        host, slash, repository = self.name.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost"):
            return None
        return host, repository

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}@{self.digest}" if self.digest else f"{self.name}{tag}"


@dataclass(frozen=True, slots=True)
class UserAccount:
    """Whom agents run as inside."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class NodePin:
    """Node for the image, and the npm packages whose install scripts may run in the build."""

    version: str
    install_scripts: tuple[str, ...]  # sorted


@dataclass(frozen=True, slots=True, order=True)
class NetworkPeer:
    """One exact host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RunLimits:
    """CPUs as a decimal number, memory in bytes, process ids, deadline in seconds."""

    cpus: float
    memory: int
    pids: int
    deadline: float


@dataclass(frozen=True, slots=True)
class RunDefaults:
    """Defaults of ``builder run``: never in key or lock; the policy is the ceiling."""

    agent: AgentName | None
    allow: tuple[NetworkPeer, ...]
    limits: RunLimits


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """A parsed builder.toml."""

    name: str
    base: BaseReference
    platforms: tuple[Platform, ...]  # sorted
    user: UserAccount
    agents: tuple[AgentPin, ...]  # sorted by name
    node: NodePin
    run: RunDefaults
    mcp: tuple[McpPin, ...] = ()  # sorted by name
    skills: tuple[SkillPin, ...] = ()  # sorted by name
    debian: tuple[str, ...] = ()  # of [toolchain], sorted
    tools: tuple[ToolPin, ...] = ()  # from PyPI, sorted by name
    archives: tuple[ArchivePin, ...] = ()  # sorted by name


def parse_config(text: str, *, where: str) -> ImageConfig:
    """Parse builder.toml; ``where`` names the file in errors.

    Raises UsageError with file, line, dotted path and what was expected.
    """
    from images.config_model import BuilderToml  # noqa: PLC0415  (pydantic loads only when a config is read)
    from images.tomlfile import read_toml  # noqa: PLC0415

    return _values(read_toml(text, where, BuilderToml))


def _values(model: BuilderToml) -> ImageConfig:
    image, run = model.image, model.run
    return ImageConfig(
        name=image.name,
        base=parse_base(image.base),
        platforms=tuple(sorted((Platform.parse(text) for text in image.platforms), key=str)),
        user=UserAccount(image.user.name, image.user.uid, image.user.gid),
        agents=tuple(
            AgentPin(name, version)
            for name in AgentName
            if (version := getattr(model.agents, name.name.lower())) is not None
        ),
        node=NodePin(model.node.version, tuple(sorted(model.node.install_scripts))),
        run=RunDefaults(
            agent=AgentName(run.agent) if run.agent else None,
            allow=tuple(sorted({parse_peer(text) for text in run.allow})),
            limits=RunLimits(
                cpus=float(run.limits.cpus),
                memory=parse_memory(run.limits.memory),
                pids=run.limits.pids,
                deadline=parse_duration(run.limits.deadline),
            ),
        ),
        mcp=tuple(
            McpPin(
                name,
                server.npm or server.pypi or "",
                server.version,
                tuple(server.args),
                tuple(sorted(server.env)),
                Index.PYPI if server.pypi else Index.NPM,
            )
            for name, server in sorted(model.mcp.items())
        ),
        skills=tuple(SkillPin(name, directory) for name, directory in sorted(model.skills.items())),
        debian=tuple(sorted(model.toolchain.debian)),
        tools=tuple(ToolPin(name, version) for name, version in sorted(model.toolchain.pypi.items())),
        archives=tuple(
            ArchivePin(name, Digest(f"sha256:{archive.sha256}"), tuple(sorted(archive.bins.items())))
            for name, archive in sorted(model.archives.items())
        ),
    )


_VERSION: Final = re.compile(
    r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z.-]+)?",
    re.ASCII,
)
_NOT_EXACT: Final = (
    (re.compile(r"://|^(github|gitlab|bitbucket|gist):|\.git$|^git@", re.I), "a URL or Git dependency"),
    (re.compile(r"^(file|link|workspace|portal|npm):|^[./~]+/|^/", re.I), "a file, link or alias dependency"),
    (re.compile(r"[\^~<>=*|]|\s-\s|^v?\d+(\.\d+)?$|\.x\b|,", re.I), "a range"),
    (re.compile(r"^[a-z][a-z0-9._-]*$", re.I), "a tag, which can move"),
)


def check_version(text: str) -> str:
    """Return an exact version, as 2.1.328; anything else is a ValueError saying what it is instead."""
    if len(text) <= 100 and _VERSION.fullmatch(text):
        return text
    kind = next((name for pattern, name in _NOT_EXACT if pattern.search(text)), "not a version")
    raise ValueError(f"{text[:60]!r} is {kind}; expected one exact version, such as 2.1.328")


_BASE_NAME: Final = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::\d{1,5})?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
)


def parse_base(text: str) -> BaseReference:
    """``name@sha256:…`` (pinned), ``name:tag`` or ``name`` (unpinned); ValueError otherwise."""
    name, at, digest = text.partition("@")
    tag = ""
    if ":" in name.rpartition("/")[2]:
        name, _, tag = name.rpartition(":")
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", tag):
            raise ValueError(f"{tag[:60]!r} is not a tag; expected name@sha256:…")
    if len(text) > 400 or not _BASE_NAME.fullmatch(name):
        raise ValueError(f"{text[:60]!r} is not an image reference; expected name@sha256:…")
    if not at:
        return BaseReference(name, None, tag)
    try:
        return BaseReference(name, Digest(digest), tag)
    except UsageError as broken:
        raise ValueError(f"{broken.what}; expected name@sha256: and 64 hexadecimal digits") from None


_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PEER: Final = re.compile(
    rf"(?:(?P<name>{_LABEL}(?:\.{_LABEL})*)|\[(?P<six>[0-9a-f:.]{{2,45}})\]):(?P<port>[1-9]\d{{0,4}})"
)


def parse_peer(text: str) -> NetworkPeer:
    """``host:port``, exact: no scheme, path, wildcard or default port; ValueError otherwise.

    An address has one spelling: what a resolver would read as a number (``127.1``, ``0x7f000001``) is neither
    a name nor an address here, and an IPv4 address is never written as an IPv6 one.
    """
    found = _PEER.fullmatch(text)
    host = found["name"] or found["six"] if found else ""
    sixes = found is not None and bool(found["six"]) is (":" in host)
    if not found or not sixes or int(found["port"]) > 65535 or not _has_one_spelling(host):
        raise ValueError(f"{text[:60]!r}: expected host:port in lower case, such as api.anthropic.com:443")
    return NetworkPeer(host, int(found["port"]))


def _has_one_spelling(host: str) -> bool:
    if len(host) > 253:
        return False
    numeric = ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None
    if not numeric:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return str(address) == host and getattr(address, "ipv4_mapped", None) is None


# What resolvers take for the end of an IPv4 address.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_memory(text: str) -> int:
    """Bytes of ``4GiB``; the units are B, KiB, MiB, GiB, TiB. ValueError otherwise."""
    found = re.fullmatch(r"([1-9]\d{0,14})(B|KiB|MiB|GiB|TiB)", text, re.ASCII)
    if not found or not 16 << 20 <= (size := int(found[1]) * _UNITS[found[2]]) <= 1 << 50:
        raise ValueError(f"{text[:40]!r}: expected an amount such as 4GiB, of at least 16MiB")
    return size


def parse_duration(text: str) -> float:
    """Seconds of ``90s``, ``10m``, ``2h`` or ``90d``; ValueError otherwise."""
    found = re.fullmatch(r"([1-9]\d{0,6})(s|m|h|d)", text, re.ASCII)
    if not found:
        raise ValueError(f"{text[:40]!r}: expected a duration such as 90s, 10m, 2h or 90d")
    return float(int(found[1]) * _SECONDS[found[2]])
