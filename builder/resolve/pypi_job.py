"""What uv is asked in the resolver container, and its answers: locks, newest versions, checked wheels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from builder.resolve.exchange import Member, Resolver, exchange, said_error, unexpected
from builder.resolve.failures import AT, At, failure
from builder.resolve.job import Newest, read_newest
from builder.resolve.pypi_tree import HINT, MAX_PYLOCK, WheelChoice, no_wheel
from builder.resolve.python import Python
from builder.resolve.release_age import AgeGate
from builder.resolve.statements_offered import Offer, read_offer
from images.errors import BuilderError, HostError, PinError
from images.lock_reader import MAX_ARTIFACT_BYTES
from images.oci import Platform
from images.strictjson import JsonValue, read_json

STATEMENTS_NAME: Final = "statements.json"
MAX_STATEMENTS: Final = 64 * 1024 * 1024
_YANKED: Final = re.compile(r"[a-z0-9._-]{1,100}==[a-z0-9.!+]{1,99}")


@dataclass(frozen=True, slots=True)
class Target:
    """For which Python, on which platform."""

    python: Python
    platform: Platform

    def document(self) -> dict[str, JsonValue]:
        """As the container takes it."""
        return {"python": self.python.version, "platform": self.python.uv_platform(self.platform)}


@dataclass(frozen=True, slots=True)
class PypiRoot:
    """One package, exact, to be resolved from an empty directory."""

    label: str  # for people: toolchain.pypi.uv = 0.13.9 on linux/amd64
    package: str
    version: str
    target: Target


@dataclass(frozen=True, slots=True)
class PypiNewest:
    """What is the newest version of this package, and is the pinned one there?"""

    package: str
    pinned: str
    target: Target


@dataclass(frozen=True, slots=True)
class PypiFetch:
    """One wheel that is asked about."""

    choice: WheelChoice
    target: Target

    def document(self) -> dict[str, JsonValue]:
        """As the container takes it."""
        return {
            "filename": self.choice.filename,
            "name": self.choice.name,
            "version": self.choice.version,
            "sha256": self.choice.integrity.hex,
            **self.target.document(),
        }


@dataclass(frozen=True, slots=True)
class PypiJob:
    """Everything that one container is asked."""

    resolve: tuple[PypiRoot, ...] = ()
    newest: tuple[PypiNewest, ...] = ()
    fetch: tuple[PypiFetch, ...] = ()
    statements: tuple[PypiFetch, ...] = ()  # of whose publishers
    gate: AgeGate | None = None  # releases that are too young are not chosen


@dataclass(frozen=True, slots=True)
class PypiAnswer:
    """uv's locks in the order of the roots, with what uv says is yanked of each; wheels are in the store.

    ``offers``: what the index has of each publisher, in the order asked.
    """

    locks: tuple[bytes, ...]
    yanked: tuple[tuple[str, ...], ...]
    newest: tuple[Newest, ...]
    offers: tuple[Offer, ...] = ()


def perform_pypi(job: PypiJob, resolver: Resolver) -> PypiAnswer:
    """Ask the container; every wheel is checked against its hash on its way into the store.

    Raises PinError, NetworkFailed, HostError or StateError, naming the package; never uv's own words.
    """
    locks: list[bytes] = []
    came: list[PypiFetch] = []
    offers: list[Offer] = []

    def take(member: Member) -> None:
        if len(locks) < len(job.resolve):
            locks.append(member.read(f"pylocks/{len(locks)}.toml", MAX_PYLOCK))
        elif len(came) < len(job.fetch):
            item = job.fetch[len(came)]
            content = member.stream(f"wheels/{len(came)}.whl", MAX_ARTIFACT_BYTES)
            resolver.store.put(
                content, item.choice.integrity, what=item.choice.filename, limit=MAX_ARTIFACT_BYTES
            )
            came.append(item)
        elif job.statements and not offers:
            offers.extend(_offers(member.read(STATEMENTS_NAME, MAX_STATEMENTS)))
        else:
            raise unexpected("more than was asked")

    document = exchange(_request(job), resolver, take)
    if (error := said_error(document, "code", *AT)) is not None:
        code, *at = error
        raise pypi_failure(code, replace(At(*at), alias="pypi"))
    if (len(locks), len(came), len(offers)) != (len(job.resolve), len(job.fetch), len(job.statements)):
        raise unexpected("another number of answers than was asked for")
    newest = read_newest(document, len(job.newest))
    return PypiAnswer(tuple(locks), _yanked(job, document), newest, tuple(offers))


def _offers(raw: bytes) -> Iterator[Offer]:
    try:
        listed = read_json(raw, STATEMENTS_NAME, max_bytes=MAX_STATEMENTS, max_depth=4, error=HostError)
    except HostError as broken:
        raise unexpected(str(broken)) from None
    if not isinstance(listed, list):
        raise unexpected("answers about publishers that are no list")
    return map(read_offer, listed)


def pypi_failure(code: str, at: At) -> BuilderError:
    """The error for a code of the container's."""
    item = "".join(char for char in at.item if char.isprintable())
    if code == "ENOWHEEL":
        return no_wheel(at.spec or "a package", item, item.rpartition(" on ")[2] or "this platform")
    if code == "ECONFLICT":
        return PinError("uv finds no versions that go together", where=item, hint=HINT)
    if code in ("EUV", "ESPAWN"):
        said = f"uv did not work in the resolver container ({code})"
        return HostError(said, where=item or "resolver", hint="builder doctor")
    return failure(code, at)


def _request(job: PypiJob) -> dict[str, JsonValue]:
    gate: dict[str, JsonValue] = {}
    if job.gate is not None:
        gate = {
            "before": job.gate.cutoff.isoformat(),
            "excepted": list(job.gate.excepted_names),
        }
    return {
        "pypi": {
            **gate,
            "resolve": [
                {
                    "label": item.label,
                    "name": item.package,
                    "version": item.version,
                    **item.target.document(),
                }
                for item in job.resolve
            ],
            "newest": [
                {"name": item.package, "pinned": item.pinned, **item.target.document()} for item in job.newest
            ],
            "fetch": [item.document() for item in job.fetch],
            "statements": [item.document() for item in job.statements],
        }
    }


def _yanked(job: PypiJob, document: dict[str, JsonValue]) -> tuple[tuple[str, ...], ...]:
    listed = document.get("yanked")
    if not isinstance(listed, list) or len(listed) != len(job.resolve):
        raise unexpected("not one list of yanked packages for each question")
    found = []
    for item in listed:
        texts = [text for text in item if isinstance(text, str)] if isinstance(item, list) else []
        found.append(tuple(text for text in texts if _YANKED.fullmatch(text)))
    return tuple(found)
