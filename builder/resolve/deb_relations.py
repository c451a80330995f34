"""Who asked for a Debian package: the relations of control files, as far as parents in a lock need them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from images.lock import Artifact
from images.toolchain import split_name
from provenance.debs import Control

_ASKING: Final = ("Pre-Depends", "Depends")
_REPLACING: Final = ("Breaks", "Conflicts")  # why a package of the base had to be replaced by a newer one
_NAME: Final = re.compile(r"\s*([a-z0-9][a-z0-9+.-]+)")


def find_parents(
    debs: Mapping[str, Artifact], controls: Mapping[str, Control], asked: frozenset[str], root: str
) -> dict[str, tuple[str, ...]]:
    """Ids of packages -> who asks for them: other packages; ``root`` for those ``asked`` for by name."""
    names: dict[str, set[str]] = {}
    for key, control in controls.items():
        for name in (split_name(debs[key].name)[0], *_named(control, "Provides")):
            names.setdefault(name, set()).add(key)
    found: dict[str, set[str]] = {
        key: {root} if split_name(artifact.name)[0] in asked else set() for key, artifact in debs.items()
    }
    _add(found, _all_named(controls, _ASKING), names, frozenset(found), debs)
    _add(found, _all_named(controls, _REPLACING), names, frozenset(found) - _reached(found, root), debs)
    return {key: tuple(sorted(parents)) for key, parents in found.items()}


def _add(
    found: dict[str, set[str]],
    asking: Iterable[tuple[str, str]],
    names: Mapping[str, set[str]],
    targets: frozenset[str],
    debs: Mapping[str, Artifact],
) -> None:
    for key, name in asking:
        for target in names.get(name, set()) & targets - {key}:
            if set(debs[target].platforms) & set(debs[key].platforms):
                found[target].add(key)


def _reached(found: Mapping[str, set[str]], root: str) -> set[str]:
    reached = {root}
    while more := {key for key, parents in found.items() if key not in reached and parents & reached}:
        reached |= more
    return reached


def _all_named(controls: Mapping[str, Control], fields: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for key, control in controls.items():
        for field in fields:
            for name in _named(control, field):
                yield key, name


def _named(control: Control, field: str) -> Iterator[str]:
    for relation in re.split(r"[,|]", control.fields.get(field, "")):
        if (match := _NAME.match(relation)) is not None:
            yield match[1]
