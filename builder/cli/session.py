"""From an invocation to the things that verbs work with: state, settings, workshop, policy, keys, images."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from builder.cli.invocation import Invocation
from builder.cli.platform import host_platform
from builder.settings.settings_file import SETTINGS_NAME, Settings, load_settings
from builder.state import State, open_state
from builder.workshop import Workshop
from images.credentials import Secret
from images.errors import KeyUnusable
from provenance.keys import PrivateKey, load_private_key
from provenance.policy import POLICY_NAME, Policy, find_policy, load_policy

if TYPE_CHECKING:
    from backend.engines.protocol import Engine
    from backend.logins.store import LoginStore

# All that engine clients and package clients may know of our environment.
CLIENT_ENVIRONMENT = (
    "PATH",
    "HOME",
    "XDG_RUNTIME_DIR",
    "XDG_DATA_HOME",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
)
SYSTEM_POLICY = Path("/etc/agent-image-builder") / POLICY_NAME
MAX_PASSPHRASE_BYTES = 4096


def open_workshop(invocation: Invocation) -> Workshop:
    """State, settings and engine choice of this invocation."""
    return Workshop(
        state=open_state(invocation.state_root),
        settings=settings_of(invocation),
        environment=client_environment(invocation),
        engine_name=invocation.options.engine,
        reporter=invocation.reporter,
        platform=host_platform(),
        now=invocation.now,
        given=invocation.environment,
        why_not=_why_not,
    )


def _why_not(workshop: Workshop, engine: Engine) -> str:
    from builder.probing import why_not  # noqa: PLC0415  (a known image needs no engine)

    return why_not(workshop, engine)


def state_of(invocation: Invocation) -> State:
    """The state root alone, for verbs that need no engine."""
    return open_state(invocation.state_root)


def settings_of(invocation: Invocation) -> Settings:
    """settings.toml of the configuration directory; the defaults when there is none."""
    return load_settings(invocation.config_dir / SETTINGS_NAME)


def login_store(invocation: Invocation) -> LoginStore:
    """Where logins are kept: beside the keys, and outside of every state root."""
    from backend.logins.keyring import find_keyring  # noqa: PLC0415  (few commands need it)
    from backend.logins.store import LoginStore  # noqa: PLC0415

    return LoginStore(invocation.config_dir / "logins", lambda: find_keyring(_session_bus(invocation)))


def _session_bus(invocation: Invocation) -> str:
    """Where the session's services answer; empty where there is no session."""
    named = invocation.environment.get("DBUS_SESSION_BUS_ADDRESS", "")
    runtime = invocation.environment.get("XDG_RUNTIME_DIR", "")
    if named or not runtime.startswith("/"):
        return named
    return f"unix:path={runtime}/bus" if (Path(runtime) / "bus").is_socket() else ""


def client_environment(invocation: Invocation) -> dict[str, str]:
    """The closed list of variables, where they are set; of PATH only what is absolute.

    A relative entry, or an empty one, would find an engine's client in the project's own directory.
    """
    found = {
        name: invocation.environment[name] for name in CLIENT_ENVIRONMENT if name in invocation.environment
    }
    if "PATH" in found:
        found["PATH"] = ":".join(entry for entry in found["PATH"].split(":") if entry.startswith("/"))
    return found


def policy_of(invocation: Invocation, *, beside: Path | None) -> Policy:
    """The first found of ``--policy``, the configuration directory, the system's. There is no merging."""
    named: Path | None = invocation.options.policy
    candidates = (named,) if named else (invocation.config_dir / POLICY_NAME, SYSTEM_POLICY)
    return load_policy(find_policy(candidates), beside=beside)


def key_of(invocation: Invocation, role: str) -> PrivateKey:
    """A role's private key, from ``--key`` or the configuration directory; says so if it is unencrypted."""
    path = invocation.options.key or invocation.config_dir / "keys" / f"{role}.key"
    key = load_private_key(path, passphrase_of(invocation))
    if not key.encrypted:
        invocation.reporter.warn(f"the {role} key is not encrypted: {path}")
    return key


def role_keys(invocation: Invocation) -> tuple[Path, ...]:
    """Where builder's and verifier's private keys would be: no container's user may read them."""
    keys = invocation.config_dir / "keys"
    return (keys / "builder.key", keys / "verifier.key")


def passphrase_of(invocation: Invocation) -> Secret | None:
    """What ``--passphrase-fd`` or ``--passphrase-file`` holds, without its newline; None if not given."""
    number: int | None = invocation.options.passphrase_fd
    file: Path | None = invocation.options.passphrase_file
    if number is not None and file is not None:
        raise KeyUnusable("give --passphrase-fd or --passphrase-file, not both")
    if number is not None:
        return _passphrase(number, f"descriptor {number}")
    return _passphrase_in(file) if file is not None else None


def _passphrase_in(file: Path) -> Secret:
    hint = f"chmod 600 {file}"
    try:
        # Not blocking: a pipe in its place is refused, and not waited for.
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as broken:
        raise KeyUnusable(f"the passphrase cannot be read: {broken.strerror}", where=str(file)) from None
    try:
        found = os.fstat(handle).st_mode
        if not stat.S_ISREG(found):
            raise KeyUnusable("the passphrase is not in a regular file", where=str(file), hint=hint)
        if found & 0o077:
            raise KeyUnusable("others can read the passphrase", where=str(file), hint=hint)
        return _passphrase(handle, str(file))
    finally:
        os.close(handle)


def _passphrase(number: int, where: str) -> Secret:
    try:
        raw = os.read(number, MAX_PASSPHRASE_BYTES)
    except (OSError, OverflowError) as broken:
        why = getattr(broken, "strerror", None) or "no such descriptor"
        raise KeyUnusable(f"the passphrase cannot be read: {why}", where=where) from None
    return Secret(raw.removesuffix(b"\n"))
