"""Plain values as YAML: block style, every text in double quotes as JSON has it, which YAML reads alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Plain: TypeAlias = str | int | float | bool | Mapping[str, "Plain"] | Sequence["Plain"]


def yaml_document(value: Mapping[str, Plain]) -> str:
    """One document of mappings with plain keys (letters, digits and ``._-/``); a line end at its end.

    Texts have no character above U+FFFF: JSON writes those as two, and YAML knows no such pairs.
    """
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Plain) -> list[str]:
    """The lines of a mapping or list that is not empty; of anything else the one line that it is."""
    found: list[str] = []
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            found += _under(f"{key}:", item)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for item in value:
            first, *rest = _lines(item)
            found += [f"- {first}", *(f"  {line}" for line in rest)]
    else:
        found.append(json.dumps(value))
    return found


def _under(head: str, item: Plain) -> list[str]:
    lines = _lines(item)
    nested = isinstance(item, Mapping | Sequence) and not isinstance(item, str) and item
    return [head, *(f"  {line}" for line in lines)] if nested else [f"{head} {lines[0]}"]
