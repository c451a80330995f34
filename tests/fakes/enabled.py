"""A verified image with MCP servers and a Skill in its lock, and policies that turn some of them on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from backend.admission import AdmittedImage, admit
from backend.projection.integrations import Integrations, integrations_of
from backend.projection.server_secrets import ServerSecret, read_server_secret
from images.lock import Lock
from provenance.policy import Enable, SecretPlace
from provenance.verify import VerifiedImage
from tests.fakes.admitted import probe_of
from tests.fakes.engine import DOCKER_FACTS
from tests.fakes.locks import AMD64, make_added_lock

VALUE = "dummy-value-" + "0123456789"
ALL_ON = Enable(
    mcp=("files", "look"),
    skills=("review",),
    secrets=(SecretPlace("files", "FILES_TOKEN", None),),
)


def with_additions(verified: VerifiedImage) -> VerifiedImage:
    """The same image, whose lock has the servers files (npm) and look (PyPI), and the Skill review."""
    added = make_added_lock()
    lock = verified.lock
    more = tuple(one for one in added.artifacts if one.id not in lock.by_id())
    lock = replace(
        lock,
        artifacts=(*lock.artifacts, *more),
        mcp=added.mcp,
        pypi_mcp=added.pypi_mcp,
        skills=added.skills,
    )
    return replace(verified, lock=lock)


def turned_on(verified: VerifiedImage, enable: Enable = ALL_ON) -> AdmittedImage:
    """Admitted by a policy that turns these on."""
    policy = replace(verified.policy, enable=enable)
    return admit(with_additions(verified), policy, probe_of(), facts=DOCKER_FACTS, platform=AMD64, host=())


def integrations(enable: Enable = ALL_ON, lock: Lock | None = None) -> Integrations:
    """What that policy makes of the lock."""
    return integrations_of(enable, lock or make_added_lock(), AMD64)


def server_secret(server: str = "files", variable: str = "FILES_TOKEN", value: str = VALUE) -> ServerSecret:
    """Read from a file with one line."""
    return read_server_secret(server, variable, value.encode() + b"\n")


def private(path: Path, content: bytes) -> Path:
    """A file that nobody else reads."""
    path.write_bytes(content)
    path.chmod(0o600)
    return path
