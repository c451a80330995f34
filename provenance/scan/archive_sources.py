"""Turn all of a saved archive into layers and documents, and name what its manifests ask for in vain."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Final

from images.digests import Digest
from images.errors import UsageError, VerifyFailed
from images.oci import (
    MAX_MANIFEST_BYTES,
    MEDIA_LAYER_TAR,
    Descriptor,
    parse_descriptor,
    parse_settings,
)
from images.strictjson import JsonValue, read_json
from provenance.scan.archive import Blobs
from provenance.scan.report import PlaceKind
from provenance.scan.sources import DocumentSource, LayerSource, Sources, layer_type, read_document

_BLOB_NAME: Final = re.compile(r"(?:.*/)?blobs/sha256/([0-9a-f]{64})")
_LAYER_TYPE: Final = re.compile(r"application/vnd\.(?:oci\.image\.layer\.|docker\.image\.rootfs\.).*")
MAX_REFERENCES: Final = 100_000


@dataclass(slots=True)
class _References:
    """What manifests say about other blobs."""

    layers: set[str] = field(default_factory=set)  # names of blobs that are layers
    diff_ids: dict[str, Digest] = field(default_factory=dict)  # layer name -> diff id (docker save)
    configs: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)
    images: list[str] = field(default_factory=list)  # digests in index.json
    missing: list[str] = field(default_factory=list)


def archive_sources(blobs: Blobs) -> Sources:
    """Every file of the archive. Raises UsageError when it is no image at all, VerifyFailed when broken."""
    names = blobs.names()
    references = _References()
    if "index.json" in names:
        _follow_index(blobs, names, references)
    if "manifest.json" in names:
        _follow_docker(blobs, names, references)
    if "index.json" not in names and "manifest.json" not in names:
        raise UsageError(
            "no image: neither index.json nor manifest.json is in it",
            hint="docker save --output FILE IMAGE",
        )
    layers: list[LayerSource] = []
    documents: list[DocumentSource] = []
    for name in names:
        try:
            _sort_in(blobs, name, references, layers, documents)
        except VerifyFailed as broken:
            references.missing.append(f"{name}: {broken}")
    if not layers and not references.images:
        raise UsageError("no image: neither a layer nor a manifest is in it")
    return Sources(
        _subject(blobs, names, references), tuple(layers), tuple(documents), tuple(references.missing)
    )


def _subject(blobs: Blobs, names: tuple[str, ...], references: _References) -> str:
    """The one image's digest, else the hash of the file that names the images."""
    if len(references.images) == 1:
        return references.images[0]
    top = "index.json" if "index.json" in names else "manifest.json"
    with blobs.open(top) as file:
        return "archive:" + Digest.of(read_document(file, top))


def _sort_in(
    blobs: Blobs,
    name: str,
    references: _References,
    layers: list[LayerSource],
    documents: list[DocumentSource],
) -> None:
    blob = _BLOB_NAME.fullmatch(name)
    digest = Digest.from_hex(blob.group(1)) if blob else None
    with blobs.open(name) as file:
        media_type = layer_type(file, named_layer=name in references.layers)
        if not media_type:
            kind = PlaceKind.DOCUMENT
            if name in references.configs:
                kind = PlaceKind.CONFIG
            elif name in references.manifests:
                kind = PlaceKind.MANIFEST
            documents.append(
                DocumentSource(digest or name, partial(_read_checked, blobs, name, digest), kind)
            )
            return
        diff_id = references.diff_ids.get(name)
        if digest is None:
            # An uncompressed tar is its own diff id; anything else has no name by content yet.
            known = diff_id if media_type == MEDIA_LAYER_TAR else None
            digest = known or _digest_of(file)
    layer = Descriptor(media_type, digest, blobs.size(name))
    layers.append(LayerSource(layer, diff_id, partial(blobs.open, name)))


def _read_checked(blobs: Blobs, name: str, digest: Digest | None) -> bytes:
    with blobs.open(name) as file:
        raw = read_document(file, name)
    if digest is not None and Digest.of(raw) != digest:
        raise VerifyFailed("its bytes are not those of its digest", where=name)
    return raw


def _digest_of(file: BinaryIO) -> Digest:
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return Digest.from_hex(digest.hexdigest())


def _follow_index(blobs: Blobs, names: tuple[str, ...], references: _References) -> None:
    """All that index.json leads to, by digest."""
    present = frozenset(names)
    pending: list[tuple[str, bool]] = [("index.json", True)]
    seen = {"index.json"}
    while pending:
        name, top = pending.pop()
        for found in _descriptors(_json(blobs, name), name):
            target = f"blobs/sha256/{found.digest.hex}"
            if top:
                references.images.append(found.digest)
            if len(seen) > MAX_REFERENCES:
                raise VerifyFailed(f"more than {MAX_REFERENCES} blobs are named", where=name)
            if target not in present:
                references.missing.append(f"{name} names {found.digest}, which is not in the archive")
                continue
            if blobs.size(target) != found.size:
                references.missing.append(f"{found.digest} has {blobs.size(target)} bytes, not {found.size}")
            if _LAYER_TYPE.fullmatch(found.media_type):
                references.layers.add(target)
            elif "config" in found.media_type or found.media_type.endswith("image.v1+json"):
                references.configs.add(target)
            if target not in seen and ("manifest" in found.media_type or "index" in found.media_type):
                references.manifests.add(target)
                pending.append((target, False))
            seen.add(target)


def _descriptors(document: JsonValue, name: str) -> list[Descriptor]:
    """Of an index, a manifest or an old artifact manifest. A subject may lie elsewhere."""
    if not isinstance(document, dict):
        raise VerifyFailed("not an index or manifest", where=name)
    found: list[Descriptor] = []
    for key in ("manifests", "layers", "blobs"):
        items = document.get(key)
        if items is None:
            continue
        if not isinstance(items, list) or len(items) > MAX_REFERENCES:
            raise VerifyFailed(f"{key} is not a list", where=name)
        found.extend(parse_descriptor(item, f"{name} {key}") for item in items)
    if "config" in document:
        found.append(parse_descriptor(document["config"], f"{name} config"))
    return found


def _follow_docker(blobs: Blobs, names: tuple[str, ...], references: _References) -> None:
    """manifest.json of `docker save`: configuration and layers by file name."""
    entries = _json(blobs, "manifest.json")
    if not isinstance(entries, list):
        raise VerifyFailed("not a list", where="manifest.json")
    for entry in entries:
        config = entry.get("Config") if isinstance(entry, dict) else None
        layers = entry.get("Layers") if isinstance(entry, dict) else None
        if not isinstance(config, str) or not isinstance(layers, list):
            raise VerifyFailed("an entry without Config and Layers", where="manifest.json")
        with blobs.open(config) as file:
            settings = parse_settings(read_document(file, config), config)
        references.configs.add(config)
        if len(layers) != len(settings.diff_ids):
            references.missing.append(
                f"{config} speaks of {len(settings.diff_ids)} layers, not {len(layers)}"
            )
        for layer, diff_id in zip(layers, settings.diff_ids, strict=False):
            if not isinstance(layer, str):
                raise VerifyFailed("a layer that is not text", where="manifest.json")
            references.layers.add(layer)
            references.diff_ids[layer] = diff_id
            try:
                blobs.size(layer)
            except (KeyError, VerifyFailed):
                references.missing.append(f"manifest.json names {layer}, which is not in the archive")
        if "index.json" not in names and len(entries) == 1:
            references.images.append(settings.digest)


def _json(blobs: Blobs, name: str) -> JsonValue:
    with blobs.open(name) as file:
        raw = read_document(file, name)
    return read_json(raw, name, max_bytes=MAX_MANIFEST_BYTES, error=VerifyFailed)
