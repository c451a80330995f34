"""OCI values: descriptors, manifests and image configurations, parsed strictly from untrusted bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.digests import Digest
from images.errors import UsageError, VerifyFailed
from images.strictjson import JsonValue, is_number, read_object

MEDIA_INDEX: Final = "application/vnd.oci.image.index.v1+json"
MEDIA_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
MEDIA_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
MEDIA_EMPTY: Final = "application/vnd.oci.empty.v1+json"
MEDIA_LAYER_TAR: Final = "application/vnd.oci.image.layer.v1.tar"
MEDIA_LAYER_GZIP: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
MEDIA_LAYER_ZSTD: Final = "application/vnd.oci.image.layer.v1.tar+zstd"
LAYER_TYPES: Final = frozenset({MEDIA_LAYER_TAR, MEDIA_LAYER_GZIP, MEDIA_LAYER_ZSTD})
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG: Final = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER_GZIP: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"

MAX_MANIFEST_BYTES: Final = 4 * 1024 * 1024
MAX_LAYERS: Final = 256
MAX_DESCRIPTORS: Final = 4096


@dataclass(frozen=True, slots=True)
class Platform:
    """os/architecture[/variant], lowercase as OCI writes it."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)

    @classmethod
    def parse(cls, text: str) -> Platform:
        """From ``linux/amd64`` or ``linux/arm64/v8``."""
        parts = text.split("/")
        if len(parts) not in (2, 3) or not all(part.isalnum() and part == part.lower() for part in parts):
            raise UsageError(f"not a platform: {text[:60]!r}", hint="write os/architecture, as linux/amd64")
        return cls(*parts)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A typed, sized reference to a blob by digest."""

    media_type: str
    digest: Digest
    size: int
    annotations: tuple[tuple[str, str], ...] = ()
    platform: Platform | None = None
    artifact_type: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """As OCI writes it."""
        document: dict[str, JsonValue] = {
            "mediaType": self.media_type,
            "digest": str(self.digest),
            "size": self.size,
        }
        if self.artifact_type:
            document["artifactType"] = self.artifact_type
        if self.annotations:
            document["annotations"] = dict(self.annotations)
        if self.platform:
            platform: dict[str, JsonValue] = {
                "os": self.platform.os,
                "architecture": self.platform.architecture,
            }
            if self.platform.variant:
                platform["variant"] = self.platform.variant
            document["platform"] = platform
        return document


@dataclass(frozen=True, slots=True)
class Manifest:
    """One image or artifact manifest; ``digest`` is that of ``raw``, the exact bytes."""

    raw: bytes = field(repr=False)
    digest: Digest
    media_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: tuple[tuple[str, str], ...] = ()
    subject: Descriptor | None = None
    artifact_type: str = ""


@dataclass(frozen=True, slots=True)
class Index:
    """An image index: descriptors of manifests."""

    raw: bytes = field(repr=False)
    digest: Digest
    manifests: tuple[Descriptor, ...]
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line of an image's history."""

    created_by: str = ""
    comment: str = ""
    empty_layer: bool = False


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """The part of an image configuration that decides how it runs, and what it is made of."""

    raw: bytes = field(repr=False)
    digest: Digest
    platform: Platform
    diff_ids: tuple[Digest, ...]
    user: str = ""
    environment: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_dir: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    volumes: tuple[str, ...] = ()
    exposed_ports: tuple[str, ...] = ()
    on_build: tuple[str, ...] = ()
    health_check: bool = False
    stop_signal: str = ""
    history: tuple[HistoryEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class OciImage:
    """Permit: an image whose manifest, configuration and every layer were re-hashed in this layout.

    Constructed only by ``provenance.layout.open_image``.
    """

    layout: Path
    manifest: Manifest
    settings: ImageSettings

    @property
    def digest(self) -> Digest:
        """The platform manifest digest: the identity of the image everywhere."""
        return self.manifest.digest

    @property
    def platform(self) -> Platform:
        """What the configuration says it runs on."""
        return self.settings.platform


def parse_manifest(raw: bytes, what: str) -> Manifest:
    """A manifest from untrusted bytes; raises VerifyFailed naming ``what``."""
    document = _document(raw, what)
    _schema_two(document, what)
    media_type = _text(document, "mediaType", what, default=MEDIA_MANIFEST)
    if media_type not in (MEDIA_MANIFEST, DOCKER_MANIFEST):
        raise VerifyFailed(f"media type {media_type[:100]!r} is not an image manifest", where=what)
    layers = _list(document, "layers", what, MAX_LAYERS)
    subject = document.get("subject")
    return Manifest(
        raw=raw,
        digest=Digest.of(raw),
        media_type=media_type,
        config=parse_descriptor(document.get("config"), f"{what} config"),
        layers=tuple(parse_descriptor(item, f"{what} layer {n}") for n, item in enumerate(layers)),
        annotations=_text_map(document, "annotations", what),
        subject=None if subject is None else parse_descriptor(subject, f"{what} subject"),
        artifact_type=_text(document, "artifactType", what, default=""),
    )


def parse_index(raw: bytes, what: str) -> Index:
    """An index from untrusted bytes; raises VerifyFailed naming ``what``."""
    document = _document(raw, what)
    _schema_two(document, what)
    media_type = _text(document, "mediaType", what, default=MEDIA_INDEX)
    if media_type not in (MEDIA_INDEX, DOCKER_INDEX):
        raise VerifyFailed(f"media type {media_type[:100]!r} is not an image index", where=what)
    manifests = _list(document, "manifests", what, MAX_DESCRIPTORS)
    return Index(
        raw=raw,
        digest=Digest.of(raw),
        manifests=tuple(parse_descriptor(item, f"{what} manifest {n}") for n, item in enumerate(manifests)),
        annotations=_text_map(document, "annotations", what),
    )


def parse_descriptor(value: JsonValue, what: str) -> Descriptor:
    """A descriptor from a parsed JSON value."""
    if not isinstance(value, dict):
        raise VerifyFailed("not a descriptor", where=what)
    size = value.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise VerifyFailed("a descriptor without a size", where=what)
    return Descriptor(
        media_type=_text(value, "mediaType", what),
        digest=_digest(value.get("digest"), what),
        size=size,
        annotations=_text_map(value, "annotations", what),
        platform=_platform(value["platform"], what) if "platform" in value else None,
        artifact_type=_text(value, "artifactType", what, default=""),
    )


def parse_settings(raw: bytes, what: str) -> ImageSettings:
    """An image configuration from untrusted bytes; raises VerifyFailed naming ``what``."""
    document = _document(raw, what)
    rootfs = document.get("rootfs")
    if not isinstance(rootfs, dict) or rootfs.get("type") != "layers":
        raise VerifyFailed("rootfs is not of type layers", where=what)
    run = document.get("config")
    run = {} if run is None else run
    if not isinstance(run, dict):
        raise VerifyFailed("config is not an object", where=what)
    health = run.get("Healthcheck")
    return ImageSettings(
        raw=raw,
        digest=Digest.of(raw),
        platform=_platform(document, what),
        diff_ids=tuple(_digest(item, what) for item in _list(rootfs, "diff_ids", what, MAX_LAYERS)),
        user=_text(run, "User", what, default=""),
        environment=_texts(run, "Env", what),
        entrypoint=_texts(run, "Entrypoint", what),
        command=_texts(run, "Cmd", what),
        working_dir=_text(run, "WorkingDir", what, default=""),
        labels=_text_map(run, "Labels", what),
        volumes=_keys(run, "Volumes", what),
        exposed_ports=_keys(run, "ExposedPorts", what),
        on_build=_texts(run, "OnBuild", what),
        health_check=health not in (None, {}),
        stop_signal=_text(run, "StopSignal", what, default=""),
        history=tuple(_history(item, what) for item in _list(document, "history", what, 4 * MAX_LAYERS)),
    )


def _document(raw: bytes, what: str) -> dict[str, JsonValue]:
    return read_object(raw, what, max_bytes=MAX_MANIFEST_BYTES, error=VerifyFailed)


def _schema_two(document: dict[str, JsonValue], what: str) -> None:
    """Of manifests and indexes. Those of version 1 are of another form, which other readers know."""
    if not is_number(document.get("schemaVersion", 2), 2):
        raise VerifyFailed("schemaVersion is not 2", where=what)


def _text(document: dict[str, JsonValue], key: str, what: str, default: str | None = None) -> str:
    value = document.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise VerifyFailed(f"{key} is not text", where=what)
    return value


def _list(document: dict[str, JsonValue], key: str, what: str, most: int) -> list[JsonValue]:
    value = document.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > most:
        raise VerifyFailed(f"{key} is not a list of at most {most}", where=what)
    return value


def _texts(document: dict[str, JsonValue], key: str, what: str) -> tuple[str, ...]:
    found = []
    for item in _list(document, key, what, MAX_DESCRIPTORS):
        if not isinstance(item, str):
            raise VerifyFailed(f"{key} holds something that is not text", where=what)
        found.append(item)
    return tuple(found)


def _text_map(document: dict[str, JsonValue], key: str, what: str) -> tuple[tuple[str, str], ...]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > MAX_DESCRIPTORS:
        raise VerifyFailed(f"{key} is not a map", where=what)
    found = []
    for name, item in sorted(value.items()):
        if not isinstance(item, str):
            raise VerifyFailed(f"{key} {name[:60]!r} is not text", where=what)
        found.append((name, item))
    return tuple(found)


def _keys(document: dict[str, JsonValue], key: str, what: str) -> tuple[str, ...]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > MAX_DESCRIPTORS:
        raise VerifyFailed(f"{key} is not a map", where=what)
    return tuple(sorted(value))


def _digest(value: JsonValue, what: str) -> Digest:
    if not isinstance(value, str):
        raise VerifyFailed("a digest is missing", where=what)
    try:
        return Digest(value)
    except UsageError as broken:
        raise VerifyFailed(broken.what, where=what) from None


def _platform(value: JsonValue, what: str) -> Platform:
    if not isinstance(value, dict):
        raise VerifyFailed("platform is not an object", where=what)
    return Platform(
        _text(value, "os", what),
        _text(value, "architecture", what),
        _text(value, "variant", what, default=""),
    )


def _history(value: JsonValue, what: str) -> HistoryEntry:
    if not isinstance(value, dict):
        raise VerifyFailed("a history entry is not an object", where=what)
    return HistoryEntry(
        created_by=_text(value, "created_by", what, default=""),
        comment=_text(value, "comment", what, default=""),
        empty_layer=value.get("empty_layer") is True,
    )
