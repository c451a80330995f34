"""The shape of builder.toml as a model: what validates it, and where its JSON Schema comes from."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from images.additions import (
    ADDITION_NAME,
    COMMAND,
    MAX_ADDITION_NAME,
    MAX_ADDITIONS,
    MAX_ARGUMENTS,
    TAKEN_COMMANDS,
    VARIABLE_NAME,
    check_archive_path,
    check_arguments,
    check_directory,
)
from images.config import (
    MAX_UID,
    TAKEN_NAMES,
    WATCH_UID,
    check_version,
    parse_base,
    parse_duration,
    parse_memory,
    parse_peer,
)
from images.credential_names import RULE_NAME, judge_named
from images.planted import CredentialRefused
from images.pypi import check_pypi_name, check_pypi_version
from images.schema_version import One
from images.toolchain import DEBIAN_NAME, MAX_DEBIAN

NPM_NAME: Final = r"^(@[a-z0-9][a-z0-9._-]{0,100}/)?[a-z0-9][a-z0-9._-]{0,213}$"
IMAGE_NAME: Final = r"^[a-z0-9]+([._-][a-z0-9]+)*(/[a-z0-9]+([._-][a-z0-9]+)*)*$"
SUPPORTED_PLATFORMS: Final = ("linux/amd64", "linux/arm64")


def _checked(parse: Callable[[str], object]) -> AfterValidator:
    """Keep the text and let ``parse`` refuse it, so that the schema stays a schema of text."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


Version = Annotated[str, _checked(check_version)]
BaseText = Annotated[str, _checked(parse_base)]
Peer = Annotated[str, _checked(parse_peer)]
Memory = Annotated[str, _checked(parse_memory)]
Duration = Annotated[str, _checked(parse_duration)]
PackageName = Annotated[str, StringConstraints(pattern=NPM_NAME)]
DebianName = Annotated[str, StringConstraints(pattern=DEBIAN_NAME)]
AdditionName = Annotated[str, StringConstraints(pattern=ADDITION_NAME, max_length=MAX_ADDITION_NAME)]
VariableName = Annotated[str, StringConstraints(pattern=VARIABLE_NAME)]
SkillDirectory = Annotated[str, _checked(check_directory)]
PypiName = Annotated[str, _checked(check_pypi_name)]
PypiVersion = Annotated[str, _checked(check_pypi_version)]
CommandName = Annotated[str, StringConstraints(pattern=COMMAND)]
ArchivePath = Annotated[str, _checked(check_archive_path)]


class _Strict(BaseModel):
    """No unknown key, no conversion of one type into another."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class User(_Strict):
    """Whom agents run as inside the image."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,30}$")] = "agent"
    uid: Annotated[int, Field(ge=1, le=MAX_UID)] = 1000
    gid: Annotated[int, Field(ge=1, le=MAX_UID)] = 1000

    @model_validator(mode="after")
    def _not_taken(self) -> User:
        if self.name in TAKEN_NAMES:
            raise ValueError(f"the name {self.name} is taken inside every image; expected another")
        if WATCH_UID in (self.uid, self.gid):
            raise ValueError(f"{WATCH_UID} belongs to the watch process; expected another uid and gid")
        return self


class Image(_Strict):
    """What the image is called, what it stands on, for whom."""

    name: Annotated[str, StringConstraints(pattern=IMAGE_NAME, max_length=128)] = Field(
        description="For people and for policy; the identity of the image is its digest."
    )
    base: BaseText = Field(
        description="name@sha256:… of an index or platform manifest; a tag alone is unpinned."
    )
    platforms: Annotated[list[Literal["linux/amd64", "linux/arm64"]], Field(min_length=1)] = ["linux/amd64"]
    user: User = User()

    @model_validator(mode="after")
    def _once(self) -> Image:
        if len(set(self.platforms)) != len(self.platforms):
            raise ValueError("platforms: one is named twice; expected each once")
        return self


class Agents(_Strict):
    """Agents at exact versions; at least one."""

    claude_code: Version | None = Field(
        None, alias="claude-code", description="npm @anthropic-ai/claude-code"
    )
    opencode: Version | None = Field(None, description="npm opencode-ai")
    pi: Version | None = Field(None, description="npm @mariozechner/pi-coding-agent")

    @model_validator(mode="after")
    def _some(self) -> Agents:
        if not any((self.claude_code, self.opencode, self.pi)):
            raise ValueError('no agent; expected at least one, such as claude-code = "2.1.328"')
        return self


class Node(_Strict):
    """Node for the image."""

    version: Version
    install_scripts: Annotated[list[PackageName], Field(max_length=100)] = Field(
        [], alias="install-scripts", description="npm packages whose install scripts may run in the build."
    )

    @model_validator(mode="after")
    def _once(self) -> Node:
        if len(set(self.install_scripts)) != len(self.install_scripts):
            raise ValueError("install-scripts: one is named twice; expected each once")
        return self


class Toolchain(_Strict):
    """What projects need besides the agents."""

    debian: Annotated[list[DebianName], Field(max_length=MAX_DEBIAN)] = Field(
        [], description="Debian packages; builder lock pins their versions and all that they depend on."
    )
    pypi: Annotated[dict[PypiName, PypiVersion], Field(max_length=MAX_ADDITIONS)] = Field(
        {}, description="Tools from PyPI at exact versions, by package: their commands are on the PATH."
    )

    @model_validator(mode="after")
    def _once(self) -> Toolchain:
        if len(set(self.debian)) != len(self.debian):
            raise ValueError("debian: one is named twice; expected each once")
        return self


class McpServer(_Strict):
    """An MCP server from npm or PyPI: installed, and enabled for nobody."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["npm"]}, {"required": ["pypi"]}]})

    npm: PackageName | None = Field(None, description="Its npm package.")
    pypi: PypiName | None = Field(None, description="Its package on PyPI; needs python3 in the image.")
    version: str = Field(description="One exact version.")
    args: Annotated[list[str], Field(max_length=MAX_ARGUMENTS)] = Field(
        [], description="Arguments, as they are: no shell, no variables, no credential."
    )
    env: Annotated[list[VariableName], Field(max_length=MAX_ARGUMENTS)] = Field(
        [], description="Names of the variables that it reads: whoever starts it gives their values."
    )

    @model_validator(mode="before")
    @classmethod
    def _known_kinds(cls, value: Any) -> Any:
        values = isinstance(value, dict) and isinstance(value.get("env"), dict)
        if values:
            raise _no_values(value["env"])
        return value

    @field_validator("version")
    @classmethod
    def _exact(cls, version: str, info: ValidationInfo) -> str:
        return (check_pypi_version if info.data.get("pypi") else check_version)(version)

    @model_validator(mode="after")
    def _plain(self) -> McpServer:
        if (self.npm is None) == (self.pypi is None):
            raise ValueError("expected a package from one of npm = and pypi =, and version =")
        check_arguments(self.args)
        if len(set(self.env)) != len(self.env):
            raise ValueError("env: one is named twice; expected each once")
        return self


def _no_values(env: dict[str, Any]) -> ValueError:
    what = (
        "env has values, and everybody with the image could read them; "
        'expected names alone, as in env = ["GITHUB_TOKEN"]'
    )
    if any(isinstance(text, str) and judge_named(name, text) for name, text in env.items()):
        return CredentialRefused(RULE_NAME, f"{what}; one is a credential by rule {RULE_NAME}")
    return ValueError(what)


class Archive(_Strict):
    """An archive of your own, from the store: tar or tar.gz, by its hash."""

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    bins: Annotated[dict[CommandName, ArchivePath], Field(max_length=100)] = Field(
        {}, description="Commands on the PATH: name = file in the archive."
    )

    @model_validator(mode="after")
    def _not_taken(self) -> Archive:
        if taken := sorted(TAKEN_COMMANDS & set(self.bins)):
            raise ValueError(f"bins: {taken[0]} is a command of every image; expected another name")
        return self


class Limits(_Strict):
    """Limits of a run."""

    cpus: Annotated[float, Field(ge=0.1, le=1024)] = 2
    memory: Memory = "4GiB"
    pids: Annotated[int, Field(ge=16, le=1_000_000)] = 512
    deadline: Duration = "2h"


class Run(_Strict):
    """Defaults of `builder run`; never part of the lock or the key."""

    agent: Literal["claude-code", "opencode", "pi"] | None = None
    allow: Annotated[list[Peer], Field(max_length=200)] = Field(
        [], description="host:port pairs that the run may reach; [] = no network."
    )
    limits: Limits = Limits()


class BuilderToml(_Strict):
    """builder.toml: what the image is."""

    schema_: One = Field(alias="schema")
    image: Image
    agents: Agents
    node: Node
    mcp: Annotated[dict[AdditionName, McpServer], Field(max_length=MAX_ADDITIONS)] = Field(
        {}, description="MCP servers, by name: installed, off."
    )
    skills: Annotated[dict[AdditionName, SkillDirectory], Field(max_length=MAX_ADDITIONS)] = Field(
        {}, description="Skills, by name: a directory below this file's."
    )
    toolchain: Toolchain = Toolchain()
    archives: Annotated[dict[AdditionName, Archive], Field(max_length=MAX_ADDITIONS)] = Field(
        {}, description="Archives of your own, by name: added with `builder store add`."
    )
    run: Run = Run()

    @model_validator(mode="after")
    def _default_agent_is_there(self) -> BuilderToml:
        if self.run.agent and getattr(self.agents, self.run.agent.replace("-", "_")) is None:
            raise ValueError(f"run.agent: {self.run.agent} is not among [agents]; expected one that is")
        return self


def json_schema() -> str:
    """The published schema, docs/reference/schemas/builder.schema.json, as text."""
    schema = BuilderToml.model_json_schema(by_alias=True)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
