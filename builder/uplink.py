"""How the controller reaches what a run may reach: the proxy and the authorities of settings.toml."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from backend.network.bounds import Uplink, Upstream
from images.credentials import Secret
from images.errors import LaunchReason, LaunchRefused

if TYPE_CHECKING:
    from builder.settings.settings_file import Settings

_PORT: Final = 80  # of an address that names none


def uplink_of(settings: Settings) -> Uplink:
    """What settings.toml says of the way out. Raises UsageError for a file of it that is unfit, and
    LaunchRefused for a proxy that is itself reached by TLS."""
    from builder.settings.access import read_proxy  # noqa: PLC0415  (most runs need none of it)
    from builder.settings.settings_file import read_ca_bundle  # noqa: PLC0415

    proxy = read_proxy(settings)
    address = (proxy.https or proxy.http) if proxy else ""
    return Uplink(
        upstream=_upstream(address, proxy.no_proxy) if proxy and address else None,
        ca_bundle=read_ca_bundle(settings),
    )


def _upstream(address: str, direct: tuple[str, ...]) -> Upstream:
    parts = urlsplit(address)
    if parts.scheme != "http":
        raise LaunchRefused(
            LaunchReason.NETWORK_UNSUPPORTED,
            "the proxy of this machine is reached by TLS, which runs cannot do yet",
            where="settings.toml: proxy",
            hint="name its http:// address, or set allow = [] in builder.toml",
        )
    login = Secret(b"")
    if parts.username is not None:
        user, word = unquote(parts.username), unquote(parts.password or "")
        login = Secret(b"Basic " + base64.b64encode(f"{user}:{word}".encode()))
    return Upstream(
        host=(parts.hostname or "").lower(), port=parts.port or _PORT, authorization=login, direct=direct
    )
