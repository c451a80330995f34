"""bootstrap.lock: every package, wheel and program that the three images are made of, and their digests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from builder.roles import Role
from images.digests import Digest
from images.errors import PinError, StateError
from images.oci import Platform
from images.schema_version import One
from images.strictjson import JsonValue, read_object

LOCK_NAME: Final = "bootstrap.lock"
REFRESH: Final = "builder bootstrap --refresh"
_MAX_BYTES: Final = 4 << 20


_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]{0,99}$")]
_Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+:~-]{0,99}$")]
_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
_ImportPath = Annotated[str, Field(pattern=r"^[a-z0-9][A-Za-z0-9._/-]{0,199}$")]
_Size = Annotated[int, Field(gt=0, lt=1 << 32)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Deb(_Strict):
    name: _Name
    version: _Version
    architecture: _Name
    size: _Size
    sha256: _Hex
    images: tuple[Annotated[Role, Field(strict=False)], ...] = Field(min_length=1)


class _Wheel(_Strict):
    name: _Name
    version: _Version
    sha256: _Hex


class _Program(_Strict):
    name: _Name
    package: _ImportPath
    module: _ImportPath
    version: Annotated[str, Field(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+$")]
    stamp: Annotated[str, Field(pattern=r"^([a-z0-9][A-Za-z0-9._/-]{0,199})?$")]


class _Go(_Strict):
    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$")]
    wheel: _Wheel
    go_mod: _Digest
    go_sum: _Digest
    programs: tuple[_Program, ...]


class _Image(_Strict):
    asked: tuple[_Name, ...]
    manifest: _Digest
    diff_id: _Digest
    files: dict[_Name, _Digest]


class _Debian(_Strict):
    suite: _Name
    packages: tuple[_Deb, ...]


class _Document(_Strict):
    schema_version: Annotated[One, Field(alias="schema")]
    platform: Literal["linux/amd64"]
    epoch: Annotated[int, Field(gt=0, lt=1 << 33)]
    init: Annotated[str, Field(pattern=r"^/[a-z0-9/._-]{1,99}$")]
    refreshed_from: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")]
    images: dict[Annotated[Role, Field(strict=False)], _Image]
    go: _Go
    wheels: dict[Literal["node", "uv"], _Wheel]
    debian: _Debian


@dataclass(frozen=True, slots=True)
class Deb:
    """One Debian package, exactly; ``size`` in bytes."""

    name: str
    version: str
    architecture: str
    size: int
    sha256: str
    images: tuple[Role, ...]

    @property
    def file_name(self) -> str:
        """As apt names a downloaded package."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel, exactly."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Program:
    """One Go program; ``stamp`` is the variable that its version is linked into, empty for none."""

    name: str
    package: str
    module: str
    version: str
    stamp: str


@dataclass(frozen=True, slots=True)
class GoPins:
    """The Go toolchain, the digests of go.mod and go.sum beside the lock, and what is built with them."""

    version: str
    wheel: Wheel
    go_mod: Digest
    go_sum: Digest
    programs: tuple[Program, ...]


@dataclass(frozen=True, slots=True)
class ImagePins:
    """What was asked of Debian for an image, and what comes out: ``files`` are digests of its named parts."""

    asked: tuple[str, ...]
    manifest: Digest
    diff_id: Digest
    files: tuple[tuple[str, Digest], ...]


@dataclass(frozen=True, slots=True)
class BootstrapLock:
    """The parsed bootstrap.lock; ``init`` is the path of the init inside the base image.

    ``refreshed_from``: in a refreshed copy, the digest of the lock that it replaces; empty in the original.
    """

    platform: Platform
    epoch: int
    init: str
    refreshed_from: str
    images: tuple[tuple[Role, ImagePins], ...]
    go: GoPins
    node: Wheel
    uv: Wheel
    suite: str
    debs: tuple[Deb, ...]

    def pins(self, role: Role) -> ImagePins:
        """The pins of one image."""
        return dict(self.images)[role]

    def debs_of(self, role: Role) -> tuple[Deb, ...]:
        """The packages of one image."""
        return tuple(deb for deb in self.debs if role in deb.images)


def load_lock(path: Path) -> BootstrapLock:
    """Read and parse a lock file: StateError when it cannot be read, PinError when it is not a lock."""
    try:
        raw = path.read_bytes()
    except OSError as broken:
        raise StateError(f"cannot be read: {broken.strerror}", where=str(path)) from None
    return parse_lock(raw, str(path))


def parse_lock(raw: bytes, where: str) -> BootstrapLock:
    """A lock from bytes, strictly: unknown keys, doubled packages and missing images are PinError."""
    document = read_object(raw, where, max_bytes=_MAX_BYTES, error=PinError)
    try:
        parsed = _Document.model_validate_json(json.dumps(document))
    except ValidationError as broken:
        first = broken.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise PinError(f"{path}: {first['msg']}", where=where, hint=REFRESH) from None
    if set(parsed.images) != set(Role):
        raise PinError("images: not exactly " + ", ".join(Role), where=where, hint=REFRESH)
    if set(parsed.wheels) != {"node", "uv"}:
        raise PinError("wheels: not exactly node, uv", where=where, hint=REFRESH)
    lock = _lock(parsed)
    _refuse_doubles(lock, where)
    return lock


def _lock(parsed: _Document) -> BootstrapLock:
    go = parsed.go
    return BootstrapLock(
        platform=Platform.parse(parsed.platform),
        epoch=parsed.epoch,
        init=parsed.init,
        refreshed_from=parsed.refreshed_from,
        images=tuple((role, _pins(parsed.images[role])) for role in Role),
        go=GoPins(
            go.version,
            _wheel(go.wheel),
            Digest(go.go_mod),
            Digest(go.go_sum),
            tuple(Program(p.name, p.package, p.module, p.version, p.stamp) for p in go.programs),
        ),
        node=_wheel(parsed.wheels["node"]),
        uv=_wheel(parsed.wheels["uv"]),
        suite=parsed.debian.suite,
        debs=tuple(
            Deb(deb.name, deb.version, deb.architecture, deb.size, deb.sha256, tuple(sorted(deb.images)))
            for deb in parsed.debian.packages
        ),
    )


def _pins(image: _Image) -> ImagePins:
    files = tuple((name, Digest(value)) for name, value in sorted(image.files.items()))
    return ImagePins(image.asked, Digest(image.manifest), Digest(image.diff_id), files)


def _wheel(wheel: _Wheel) -> Wheel:
    return Wheel(wheel.name, wheel.version, wheel.sha256)


def _refuse_doubles(lock: BootstrapLock, where: str) -> None:
    for role in Role:
        names = [deb.name for deb in lock.debs_of(role)]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise PinError(
                f"debian.packages: {', '.join(doubled)} twice for {role}", where=where, hint=REFRESH
            )
    for wheel in (lock.go.wheel, lock.node, lock.uv):
        if ":" in wheel.version or "~" in wheel.version:
            raise PinError(f"wheels: not a version: {wheel.version}", where=where, hint=REFRESH)


def render_lock(lock: BootstrapLock) -> bytes:
    """The bytes of a lock, one pin a line, so that a change of pins is a readable diff."""
    go = lock.go
    document: dict[str, JsonValue] = {
        "schema": 1,
        "platform": str(lock.platform),
        "epoch": lock.epoch,
        "init": lock.init,
        "refreshed_from": lock.refreshed_from,
        "images": {
            role.value: {
                "asked": list(pins.asked),
                "manifest": str(pins.manifest),
                "diff_id": str(pins.diff_id),
                "files": {name: str(digest) for name, digest in pins.files},
            }
            for role, pins in lock.images
        },
        "go": {
            "version": go.version,
            "wheel": _wheel_json(go.wheel),
            "go_mod": str(go.go_mod),
            "go_sum": str(go.go_sum),
            "programs": [
                {
                    "name": p.name,
                    "package": p.package,
                    "module": p.module,
                    "version": p.version,
                    "stamp": p.stamp,
                }
                for p in go.programs
            ],
        },
        "wheels": {"node": _wheel_json(lock.node), "uv": _wheel_json(lock.uv)},
    }
    head = json.dumps(document, indent=2).removesuffix("\n}")
    packages = ",\n".join("      " + line for line in _deb_lines(lock.debs))
    suite = json.dumps(lock.suite)
    debian = f'  "debian": {{\n    "suite": {suite},\n    "packages": [\n{packages}\n    ]\n  }}\n}}\n'
    return f"{head},\n{debian}".encode()


def _wheel_json(wheel: Wheel) -> dict[str, JsonValue]:
    return {"name": wheel.name, "version": wheel.version, "sha256": wheel.sha256}


def _deb_lines(debs: Iterable[Deb]) -> list[str]:
    return [
        json.dumps(
            {
                "name": deb.name,
                "version": deb.version,
                "architecture": deb.architecture,
                "size": deb.size,
                "sha256": deb.sha256,
                "images": [role.value for role in deb.images],
            }
        )
        for deb in sorted(debs, key=lambda deb: (deb.name, deb.version))
    ]
