"""The secrets of this host's own logins, one by one: a build looks for each of them in what it made.

A registry that is given a token can put it into a package, and no table of shapes knows a company's tokens.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from builder.settings.access import read_logins, read_npm_variables, read_proxy
from builder.settings.settings_file import Settings, read_npmrc, read_private
from images.credentials import Secret
from images.errors import BuilderError
from provenance.scan.known import MAX_KNOWN, MAX_VALUES

LEAST: Final = 12  # bytes: a shorter word stands in some image by chance, and nobody could ever build that
_NPMRC: Final = re.compile(
    rb"^[^;#=\n]*(_authToken|_auth|_password)[ \t]*=[ \t]*(\S+)[ \t\r]*$", re.MULTILINE
)
_APT: Final = re.compile(rb"(?:^|\s)password\s+(\S+)")


@dataclass(frozen=True, slots=True)
class OwnValue:
    """One secret, and the setting that it comes from."""

    place: str
    value: Secret


def own_values(settings: Settings, environment: Mapping[str, str]) -> tuple[OwnValue, ...]:
    """Tokens and passwords of npmrc, netrc, registry_auth, apt_auth and the proxy, each once.

    What a credential helper keeps is not asked for. A file that cannot be read is left out: who needs it is
    told so where it is used.
    """
    found: dict[bytes, OwnValue] = {}
    for read in (_of_npmrc, _of_npm_variables, _of_logins, _of_apt, _of_proxy):
        with contextlib.suppress(BuilderError):
            for place, value in read(settings, environment):
                if LEAST <= len(value) <= MAX_KNOWN:
                    found.setdefault(value, OwnValue(place, Secret(value)))
    return tuple(found.values())[:MAX_VALUES]


_Read = Callable[[Settings, Mapping[str, str]], Iterator[tuple[str, bytes]]]


def _of_npmrc(settings: Settings, _: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    for key, value in _NPMRC.findall(read_npmrc(settings).reveal()):
        if b"${" in value:
            continue
        yield "npmrc", value
        if key != b"_authToken":
            yield "npmrc", _decoded(value).rpartition(b":")[2]


def _of_npm_variables(settings: Settings, environment: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    for name, value in read_npm_variables(settings, read_npmrc(settings), environment):
        yield f"npmrc: ${{{name}}}", value.reveal().strip()


def _of_logins(settings: Settings, _: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    for host, login in read_logins(settings):
        yield f"the login of {host}", login.reveal().partition(b":")[2]


def _of_apt(settings: Settings, _: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    for value in _APT.findall(read_private(settings.apt_auth, "apt_auth")):
        yield "apt_auth", value


def _of_proxy(settings: Settings, _: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    proxy = read_proxy(settings)
    for address in (proxy.http, proxy.https) if proxy else ():
        password = urlsplit(address or "").password or ""
        yield "the proxy", password.encode()
        yield "the proxy", unquote(password).encode()


def _decoded(value: bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""
