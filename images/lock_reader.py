"""From parsed JSON to a Lock: closed keys, bounded values, each error with its dotted path; then the laws."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from images.additions import (
    MAX_ADDITIONS,
)
from images.attestation import BUNDLE, ISSUER, MAX_BUNDLE_BYTES, MAX_BUNDLE_TEXT, PUBLISHER, Attestation
from images.authenticity import SIGNATURE, SIGNER
from images.config import AgentName, UserAccount, check_version
from images.digests import Digest
from images.errors import BuilderError
from images.lock import (
    SCHEMA,
    AgentLock,
    Artifact,
    ArtifactKind,
    Authentication,
    BaseImage,
    BaseLock,
    Bundled,
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
from images.lock_additions_reader import (
    COMMANDS,
    is_pypi,
    read_archive,
    read_pypi_server,
    read_tool,
    read_wheel,
)
from images.lock_laws import broken_law
from images.lock_place import (
    HINT,
    PARENT,
    Place,
    read_addition_name,
    read_arguments,
    read_command_name,
    read_integrity,
    read_platform,
    read_variables,
)
from images.oci import DOCKER_LAYER_GZIP, LAYER_TYPES, MAX_LAYERS, Descriptor
from images.skills import MAX_FILE_BYTES, MAX_FILES, path_problem
from images.toolchain import DEB_NAME, DEB_VERSION
from images.toolchain_reader import read_toolchain

if TYPE_CHECKING:
    from images.strictjson import JsonValue

MAX_ARTIFACTS: Final = 20_000
MAX_ARTIFACT_BYTES: Final = 4 << 30
MAX_COMMAND: Final = 8192
_BASE_LAYERS: Final = LAYER_TYPES | {DOCKER_LAYER_GZIP}

_NPM_PART: Final = r"[A-Za-z0-9_~][A-Za-z0-9._~-]{0,213}"  # old packages have upper case letters
_NPM_NAME: Final = rf"(?:@{_NPM_PART}/)?{_NPM_PART}"
NPM_NAME: Final = re.compile(_NPM_NAME, re.ASCII)
TREE_PATH: Final = re.compile(rf"node_modules/{_NPM_NAME}(?:/node_modules/{_NPM_NAME})*", re.ASCII)
BIN_FILE: Final = re.compile(
    r"(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9._@+][A-Za-z0-9._@+ -]*(?:/[A-Za-z0-9._@+ -]+)*", re.ASCII
)
ALIAS: Final = re.compile(r"[a-z][a-z0-9-]{0,30}", re.ASCII)
_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,30}", re.ASCII)
_BASE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._:/-]{0,299}", re.ASCII)
_TAG: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_PLAIN_VERSION: Final = re.compile(r"v?[0-9][0-9A-Za-z.+-]{0,63}", re.ASCII)


def read_lock(document: dict[str, JsonValue], where: str, error: type[BuilderError]) -> Lock:
    """A lock that holds every law, or ``error`` naming the place."""
    lock = _lock(Place(document, "", where, error))
    if (problem := broken_law(lock)) is not None:
        raise error(problem, where=where, hint=HINT)
    return lock


def _lock(top: Place) -> Lock:
    names = ("agents", "artifacts", "base", "config", "install_scripts", "node", "platforms", "recipe")
    schema = top.value.get("schema") if isinstance(top.value, dict) else None
    if schema != SCHEMA or isinstance(schema, bool):
        top.fail(f"schema {SCHEMA}")
    additions = ("mcp", "skills", "pypi_tools", "archives")
    found = top.fields(*names, "schema", "tools", "user", optional=(*additions, "toolchain"))
    mcp, skills, pypi_tools, archives = (
        found[name].map(MAX_ADDITIONS) if name in found else {} for name in additions
    )
    tools = found["tools"].fields("resolver", "build_container")
    user = found["user"].fields("name", "uid", "gid")
    return Lock(
        config=found["config"].digest(),
        recipe=_recipe(found["recipe"]),
        tools=ToolImages(tools["resolver"].digest(), tools["build_container"].digest()),
        user=UserAccount(
            user["name"].text(_USER, "a user name"),
            user["uid"].integer(1, 60000),
            user["gid"].integer(1, 60000),
        ),
        platforms=tuple(read_platform(item, item.value) for item in found["platforms"].list(16)),
        base=_base(found["base"]),
        node_version=_version(found["node"].fields("version")["version"]),
        install_scripts=tuple(
            item.text(NPM_NAME, "an npm package name") for item in found["install_scripts"].list(100)
        ),
        agents=tuple(_agent(name, place) for name, place in found["agents"].map(16).items()),
        artifacts=tuple(_artifact(item) for item in found["artifacts"].list(MAX_ARTIFACTS)),
        mcp=tuple(_server(name, place) for name, place in mcp.items() if not is_pypi(place)),
        skills=tuple(_skill(name, place) for name, place in skills.items()),
        toolchain=read_toolchain(found["toolchain"]) if "toolchain" in found else None,
        pypi_mcp=tuple(read_pypi_server(name, place) for name, place in mcp.items() if is_pypi(place)),
        pypi_tools=tuple(read_tool(name, place) for name, place in pypi_tools.items()),
        archives=tuple(read_archive(name, place) for name, place in archives.items()),
    )


def _recipe(place: Place) -> Recipe:
    found = place.fields("template", "renderer", "buildkit", "epoch", "compression")
    compression = found["compression"].fields("algorithm", "level")
    return Recipe(
        template=found["template"].digest(),
        renderer=found["renderer"].integer(1, 1_000_000),
        buildkit=found["buildkit"].text(_PLAIN_VERSION, "a version"),
        epoch=found["epoch"].integer(0, 1 << 32),
        compression=compression["algorithm"].text(re.compile("zstd"), "zstd"),
        level=compression["level"].integer(1, 22),
    )


def _base(place: Place) -> BaseLock:
    found = place.fields("name", "tag", "pinned", "requested", "index", "images")
    return BaseLock(
        name=found["name"].text(_BASE_NAME, "an image name"),
        tag=found["tag"].text(_TAG, "a tag or nothing"),
        pinned=found["pinned"].boolean(),
        requested=found["requested"].digest(),
        index=None if found["index"].value is None else found["index"].digest(),
        images=tuple(_base_image(name, item) for name, item in found["images"].map(16).items()),
    )


def _base_image(platform: str, place: Place) -> BaseImage:
    found = place.fields("manifest", "config", "layers", "diff_ids")
    return BaseImage(
        platform=read_platform(place, platform),
        manifest=found["manifest"].digest(),
        config=found["config"].digest(),
        layers=tuple(_layer(item) for item in found["layers"].list(MAX_LAYERS)),
        diff_ids=tuple(item.digest() for item in found["diff_ids"].list(MAX_LAYERS)),
    )


def _layer(place: Place) -> Descriptor:
    found = place.fields("mediaType", "digest", "size")
    media_type = found["mediaType"].value
    if not isinstance(media_type, str) or media_type not in _BASE_LAYERS:
        found["mediaType"].fail("the media type of a layer")
    return Descriptor(media_type, found["digest"].digest(), found["size"].integer(0, 1 << 40))


def _agent(name: str, place: Place) -> AgentLock:
    found = place.fields("package", "version", "trees")
    if name not in set(AgentName):
        place.fail("the name of an agent")
    return AgentLock(
        name=AgentName(name),
        package=found["package"].text(NPM_NAME, "an npm package name"),
        version=_version(found["version"]),
        trees=tuple(_tree(platform, item) for platform, item in found["trees"].map(16).items()),
    )


def _server(name: str, place: Place) -> McpLock:
    found = place.fields("package", "version", "trees", "args", "env")
    return McpLock(
        name=read_addition_name(name, place),
        package=found["package"].text(NPM_NAME, "an npm package name"),
        version=_version(found["version"]),
        trees=tuple(_tree(platform, item) for platform, item in found["trees"].map(16).items()),
        args=read_arguments(found["args"]),
        env=read_variables(found["env"]),
    )


def _skill(name: str, place: Place) -> SkillLock:
    files = []
    for path, item in place.map(MAX_FILES).items():
        if (problem := path_problem(path)) is not None:
            item.fail(f"a plain path (this one {problem})")
        parts = item.fields("executable", "size", "sha256")
        content = Digest("sha256:" + parts["sha256"].text(_HEX, "64 hexadecimal digits"))
        size = parts["size"].integer(0, MAX_FILE_BYTES)
        files.append(SkillFile(path, parts["executable"].boolean(), size, content))
    return SkillLock(read_addition_name(name, place), tuple(files))


def _tree(platform: str, place: Place) -> Tree:
    found = place.fields("packages", "bundled")
    entries = []
    for path, item in found["packages"].map(MAX_ARTIFACTS).items():
        entries.append(TreeEntry(_tree_path(path, item), item.text(PARENT, "the id of an artifact")))
    bundled = []
    for path, item in found["bundled"].map(MAX_ARTIFACTS).items():
        bundled.append(Bundled(_tree_path(path, item), _version(item)))
    return Tree(read_platform(place, platform), tuple(entries), tuple(bundled))


def _tree_path(path: str, place: Place) -> str:
    if len(path) > 1000 or not TREE_PATH.fullmatch(path):
        place.fail("a path of the form node_modules/NAME/node_modules/NAME")
    return path


def _artifact(place: Place) -> Artifact:
    names = ("kind", "name", "version", "integrity", "size", "platforms", "parents")
    optional = ("bins", "scripts", "signer", "signature", "attestation", "filename")
    found = place.fields(*names, "registry", "authenticated", optional=optional)
    kind = found["kind"].choice(ArtifactKind)
    name, version, filename = _identity(kind, found)
    scripts, run = _scripts(found["scripts"]) if "scripts" in found else ((), False)
    start, expected = COMMANDS.get(kind, (BIN_FILE, "a file below the package"))
    bins = tuple(
        (read_command_name(command, item), item.text(start, expected))
        for command, item in (found["bins"].map(1000).items() if "bins" in found else ())
    )
    return Artifact(
        kind=kind,
        name=name,
        version=version,
        integrity=read_integrity(found["integrity"]),
        size=found["size"].integer(1, MAX_ARTIFACT_BYTES),
        platforms=tuple(read_platform(item, item.value) for item in found["platforms"].list(16)),
        parents=tuple(
            item.text(PARENT, "the id of an artifact") for item in found["parents"].list(MAX_ARTIFACTS)
        ),
        bins=bins,
        scripts=scripts,
        scripts_run=run,
        registry=found["registry"].text(ALIAS, "a registry alias"),
        authenticated=found["authenticated"].choice(Authentication),
        signer=found["signer"].text(SIGNER, "whose signature it is") if "signer" in found else "",
        signature=found["signature"].text(SIGNATURE, "a signature") if "signature" in found else "",
        attestation=_attestation(found["attestation"]) if "attestation" in found else None,
        filename=filename,
    )


def _attestation(place: Place) -> Attestation:
    found = place.fields("publisher", "issuer", optional=("bundle",))
    bundle = ""
    if "bundle" in found:
        bundle = found["bundle"].text(BUNDLE, "a bundle in base64")
        if len(bundle) > MAX_BUNDLE_TEXT:
            found["bundle"].fail(f"a bundle of at most {MAX_BUNDLE_BYTES} bytes")
    return Attestation(
        publisher=found["publisher"].text(PUBLISHER, "the URI of a publisher"),
        issuer=found["issuer"].text(ISSUER, "the address of an issuer"),
        bundle=bundle,
    )


def _identity(kind: ArtifactKind, found: dict[str, Place]) -> tuple[str, str, str]:
    """Name, version and file name, in the form that this kind has them."""
    if kind is ArtifactKind.WHEEL:
        return read_wheel(found)
    if "filename" in found:
        found["filename"].fail("no file name: only a wheel has one")
    if kind is ArtifactKind.DEB:
        name = found["name"].text(DEB_NAME, "a Debian package and its architecture, such as make:amd64")
        return name, found["version"].text(DEB_VERSION, "the version of a Debian package"), ""
    name = found["name"].text(NPM_NAME, "an npm package name")
    if kind in (ArtifactKind.SKILL, ArtifactKind.ARCHIVE):
        return name, _no_version(found["version"]), ""
    return name, _version(found["version"]), ""


def _scripts(place: Place) -> tuple[tuple[InstallScript, ...], bool]:
    found = place.fields("run", "commands")
    scripts = []
    for event, item in found["commands"].map(len(ScriptEvent)).items():
        if event not in set(ScriptEvent):
            item.fail("one of " + ", ".join(ScriptEvent))
        parts = item.fields("command", "sha256")
        command = parts["command"].value
        if not isinstance(command, str) or not 0 < len(command) <= MAX_COMMAND or _has_control(command):
            parts["command"].fail(f"a command of at most {MAX_COMMAND} characters")
        script = InstallScript(ScriptEvent(event), command)
        if parts["sha256"].value != script.digest.hex:
            parts["sha256"].fail("the SHA-256 of the command")
        scripts.append(script)
    return tuple(scripts), found["run"].boolean()


def _has_control(text: str) -> bool:
    return any(ord(char) < 32 or ord(char) == 127 for char in text)


def _version(place: Place) -> str:
    if isinstance(place.value, str):
        try:
            return check_version(place.value)
        except ValueError:
            pass
    place.fail("an exact version")


def _no_version(place: Place) -> str:
    return place.text(re.compile(""), "no version: it is what its hash says")
