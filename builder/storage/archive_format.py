"""The archive that a state hands to another one: its manifest, and a tar of which no byte is free to choose.

An OCI layout as an uncompressed tar, with ``export.json`` in front. Names, order and headers follow from that
manifest, so a reader compares them and parses none; each file is a blob named by its SHA-256. See
docs/reference/team-archive.md.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from images.digests import Digest, Integrity, canonical_json
from images.errors import UsageError
from images.oci import DOCKER_INDEX, MEDIA_INDEX, Descriptor, Platform
from images.strictjson import read_object
from provenance.layout import LAYOUT_VERSION

SCHEMA: Final = "https://agent-image-builder.example/export/v1"
MANIFEST_NAME: Final = "export.json"
BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)
MAX_EXPORT_BYTES: Final = 16 << 20
MAX_BLOB_BYTES: Final = (8 << 30) - 1  # the most that a plain tar header can say
MAX_BLOBS: Final = 65_536
MAX_MANIFESTS: Final = 2048
_REF_NAME: Final = "org.opencontainers.image.ref.name"


class Part(StrEnum):
    """What a manifest of the archive is for. REFERRER: evidence of the image, or its lock."""

    BASE = "base"
    BUILD_CONTAINER = "build-container"
    RESOLVER = "resolver"
    IMAGE = "image"
    REFERRER = "referrer"


@dataclass(frozen=True, slots=True)
class PartManifest:
    """One manifest (or index) that the archive is about."""

    part: Part
    digest: Digest
    media_type: str


@dataclass(frozen=True, slots=True, order=True)
class LockedFile:
    """An artifact of the lock, and the blob that holds its bytes."""

    integrity: Integrity
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportManifest:
    """``export.json``. ``blobs``: every one with its size, in the order in which they follow.

    ``platform``: the one that the images are for. ``lock``: the blob that is the builder.lock.
    """

    platform: Platform
    lock: Digest
    manifests: tuple[PartManifest, ...]
    artifacts: tuple[LockedFile, ...]
    blobs: tuple[tuple[Digest, int], ...]

    def of(self, part: Part) -> tuple[PartManifest, ...]:
        """The manifests of one part."""
        return tuple(one for one in self.manifests if one.part is part)

    @property
    def image(self) -> Digest | None:
        """The built image, if it is in it."""
        return next((one.digest for one in self.of(Part.IMAGE)), None)

    def raw(self) -> bytes:
        """The one form of these bytes: RFC 8785, and a newline."""
        document = {
            "schema": SCHEMA,
            "platform": str(self.platform),
            "lock": str(self.lock),
            "manifests": [
                {"part": one.part.value, "digest": str(one.digest), "mediaType": one.media_type}
                for one in self.manifests
            ],
            "artifacts": [
                {"integrity": str(one.integrity), "digest": str(one.digest)} for one in self.artifacts
            ],
            "blobs": [{"digest": str(digest), "size": size} for digest, size in self.blobs],
        }
        return canonical_json(document) + b"\n"

    def small_members(self) -> Iterator[tuple[str, bytes]]:
        """The members whose bytes follow from the manifest, in order: itself and the layout's two files."""
        yield MANIFEST_NAME, self.raw()
        yield "oci-layout", canonical_json({"imageLayoutVersion": LAYOUT_VERSION})
        yield "index.json", canonical_json(self._index())

    def size(self) -> int:
        """Of the whole archive, in bytes."""
        sizes = [len(data) for _, data in self.small_members()] + [size for _, size in self.blobs]
        return sum(BLOCK + padded(size) for size in sizes) + len(END)

    def _index(self) -> dict[str, object]:
        sizes = dict(self.blobs)
        listed = []
        for one in self.manifests:
            named = () if one.part is Part.REFERRER else ((_REF_NAME, one.part.value),)
            listed.append(Descriptor(one.media_type, one.digest, sizes[one.digest], named).to_json())
        return {"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": listed}


def header(name: str, size: int) -> bytes:
    """The one tar header that a member of this name and size has: a regular file of nobody, at time 0."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member.tobuf(tarfile.USTAR_FORMAT)


def padded(size: int) -> int:
    """With the zeros that fill the last block."""
    return size + -size % BLOCK


def blob_name(digest: Digest) -> str:
    """Where a blob lies in the archive."""
    return f"blobs/sha256/{digest.hex}"


_DigestText = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
_IntegrityText = Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$")]
_Media = Literal[
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
]
INDEX_TYPES: Final = frozenset({MEDIA_INDEX, DOCKER_INDEX})


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Part(_Strict):
    part: Annotated[Part, Field(strict=False)]
    digest: _DigestText
    mediaType: _Media  # noqa: N815  (OCI's own spelling)


class _LockedFile(_Strict):
    integrity: _IntegrityText
    digest: _DigestText


class _Blob(_Strict):
    digest: _DigestText
    size: Annotated[int, Field(ge=0, le=MAX_BLOB_BYTES)]


class _Export(_Strict):
    schema_: Annotated[Literal["https://agent-image-builder.example/export/v1"], Field(alias="schema")]
    platform: Annotated[str, Field(pattern=r"^[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?$", max_length=60)]
    lock: _DigestText
    manifests: Annotated[list[_Part], Field(max_length=MAX_MANIFESTS)]
    artifacts: Annotated[list[_LockedFile], Field(max_length=MAX_BLOBS)]
    blobs: Annotated[list[_Blob], Field(max_length=MAX_BLOBS)]


def parse_export(raw: bytes, where: str) -> ExportManifest:
    """From untrusted bytes, which must be the one form of what they say. Raises UsageError."""
    document = read_object(raw, where, max_bytes=MAX_EXPORT_BYTES)
    try:
        read = _Export.model_validate(document)
    except ValidationError as broken:
        first = broken.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise UsageError(f"{MANIFEST_NAME}: {path}: {first['msg']}", where=where) from None
    found = ExportManifest(
        platform=Platform.parse(read.platform),
        lock=Digest(read.lock),
        manifests=tuple(PartManifest(one.part, Digest(one.digest), one.mediaType) for one in read.manifests),
        artifacts=tuple(
            LockedFile(Integrity.parse(one.integrity), Digest(one.digest)) for one in read.artifacts
        ),
        blobs=tuple((Digest(one.digest), one.size) for one in read.blobs),
    )
    _check(found, where)
    if found.raw() != raw:
        raise UsageError(f"{MANIFEST_NAME} is not in its canonical form", where=where)
    return found


def _check(found: ExportManifest, where: str) -> None:
    """What the rest may rely on: everything is named once, in order, and is among the blobs."""

    def refuse(why: str) -> None:
        raise UsageError(f"{MANIFEST_NAME}: {why}", where=where)

    digests = [digest for digest, _ in found.blobs]
    if digests != sorted(set(digests)):
        refuse("the blobs are not sorted, or one is named twice")
    integrities = [one.integrity for one in found.artifacts]
    if integrities != sorted(set(integrities)):
        refuse("the artifacts are not sorted, or one is named twice")
    named = [one.digest for one in found.manifests]
    if len(set(named)) != len(named):
        refuse("a manifest is named twice")
    missing = {found.lock, *named, *(one.digest for one in found.artifacts)} - set(digests)
    if missing:
        refuse(f"{min(missing)} is named and not among the blobs")
    counts = {part: len(found.of(part)) for part in Part}
    if counts[Part.BUILD_CONTAINER] != 1 or counts[Part.RESOLVER] != 1 or not counts[Part.BASE]:
        refuse("there must be a base, one build container and one resolver")
    if counts[Part.IMAGE] > 1 or (counts[Part.REFERRER] and not counts[Part.IMAGE]):
        refuse("there is more than one image, or evidence without one")
    if any(one.media_type in INDEX_TYPES for one in (*found.of(Part.IMAGE), *found.of(Part.REFERRER))):
        refuse("an index stands where a manifest must")
