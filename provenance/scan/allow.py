"""The shipped allow-list: published keys and samples by their bytes' hash, vendor fixtures by package."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

from images.digests import Digest
from images.errors import UsageError
from images.strictjson import JsonValue, is_number, read_object

ALLOW_FILE = "allowlist.json"
_SAME_AS = {"private-key-der": "private-key"}


@dataclass(frozen=True, slots=True)
class AllowedValue:
    """A published value: rule, SHA-256 of its exact bytes (of a key: its DER), why it is harmless."""

    id: str
    rule: str
    sha256: str
    why: str


@dataclass(frozen=True, slots=True)
class AllowedPlace:
    """A fixture of one version of one package: all four must agree; the caller vouches for the package."""

    id: str
    rule: str
    package: str
    version: str
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class PackageTree:
    """The directory (no slashes around) that holds exactly this package, according to a lock."""

    prefix: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Located:
    """A path as a package's own."""

    package: str
    version: str
    path: str


class Packages:
    """Which package a path belongs to: the deepest tree that holds it."""

    def __init__(self, trees: Iterable[PackageTree] = ()) -> None:
        self._trees = {tree.prefix: tree for tree in trees}

    def locate(self, path: str) -> Located | None:
        """The package of a member path; None when no lock speaks of it."""
        prefix = path
        while self._trees and "/" in prefix:
            prefix = prefix.rpartition("/")[0]
            tree = self._trees.get(prefix)
            if tree:
                return Located(tree.name, tree.version, path[len(prefix) + 1 :])
        return None


class AllowList:
    """Entries by what they are bound to; never by path alone."""

    def __init__(
        self, values: Sequence[AllowedValue], places: Iterable[AllowedPlace], digest: Digest
    ) -> None:
        self._values = {(entry.rule, entry.sha256): entry.id for entry in values}
        self._places = {(e.rule, e.package, e.version, e.path): e.id for e in places}
        self._hashes = {entry.id: entry.sha256 for entry in values}
        self.digest = digest
        self.ids = frozenset(self._values.values()) | frozenset(self._places.values())

    def entry_for(self, rule: str, value: bytes, located: Located | None) -> str:
        """The id of the entry that clears this finding; empty when none does."""
        # A key is the same key in PEM and in DER.
        by_value = self._values.get((_SAME_AS.get(rule, rule), hashlib.sha256(value).hexdigest()))
        if by_value or located is None:
            return by_value or ""
        return self._places.get((rule, located.package, located.version, located.path), "")

    def value_hash(self, entry: str) -> str | None:
        """The SHA-256 of the value that an entry is bound to; None for a place, and for no entry of ours."""
        return self._hashes.get(entry)


def shipped_allow_list() -> AllowList:
    """The one in the package."""
    return parse_allow_list(resources.files("provenance.scan").joinpath(ALLOW_FILE).read_bytes())


def parse_allow_list(raw: bytes) -> AllowList:
    """Strict: closed keys, unique ids, a reason for each entry. Raises UsageError."""
    document = read_object(raw, ALLOW_FILE)
    if set(document) != {"schema", "values", "places"} or not is_number(document["schema"], 1):
        raise UsageError("not an allow-list of schema 1", where=ALLOW_FILE)
    values = [AllowedValue(*row) for row in _rows(document["values"], ("id", "rule", "sha256", "why"))]
    keys = ("id", "rule", "package", "version", "path", "why")
    places = [AllowedPlace(*row) for row in _rows(document["places"], keys)]
    allow = AllowList(values, places, Digest.of(raw))
    if len(allow.ids) != len(values) + len(places):
        raise UsageError("two entries with the same id or the same binding", where=ALLOW_FILE)
    return allow


def _rows(value: JsonValue, keys: tuple[str, ...]) -> list[tuple[str, ...]]:
    if not isinstance(value, list):
        raise UsageError("not a list of entries", where=ALLOW_FILE)
    rows = []
    for item in value:
        if not isinstance(item, dict) or set(item) != set(keys):
            raise UsageError(f"an entry whose keys are not {', '.join(keys)}", where=ALLOW_FILE)
        row = tuple(text for key in keys if isinstance(text := item[key], str) and text)
        if len(row) != len(keys):
            raise UsageError("an entry with an empty value", where=ALLOW_FILE)
        rows.append(row)
    return rows
