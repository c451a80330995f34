"""How the resolver reaches proxies and registries: secrets, from the files that settings.toml names."""

from __future__ import annotations

import base64
import binascii
import json
import netrc
import re
from collections.abc import Callable, Mapping
from typing import Final

from builder.resolve.exchange import Secrets
from builder.settings.credential_helper import helpers_in
from builder.settings.settings_file import (
    Proxy,
    Settings,
    parse_proxy_file,
    read_ca_bundle,
    read_npmrc,
    read_private,
)
from images.credentials import Secret
from images.errors import UsageError
from images.strictjson import JsonValue, read_object

# As npm reads its configuration: ${NAME}, or ${NAME?} that may be missing; a backslash before it keeps it.
_VARIABLE: Final = re.compile(rb"(?<!\\)(?:\\\\)*\$\{([^${}?]{1,200})(\?)?\}")
_COMMENT: Final = re.compile(rb"^\s*[;#].*$", re.MULTILINE)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# What npm, Node and the loader in the resolver take their own behaviour from; they have values there.
_RESERVED: Final = re.compile(
    r"(?i)npm_config_.*|node_(?!auth_).*|(ld|ssl|openssl)_.*|.*_proxy|path|home|lc_all"
)
_MAX_REGISTRIES: Final = 1000


def read_secrets(settings: Settings, environment: Mapping[str, str]) -> Secrets:
    """Everything that the resolver is given beside its job.

    ``environment``: where variables come from that npmrc names and settings.toml has no file for. UsageError
    names the file or setting that is missing, open to others or of another form, and never what is in it.
    """
    npmrc = read_npmrc(settings)
    return Secrets(
        ca_bundle=read_ca_bundle(settings),
        npmrc=npmrc,
        npm_variables=read_npm_variables(settings, npmrc, environment),
        netrc=Secret(read_private(settings.netrc, "netrc")),
        apt_auth=Secret(read_private(settings.apt_auth, "apt_auth")),
        apt_sources=Secret(read_private(settings.apt_sources, "apt_sources")),
        proxy=_proxy_secret(settings),
        logins=read_logins(settings),
        registries=settings.addresses,
        **_helpers(settings, environment),
    )


def read_proxy(settings: Settings) -> Proxy | None:
    """The proxies of settings.toml, or of the file that it names; they may hold a login."""
    if settings.proxy_file is None:
        return settings.proxy
    raw = read_private(settings.proxy_file, "proxy_file")
    return parse_proxy_file(raw, where=str(settings.proxy_file))


def _proxy_secret(settings: Settings) -> Secret:
    proxy = read_proxy(settings)
    return Secret(b"") if proxy is None else Secret(_proxy_json(proxy))


def _proxy_json(proxy: Proxy) -> bytes:
    document = {"http": proxy.http, "https": proxy.https, "no_proxy": list(proxy.no_proxy)}
    return json.dumps(document).encode()


def read_npm_variables(
    settings: Settings, npmrc: Secret, environment: Mapping[str, str]
) -> tuple[tuple[str, Secret], ...]:
    """The values of what npmrc mentions as ${NAME}: those names and no others."""
    files = dict(settings.npmrc_variables)
    found: dict[str, Secret] = {}
    for raw, optional in _VARIABLE.findall(_COMMENT.sub(b"", npmrc.reveal())):
        name = raw.decode("ascii", "replace")
        if _RESERVED.fullmatch(name):
            continue
        if not _NAME.fullmatch(name):
            why = "npmrc mentions a variable whose name has other letters"
            raise UsageError(why, where=str(settings.npmrc))
        if name in files:
            value = read_private(files[name], f"npmrc_variables.{name}").removesuffix(b"\n")
            found[name] = _text(value, str(files[name]))
        elif name in environment:
            found[name] = _text(environment[name].encode("utf-8", "surrogateescape"), f"${name}")
        elif not optional:
            raise UsageError(
                f"npmrc mentions ${{{name}}}, which has no value",
                where=str(settings.npmrc),
                hint=f'settings.toml: npmrc_variables = {{ {name} = "/FILE" }}, or set it in the environment',
            )
    if unused := sorted(set(files) - set(found)):
        raise UsageError(
            f"npmrc does not mention ${{{unused[0]}}}",
            where=f"settings.toml: npmrc_variables.{unused[0]}",
            hint="remove it",
        )
    return tuple(sorted(found.items()))


def _text(value: bytes, where: str) -> Secret:
    """A value that can stand in an environment. What is wrong with it is never quoted."""
    try:
        plain = "\0" not in value.decode()
    except UnicodeDecodeError:
        plain = False
    if not plain:
        raise UsageError("not a text in UTF-8", where=where, hint="write the value anew")
    return Secret(value)


def read_logins(settings: Settings) -> tuple[tuple[str, Secret], ...]:
    """Registry host -> user:password. What a client's file says of a host wins over netrc."""
    return tuple(sorted({**_netrc_logins(settings), **_docker_logins(settings)}.items()))


def _netrc_logins(settings: Settings) -> dict[str, Secret]:
    if settings.netrc is None:
        return {}
    read_private(settings.netrc, "netrc")  # it is there, and nobody else can read it
    try:
        parsed = netrc.netrc(str(settings.netrc))
    except (netrc.NetrcParseError, OSError, UnicodeDecodeError):  # the message may quote a password
        raise UsageError("not a netrc file", where=str(settings.netrc), hint="correct it") from None
    found = {}
    for host, (login, _account, password) in parsed.hosts.items():
        if host != "default" and login and password:
            found[host] = Secret.of_text(f"{login}:{password}")
    return found


def _docker_logins(settings: Settings) -> dict[str, Secret]:
    if settings.registry_auth is None:
        return {}
    where = str(settings.registry_auth)
    document = _docker_config(settings)
    auths = document.get("auths", {})
    if not isinstance(auths, dict) or len(auths) > _MAX_REGISTRIES:
        raise UsageError("auths: expected a table of registries", where=where)
    found = {_host(name): _docker_login(name, entry, where) for name, entry in auths.items()}
    if not any(found.values()) and not (document.get("credHelpers") or document.get("credsStore")):
        raise UsageError(
            "holds no login, and names no credential helper",
            where=where,
            hint='docker login, or write {"auths": {"HOST": {"auth": "base64 of user:password"}}} into it',
        )
    return {host: login for host, login in found.items() if login}


def _docker_config(settings: Settings) -> dict[str, JsonValue]:
    return read_object(read_private(settings.registry_auth, "registry_auth"), str(settings.registry_auth))


def _helpers(settings: Settings, environment: Mapping[str, str]) -> dict[str, Callable[[str], Secret]]:
    """Who is asked for the login of a registry, when one is used; nobody without registry_auth."""
    if settings.registry_auth is None:
        return {}
    found = helpers_in(_docker_config(settings), str(settings.registry_auth), environment)
    return {"ask_helper": found.login} if found.by_registry or found.store else {}


def _docker_login(name: str, entry: JsonValue, where: str) -> Secret:
    """Empty when somebody else keeps it, as credential helpers do. An identity token is written as one."""
    place = f"{where}: auths.{name[:100]}"
    if not isinstance(entry, dict):
        raise UsageError("expected a table", where=place)
    token = entry.get("identitytoken")
    if isinstance(token, str) and token:
        if not (token.isascii() and token.isprintable()):
            raise UsageError("identitytoken: not printable", where=place)
        return Secret.of_text(f"<token>:{token}")
    auth = entry.get("auth")
    if not isinstance(auth, str) or not auth:
        return Secret(b"")
    try:
        login = base64.b64decode(auth, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("auth: not base64", where=place) from None
    if b":" not in login or not login.isascii() or any(byte < 0x20 for byte in login):
        raise UsageError("auth: not user:password", where=place)
    return Secret(login)


def _host(name: str) -> str:
    """Clients write a host, or an address of the registry's API."""
    return re.sub(r"^https?://", "", name).split("/", 1)[0].lower()
