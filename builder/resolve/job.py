"""One job for the resolver container: what goes in as a tar, what comes out as a tar, and how it may fail."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from backend.runner import Ending, Outcome
from backend.tools import run_resolver
from builder.resolve.failures import failure
from builder.resolve.npm_platform import Declared, NpmPlatform
from builder.resources import resource
from builder.store import ContentStore
from images.credentials import Secret
from images.digests import Integrity
from images.errors import HostError, NetworkFailed, NetworkReason
from images.lock_reader import MAX_ARTIFACT_BYTES
from images.strictjson import JsonValue, read_object

RESULT_NAME: Final = "result.json"
MAX_RESULT: Final = 1024 * 1024
MAX_NPM_LOCK: Final = 32 * 1024 * 1024
DEADLINE: Final = 1800.0  # seconds
_MAX_LINE: Final = 4096


@dataclass(frozen=True, slots=True)
class RootRequest:
    """One root package, exact, to be resolved from an empty directory for a platform."""

    label: str  # for people: agents.pi = 0.73.1 on linux/amd64
    package: str
    version: str
    platform: NpmPlatform


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """What does the registry say of the platform of this package?"""

    name: str
    range: str


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
    fetch: tuple[FetchRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the resolver needs to reach registries; it goes into its memory file system and nowhere else."""

    ca_bundle: bytes = field(default=b"", repr=False)
    npmrc: Secret = field(default_factory=lambda: Secret(b""))


@dataclass(frozen=True, slots=True)
class View:
    """The registry's answer: an npm error code, or the fields."""

    code: str
    declared: Declared


@dataclass(frozen=True, slots=True)
class Answer:
    """npm's locks in the order of the roots, and views in theirs; tarballs are in the store already."""

    locks: tuple[bytes, ...]
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the container is: ``step`` is resolve, view or fetch."""

    step: str
    name: str
    done: int
    total: int
    size: int  # bytes fetched


OnProgress = Callable[[Progress], None]


class RunResolver(Protocol):
    """Run the resolver: job tar in, result tar to a file, its standard error in chunks."""

    def __call__(self, job: bytes, result: Path, on_stderr: Callable[[bytes], None]) -> Outcome: ...


def in_container(engine: Engine, image: LoadedImage, labels: tuple[tuple[str, str], ...]) -> RunResolver:
    """The real one: a container of its own, removed afterwards."""

    def run(job: bytes, result: Path, on_stderr: Callable[[bytes], None]) -> Outcome:
        return run_resolver(
            engine,
            image,
            stdin=job,
            stdout_path=result,
            on_progress=on_stderr,
            deadline=DEADLINE,
            labels=labels,
        )

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """How to ask: the container, its secrets, where tarballs go, a private directory, who hears progress."""

    run: RunResolver
    secrets: Secrets
    store: ContentStore
    staging: Path
    on_progress: OnProgress


def perform(job: Job, resolver: Resolver) -> Answer:
    """Ask the container; every tarball is checked against its integrity on its way into the store.

    Raises PinError, NetworkFailed, HostError or StateError, naming the package; never npm's own words.
    """
    result = resolver.staging / "result.tar"
    try:
        _judge(resolver.run(job_tar(job, resolver.secrets), result, _line_reader(resolver.on_progress)))
        with result.open("rb") as file:
            return _read_result(job, file, resolver.store)
    finally:
        result.unlink(missing_ok=True)


def job_tar(job: Job, secrets: Secrets) -> bytes:
    """The job as the container takes it on standard input."""
    document = {
        "schema": 1,
        "ca_bundle": bool(secrets.ca_bundle),
        "npmrc": bool(secrets.npmrc),
        "resolve": [
            {
                "label": item.label,
                "dependencies": {item.package: item.version},
                "os": item.platform.os,
                "cpu": item.platform.cpu,
                "libc": item.platform.libc,
            }
            for item in job.resolve
        ],
        "view": [{"name": item.name, "range": item.range} for item in job.view],
        "fetch": [
            {"name": item.name, "version": item.version, "integrity": str(item.integrity)}
            for item in job.fetch
        ],
    }
    files = {
        "job.json": json.dumps(document).encode(),
        "resolve.mjs": resource("resolve.mjs").read_bytes(),
        "ca.pem": secrets.ca_bundle,
        "npmrc": secrets.npmrc.reveal(),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o600
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _judge(outcome: Outcome) -> None:
    if outcome.ending is Ending.TIMED_OUT or (outcome.ending is Ending.EXITED and outcome.exit_code == 124):
        raise NetworkFailed(
            NetworkReason.UNREACHABLE,
            f"the resolver was not done after {DEADLINE:.0f} seconds",
            where="resolver",
            hint="look at the network, then again: builder lock",
        )
    if not outcome.ok:
        raise HostError(
            f"the resolver container failed: {outcome.ending.value}, exit code {outcome.exit_code}",
            where="resolver",
            hint="builder doctor",
        )


def _read_result(job: Job, file: BinaryIO, store: ContentStore) -> Answer:
    """Exactly the members that this job makes, in order; the container is not trusted.

    Tarballs that came before a failure are kept: each was checked by itself.
    """
    locks: list[bytes] = []
    came = 0
    try:
        with tarfile.open(fileobj=file, mode="r|", errorlevel=2) as archive:
            while (member := archive.next()) is not None and member.name != RESULT_NAME:
                if len(locks) < len(job.resolve):
                    content = _content(archive, member, f"locks/{len(locks)}.json", MAX_NPM_LOCK)
                    locks.append(content.read(MAX_NPM_LOCK))
                elif came < len(job.fetch):
                    item = job.fetch[came]
                    content = _content(archive, member, f"tarballs/{came}.tgz", MAX_ARTIFACT_BYTES)
                    what = f"{item.name}@{item.version}"
                    store.put(content, item.integrity, what=what, limit=MAX_ARTIFACT_BYTES)
                    came += 1
                else:
                    raise _unexpected("more than was asked")
            if member is None:
                raise _unexpected(f"no {RESULT_NAME}")
            raw = _content(archive, member, RESULT_NAME, MAX_RESULT).read(MAX_RESULT)
            if archive.next() is not None:
                raise _unexpected("more than was asked")
    except (tarfile.TarError, EOFError, OSError) as broken:
        raise _unexpected(f"no whole tar ({type(broken).__name__})") from None
    document = _document(raw)
    if len(locks) != len(job.resolve) or came != len(job.fetch):
        raise _unexpected("less than was asked")
    return Answer(tuple(locks), _views(job, document))


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, limit: int) -> BinaryIO:
    content = archive.extractfile(member) if member.isreg() else None
    if content is None or member.name != name or member.size > limit:
        raise _unexpected(f"{member.name[:60]!r}, where {name} should be")
    return cast(BinaryIO, content)


def _document(raw: bytes) -> dict[str, JsonValue]:
    try:
        found = read_object(raw, RESULT_NAME, max_bytes=MAX_RESULT, error=HostError)
    except HostError as broken:
        raise _unexpected(str(broken)) from None
    error = found.get("error")
    if error is not None:
        parts = error if isinstance(error, dict) else {}
        raise failure(*(str(parts.get(key, ""))[:300] for key in ("code", "item", "spec")))
    return found


def _views(job: Job, document: dict[str, JsonValue]) -> tuple[View, ...]:
    listed = document.get("view")
    if not isinstance(listed, list) or len(listed) != len(job.view):
        raise _unexpected("not one view for each question")
    return tuple(_view(item) for item in listed)


def _view(value: JsonValue) -> View:
    if not isinstance(value, dict):
        raise _unexpected("a view that is no object")

    def texts(key: str) -> tuple[str, ...]:
        found = value.get(key)
        found = [found] if isinstance(found, str) else found
        return tuple(item for item in found if isinstance(item, str)) if isinstance(found, list) else ()

    return View(str(value.get("code", ""))[:100], Declared(texts("os"), texts("cpu"), texts("libc")))


def _unexpected(what: str) -> HostError:
    return HostError(
        f"the resolver container gave an answer of another form: {what}",
        where="resolver",
        hint="builder bootstrap makes the resolver image again",
    )


def _line_reader(on_progress: OnProgress) -> Callable[[bytes], None]:
    """Chunks to lines to values; a line that is no progress (a warning of Node's, say) is passed over."""
    kept = bytearray()

    def take(chunk: bytes) -> None:
        kept.extend(chunk)
        while (end := kept.find(b"\n")) >= 0:
            line = bytes(kept[:end])
            del kept[: end + 1]
            if (event := _event(line)) is not None:
                on_progress(event)
        if len(kept) > _MAX_LINE:
            kept.clear()

    return take


def _event(line: bytes) -> Progress | None:
    try:
        found = read_object(line, "progress", max_bytes=_MAX_LINE, max_depth=2, error=HostError)
    except HostError:
        return None

    def number(key: str) -> int:
        value = found.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0

    step = found.get("step")
    if step not in ("resolve", "view", "fetch"):
        return None
    name = "".join(char for char in str(found.get("name", "")) if char.isprintable())[:200]
    return Progress(str(step), name, number("done"), number("total"), number("bytes"))
