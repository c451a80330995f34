"""settings.toml, beside policy.toml: how this user reaches engine, images and registries."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from images.config import BaseReference, parse_base
from images.credentials import Secret
from images.digests import Digest
from images.errors import UsageError
from images.tomlfile import read_toml

SETTINGS_NAME: Final = "settings.toml"
MAX_SETTINGS_BYTES: Final = 64 * 1024
MAX_SECRET_BYTES: Final = 4 * 1024 * 1024
_EXPECTED: Final = "expected sha256: and 64 hexadecimal digits, or HOST/NAME@sha256:…"
# Known by name, refused until they are enforced: a setting that does nothing would be trusted.
LATER: Final = {
    "min_release_age": "not enforced in this version yet: remove it",
    "upstream_proxy": "not in this version yet: remove it, and set the proxy in npmrc",
}


@dataclass(frozen=True, slots=True)
class GivenImage:
    """An image in place of one that bootstrap makes. ``source``: where its digest can be pulled, if known."""

    digest: Digest
    source: BaseReference | None = None

    def __str__(self) -> str:
        return str(self.source or self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``None`` means: the default. Nothing here can loosen the policy.

    ``engine``: docker or podman. ``base``, ``build_container``, ``resolver``: images in place of what
    bootstrap makes. ``ca_bundle``, ``npmrc``: files given to the resolver as secrets. ``registries``:
    alias -> whose configuration decides where it is.
    """

    engine: str | None = None
    base: GivenImage | None = None
    build_container: GivenImage | None = None
    resolver: GivenImage | None = None
    ca_bundle: Path | None = None
    npmrc: Path | None = None
    registries: tuple[tuple[str, str], ...] = (("npm", "client"),)


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


_ImageText = Annotated[str, AfterValidator(_image_text)]
_PathText = Annotated[str, AfterValidator(_absolute)]


class _Registries(BaseModel):
    """An alias stands in the lock for an address; ``client`` = wherever the client's configuration points."""

    model_config = ConfigDict(extra="forbid", strict=True)
    npm: Literal["client"] = "client"


class SettingsToml(BaseModel):
    """settings.toml."""

    model_config = ConfigDict(extra="forbid", strict=True)
    schema_: Literal[1] = Field(alias="schema")
    engine: Literal["docker", "podman"] | None = None
    base: _ImageText | None = None
    build_container: _ImageText | None = None
    resolver: _ImageText | None = None
    ca_bundle: _PathText | None = None
    npmrc: _PathText | None = None
    registries: _Registries = _Registries()


def parse_settings(text: str, *, where: str) -> Settings:
    """Settings from text; UsageError names line, key and what was expected."""
    model = read_toml(text, where, SettingsToml, later=LATER)
    return Settings(
        engine=model.engine,
        base=_given(model.base) if model.base is not None else None,
        build_container=_given(model.build_container) if model.build_container is not None else None,
        resolver=_given(model.resolver) if model.resolver is not None else None,
        ca_bundle=Path(model.ca_bundle) if model.ca_bundle else None,
        npmrc=Path(model.npmrc) if model.npmrc else None,
        registries=(("npm", model.registries.npm),),
    )


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
    return Secret(_secret(settings.npmrc, "npmrc", private=True))


def _secret(path: Path | None, name: str, *, private: bool) -> bytes:
    if path is None:
        return b""
    raw = _read_guarded(path, MAX_SECRET_BYTES, private=private)
    if raw is None:
        raise UsageError(f"settings.toml names a {name} that is not there", where=str(path))
    return raw


def _read_guarded(path: Path, limit: int, *, private: bool) -> bytes | None:
    """The bytes of a file that only we or root can change (or read, if ``private``); None if absent."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
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
