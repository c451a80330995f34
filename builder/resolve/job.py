"""What npm is asked in the resolver container, and its answers: trees, fields, versions, checked tarballs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from builder.resolve.exchange import Member, Resolver, exchange, said_error, unexpected
from builder.resolve.facts import FACTS_NAME, MAX_FACTS, Facts, FactsRequest, read_facts
from builder.resolve.failures import AT, At, failure
from builder.resolve.npm_platform import Declared, NpmPlatform
from images.digests import Integrity
from images.lock_reader import MAX_ARTIFACT_BYTES
from images.strictjson import JsonValue

MAX_NPM_LOCK: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RootRequest:
    """One root package, exact, to be resolved from an empty directory for a platform.

    ``before``: nothing that was published later is taken (RFC 3339), but of the packages ``excepted``; empty:
    whatever is there.
    """

    label: str  # for people: agents.pi = 0.73.1 on linux/amd64
    package: str
    version: str
    platform: NpmPlatform
    before: str = ""
    excepted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """What does the registry say of the platform of this package?"""

    name: str
    range: str


@dataclass(frozen=True, slots=True)
class NewestRequest:
    """Which versions of this package are in ``range`` (a range or a tag), and is the pinned one there?"""

    name: str
    range: str
    pinned: str


@dataclass(frozen=True, slots=True, order=True)
class FetchRequest:
    """One tarball that the store lacks."""

    name: str
    version: str
    integrity: Integrity


@dataclass(frozen=True, slots=True)
class Job:
    """Everything one container is asked."""

    resolve: tuple[RootRequest, ...] = ()
    view: tuple[ViewRequest, ...] = ()
    newest: tuple[NewestRequest, ...] = ()
    fetch: tuple[FetchRequest, ...] = ()
    facts: tuple[FactsRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """The registry's answer: an npm error code, or the fields."""

    code: str
    declared: Declared


@dataclass(frozen=True, slots=True)
class Published:
    """One version in the registry."""

    version: str
    deprecated: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The registry's answer: an npm error code, or versions. Nothing in them is checked yet."""

    code: str
    versions: tuple[Published, ...] = ()


@dataclass(frozen=True, slots=True)
class Newest:
    """What is in the range that was asked for, and what the registry knows of the pinned version."""

    found: Listing
    pinned: Listing


@dataclass(frozen=True, slots=True)
class Answer:
    """npm's locks in the order of the roots, the others in theirs; tarballs are in the store already."""

    locks: tuple[bytes, ...]
    views: tuple[View, ...]
    newest: tuple[Newest, ...] = ()
    facts: tuple[Facts, ...] = ()


def perform(job: Job, resolver: Resolver) -> Answer:
    """Ask the container; every tarball is checked against its integrity on its way into the store.

    Tarballs that came before a failure are kept. Raises PinError, NetworkFailed, HostError or StateError,
    naming the package; never npm's own words.
    """
    locks: list[bytes] = []
    came: list[FetchRequest] = []
    facts: list[tuple[Facts, ...]] = []

    def take(member: Member) -> None:
        if len(locks) < len(job.resolve):
            locks.append(member.read(f"locks/{len(locks)}.json", MAX_NPM_LOCK))
        elif job.facts and not facts:
            facts.append(read_facts(member.read(FACTS_NAME, MAX_FACTS), job.facts))
        elif len(came) < len(job.fetch):
            item = job.fetch[len(came)]
            content = member.stream(f"tarballs/{len(came)}.tgz", MAX_ARTIFACT_BYTES)
            resolver.store.put(
                content, item.integrity, what=f"{item.name}@{item.version}", limit=MAX_ARTIFACT_BYTES
            )
            came.append(item)
        else:
            raise unexpected("more than was asked")

    document = exchange(_request(job), resolver, take)
    if (error := said_error(document, "code", *AT)) is not None:
        code, *at = error
        raise failure(code, At(*at))
    if len(locks) != len(job.resolve) or len(came) != len(job.fetch) or bool(job.facts) != bool(facts):
        raise unexpected("less than was asked")
    return Answer(tuple(locks), _views(job, document), read_newest(document, len(job.newest)), *facts)


def _request(job: Job) -> dict[str, JsonValue]:
    return {
        "resolve": [
            {
                "label": item.label,
                "dependencies": {item.package: item.version},
                "os": item.platform.os,
                "cpu": item.platform.cpu,
                "libc": item.platform.libc,
                "before": item.before,
                "excepted": list(item.excepted),
            }
            for item in job.resolve
        ],
        "view": [{"name": item.name, "range": item.range} for item in job.view],
        "newest": [{"name": item.name, "range": item.range, "pinned": item.pinned} for item in job.newest],
        "fetch": [
            {"name": item.name, "version": item.version, "integrity": str(item.integrity)}
            for item in job.fetch
        ],
        "facts": [
            {"name": item.name, "versions": list(item.versions), "statements": item.statements}
            for item in job.facts
        ],
    }


def _views(job: Job, document: dict[str, JsonValue]) -> tuple[View, ...]:
    listed = document.get("view")
    if not isinstance(listed, list) or len(listed) != len(job.view):
        raise unexpected("not one view for each question")
    return tuple(_view(item) for item in listed)


def _view(value: JsonValue) -> View:
    if not isinstance(value, dict):
        raise unexpected("a view that is no object")

    def texts(key: str) -> tuple[str, ...]:
        found = value.get(key)
        found = [found] if isinstance(found, str) else found
        return tuple(item for item in found if isinstance(item, str)) if isinstance(found, list) else ()

    return View(str(value.get("code", ""))[:100], Declared(texts("os"), texts("cpu"), texts("libc")))


def read_newest(document: dict[str, JsonValue], count: int) -> tuple[Newest, ...]:
    """The answers to ``count`` questions about newer versions."""
    listed = document.get("newest")
    if not isinstance(listed, list) or len(listed) != count:
        raise unexpected("not one list of versions for each question")
    found = []
    for item in listed:
        if not isinstance(item, dict):
            raise unexpected("versions that are no object")
        found.append(Newest(_listing(item.get("found")), _listing(item.get("pinned"))))
    return tuple(found)


def _listing(value: JsonValue) -> Listing:
    """Either an error code or at least one version, so that silence is never an answer."""
    if not isinstance(value, dict):
        raise unexpected("versions that are no object")
    if value.get("code"):
        return Listing(str(value["code"])[:100])
    listed = value.get("versions")
    if not isinstance(listed, list) or not listed:
        raise unexpected("neither versions nor an error code")
    found = []
    for item in listed:
        version = item.get("version") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(version, str):
            raise unexpected("a version that is no text")
        found.append(Published(version[:100], item.get("deprecated") is not False))
    return Listing("", tuple(found))
