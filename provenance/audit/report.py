"""What a layer audit found: what was compared, where it came from, and each difference."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from images.digests import Digest, canonical_json

if TYPE_CHECKING:
    from images.strictjson import JsonValue

# Grows when an audit begins to compare more; a summary says under which rules it was made.
AUDIT_RULES: Final = 2
MAX_LISTED: Final = 100  # differences listed of each layer; all are counted
MAX_SHOWN: Final = 300  # characters of a path


class Origin(StrEnum):
    """Where an entry comes from."""

    ARTIFACT = "artifact"  # a file of a locked artifact, byte for byte
    DIRECTORY = "directory"  # a directory above, or of, an artifact's files
    COMMAND_LINK = "command-link"  # node_modules/.bin, by the plan
    SCRIPT = "script"  # a file of a locked artifact that an allowed install script put elsewhere
    GENERATED = "generated"  # launchers, accounts, versions, reserved places
    WORKING_DIRECTORY = "working-directory"
    REPLAYED = "replayed"  # what a package's scripts wrote, and wrote again when the step was run again


class DifferenceKind(StrEnum):
    """How an entry differs from what lock and artifacts say."""

    MISSING = "missing"
    EXTRA = "extra"
    CHANGED = "changed"
    DUPLICATE = "duplicate"
    WHITEOUT = "whiteout"
    LAYERS = "layers"  # not the base's and as many of ours as planned
    UNREADABLE = "unreadable"  # not a tar that everybody reads alike


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. ``layer``: its number in the image, from 0; ``path``: empty for the layer as such."""

    kind: DifferenceKind
    layer: int
    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.path or f'layer {self.layer}'}: {self.what}"


@dataclass(frozen=True, slots=True)
class PlacedByScript:
    """The install script of ``script`` put the bytes of ``member`` of ``artifact`` at ``path``."""

    path: str
    script: str
    artifact: str
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The result for one image under one content key. Equal inputs give equal reports, digest included.

    ``entries`` and ``bytes``: of our layers, content only. ``differences`` is bounded,
    ``difference_count`` is not. ``unaudited``: what is in the image and was not compared, and why.
    ``replayed`` and ``unexplained`` are bounded lists of paths: what a replay of the toolchain layer made
    just so, and what only a replay could explain where none was made.
    """

    image: Digest
    key: Digest
    entries: int
    bytes: int
    origins: tuple[tuple[Origin, int], ...]
    scripts: tuple[PlacedByScript, ...]
    differences: tuple[Difference, ...]
    difference_count: int
    unaudited: tuple[str, ...]
    replayed: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()
    unexplained_count: int = 0

    @property
    def ok(self) -> bool:
        """Every entry is accounted for, but perhaps the unexplained, and none is missing."""
        return self.difference_count == 0

    @property
    def complete(self) -> bool:
        """Every entry is accounted for."""
        return self.ok and self.unexplained_count == 0

    @property
    def digest(self) -> Digest:
        """Of the whole report: who audits again can compare."""
        return Digest.of(canonical_json(self.to_json()))

    def to_json(self) -> dict[str, JsonValue]:
        """What is hashed, and what ``--json`` shows."""
        return {
            "rules": AUDIT_RULES,
            "image": str(self.image),
            "key": str(self.key),
            "entries": self.entries,
            "bytes": self.bytes,
            "origins": {origin.value: count for origin, count in self.origins},
            "scripts": [
                {"path": one.path, "script": one.script, "artifact": one.artifact, "member": one.member}
                for one in self.scripts
            ],
            "differences": [
                {"kind": one.kind.value, "layer": one.layer, "path": one.path, "what": one.what}
                for one in self.differences
            ],
            "differenceCount": self.difference_count,
            "unaudited": list(self.unaudited),
            "replayed": list(self.replayed),
            "unexplained": list(self.unexplained),
            "unexplainedCount": self.unexplained_count,
        }


def shown(path: str) -> str:
    """A path from an image, safe to print: no control characters, no lone surrogates, bounded."""
    text = path if path.isprintable() else path.encode("unicode_escape").decode()
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
