"""The toolchain of a lock: apt resolves it in the resolver container; each package is checked and stored."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from builder.resolve.deb_failures import debian_failure
from builder.resolve.deb_relations import find_parents
from builder.resolve.exchange import Member, Resolver, exchange, said_error, unexpected
from builder.settings.host_apt import AptSources, given_sources
from builder.storage.store import ContentStore
from images.authenticity import SIGNERS
from images.basefacts import DebianFacts
from images.digests import Integrity
from images.errors import HostError, PinError, UsageError, VerifyFailed
from images.lock import Artifact, ArtifactKind, Authentication, BaseLock, Lock
from images.lock_reader import MAX_ARTIFACT_BYTES
from images.oci import Platform
from images.strictjson import JsonValue, read_object
from images.toolchain import (
    ARCHITECTURES,
    DEB_NAME,
    DEB_VERSION,
    DEBIAN_REGISTRY,
    TOOLCHAIN_PARENT,
    DebianTree,
    DpkgAction,
    DpkgStep,
    ToolchainLock,
    split_name,
)
from provenance.debs import Control, read_control

TOOLCHAIN: Final = "toolchain"  # as `builder lock --upgrade` takes it
DISTRIBUTIONS: Final = ("debian", "ubuntu")
MAX_ANSWER: Final = 8 << 20
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_STANZA: Final = re.compile(rb"^Package: ([a-z0-9][a-z0-9+.-]{1,99})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Debian:
    """A resolved toolchain and its artifacts, all of them in the store."""

    lock: ToolchainLock
    artifacts: tuple[Artifact, ...]


@dataclass(frozen=True, slots=True)
class _Package:
    """One package as the container speaks of it."""

    name: str  # with its architecture
    version: str
    integrity: Integrity
    size: int
    signer: str

    @property
    def id(self) -> str:
        return f"{ArtifactKind.DEB}:{self.name}@{self.version}"


@dataclass(slots=True)
class _Answer:
    """What came for one platform: first what to add, then each package in that order."""

    packages: list[_Package] | None = None
    steps: tuple[DpkgStep, ...] = ()
    came: list[int] = field(default_factory=list)  # sizes


def keep_debian(asked: tuple[str, ...], base: BaseLock, previous: Lock | None) -> Debian | None:
    """The previous lock's toolchain, when the same is asked of the same base: nothing is resolved again."""
    if previous is None or previous.toolchain is None or previous.toolchain.asked != asked:
        return None
    old = {image.platform: image.manifest for image in previous.base.images}
    if {image.platform: image.manifest for image in base.images} != old:
        return None
    debs = tuple(one for one in previous.artifacts if one.kind is ArtifactKind.DEB)
    return Debian(previous.toolchain, debs)


def resolve_debian(
    asked: tuple[str, ...],
    facts: Mapping[Platform, DebianFacts | None],
    resolver: Resolver,
) -> Debian:
    """Ask apt, in one container, once per platform. Every package comes with it, and is in the store then.

    Raises UsageError for a base that is no Debian, PinError naming what is not to be had or not signed.
    """
    known = {platform: _fit(platform, base) for platform, base in facts.items()}
    suites = {one.codename for one in known.values()}
    if len(suites) != 1:
        raise UsageError(f"the base is of several suites: {', '.join(sorted(suites))}", where="image.base")
    answers = [_Answer() for _ in known]
    request: dict[str, JsonValue] = {
        "resolve": [_question(asked, platform, base, bring=True) for platform, base in known.items()],
        "fetch": [],
    }
    _ask(request, resolver, lambda member: _take(member, answers, resolver.store))
    trees: list[DebianTree] = []
    found: dict[str, _Package] = {}
    used: dict[str, list[Platform]] = {}
    for (platform, base), answer in zip(known.items(), answers, strict=True):
        if answer.packages is None or len(answer.came) != len(answer.packages):
            raise unexpected("less than was asked")
        installed = {name.decode() for name in _STANZA.findall(base.status)}
        added = {split_name(one.name)[0] for one in answer.packages}
        trees.append(
            DebianTree(
                platform,
                tuple(name for name in asked if name not in added and name in installed),
                answer.steps,
            )
        )
        for one in answer.packages:
            found[one.id] = one
            used.setdefault(one.id, []).append(platform)
    artifacts = _artifacts(found, used, frozenset(asked), resolver.store)
    return Debian(ToolchainLock(suites.pop(), asked, tuple(trees)), artifacts)


def offered_debian(
    asked: tuple[str, ...],
    facts: Mapping[Platform, DebianFacts | None],
    resolver: Resolver,
) -> dict[Platform, dict[str, str]]:
    """What apt would add now, per platform: versions by name (``make:amd64``). No package is fetched.

    Raises as resolve_debian does.
    """
    known = {platform: _fit(platform, base) for platform, base in facts.items()}
    found: list[list[_Package]] = []

    def take(member: Member) -> None:
        if len(found) == len(known):
            raise unexpected("more than was asked")
        found.append(_read_answer(member)[0])

    questions = [_question(asked, platform, base, bring=False) for platform, base in known.items()]
    _ask({"resolve": questions, "fetch": []}, resolver, take)
    if len(found) != len(known):
        raise unexpected("less than was asked")
    return {
        platform: {one.name: one.version for one in packages}
        for platform, packages in zip(known, found, strict=True)
    }


def fetch_debian(debs: Iterable[Artifact], suite: str, resolver: Resolver) -> int:
    """Bring the packages that the store lacks; returns how many. Nothing is resolved."""
    lacking = [one for one in debs if not resolver.store.intact(one.integrity)]
    if not lacking:
        return 0
    by_architecture: dict[str, list[Artifact]] = {}
    for one in lacking:
        platform = one.platforms[0]
        by_architecture.setdefault(ARCHITECTURES[platform], []).append(one)
    came: list[Artifact] = []
    waiting = [one for group in by_architecture.values() for one in group]

    def take(member: Member) -> None:
        if len(came) == len(waiting):
            raise unexpected("more than was asked")
        one = waiting[len(came)]
        _store(member, one.integrity, one.label, resolver.store)
        came.append(one)

    groups: list[JsonValue] = [
        {
            "architecture": name,
            "codename": suite,
            "distribution": "",
            "packages": [_fetch(one) for one in group],
        }
        for name, group in by_architecture.items()
    ]
    _ask({"resolve": [], "fetch": groups}, resolver, take)
    if len(came) != len(waiting):
        raise unexpected("less than was asked")
    return len(came)


def _ask(request: dict[str, JsonValue], resolver: Resolver, take: Callable[[Member], None]) -> None:
    sources = _sources(resolver)
    request = {
        **request,
        "sources": [{"name": name, "content": content} for name, content in sources.files],
        "keys": [base64.b64encode(key).decode() for key in sources.keys],
    }
    document = exchange({"debian": request}, resolver, take)
    if (error := said_error(document, "code", "item", "hop", "retry_after")) is not None:
        raise debian_failure(*error)


def _sources(resolver: Resolver) -> AptSources:
    """The operator's own list, else none where an address stands behind the alias, else this machine's."""
    if given := resolver.secrets.apt_sources.reveal():
        return given_sources(given)
    return AptSources() if DEBIAN_REGISTRY in dict(resolver.secrets.registries) else resolver.apt()


def _fit(platform: Platform, base: DebianFacts | None) -> DebianFacts:
    where = "toolchain.debian"
    if base is None:
        raise UsageError(
            "the base has no dpkg", where=where, hint="choose a base of Debian, or take the section out"
        )
    if base.distribution not in DISTRIBUTIONS or not base.codename:
        raise UsageError(
            f"the base's os-release says ID={base.distribution or 'nothing'} and "
            f"VERSION_CODENAME={base.codename or 'nothing'}; "
            f"expected one of {', '.join(DISTRIBUTIONS)} and a suite",
            where=where,
            hint="choose a base of Debian, or take the section out",
        )
    if platform not in ARCHITECTURES:
        raise UsageError(f"{platform} has no Debian architecture here", where=where)
    return base


def _question(asked: tuple[str, ...], platform: Platform, base: DebianFacts, *, bring: bool) -> JsonValue:
    try:
        status = base.status.decode()
    except UnicodeDecodeError:
        raise UsageError("/var/lib/dpkg/status of the base is not UTF-8", where="image.base") from None
    return {
        "architecture": ARCHITECTURES[platform],
        "distribution": base.distribution,
        "codename": base.codename,
        "names": list(asked),
        "status": status,
        "bring": bring,
    }


def _fetch(one: Artifact) -> JsonValue:
    name, architecture = split_name(one.name)
    return {"name": name, "architecture": architecture, "version": one.version}


def _take(member: Member, answers: list[_Answer], store: ContentStore) -> None:
    for answer in answers:
        if answer.packages is None:
            answer.packages, answer.steps = _read_answer(member)
            return
        if len(answer.came) < len(answer.packages):
            one = answer.packages[len(answer.came)]
            answer.came.append(_store(member, one.integrity, f"{one.name}@{one.version}", store))
            return
    raise unexpected("more than was asked")


def _read_answer(member: Member) -> tuple[list[_Package], tuple[DpkgStep, ...]]:
    raw = member.read("debian.json", MAX_ANSWER)
    document = read_object(raw, "debian.json", max_bytes=MAX_ANSWER, error=HostError)
    packages = _packages(document.get("packages"))
    return packages, _steps(document.get("steps"), packages)


def _store(member: Member, integrity: Integrity, what: str, store: ContentStore) -> int:
    content = member.stream("package.deb", MAX_ARTIFACT_BYTES)
    return store.put(content, integrity, what=what, limit=MAX_ARTIFACT_BYTES)


def _packages(value: JsonValue) -> list[_Package]:
    if not isinstance(value, list):
        raise unexpected("no list of packages")
    return [_package(item) for item in value]


def _package(item: JsonValue) -> _Package:
    if not isinstance(item, dict):
        raise unexpected("a package that is no object")
    texts = {key: value for key, value in item.items() if isinstance(value, str)}
    name = f"{texts.get('name', '')}:{texts.get('architecture', '')}"
    version, sha256, size = texts.get("version", ""), texts.get("sha256", ""), item.get("size")
    if not DEB_NAME.fullmatch(name) or not DEB_VERSION.fullmatch(version) or not _HEX.fullmatch(sha256):
        raise unexpected("a package without name, version and SHA-256")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_ARTIFACT_BYTES:
        raise unexpected("a package without a size")
    pattern, _ = SIGNERS[Authentication.DEBIAN_SIGNED]
    if not pattern.fullmatch(texts.get("signer", "")):
        raise debian_failure("EUNSIGNED", name)
    return _Package(name, version, Integrity("sha256", sha256), size, texts["signer"])


def _steps(value: JsonValue, packages: list[_Package]) -> tuple[DpkgStep, ...]:
    ids = {split_name(one.name)[0]: one.id for one in packages}
    if not isinstance(value, list) or len(ids) != len(packages):
        raise unexpected("no list of steps")
    found = []
    for item in value:
        action = item.get("action") if isinstance(item, dict) else None
        names = item.get("names") if isinstance(item, dict) else None
        if not isinstance(action, str) or action not in set(DpkgAction) or not isinstance(names, list):
            raise unexpected("a step of another form")
        try:
            found.append(DpkgStep(DpkgAction(action), tuple(ids[str(name)] for name in names)))
        except KeyError:
            raise unexpected("a step with a package that is not listed") from None
    return tuple(found)


def _artifacts(
    found: Mapping[str, _Package],
    used: Mapping[str, list[Platform]],
    asked: frozenset[str],
    store: ContentStore,
) -> tuple[Artifact, ...]:
    bare = {
        key: Artifact(
            kind=ArtifactKind.DEB,
            name=one.name,
            version=one.version,
            integrity=one.integrity,
            size=store.path_of(one.integrity).stat().st_size,
            platforms=tuple(sorted(used[key], key=str)),
            parents=(),
            registry=DEBIAN_REGISTRY,
            authenticated=Authentication.DEBIAN_SIGNED,
            signer=one.signer,
        )
        for key, one in found.items()
    }
    controls = {key: _control(one, store) for key, one in bare.items()}
    parents = find_parents(bare, controls, asked, TOOLCHAIN_PARENT)
    return tuple(replace(one, parents=parents[key]) for key, one in bare.items())


def _control(one: Artifact, store: ContentStore) -> Control:
    """What the package says of itself, which must be what the index said of it."""
    try:
        with store.open(one.integrity, one.id) as file:
            control = read_control(file, one.id)
    except VerifyFailed as broken:
        raise PinError(broken.what, where=one.id, hint="builder lock") from None
    said = tuple(control.fields.get(key, "") for key in ("Package", "Architecture", "Version"))
    if said != (*split_name(one.name), one.version):
        raise PinError(
            f"its control file says that it is {' '.join(said)[:200]}",
            where=one.id,
            hint="the archive and the package disagree: ask whoever runs the archive",
        )
    return control
