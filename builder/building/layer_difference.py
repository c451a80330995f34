"""Say in a few lines where two images of one lock differ: layers, and the first entries in them."""

from __future__ import annotations

import hashlib
import itertools
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from images.errors import VerifyFailed
from images.oci import OciImage
from images.redaction import redact
from provenance.layout import open_layer
from provenance.stricttar import StrictTar

MOST_ENTRIES: Final = 10  # of each layer; the rest is counted
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Entry:
    """Everything of a tar entry that enters the layer's digest, by name."""

    kind: bytes
    mode: int
    owner: str
    mtime: float
    size: int
    link: str
    headers: tuple[tuple[str, str], ...]
    content: str

    def differs_in(self, other: _Entry) -> str:
        names = [name for name in self.__slots__ if getattr(self, name) != getattr(other, name)]
        return ", ".join(names)


def describe_difference(first: OciImage, second: OciImage) -> tuple[str, ...]:
    """One line for each layer that differs, and one for each of its first differing entries.

    VerifyFailed when a layer cannot be read. The names of entries are cleaned for a terminal.
    """
    lines: list[str] = []
    pairs = itertools.zip_longest(first.manifest.layers, second.manifest.layers)
    for number, (one, other) in enumerate(pairs):
        if one is None or other is None:
            here = "first" if other is None else "second"
            lines.append(f"layer {number} is in the {here} image alone")
        elif one.digest != other.digest:
            lines.append(f"layer {number}: {one.digest}, then {other.digest}")
            lines += _layer(first, second, number)
    if first.manifest.config.digest != second.manifest.config.digest:
        lines.append("configuration: " + (_settings(first, second) or "history, dates or layers"))
    if first.manifest.media_type != second.manifest.media_type:
        lines.append("manifest: media type")
    return tuple(lines) or ("manifest: written otherwise",)


def _layer(first: OciImage, second: OciImage, number: int) -> Iterator[str]:
    if first.settings.diff_ids[number] == second.settings.diff_ids[number]:
        yield "  the same tar, compressed otherwise"
        return
    before, after = _entries(first, number), _entries(second, number)
    found = list(_changed(before, after))
    yield from (f"  {line}" for line in found[:MOST_ENTRIES])
    if len(found) > MOST_ENTRIES:
        yield f"  and {len(found) - MOST_ENTRIES} more"
    if not found:
        order = list(before) != list(after)
        yield f"  the same entries, {'in another order' if order else 'written otherwise'}"


def _changed(before: dict[str, _Entry], after: dict[str, _Entry]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        one, other = before.get(name), after.get(name)
        if one is None:
            yield f"+ {_shown(name)}"
        elif other is None:
            yield f"- {_shown(name)}"
        elif one != other:
            yield f"~ {_shown(name)}: {one.differs_in(other)}"


def _entries(image: OciImage, number: int) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    try:
        with open_layer(image, number) as stream, StrictTar.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                found[member.name] = _entry(archive, member)
    except (tarfile.TarError, EOFError) as broken:
        where = f"layer {image.manifest.layers[number].digest}"
        raise VerifyFailed(f"no tar: {type(broken).__name__}", where=where) from None
    return found


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> _Entry:
    content = archive.extractfile(member) if member.isreg() else None
    digest = hashlib.sha256()
    while content is not None and (chunk := content.read(_CHUNK)):
        digest.update(chunk)
    return _Entry(
        kind=member.type,
        mode=member.mode,
        owner=f"{member.uid}:{member.gid}:{member.uname}:{member.gname}",
        mtime=member.mtime,
        size=member.size,
        link=member.linkname,
        headers=tuple(sorted(member.pax_headers.items())),
        content=digest.hexdigest() if content is not None else "",
    )


def _settings(first: OciImage, second: OciImage) -> str:
    one, other = first.settings, second.settings
    names = [name for name in one.__slots__ if getattr(one, name) != getattr(other, name)]
    return ", ".join(name for name in names if name not in ("digest", "raw", "diff_ids"))


def _shown(name: str) -> str:
    """What a package named must not reach a terminal as it is."""
    return redact("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name))[:300]
