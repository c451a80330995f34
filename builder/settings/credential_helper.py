"""Docker's credential helpers: docker-credential-NAME is asked for the login of one registry alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from backend.runner import Command, Ending, Outcome, run
from images.credentials import Secret
from images.errors import UsageError
from images.strictjson import JsonValue, read_object

HELPER: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.ASCII)
# What helpers need to find a keychain of the operator's; nothing else of our environment reaches them.
ENVIRONMENT: Final = (
    "PATH",
    "HOME",
    "XDG_RUNTIME_DIR",
    "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "GNUPGHOME",
)
_SECONDS: Final = 30.0
_MOST: Final = 64 * 1024
_NOT_FOUND: Final = b"credentials not found in native keychain"
# The address under which the Docker client keeps the login of Docker Hub.
_HUB: Final = {
    "docker.io": "https://index.docker.io/v1/",
    "registry-1.docker.io": "https://index.docker.io/v1/",
}

RunHelper = Callable[[Command], Outcome]


@dataclass(frozen=True, slots=True)
class Helpers:
    """Which helper keeps which registry's login. ``store``: the one for all others; empty: none.

    ``where``: the file that says so. ``environment``: what a helper may know of ours.
    """

    by_registry: Mapping[str, str]
    store: str
    where: str
    environment: Mapping[str, str]
    run: RunHelper = run

    def login(self, registry: str) -> Secret:
        """user:password, or <token>:TOKEN for an identity token; empty when the helper has none.

        UsageError names the helper and what it did, and quotes nothing that it said.
        """
        name = self.by_registry.get(registry) or self.store
        if not name:
            return Secret(b"")
        program = f"docker-credential-{name}"
        path = shutil.which(program, path=self.environment.get("PATH", ""))
        if path is None:
            raise self._failed(program, "is not on the PATH")
        outcome = self.run(
            Command(
                argv=(path, "get"),
                environment=self.environment,
                deadline=_SECONDS,
                stdin=_HUB.get(registry, registry).encode(),
                capture=_MOST,
            )
        )
        if outcome.ending is Ending.EXITED and outcome.exit_code != 0 and _NOT_FOUND in outcome.stdout:
            return Secret(b"")
        if not outcome.ok or outcome.stdout_truncated:
            raise self._failed(program, f"failed: {outcome.ending}, exit code {outcome.exit_code}")
        return self._login_in(outcome.stdout, program)

    def _login_in(self, said: bytes, program: str) -> Secret:
        try:
            found = read_object(said, program, max_bytes=_MOST)
        except UsageError:  # the message could quote what it said
            raise self._failed(program, "did not answer with JSON") from None
        user, secret = (_text(found.get(name)) for name in ("Username", "Secret"))
        if not user or not secret or (":" in user):
            raise self._failed(program, "answered with no user and secret that a header can hold")
        return Secret.of_text(f"{user}:{secret}")

    def _failed(self, program: str, what: str) -> UsageError:
        return UsageError(
            f"the credential helper {program} {what}",
            where=self.where,
            hint="docker login, or correct registry_auth in settings.toml",
        )


def _text(value: JsonValue) -> str:
    """Printable ASCII; empty for anything else."""
    return value if isinstance(value, str) and value.isascii() and value.isprintable() else ""


def helpers_in(document: Mapping[str, JsonValue], where: str, given: Mapping[str, str]) -> Helpers:
    """What a Docker client's configuration says of helpers. UsageError for names that are no names."""
    listed = document.get("credHelpers", {})
    store = document.get("credsStore", "")
    if not isinstance(listed, dict) or len(listed) > 1000:
        raise UsageError("credHelpers: expected a table of registries", where=where)
    names = {host.lower(): name for host, name in listed.items()}
    for name in (*names.values(), *([store] if store else [])):
        if not isinstance(name, str) or not HELPER.fullmatch(name):
            raise UsageError("credHelpers, credsStore: not the name of a helper", where=where)
    environment = {name: given[name] for name in ENVIRONMENT if name in given}
    if "PATH" in environment:  # a relative entry would find a helper in the project's own directory
        environment["PATH"] = ":".join(one for one in environment["PATH"].split(":") if one.startswith("/"))
    return Helpers({host: str(name) for host, name in names.items()}, str(store), where, environment)
