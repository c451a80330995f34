"""The one root error, its classes, and the exit code of each.

Every failure that a user can cause or meet is one of these. The message says what failed and which thing;
``hint`` is the next command to type. Neither ever holds a secret.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of the command line (docs/reference/exit-codes.md)."""

    DONE = 0
    BUG = 1
    USAGE = 2
    HOST = 3
    PIN = 4
    BUILD = 5
    CREDENTIAL = 6
    VERIFY = 7
    REFUSED = 8
    STATE = 9
    NETWORK = 10
    KEY = 11
    RUN_FAILED = 125
    INTERRUPTED = 130
    TERMINATED = 143


class BuilderError(Exception):
    """Root of all expected failures.

    ``what``: what failed and which thing, one line. ``where``: file, dotted path and line, digest or step.
    ``hint``: the next command to type. ``reason``: a stable word for programs.
    """

    code: ClassVar[ExitCode] = ExitCode.BUG
    default_reason: ClassVar[str] = "bug"

    def __init__(self, what: str, *, where: str = "", hint: str = "", reason: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.reason = reason or self.default_reason

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class UsageError(BuilderError):
    """Configuration or usage: builder.toml, policy.toml, lock, command line."""

    code = ExitCode.USAGE
    default_reason = "usage"


class HostError(BuilderError):
    """The host or its container engine cannot be used."""

    code = ExitCode.HOST
    default_reason = "host"


class PinError(BuilderError):
    """A pin cannot be resolved any more, or an artifact's integrity differs.

    ``pin``: which line of builder.toml it is about, as ``builder lock --upgrade`` takes it; empty if unknown.
    """

    code = ExitCode.PIN
    default_reason = "pin"

    def __init__(
        self, what: str, *, where: str = "", hint: str = "", reason: str = "", pin: str = ""
    ) -> None:
        super().__init__(what, where=where, hint=hint, reason=reason)
        self.pin = pin


class BuildFailed(BuilderError):
    """BuildKit failed or was lost, or its result is not what was planned."""

    code = ExitCode.BUILD
    default_reason = "build"


class CredentialFound(BuilderError):
    """The image, or a file that says what goes into it, holds a credential; or the scan is incomplete."""

    code = ExitCode.CREDENTIAL
    default_reason = "credential"


class VerifyFailed(BuilderError):
    """An image or its evidence does not verify."""

    code = ExitCode.VERIFY
    default_reason = "verify"


class LaunchReason(StrEnum):
    """Why a launch was refused; one documented line and one test each."""

    NOT_VERIFIED = "not-verified"
    NO_EXPECTATION = "no-expectation"
    POLICY = "policy"
    UNPINNED_BASE = "unpinned-base"
    ENGINE_MODE = "engine-mode"
    ENGINE_IDENTITY = "engine-identity"
    LIMITS_NOT_ENFORCED = "limits-not-enforced"
    KEYS_READABLE = "keys-readable-by-engine"
    DEATH_WATCH = "death-watch"
    STORAGE_DRIVER = "storage-driver"
    HOST_ROOM = "host-room"
    SELINUX = "selinux"
    SUBORDINATE_IDS = "subordinate-ids"
    READ_BACK = "read-back"
    IMAGE_ID = "image-id"
    ENGINE_STORE = "engine-store"
    NETWORK_UNSUPPORTED = "network-unsupported"
    NETWORK_CEILING = "network-ceiling"
    NETWORK_RELAY = "network-relay"
    UNKNOWN_AGENT = "unknown-agent"
    PLATFORM = "platform"
    COMMAND_MISSING = "command-missing"
    CLASS_UNSUPPORTED = "class-unsupported"
    IMAGE_SETTINGS = "image-settings"
    CREDENTIAL_ROUTE = "credential-route"
    CREDENTIAL_FOR_HOSTING = "credential-for-hosting"
    CREDENTIAL_BUSY = "credential-busy"
    PROJECTION = "projection"
    NOT_INSTALLED = "not-installed"
    SERVER_SECRET = "server-secret"  # noqa: S105  (a name)
    SOURCE_REQUIRED = "source-required"
    NOT_A_CANDIDATE = "not-a-candidate"
    COMMAND_ONLY = "command-only"
    WORKSPACE = "workspace-unusable"
    RUN_TAKEN = "run-taken"
    RUN_PINNED = "run-pinned"


class LaunchRefused(BuilderError):
    """The backend refuses to launch; ``reason`` is a :class:`LaunchReason`."""

    code = ExitCode.REFUSED
    default_reason = "refused"

    def __init__(self, reason: LaunchReason, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint, reason=reason.value)


class StateError(BuilderError):
    """State damaged or locked, or the disk is full."""

    code = ExitCode.STATE
    default_reason = "state"


class NetworkReason(StrEnum):
    """Why a network or registry operation failed."""

    UNREACHABLE = "unreachable"
    AUTH = "auth"
    NOT_FOUND = "not-found"
    RATE_LIMITED = "rate-limited"
    SERVER = "server"
    TRUNCATED = "truncated"
    WRONG_DIGEST = "wrong-digest"


class NetworkFailed(BuilderError):
    """Network or registry; ``reason`` is a :class:`NetworkReason`."""

    code = ExitCode.NETWORK
    default_reason = "network"

    def __init__(self, reason: NetworkReason, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint, reason=reason.value)


class KeyUnusable(BuilderError):
    """A key cannot be used: missing, wrong passphrase, wrong permissions, wrong kind."""

    code = ExitCode.KEY
    default_reason = "key"


class Interrupted(BuilderError):
    """Ctrl-C, after clean-up."""

    code = ExitCode.INTERRUPTED
    default_reason = "interrupted"


class Terminated(BuilderError):
    """SIGTERM, after clean-up."""

    code = ExitCode.TERMINATED
    default_reason = "terminated"
