"""What a base image brings: the facts that the renderer needs, and the refusals its configuration earns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from images.accounts import Accounts
from images.errors import CredentialFound, UsageError
from images.oci import ImageSettings, Platform
from images.planted import rule_of_named
from images.redaction import redact

# What the image needs at run time, then what the build's own steps need.
RUN_PROGRAMS: Final = ("sh", "timeout", "cat", "tar", "git")
BUILD_PROGRAMS: Final = (
    "sh",
    "tar",
    "timeout",
    "chmod",
    "find",
    "gzip",
    "ln",
    "mkdir",
    "sha256sum",
    "sha512sum",
    "touch",
)
# Inits that take "--" and a command, in the order in which they are preferred.
INITS: Final = ("catatonit", "tini", "tini-static", "dumb-init")
SHELLS: Final = ("bash", "sh")
# Node and the agents' own binaries are built for glibc: its loader, where the platform's ABI has it.
LOADERS: Final = {
    Platform("linux", "amd64"): "lib64/ld-linux-x86-64.so.2",
    Platform("linux", "arm64"): "lib/ld-linux-aarch64.so.1",
}

# Settings of a base that the image may keep. Anything else could steer a CLI, or hold a credential.
BASE_ENVIRONMENT: Final = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TZ"})
BASE_LABELS: Final = ("org.opencontainers.image.",)


@dataclass(frozen=True, slots=True)
class DebianFacts:
    """What a base says of itself as a Debian system.

    ``status``: dpkg's record of what is installed. ``distribution``, ``codename``: of os-release.
    ``aliases``: directories of the root that are links, and where they lead (``bin`` -> ``usr/bin``).
    ``directories``: mode, uid and gid of each.
    """

    status: bytes
    distribution: str
    codename: str
    aliases: Mapping[str, str]
    directories: Mapping[str, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class BaseFacts:
    """A base that can carry the plan: its accounts, its init and its shell (absolute paths), its settings.

    ``debian``: None for a base without dpkg, onto which no toolchain can be put.
    """

    accounts: Accounts
    init: str
    shell: str
    settings: ImageSettings
    debian: DebianFacts | None = None


def check_base_settings(settings: ImageSettings) -> None:
    """Refuse a base whose configuration would bring behaviour of its own. Raises UsageError naming it.

    CredentialFound where it holds one: the image would inherit it, or the base is not to be used as it is.
    """
    _require_no_credential(settings)
    brought = (
        ("volumes", settings.volumes),
        ("ONBUILD triggers", settings.on_build),
        ("a health check", ("HEALTHCHECK",) if settings.health_check else ()),
        (
            "environment variables outside of the closed list",
            tuple(
                name
                for name in (entry.partition("=")[0] for entry in settings.environment)
                if name not in BASE_ENVIRONMENT
            ),
        ),
        (
            "labels outside of the closed list",
            tuple(name for name, _ in settings.labels if not name.startswith(BASE_LABELS)),
        ),
    )
    for what, names in brought:
        if names:
            listed = ", ".join(name[:60] for name in names[:10])
            raise UsageError(
                f"the base brings {what} ({listed}), which an image of ours cannot carry",
                where="image.base",
                hint="choose or make a base without them: builder bootstrap",
            )


def _require_no_credential(settings: ImageSettings) -> None:
    variables = (entry.partition("=") for entry in settings.environment)
    held = (
        *(("environment variable", name, value) for name, _, value in variables),
        *(("label", name, value) for name, value in settings.labels),
        *(("ONBUILD trigger", "", text) for text in settings.on_build),
    )
    for what, name, value in held:
        if (rule := rule_of_named(name, value)) is not None:
            raise CredentialFound(
                f"the base's {what} {redact(name)[:100]}".rstrip() + f" is a credential by rule {rule}",
                where="image.base",
                hint="end its validity, and choose or make a base without it: builder bootstrap",
            )
