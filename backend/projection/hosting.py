"""Refuse what could write to Git hosting: no agent is ever given such a credential, by whatever route."""

from __future__ import annotations

import re
from typing import Final

from images.credentials import SHAPES
from images.errors import LaunchReason, LaunchRefused

# Tokens of hosting services, by their letters alone: one with a wrong checksum has no business inside either.
_SHAPES: Final = ("github-token", "github-fine-grained", "gitlab-token", "atlassian-token")
_TOKENS: Final = tuple((shape.id, re.compile(shape.pattern)) for shape in SHAPES if shape.id in _SHAPES)
_KEY_BLOCK: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY|PuTTY-User-Key-File-")
_URL_LOGIN: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/@]+@")
# Logins of hosting services that agents keep beside those of model providers, and use for models.
_LOGINS: Final = re.compile(r"(?i)git-?hub|git-?lab|bitbucket|gitea|forgejo|codeberg|azure-?devops|copilot")


def refuse_hosting(value: str, where: str) -> None:
    """Raise LaunchRefused when this value has the shape of a credential for Git hosting."""
    raw = value.encode()
    kind = next((name for name, pattern in _TOKENS if pattern.search(raw)), "")
    if _KEY_BLOCK.search(raw):
        kind = "private-key"
    if _URL_LOGIN.search(raw):
        kind = "a login in a URL"
    if kind:
        _refuse(f"it has the shape of {kind}", where)


def refuse_hosting_login(provider: str, where: str) -> None:
    """Raise LaunchRefused when an auth file's entry is a login of a hosting service, whatever its token."""
    if _LOGINS.search(provider):
        _refuse(f"the entry {provider[:40]!r} is a login of a Git hosting service", where)


def _refuse(why: str, where: str) -> None:
    raise LaunchRefused(
        LaunchReason.CREDENTIAL_FOR_HOSTING,
        f"a credential that could write to Git hosting is given to no agent: {why}",
        where=where,
        hint="give the agent a model provider's key, and publish from outside the container",
    )
