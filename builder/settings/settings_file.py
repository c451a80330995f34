"""settings.toml, beside policy.toml: how this user reaches engine, images and registries."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from backend.projection.routes import parse_name
from builder.settings.pkcs11_keys import Pkcs11Toml, TokenKey
from builder.settings.trust import AgeText, KeyId, ReleaseText, span
from images.config import BaseReference, parse_base
from images.credentials import Secret
from images.digests import Digest
from images.errors import UsageError
from images.schema_version import One
from images.tomlfile import read_toml
from provenance.npm_signatures import Keys, read_registry_key, shipped_keys
from provenance.policy_model import Role
from provenance.publishers import NEEDS_ROOT, PackageText, Publisher, Publishers, PublisherToml
from provenance.sigstore_root import read_sigstore_root
from provenance.small_files import dangling_link

SETTINGS_NAME: Final = "settings.toml"
CLIENT: Final = "client"
MAX_SETTINGS_BYTES: Final = 64 * 1024
MAX_SECRET_BYTES: Final = 4 * 1024 * 1024
_MAX_ADDRESS: Final = 2000
_MAX_HOST: Final = 255
_MAX_BYPASS: Final = 200
_EXPECTED: Final = "expected sha256: and 64 hexadecimal digits, or HOST/NAME@sha256:…"
# The letters of an address: no quote, blank, backslash or brace, so it stands in any client's file as it is.
_ADDRESS: Final = re.compile(
    r"(https?)://(?:([^@/]*)@)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[!-~]*)?"
)
_LETTERS: Final = re.compile(r"[A-Za-z0-9._~%!$&'()*+,;=:@/\[\]-]*")
_BYPASS: Final = re.compile(r"\*|(?:\*?\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*(?::[0-9]{1,5})?|\[[0-9A-Fa-f:]+\]")
# Known by name, refused until they are enforced: a setting that does nothing would be trusted.
LATER: Final = {
    "upstream_proxy": "not a setting: resolver and runs have the proxy of `proxy` or `proxy_file`",
}


@dataclass(frozen=True, slots=True)
class GivenImage:
    """An image in place of one that bootstrap makes. ``source``: where its digest can be pulled, if known."""

    digest: Digest
    source: BaseReference | None = None

    def __str__(self) -> str:
        return str(self.source or self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """HTTP proxies for plain and for TLS connections, and the hosts that are reached without them."""

    http: str = field(default="", repr=False)
    https: str = field(default="", repr=False)
    no_proxy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``None`` means: the default. Nothing here can loosen the policy.

    ``engine``: docker or podman. ``base``, ``build_container``, ``resolver``: images in place of what
    bootstrap makes. ``ca_bundle``, ``npmrc``, ``netrc``, ``apt_auth``, ``apt_sources``, ``registry_auth``,
    ``proxy_file`` and those of ``npmrc_variables``: files given to the resolver as secrets. ``registries``:
    alias -> the address behind it, or ``client``: the client's own configuration decides. ``npm_keys``: files
    with the keys of a registry that signs for itself, by key id; where there is one, the public registry's
    keys do not count. ``sigstore_root``: the trusted root that statements of publishers are checked with;
    ``publishers``: who must have published what. ``signing_config``: where ``--keyless`` signs.
    ``min_release_age``: how old a version must be; ``min_release_age_except``: ``name@version`` that may be
    younger. ``credentials``: name of a credential -> the file that holds it. ``pkcs11``: role -> its key.
    """

    engine: str | None = None
    base: GivenImage | None = None
    build_container: GivenImage | None = None
    resolver: GivenImage | None = None
    ca_bundle: Path | None = None
    npmrc: Path | None = None
    npmrc_variables: tuple[tuple[str, Path], ...] = ()
    netrc: Path | None = None
    apt_auth: Path | None = None
    apt_sources: Path | None = None
    registry_auth: Path | None = None
    proxy: Proxy | None = None
    proxy_file: Path | None = None
    registries: tuple[tuple[str, str], ...] = (("npm", CLIENT), ("pypi", CLIENT), ("debian", CLIENT))
    npm_keys: tuple[tuple[str, Path], ...] = ()
    sigstore_root: Path | None = None
    publishers: tuple[tuple[str, Publisher], ...] = ()
    signing_config: Path | None = None
    min_release_age: timedelta | None = None
    min_release_age_except: frozenset[str] = frozenset()
    credentials: tuple[tuple[str, Path], ...] = ()
    pkcs11: tuple[tuple[Role, TokenKey], ...] = ()

    @property
    def addresses(self) -> tuple[tuple[str, str], ...]:
        """The aliases whose address is given here."""
        return tuple((alias, address) for alias, address in self.registries if address != CLIENT)


def _given(text: str) -> GivenImage:
    """A bare digest, or a digest with the registry that has it. A name alone would say nothing."""
    name, at, digest = text.rpartition("@")
    try:
        found = Digest(digest)
    except UsageError:
        raise ValueError(_EXPECTED) from None
    if not at:
        return GivenImage(found)
    source = parse_base(text)
    if source.registry is None:
        raise ValueError(f"{name[:60]!r} names no registry; {_EXPECTED}")
    return GivenImage(found, source)


def _image_text(text: str) -> str:
    _given(text)
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/") or "\0" in text or len(text) > 4000:
        raise ValueError("expected an absolute path")
    return text


def _address(text: str, *, login: bool) -> str:
    """An address of letters that no client's file gives a meaning. What is wrong is never quoted."""
    found = _ADDRESS.fullmatch(text) if len(text) <= _MAX_ADDRESS and _LETTERS.fullmatch(text) else None
    if found is None:
        raise ValueError("expected http:// or https://, a host, perhaps a port")
    if found[2] is not None and not login:
        raise ValueError("holds a login: put it into a file that only you can read, and name that file")
    return text


def _registry(text: str) -> str:
    if text == CLIENT:
        return text
    if "?" in _address(text, login=False):
        raise ValueError('expected "client" or https:// and a host, perhaps a port and a path')
    return text


def _signed_elsewhere(text: str) -> str:
    """npm and PyPI say themselves what to expect, as anybody could over a plain connection."""
    if text.startswith("http://"):
        raise ValueError("expected https://")
    return _registry(text)


def _proxy_address(text: str) -> str:
    found = _ADDRESS.fullmatch(_address(text, login=False))
    if found is None or found[5] not in (None, "/"):
        raise ValueError("expected http:// or https://, a host and a port")
    return text


def _proxy_with_login(text: str) -> str:
    found = _ADDRESS.fullmatch(_address(text, login=True))
    if found is None or found[5] not in (None, "/"):
        raise ValueError("expected http:// or https://, perhaps user:password@, a host and a port")
    return text


def _bypass(text: str) -> str:
    if not _BYPASS.fullmatch(text) or len(text) > _MAX_HOST:
        raise ValueError("expected a host, .domain or *")
    return text


def _credential_name(text: str) -> str:
    try:
        return str(parse_name(text))
    except UsageError as broken:
        raise ValueError(f"{broken.what}; {broken.hint}") from None


_ImageText = Annotated[str, AfterValidator(_image_text)]
_PathText = Annotated[str, AfterValidator(_absolute)]
_Bypass = Annotated[str, AfterValidator(_bypass)]
_CredentialName = Annotated[str, AfterValidator(_credential_name)]
_VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]


class _Registries(BaseModel):
    """An alias stands in the lock for an address; ``client`` = wherever the client's configuration points."""

    model_config = ConfigDict(extra="forbid", strict=True)
    npm: Annotated[str, AfterValidator(_signed_elsewhere)] = CLIENT
    pypi: Annotated[str, AfterValidator(_signed_elsewhere)] = CLIENT
    debian: Annotated[str, AfterValidator(_registry)] = CLIENT


class _ProxyTable(BaseModel):
    """Proxies without a login."""

    model_config = ConfigDict(extra="forbid", strict=True)
    http: Annotated[str, AfterValidator(_proxy_address)] | None = None
    https: Annotated[str, AfterValidator(_proxy_address)] | None = None
    no_proxy: list[_Bypass] = Field(default=[], max_length=_MAX_BYPASS)


class ProxyFile(BaseModel):
    """The same in a file of its own, which only the operator can read: with a login or without."""

    model_config = ConfigDict(extra="forbid", strict=True)
    http: Annotated[str, AfterValidator(_proxy_with_login)] | None = None
    https: Annotated[str, AfterValidator(_proxy_with_login)] | None = None
    no_proxy: list[_Bypass] = Field(default=[], max_length=_MAX_BYPASS)


class SettingsToml(BaseModel):
    """settings.toml."""

    model_config = ConfigDict(extra="forbid", strict=True)
    schema_: One = Field(alias="schema")
    engine: Literal["docker", "podman"] | None = None
    base: _ImageText | None = None
    build_container: _ImageText | None = None
    resolver: _ImageText | None = None
    ca_bundle: _PathText | None = None
    npmrc: _PathText | None = None
    npmrc_variables: dict[_VariableName, _PathText] = {}
    netrc: _PathText | None = None
    apt_auth: _PathText | None = None
    apt_sources: _PathText | None = None
    registry_auth: _PathText | None = None
    proxy: _ProxyTable | None = None
    proxy_file: _PathText | None = None
    registries: _Registries = _Registries()
    npm_keys: Annotated[dict[KeyId, _PathText], Field(max_length=100)] = {}
    sigstore_root: _PathText | None = None
    publishers: Annotated[dict[PackageText, PublisherToml], Field(max_length=1000)] = {}
    signing_config: _PathText | None = None
    min_release_age: AgeText | None = None
    min_release_age_except: Annotated[list[ReleaseText], Field(max_length=1000)] = []
    credentials: Annotated[dict[_CredentialName, _PathText], Field(max_length=100)] = {}
    pkcs11: Pkcs11Toml = Pkcs11Toml()


def parse_settings(text: str, *, where: str) -> Settings:
    """Settings from text; UsageError names line, key and what was expected."""
    model = read_toml(text, where, SettingsToml, later=LATER)
    if model.proxy is not None and model.proxy_file is not None:
        raise UsageError("proxy and proxy_file: name one of them", where=where, hint=f"correct {where}")
    if model.publishers and model.sigstore_root is None:
        raise UsageError(f"publishers: {NEEDS_ROOT}: name it", where=where, hint=f"correct {where}")
    return Settings(
        engine=model.engine,
        base=_given(model.base) if model.base is not None else None,
        build_container=_given(model.build_container) if model.build_container is not None else None,
        resolver=_given(model.resolver) if model.resolver is not None else None,
        ca_bundle=_path(model.ca_bundle),
        npmrc=_path(model.npmrc),
        npmrc_variables=tuple((name, Path(path)) for name, path in model.npmrc_variables.items()),
        netrc=_path(model.netrc),
        apt_auth=_path(model.apt_auth),
        apt_sources=_path(model.apt_sources),
        registry_auth=_path(model.registry_auth),
        proxy=_proxy(model.proxy) if model.proxy is not None else None,
        proxy_file=_path(model.proxy_file),
        registries=tuple(model.registries.model_dump().items()),
        npm_keys=tuple(sorted((name, Path(path)) for name, path in model.npm_keys.items())),
        sigstore_root=_path(model.sigstore_root),
        publishers=tuple((name, one.publisher()) for name, one in sorted(model.publishers.items())),
        signing_config=_path(model.signing_config),
        min_release_age=span(model.min_release_age) if model.min_release_age else None,
        min_release_age_except=frozenset(model.min_release_age_except),
        credentials=tuple(sorted((name, Path(path)) for name, path in model.credentials.items())),
        pkcs11=model.pkcs11.keys(),
    )


def parse_proxy_file(raw: bytes, *, where: str) -> Proxy:
    """The file that ``proxy_file`` names: http, https, no_proxy. UsageError quotes nothing of it."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise UsageError("not UTF-8", where=where, hint=f"correct {where}") from None
    return _proxy(read_toml(text, where, ProxyFile, secret=True))


def _proxy(table: _ProxyTable | ProxyFile) -> Proxy:
    return Proxy(http=table.http or "", https=table.https or "", no_proxy=tuple(table.no_proxy))


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def load_settings(path: Path) -> Settings:
    """Settings from a file that only we (or root) can change; the defaults when there is none."""
    raw = _read_guarded(path, MAX_SETTINGS_BYTES, private=False)
    if raw is None:
        return Settings()
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise UsageError("not UTF-8", where=str(path), hint=f"correct {path}") from None
    return parse_settings(text, where=str(path))


def read_ca_bundle(settings: Settings) -> bytes:
    """The operator's CA bundle as bytes; empty when none is set. UsageError when it is set and unfit."""
    return _secret(settings.ca_bundle, "ca_bundle", private=False)


def read_npmrc(settings: Settings) -> Secret:
    """The npm configuration given as a secret; empty when none is set. It must be readable by us alone."""
    return Secret(read_private(settings.npmrc, "npmrc"))


def read_private(path: Path | None, name: str) -> bytes:
    """A file with a secret, which must be readable by us alone; empty when ``path`` is None."""
    return _secret(path, name, private=True)


def read_npm_keys(settings: Settings) -> Keys:
    """The keys whose npm signatures count: the operator's own, else those that the program ships."""
    if not settings.npm_keys:
        return shipped_keys()
    return {
        key_id: read_registry_key(key_id, _secret(path, "npm_keys", private=False), str(path))
        for key_id, path in settings.npm_keys
    }


def read_publishers(settings: Settings) -> Publishers:
    """Who must have published what, and what that is checked with."""
    path = settings.sigstore_root
    root = None
    if path is not None:
        root = read_sigstore_root(_secret(path, "sigstore_root", private=False), str(path))
    return Publishers(root, dict(settings.publishers))


def read_signing_config(settings: Settings) -> bytes:
    """The services that sign without a key, as sigstore's clients describe them; empty when none is set."""
    return _secret(settings.signing_config, "signing_config", private=False)


def _secret(path: Path | None, name: str, *, private: bool) -> bytes:
    if path is None:
        return b""
    raw = _read_guarded(path, MAX_SECRET_BYTES, private=private)
    if raw is None:
        raise UsageError(
            f"settings.toml names a {name} that is not there",
            where=str(path),
            hint=f"correct {name} in settings.toml, or take the line out",
        )
    return raw


def _read_guarded(path: Path, limit: int, *, private: bool) -> bytes | None:
    """The bytes of a file that only we or root can change (or read, if ``private``); None if absent."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if link := dangling_link(path):
            # Somebody meant a file to be there: its defaults are not what he meant.
            raise UsageError("a link to nothing", where=str(link), hint=f"correct or remove {link}") from None
        return None
    except OSError as broken:
        raise UsageError(f"cannot be read: {broken.strerror}", where=str(path)) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("not a regular file", where=str(path), hint=f"put a file at {path}")
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise UsageError("others can change this file", where=str(path), hint=f"chmod go-w {path}")
        if private and status.st_mode & 0o044:
            raise UsageError("others can read this file", where=str(path), hint=f"chmod 600 {path}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            raw = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(raw) > limit:
        raise UsageError(f"more than {limit} bytes", where=str(path))
    return raw
