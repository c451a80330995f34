"""How proxy and authorities of settings.toml reach the host's own clients, as they reach the resolver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from builder.bootstrap.children import Host
from builder.settings.access import read_proxy
from builder.settings.settings_file import Proxy, Settings, read_ca_bundle
from images.credentials import Secret
from provenance.writing import replace_file

_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})


def with_network(host: Host, settings: Settings, system_bundle: Path | None) -> Host:
    """The same host, whose clients use the proxy and trust the authorities of settings.toml.

    What settings.toml does not name stays as the environment has it. ``system_bundle``: what this host's
    clients trust by themselves; the operator's own authorities come beside it, not in its place.
    """
    proxy, authorities = read_proxy(settings), read_ca_bundle(settings)
    environment = dict(host.environment)
    if proxy is not None:
        environment = {name: value for name, value in environment.items() if name.lower() not in _PROXIES}
        given = {"http_proxy": proxy.http, "https_proxy": proxy.https, "no_proxy": ",".join(proxy.no_proxy)}
        environment |= {name: value for name, value in given.items() if value}
        host = replace(host, hidden=_logins(proxy))
    if authorities:
        bundle = host.cache / "authorities.pem"
        host.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(bundle, b"\n".join([_bytes(system_bundle), authorities, b""]), 0o600)
        environment |= {"SSL_CERT_FILE": str(bundle), "PIP_CERT": str(bundle)}
        host = replace(host, authorities=bundle)
    return replace(host, environment=environment)


def _bytes(path: Path | None) -> bytes:
    try:
        return path.read_bytes() if path is not None else b""
    except OSError:  # the clients would not read it either
        return b""


def _logins(proxy: Proxy) -> tuple[Secret, ...]:
    """Every form in which a client may repeat the proxy's login."""
    found = {part for url in (proxy.http, proxy.https) if (part := urlsplit(url).password)}
    return tuple(Secret.of_text(text) for one in sorted(found) for text in {one, unquote(one)})
