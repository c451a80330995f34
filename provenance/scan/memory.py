"""Which layers this state found clean before: one small private file for each, under a code of our own.

A miss costs a scan, so whatever is not exactly as it was written is a miss, and never an error (ADR 41).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import images
import provenance
from images.credentials import Secret
from images.digests import Digest, canonical_json
from images.errors import CredentialFound, StateError
from images.oci import Descriptor, OciImage
from provenance.layout_writing import locked
from provenance.scan.allow import shipped_allow_list
from provenance.scan.layer_report import from_lines, to_lines
from provenance.scan.report import ScanReport
from provenance.scan.ruleset import engine_identity, ruleset_digest
from provenance.small_files import read_private
from provenance.writing import replace_file

FORMAT: Final = 1
MAX_ENTRY: Final = 256 << 10
MAX_ENTRIES: Final = 1024
_KEY_BYTES: Final = 32
_CODE_BYTES: Final = 65  # hexadecimal, and a line's end
_LIBRARIES: Final = ("pyperscan", "isal", "zstandard")


class LayerMemory:
    """Of one folder (0700, ours), under the key of the codes in a file elsewhere (0600, ours).

    The key is made with the first entry; without it, none counts. ``recalled``: how many layers it answered
    for so far.
    """

    def __init__(self, folder: Path, key: Path) -> None:
        self._folder, self._key = folder, key
        self.recalled = 0

    def recall(self, image: OciImage) -> tuple[ScanReport, ...]:
        """What is known of the image's layers."""
        key = _read_key(self._key)
        if key is None:
            return ()
        seal = Seal(key)
        found: list[ScanReport] = []
        for layer, diff_id in _layers(image):
            raw = read_private(entry_path(self._folder, layer.digest), MAX_ENTRY)
            found += seal.open(raw, layer, diff_id)
        self.recalled += len(found)
        return tuple(found)

    def remember(self, image: OciImage, parts: Iterable[ScanReport]) -> None:
        """Keep the reports of layers of this image. What cannot be written is scanned again next time."""
        about = {str(layer.digest): (layer, diff_id) for layer, diff_id in _layers(image)}
        with contextlib.suppress(StateError), locked(self._folder):
            seal = Seal(_read_key(self._key) or _make_key(self._key))
            for part in parts:
                raw = seal.close(part, *about[part.subject])
                if len(raw) <= MAX_ENTRY:
                    replace_file(entry_path(self._folder, Digest(part.subject)), raw, 0o600)
            _forget_oldest(self._folder)


class Seal:
    """Entries as they are kept: a code, a line that says what the answer depends on, the answer."""

    def __init__(self, key: Secret) -> None:
        self._key = key
        self._allow = shipped_allow_list()
        self._tables = {
            "format": FORMAT,
            "rulesetDigest": ruleset_digest(self._allow),
            "engine": engine_identity(),
            "program": program_digest(),
        }

    def close(self, part: ScanReport, layer: Descriptor, diff_id: Digest) -> bytes:
        """The bytes of an entry."""
        said = self._depends_on(layer, diff_id) + b"\n" + to_lines((part,))
        return self._code(said) + said

    def open(self, raw: bytes, layer: Descriptor, diff_id: Digest) -> tuple[ScanReport, ...]:
        """The one report in it, or none. Nothing of it is parsed before its code is known to be ours."""
        code, said = raw[:_CODE_BYTES], raw[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(said)):
            return ()
        head, _, answer = said.partition(b"\n")
        if head != self._depends_on(layer, diff_id):
            return ()
        with contextlib.suppress(CredentialFound):
            return tuple(one for one in from_lines(answer, self._allow) if one.subject == layer.digest)[:1]
        return ()

    def _code(self, said: bytes) -> bytes:
        return hmac.new(self._key.reveal(), said, hashlib.sha256).hexdigest().encode() + b"\n"

    def _depends_on(self, layer: Descriptor, diff_id: Digest) -> bytes:
        """Everything that decides the answer. Another one of any of these is another scan."""
        return canonical_json(
            {
                **self._tables,
                "layer": layer.digest,
                "size": layer.size,
                "mediaType": layer.media_type,
                "diffId": diff_id,
            }
        )


def entry_path(folder: Path, layer: Digest) -> Path:
    """One file for each layer: what was found under other tables is written over."""
    return folder / f"{layer.hex}.scan"


def entries(folder: Path) -> tuple[Path, ...]:
    """The files of all entries."""
    return tuple(sorted(folder.glob("*.scan")))


def program_digest() -> Digest:
    """Of our own sources that read layers, and of what they are run by: nobody has to raise a number."""
    found = hashlib.sha256(sys.version.encode())
    for library in _LIBRARIES:
        found.update(f"{library} {version(library)}\n".encode())
    for package in (images, provenance):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            found.update(f"{path.relative_to(root)} {Digest.of(path.read_bytes())}\n".encode())
    return Digest.from_hex(found.hexdigest())


def _layers(image: OciImage) -> Iterator[tuple[Descriptor, Digest]]:
    yield from zip(image.manifest.layers, image.settings.diff_ids, strict=True)


def _read_key(path: Path) -> Secret | None:
    raw = read_private(path, _KEY_BYTES)
    return Secret(raw) if len(raw) == _KEY_BYTES else None


def _make_key(path: Path) -> Secret:
    key = Secret(secrets.token_bytes(_KEY_BYTES))
    replace_file(path, key.reveal(), 0o600)
    return key


def _forget_oldest(folder: Path) -> None:
    oldest = sorted(entries(folder), key=lambda path: path.lstat().st_mtime_ns)
    for path in oldest[: max(0, len(oldest) - MAX_ENTRIES)]:
        path.unlink(missing_ok=True)
