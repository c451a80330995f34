"""Archives and compressed files inside of a layer, as the scanner opens them: in bounds, or not at all."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import zstandard

from provenance.scan.unpack import FREE_BYTES, MAX_RATIO, NotOpened, unpack
from tests.fakes.wheels import make_wheel
from tests.fuzz.mutate_archives import deb_mutator, mutate_zip
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.target import Mutate, Ready, law, target
from tests.fuzz.targets.archives import _package

TEXT = b"some text that repeats itself " * 40
SEEDS: dict[str, tuple[bytes, ...]] = {
    "gzip": (gzip.compress(TEXT, mtime=0), gzip.compress(b"a", mtime=0) * 2),
    "git-object": (zlib.compress(b"blob 5\0hello"),),
    "xz": (lzma.compress(TEXT),),
    "bzip2": (bz2.compress(TEXT),),
    "zstd": (zstandard.ZstdCompressor().compress(TEXT),),
    "zip": (make_wheel("quick", "1.0", {"quick/a.py": TEXT, "b": b""}),),
    "deb": (_package(".xz"), _package("")),
}
MUTATORS: dict[str, Mutate] = {"zip": mutate_zip, "deb": deb_mutator(bytes, bytes, "")}


def opened(format: str) -> Callable[[Path], Ready]:
    """One format: what comes out is bounded by what went in, and a zip's parts are its files."""

    def make(folder: Path) -> Ready:
        def look(raw: bytes) -> object:
            parts = {}
            for part in unpack(format, raw):
                content = b"".join(part.chunks) if not part.why_not else part.stored
                law(len(content) <= FREE_BYTES + MAX_RATIO * len(raw), "more than its archive can mean")
                parts[part.name] = (content, part.why_not)
            if format == "zip":
                _compare(raw, parts)
            return parts

        return Ready(SEEDS[format], look)

    make.__name__ = f"nested_{format.replace('-', '_')}"
    return make


def _compare(raw: bytes, parts: dict[str, tuple[bytes, str]]) -> None:
    """What Python's own reader does not read is no difference."""
    for name, (content, why_not) in parts.items():
        try:
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                other = archive.read(name)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, KeyError):
            continue
        law(why_not or other == content, "another reader finds other bytes")


for _format in SEEDS:
    target(MUTATORS.get(_format, mutate_bytes), share=0.6, refusals=(NotOpened,))(opened(_format))
