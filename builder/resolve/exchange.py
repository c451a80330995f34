"""One run of the resolver container: a job goes in as a tar, members come out as a tar, result.json last."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final, Protocol, cast

from backend.commands import NO_FEED, Feed
from backend.containers import LoadedImage
from backend.engines.protocol import Engine
from backend.runner import Ending, Outcome
from backend.tools import run_resolver
from builder.resources import resource
from builder.settings.host_apt import AptSources, read_host_sources
from builder.storage.store import ContentStore
from images.credentials import Secret
from images.errors import HostError, NetworkFailed, NetworkReason
from images.redaction import hide
from images.strictjson import JsonValue, read_object
from provenance.stricttar import StrictTar

RESULT_NAME: Final = "result.json"
SCRIPTS: Final = (
    "resolve.mjs",
    "facts.mjs",
    "pull.mjs",
    "push.mjs",
    "referrers.mjs",
    "registry.mjs",
    "tar.mjs",
    "web.mjs",
    "clients.mjs",
    "children.mjs",
    "debian.mjs",
    "pypi.mjs",
)
STEPS: Final = frozenset({"resolve", "view", "newest", "facts", "fetch", "pull", "push"})
MAX_RESULT: Final = 1024 * 1024
DEADLINE: Final = 1800.0  # seconds
SILENCE: Final = 60.0  # seconds that a registry may say nothing; a trickle counts as nothing
_MAX_LINE: Final = 4096
_KEPT_LINES: Final = 40  # of what is no progress: a stack trace with the error above it
_NAMES_ERROR: Final = re.compile(rb"(?i)\b[a-z]*(error|exception)\b|cannot|no space|killed")
_NO_FILES: Final[Mapping[str, bytes]] = MappingProxyType({})
_SAID: Final = 300  # characters of a complaint that are shown


def _nothing() -> Secret:
    return Secret(b"")


def _knows_nobody(_registry: str) -> Secret:
    return Secret(b"")


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the resolver needs to reach registries; it goes into its memory file system and nowhere else.

    ``npm_variables``: values of what npmrc mentions. ``proxy``: JSON. ``logins``: registry -> user:password,
    or <token>:TOKEN for an identity token. ``registries``: alias -> address, where the operator gives one.
    ``ask_helper``: the login that a credential helper keeps for a registry, asked when one is used.
    """

    ca_bundle: bytes = field(default=b"", repr=False)
    npmrc: Secret = field(default_factory=_nothing)
    npm_variables: tuple[tuple[str, Secret], ...] = ()
    netrc: Secret = field(default_factory=_nothing)
    apt_auth: Secret = field(default_factory=_nothing)
    apt_sources: Secret = field(default_factory=_nothing)
    proxy: Secret = field(default_factory=_nothing)
    logins: tuple[tuple[str, Secret], ...] = ()
    registries: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ask_helper: Callable[[str], Secret] = field(default=_knows_nobody, repr=False)

    def for_registry(self, registry: str) -> Secrets:
        """With what a credential helper knows of HOST or HOST:PORT, if one is set up for it: it wins."""
        found = self.ask_helper(registry.lower())
        if not found:
            return self
        return replace(self, logins=(*self.logins, (registry.lower(), found)))

    def login(self, registry: str) -> Secret:
        """The login for HOST or HOST:PORT; a netrc knows no ports."""
        found = dict(self.logins)
        host = registry.lower()
        return found.get(host) or found.get(re.sub(r":\d+$", "", host)) or Secret(b"")

    def all(self) -> tuple[Secret, ...]:
        """Everything that must not show."""
        values = [secret for _, secret in (*self.npm_variables, *self.logins)]
        return (self.npmrc, self.netrc, self.apt_auth, self.apt_sources, self.proxy, *values)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the container is: ``step`` is one of STEPS."""

    step: str
    name: str
    done: int
    total: int
    size: int  # bytes fetched

    def __str__(self) -> str:
        """For people: of what is not counted no count is said, and of what has no name none."""
        counted = f" {self.done} of {self.total}" if self.total else ""
        size = f", {self.size / 1e6:.0f} MB" if self.size else ""
        return f"{self.step}{counted}{size}" + (f": {self.name}" if self.name else "")


OnProgress = Callable[[Progress], None]


class RunResolver(Protocol):
    """Run the resolver: job tar in, what it is to bring behind it, result tar to a file, its standard error
    in chunks."""

    def __call__(
        self, job: bytes, result: Path, on_stderr: Callable[[bytes], None], feed: Feed = NO_FEED
    ) -> Outcome: ...


def in_container(engine: Engine, image: LoadedImage, labels: tuple[tuple[str, str], ...]) -> RunResolver:
    """The real one: a container of its own, removed afterwards."""

    def run(job: bytes, result: Path, on_stderr: Callable[[bytes], None], feed: Feed = NO_FEED) -> Outcome:
        return run_resolver(
            engine,
            image,
            job=job,
            stdout_path=result,
            on_progress=on_stderr,
            deadline=DEADLINE,
            labels=labels,
            feed=feed,
        )

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """How to ask: the container, its secrets, where tarballs go, a private directory, who hears progress.

    ``apt``: the apt sources to use, read when they are needed.
    """

    run: RunResolver
    secrets: Secrets
    store: ContentStore
    staging: Path
    on_progress: OnProgress
    apt: Callable[[], AptSources] = read_host_sources


@dataclass(frozen=True, slots=True)
class Member:
    """One file that the container sent; ``content`` must be read before the next one comes."""

    name: str
    size: int
    content: BinaryIO

    def read(self, name: str, limit: int) -> bytes:
        """Its bytes, if it is the file ``name`` and within ``limit`` bytes."""
        return self.stream(name, limit).read(limit)

    def stream(self, name: str, limit: int) -> BinaryIO:
        """Its content, if it is the file ``name`` and within ``limit`` bytes."""
        if self.name != name or self.size > limit:
            raise unexpected(f"{self.name[:80]!r}, where {name} should be")
        return self.content


def exchange(
    request: Mapping[str, JsonValue],
    resolver: Resolver,
    on_member: Callable[[Member], None],
    *,
    files: Mapping[str, bytes] = _NO_FILES,
    feed: Feed = NO_FEED,
) -> dict[str, JsonValue]:
    """Run the container over one request. ``on_member`` gets each file before result.json, and checks it.

    ``files`` lie beside the job, for what is small; ``feed`` comes behind it.

    Returns what result.json says, failures of the container's own work included. Raises HostError when the
    container broke or sent something of another form, NetworkFailed when it did not end in time.
    """
    result = resolver.staging / "result.tar"
    said = _Lines(resolver.on_progress)
    registry = _registry_of(request)
    secrets = resolver.secrets.for_registry(registry) if registry else resolver.secrets
    try:
        outcome = resolver.run(job_tar(request, secrets, files), result, said.take, feed)
        _judge(outcome, said.complaint(secrets), said.last)
        with result.open("rb") as file:
            return _read_result(file, on_member)
    finally:
        result.unlink(missing_ok=True)


def _registry_of(request: Mapping[str, JsonValue]) -> str:
    """The one registry of images that a job is about; empty for any other job."""
    job = request.get("pull") or request.get("push")
    return str(job["registry"]) if isinstance(job, dict) else ""


def job_tar(
    request: Mapping[str, JsonValue], secrets: Secrets, beside: Mapping[str, bytes] = _NO_FILES
) -> bytes:
    """The job as the container takes it on standard input."""
    document = {
        "schema": 1,
        "registries": dict(secrets.registries),
        "silence": int(SILENCE * 1000),
        **request,
    }
    registry = _registry_of(request)
    login = secrets.login(registry) if registry else Secret(b"")
    variables = {name: value.reveal().decode() for name, value in secrets.npm_variables}
    given = {
        "ca.pem": secrets.ca_bundle,
        "npmrc": secrets.npmrc.reveal(),
        "npm-variables.json": json.dumps(variables).encode() if variables else b"",
        "netrc": secrets.netrc.reveal(),
        "apt-auth.conf": secrets.apt_auth.reveal(),
        "apt-sources.list": secrets.apt_sources.reveal(),
        "proxy.json": secrets.proxy.reveal(),
        "login": login.reveal(),
    }
    files = {
        "job.json": json.dumps(document).encode(),
        **{name: resource(name).read_bytes() for name in SCRIPTS},
        **{name: content for name, content in given.items() if content},
        **beside,
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o600
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _judge(outcome: Outcome, said: str, last: str) -> None:
    if outcome.ending is Ending.TIMED_OUT or (outcome.ending is Ending.EXITED and outcome.exit_code == 124):
        raise NetworkFailed(
            NetworkReason.UNREACHABLE,
            f"the resolver was not done after {DEADLINE:.0f} seconds; it was at: {last or 'the start'}",
            where="resolver",
            hint="look at the network, then again: builder lock",
        )
    if not outcome.ok:
        raise HostError(
            f"the resolver container failed: {outcome.ending.value}, exit code {outcome.exit_code}"
            + (f", {outcome.detail}" if outcome.detail else "")
            + f"; it said: {said or 'nothing'}",
            where="resolver",
            hint="builder doctor",
        )


def _read_result(file: BinaryIO, on_member: Callable[[Member], None]) -> dict[str, JsonValue]:
    try:
        with StrictTar.open(fileobj=file, mode="r|", errorlevel=2) as archive:
            while (member := archive.next()) is not None:
                content = archive.extractfile(member) if member.isreg() else None
                if content is None:
                    raise unexpected("something that is no file")
                found = Member(member.name, member.size, cast(BinaryIO, content))
                if member.name == RESULT_NAME:
                    raw = found.read(RESULT_NAME, MAX_RESULT)
                    if archive.next() is not None:
                        raise unexpected("more than was asked")
                    return _document(raw)
                on_member(found)
    except (tarfile.TarError, EOFError, OSError) as broken:
        raise unexpected(f"no whole tar ({type(broken).__name__})") from None
    raise unexpected(f"no {RESULT_NAME}")


def _document(raw: bytes) -> dict[str, JsonValue]:
    try:
        return read_object(raw, RESULT_NAME, max_bytes=MAX_RESULT, error=HostError)
    except HostError as broken:
        raise unexpected(str(broken)) from None


def said_error(document: Mapping[str, JsonValue], *keys: str) -> tuple[str, ...] | None:
    """The texts of result.json's ``error`` under these keys, at most 300 characters each; None: no error."""
    error = document.get("error")
    if error is None:
        return None
    parts = error if isinstance(error, dict) else {}
    return tuple(str(parts.get(key, ""))[:300] for key in keys)


def unexpected(what: str) -> HostError:
    """The container is not trusted: whatever it was not asked for ends the job."""
    return HostError(
        f"the resolver container gave an answer of another form: {what}",
        where="resolver",
        hint="builder bootstrap makes the resolver image again",
    )


class _Lines:
    """Chunks of standard error to lines: progress is passed on, the last ones of anything else are kept."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self.last = ""  # where it is
        self._rest = bytearray()
        self._other: deque[bytes] = deque(maxlen=_KEPT_LINES)

    def take(self, chunk: bytes) -> None:
        self._rest += chunk
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest[:_MAX_LINE]
        for line in lines:
            if (event := _event(bytes(line))) is not None:
                self.last = f"{event.step} {event.name}".rstrip()
                self._on_progress(event)
            elif line.strip():
                self._other.append(bytes(line[:_MAX_LINE]))

    def complaint(self, secrets: Secrets) -> str:
        """The last line that names an error, else the last line: printable, short, without any secret."""
        lines = [*self._other, *([bytes(self._rest)] if self._rest.strip() else [])]
        named = [line for line in lines if _NAMES_ERROR.search(line)]
        line = (named or lines or [b""])[-1]
        text = hide(line, secrets.all()).decode("utf-8", "replace").strip()
        return "".join(char if char.isprintable() else "?" for char in text)[:_SAID]


def _event(line: bytes) -> Progress | None:
    try:
        found = read_object(line, "progress", max_bytes=_MAX_LINE, max_depth=2, error=HostError)
    except HostError:
        return None

    def number(key: str) -> int:
        value = found.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0

    step = found.get("step")
    if not isinstance(step, str) or step not in STEPS:
        return None
    name = "".join(char for char in str(found.get("name", "")) if char.isprintable())[:200]
    return Progress(step, name, number("done"), number("total"), number("bytes"))
